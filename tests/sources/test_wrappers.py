"""Wrappers of sources: whatever a source answers, its cache and its views answer too."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import zarr
from source_helpers import everything

from streampca.demos.simulate_genotypes import simulate_genotypes
from streampca.run.convert import convert
from streampca.sources import Source, open_genotypes, open_source
from streampca.sources.thresholds import Thresholds
from streampca.sources.wrappers import Cached, Float64View, HeldOut, Wrapper, as_float64

# Follow from what a wrapper forwards.
DERIVED = {"shape", "read", "label", "check"}
WRAPPERS = [
    pytest.param(lambda source: Cached(source, 1 << 20), id="cached"),
    pytest.param(Float64View, id="float64"),
    pytest.param(lambda source: HeldOut(source, 0.1, 0), id="held out"),
]
CHANGED = {
    "cached": {"keeps_reads"},
    "float64": {"dtype", "packed"},
    "held out": {"dtype", "packed", "overhead", "costly", "filter"},
}


@pytest.fixture
def genotypes(tmp_path):
    simulate_genotypes(tmp_path / "study", 20, 300, missing=0.05)
    convert(tmp_path / "study.bed", tmp_path / "study.vcz")
    return open_genotypes(tmp_path / "study.vcz", maf=0.1, keep=[f"s{i}" for i in range(15)])


def test_every_hook_of_a_source_is_forwarded_or_derived():
    hooks = {name for name in vars(Source) if not name.startswith("_")} - set(Source.__annotations__)
    assert hooks - DERIVED <= set(vars(Wrapper))
    assert not DERIVED & set(vars(Wrapper))


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_attributes_of_genotypes_are_those_of_the_source(genotypes, wrap, request):
    wrapped, changed = wrap(genotypes), CHANGED[request.node.callspec.id]
    for name in Source.__annotations__:
        if name not in changed:
            assert getattr(wrapped, name) == getattr(genotypes, name), name
    assert wrapped.is_genotypes
    assert wrapped.cut_axes == (1,)
    assert wrapped.preferred_axis == 1
    assert wrapped.notes
    np.testing.assert_array_equal(wrapped.label("iid"), genotypes.label("iid"))
    np.testing.assert_array_equal(wrapped.label("position"), genotypes.label("position"))


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_a_part_of_a_wrapper_is_a_part_of_its_source(genotypes, wrap):
    part = wrap(genotypes).take(features=np.arange(7), filter=Thresholds(maf=0.2), note="cut short")
    np.testing.assert_array_equal(everything(part), everything(genotypes)[:, :7])
    assert part.filter == Thresholds(maf=0.2)
    assert part.notes[-1] == "cut short"
    assert genotypes.filter == Thresholds(maf=0.1)


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_wrappers_travel_without_labels(genotypes, wrap):
    wrapped = wrap(genotypes)
    bare = pickle.loads(pickle.dumps(wrapped.bare()))
    assert not bare.samples.coords
    assert not bare.features.coords
    assert wrapped.samples.coords
    np.testing.assert_array_equal(everything(bare), everything(wrapped))


def test_a_cache_keeps_genotypes_packed_and_is_cut_like_them(genotypes):
    cached = Cached(genotypes, genotypes.n_bytes)
    assert (cached.item_bytes, cached.n_bytes) == (0.25, genotypes.n_bytes)
    assert cached.cut(1, 1000) == genotypes.cut(1, 1000)
    assert cached.reading_bytes(cached.cut(1, 1000)) == genotypes.reading_bytes(genotypes.cut(1, 1000))
    first, n_bytes = cached.read_packed(0, 300)
    first = first.copy()
    again, none = cached.read_packed(0, 300)
    assert n_bytes > 0 == none
    np.testing.assert_array_equal(first, again)
    assert cached.uncached().read_packed(0, 300)[1] == n_bytes


def test_a_float64_view_is_cut_by_its_own_bytes(genotypes):
    view = Float64View(genotypes)
    assert (view.item_bytes, view.n_bytes) == (8, 8 * 15 * 300)
    assert everything(view).dtype == np.float64


def test_blocks_of_dask_arrays_stay_blocks_in_float64():
    array = pytest.importorskip("dask.array").ones((10, 4), chunks=(3, 4), dtype=np.float32)
    source = open_source(array)
    assert source.is_graph
    assert as_float64(source).cut(0, 0).partitions == source.cut(0, 0).partitions == ((0, 3), (3, 6), (6, 9), (9, 10))
    held = HeldOut(source, 0.5, 0)
    assert not held.is_graph
    assert held.delayed(0, ((0, 10),)) is None


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_changes_of_the_files_show_through_wrappers(tmp_path, wrap):
    array = zarr.create_array(tmp_path / "x.zarr", data=np.ones((4, 3)), config={"write_empty_chunks": True})
    source = open_source(tmp_path / "x.zarr")
    wrapped = wrap(source)
    before = wrapped.fingerprint(), wrapped.stamp()
    array[...] = 2
    assert wrapped.fingerprint() != before[0]
    assert wrapped.stamp() != before[1]
