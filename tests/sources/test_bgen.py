"""BGEN files agree with an independent reader, value by value."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from bgen import BgenReader, BgenWriter

from streampca import PCA
from streampca.errors import InputError
from streampca.sources import open_source

N = 37


def probabilities(rng, n, width, missing=0.1):
    """Return rows of `width` probabilities, some of them missing."""
    values = rng.dirichlet(np.full(width, 0.7), n)
    values[rng.random(n) < missing] = np.nan
    return values


def write(path, rng, *, bits=8, phased=False, n_alleles=2, ploidy=2, compression="zlib", n_variants=9, ids=True):
    """Write a file with BgenWriter."""
    samples = [f"person{i}" for i in range(N)] if ids else []
    with BgenWriter(str(path), N, samples=samples, compression=compression, layout=2) as file:
        for i in range(n_variants):
            alleles = ["A", "C", "G", "T"][:n_alleles]
            file.add_variant(
                f"v{i}", f"rs{i}", str(1 + i % 3), 100 + i, alleles, genotypes(rng, phased, n_alleles, ploidy),
                ploidy=ploidy, phased=phased, bit_depth=bits,
            )  # fmt: skip


def genotypes(rng, phased, n_alleles, ploidy):
    """Return probabilities in the order of the format; unused columns of samples of lower ploidy are NaN."""
    each = np.full(N, ploidy) if np.isscalar(ploidy) else np.asarray(ploidy)
    widths = {1: n_alleles, 2: 2 * n_alleles if phased else n_alleles * (n_alleles + 1) // 2}
    out = np.full((N, widths[int(each.max())]), np.nan)
    for i, own in enumerate(each):
        if phased:
            row = np.concatenate([probabilities(rng, 1, n_alleles, 0)[0] for _ in range(own)])
        else:
            row = probabilities(rng, 1, widths[int(own)], 0)[0]
        out[i, : len(row)] = row
    out[rng.random(N) < 0.1] = np.nan
    return out


def expected(path):
    """Return the copies of all alleles but the first (samples x variants) by the independent reader."""
    columns = []
    for variant in BgenReader(str(path), delay_parsing=True):
        P, K, ploidy = variant.probabilities, len(variant.alleles), np.broadcast_to(variant.ploidy, N)
        values = np.full(N, np.nan)
        for i in range(N):
            p = P[i][~np.isnan(P[i])]
            if not p.size:
                continue
            if variant.is_phased:
                copies = p.reshape(-1, K)[:, 1:].sum()
            elif ploidy[i] == 1:
                copies = p[1:].sum()
            else:
                pairs = [(a, b) for b in range(K) for a in range(b + 1)]
                copies = sum(q * ((a > 0) + (b > 0)) for q, (a, b) in zip(p, pairs, strict=True))
            values[i] = copies * 2 / ploidy[i]
        columns.append(values)
    return np.column_stack(columns)


def values_of(path):
    source = open_source(path)
    block, _ = source.read(slice(0, source.shape[0]), slice(0, source.shape[1]))
    return np.array(block)


@pytest.mark.parametrize("bits", [1, 2, 3, 7, 8, 9, 13, 16, 24, 31, 32])
@pytest.mark.parametrize("phased", [False, True])
def test_every_bit_depth(tmp_path, rng, bits, phased):
    write(tmp_path / "x.bgen", rng, bits=bits, phased=phased)
    assert values_of(tmp_path / "x.bgen") == pytest.approx(expected(tmp_path / "x.bgen"), abs=2e-6, nan_ok=True)


@pytest.mark.parametrize("compression", [None, "zlib", "zstd"])
@pytest.mark.parametrize("n_alleles", [2, 3, 4])
def test_every_compression_and_number_of_alleles(tmp_path, rng, compression, n_alleles):
    write(tmp_path / "x.bgen", rng, compression=compression, n_alleles=n_alleles, bits=16)
    assert values_of(tmp_path / "x.bgen") == pytest.approx(expected(tmp_path / "x.bgen"), abs=2e-6, nan_ok=True)
    assert open_source(tmp_path / "x.bgen").label("allele_1")[0] == ",".join("CGT"[: n_alleles - 1])


@pytest.mark.parametrize("phased", [False, True])
def test_haploid_samples_count_double(tmp_path, rng, phased):
    ploidy = np.where(np.arange(N) % 3 == 0, 1, 2).astype(np.uint8)
    write(tmp_path / "x.bgen", rng, ploidy=ploidy, phased=phased)
    assert values_of(tmp_path / "x.bgen") == pytest.approx(expected(tmp_path / "x.bgen"), abs=2e-6, nan_ok=True)


def test_selected_samples_and_variants_in_any_order(tmp_path, rng):
    write(tmp_path / "x.bgen", rng)
    whole, source = values_of(tmp_path / "x.bgen"), open_source(tmp_path / "x.bgen")
    people, variants = np.array([30, 2, 5]), np.array([7, 1, 2])
    part, _ = source.take(samples=people, features=variants).read(slice(0, 3), slice(0, 3))
    assert np.array_equal(part, whole[np.ix_(people, variants)], equal_nan=True)
    part, _ = source.take(samples=people, features=variants).read(slice(1, 3), slice(1, 2))
    assert np.array_equal(part, whole[np.ix_(people[1:], variants[1:2])], equal_nan=True)


def test_samples_come_from_the_file_from_a_sample_file_or_are_numbered(tmp_path, rng):
    write(tmp_path / "x.bgen", rng)
    assert open_source(tmp_path / "x.bgen").label("iid")[3] == "person3"
    write(tmp_path / "y.bgen", rng, ids=False)
    assert open_source(tmp_path / "y.bgen").label("iid")[3] == "sample_4"
    rows = "".join(f"f{i} i{i} 0\n" for i in range(N))
    (tmp_path / "y.sample").write_text(f"ID_1 ID_2 missing\n0 0 0\n{rows}")
    source = open_source(tmp_path / "y.bgen")
    assert (source.label("fid")[3], source.label("iid")[3]) == ("f3", "i3")
    (tmp_path / "y.sample").write_text("ID_1 ID_2 missing\n0 0 0\na b 0\n")
    with pytest.raises(InputError, match="y.sample: has 1 samples, .*y.bgen has 37"):
        open_source(tmp_path / "y.bgen")


def test_components_are_those_of_the_dosages_in_memory(tmp_path, rng):
    write(tmp_path / "x.bgen", rng, n_variants=300, bits=16)
    dosage = expected(tmp_path / "x.bgen")
    p = np.nanmean(dosage, axis=0) / 2
    X = np.nan_to_num((dosage - 2 * p) / np.sqrt(2 * p * (1 - p)))
    values = np.linalg.svd(X, compute_uv=False)[:4] ** 2 / (N - 1)
    model = PCA(4).fit(tmp_path / "x.bgen")
    assert model.explained_variance_ == pytest.approx(values, rel=1e-4)


def test_a_truncated_file_is_one_line(tmp_path, rng):
    write(tmp_path / "x.bgen", rng)
    data = (tmp_path / "x.bgen").read_bytes()
    for size in [0, 3, 20, 24, 60, len(data) // 2, len(data) - 1]:
        (tmp_path / "cut.bgen").write_bytes(data[:size])
        with pytest.raises(InputError, match="cut.bgen: "):
            open_source(tmp_path / "cut.bgen")


def test_damaged_probabilities_name_the_variant(tmp_path, rng):
    write(tmp_path / "x.bgen", rng, n_variants=1)
    data = bytearray((tmp_path / "x.bgen").read_bytes())
    data[-5] ^= 0xFF
    (tmp_path / "x.bgen").write_bytes(data)
    with pytest.raises(InputError, match="variant 1 cannot be read"):
        values_of(tmp_path / "x.bgen")


def test_a_declared_size_is_checked_before_it_is_allocated(tmp_path, rng):
    write(tmp_path / "x.bgen", rng, n_variants=1, compression="zlib")
    data = (tmp_path / "x.bgen").read_bytes()
    start = int(open_source(tmp_path / "x.bgen")._starts[0])
    bomb = zlib.compress(bytes(50_000_000))
    (tmp_path / "x.bgen").write_bytes(data[: start - 4] + struct.pack("<II", len(bomb) + 4, 50_000_000) + bomb)
    with pytest.raises(InputError, match="50000000 bytes for 37 samples"):
        values_of(tmp_path / "x.bgen")


def test_layout_1_is_not_supported(tmp_path, rng):
    write(tmp_path / "x.bgen", rng)
    data = bytearray((tmp_path / "x.bgen").read_bytes())
    (length,) = struct.unpack_from("<I", data, 4)
    flags = struct.unpack_from("<I", data, length)[0] & ~(15 << 2) | 1 << 2
    struct.pack_into("<I", data, length, flags)
    (tmp_path / "x.bgen").write_bytes(data)
    with pytest.raises(InputError, match="has layout 1 .* write it again as BGEN 1.2"):
        open_source(tmp_path / "x.bgen")
