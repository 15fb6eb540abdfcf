"""Small genotype files are decoded by NumPy: same tiles, same fits, and nothing that is slow to load."""

from __future__ import annotations

import numpy as np
import pytest
from genotype_helpers import write_bed

from streampca import PCA, open_genotypes
from streampca.sources import genotypes
from streampca.sweep.matrix import Matrix


@pytest.fixture(params=[0.0, 0.02], ids=["complete", "missing"])
def bed(tmp_path, rng, request):
    calls = rng.binomial(2, rng.uniform(0.05, 0.5, 301), (57, 301)).astype(float)
    calls[rng.random(calls.shape) < request.param] = np.nan
    calls[:, 7] = 1
    return write_bed(tmp_path / "study", calls)


def opened(bed, monkeypatch, small, **selection):
    monkeypatch.setattr(genotypes, "SMALL", 57 * 301 - (not small))
    source = open_genotypes(bed, **selection)
    assert source.small == small
    return source


def tiles_of(source, dtype, exact):
    """Values, exact values, moments and missing calls of all tiles."""
    m = source.shape[1]
    matrix = Matrix(source, 1, np.dtype(dtype), "mean", "patterson", partitions=((0, m),), slab_length=100)
    for tile in matrix.tiles(0, m, 64, True, exact=exact):
        yield tile.A.copy()
        yield from (part.copy() for _, _, part in tile.exact or ())
        if tile.moments is not None:
            yield from (tile.moments.count, tile.moments.mean, tile.moments.m2, tile.moments.missing, tile.missing)


@pytest.mark.parametrize(("dtype", "exact"), [(np.float32, False), (np.float32, True), (np.float64, False)])
def test_tiles_have_the_same_bits_as_those_of_compiled_loops(bed, monkeypatch, dtype, exact):
    kept = [f"i{i}" for i in range(0, 57, 2)]
    ours, compiled = (
        list(tiles_of(opened(bed, monkeypatch, small, keep=kept), dtype, exact)) for small in (True, False)
    )
    assert len(ours) == len(compiled) > 10
    for one, other in zip(ours, compiled, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_blocks_have_the_same_bits_as_those_of_compiled_loops(bed, monkeypatch):
    blocks = [
        opened(bed, monkeypatch, small).read_block(slice(3, 50), slice(1, 300))[0].copy() for small in (True, False)
    ]
    assert set(np.unique(np.nan_to_num(blocks[0], nan=-1))) <= {-1, 0, 1, 2}
    np.testing.assert_array_equal(*blocks)


def test_fits_have_the_same_bits_as_with_compiled_loops(bed, monkeypatch):
    fits = [PCA(4).fit(opened(bed, monkeypatch, small)) for small in (True, False)]
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)
    np.testing.assert_array_equal(fits[0].certificate_, fits[1].certificate_)
