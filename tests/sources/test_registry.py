"""The registry of formats: what is imported, how often a store is opened, and what a new format takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr

import streampca.sources.formats
from streampca import PCA, InputError, open_genotypes, open_source
from streampca.demos.simulate_genotypes import simulate_genotypes
from streampca.run.convert import convert
from streampca.sources import genotype_suffixes, registry
from streampca.sources.made_up import made_up

TOY = """
import numpy as np

from streampca.sources.arrays import ArraySource
from streampca.sources.registry import register


@register(suffixes=(".toy",))
def open_toy(path, options):
    return ArraySource(np.loadtxt(path))
"""


def test_a_new_format_is_one_module_in_formats(tmp_path, monkeypatch):
    np.savetxt(tmp_path / "x.toy", np.eye(3))
    with pytest.raises(InputError, match="unknown file format"):
        open_source(tmp_path / "x.toy")
    (tmp_path / "toy.py").write_text(TOY)
    monkeypatch.setattr(streampca.sources.formats, "__path__", [*streampca.sources.formats.__path__, str(tmp_path)])
    before = registry.all_formats()
    registry.all_formats.cache_clear()
    try:
        np.testing.assert_array_equal(open_source(tmp_path / "x.toy").read(slice(0, 3), slice(0, 3))[0], np.eye(3))
    finally:
        del registry._registered[len(before) :]
        sys.modules.pop("streampca.sources.formats.toy", None)
        registry.all_formats.cache_clear()


@pytest.mark.parametrize(
    ("name", "heavy"), [("x.npy", ("zarr", "numba", "xarray", "pandas")), ("x.zarr", ("numba", "xarray", "pandas"))]
)
def test_a_format_imports_only_what_it_needs(tmp_path, name, heavy):
    path = tmp_path / name
    if name.endswith(".npy"):
        np.save(path, np.ones((4, 3)))
    else:
        zarr.create_array(path, data=np.ones((4, 3)), dimension_names=("sample", "feature"))
    code = f"""
import sys
from streampca.sources import open_source
assert open_source({str(path)!r}).shape == (4, 3)
loaded = [name for name in {heavy!r} if name in sys.modules]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.fixture
def opened(monkeypatch):
    """Return the names of the functions that opened a store, as it happens."""
    seen = []

    def counted(module, name):
        function = getattr(module, name)

        def call(*args, **kwargs):
            seen.append(name)
            return function(*args, **kwargs)

        monkeypatch.setattr(module, name, call)

    for name in ("open", "open_group", "open_array"):
        counted(zarr, name)
    counted(xarray, "open_zarr")
    return seen


def labelled(path: Path) -> None:
    array = xarray.DataArray(
        np.random.default_rng(0).standard_normal((9, 4)), dims=("place", "gene"), name="values",
        coords={"place": np.arange(9) * 10},
    )  # fmt: skip
    array.to_dataset().to_zarr(path, zarr_format=3, consolidated=False)


def packed(path: Path) -> None:
    array = xarray.DataArray(np.arange(36.0).reshape(9, 4), dims=("place", "gene"), name="values")
    encoding = {"values": {"scale_factor": 0.5, "add_offset": 1.0, "dtype": "int16", "_FillValue": -1}}
    array.to_dataset().to_zarr(path, zarr_format=3, consolidated=False, encoding=encoding)


def plain(path: Path) -> None:
    zarr.create_array(path, data=np.random.default_rng(0).standard_normal((9, 4)), dimension_names=("sample", "x"))


def genotypes(path: Path) -> None:
    simulate_genotypes(path.with_suffix(""), 40, 50)
    convert(path.with_suffix(".bed"), path)


@pytest.mark.parametrize(
    ("write", "inside"),
    [(labelled, ""), (labelled, "/values"), (packed, ""), (packed, "/values"), (plain, ""), (genotypes, "")],
)
def test_a_store_is_opened_once_before_a_fit(tmp_path, opened, write, inside):
    path = tmp_path / "x.zarr"
    write(path)
    opened.clear()
    model = PCA(n_components=2).fit(f"{path}{inside}")
    assert len(opened) == 1, opened
    assert model.components_.shape[0] == 2


def test_labels_are_those_that_xarray_reads(tmp_path):
    labelled(tmp_path / "x.zarr")
    for path in (tmp_path / "x.zarr", tmp_path / "x.zarr" / "values"):
        source = open_source(path)
        assert source.samples.dims == ("place",)
        assert source.label("place").tolist() == list(range(0, 90, 10))


def test_genotypes_are_recognised_by_suffix_and_prefix(tmp_path):
    assert {".bed", ".bgen", ".geno", ".pgen", ".vcz"} == set(genotype_suffixes())
    assert made_up("study.vcz", (3, 5)).is_genotypes
    assert not made_up("study.zarr", (3, 5)).is_genotypes
    simulate_genotypes(tmp_path / "study", 12, 50)
    assert open_source(tmp_path / "study").is_genotypes
    # A folder of the same name is a store.
    (tmp_path / "study").mkdir()
    with pytest.raises(InputError, match="is a folder but not a Zarr store"):
        open_source(tmp_path / "study")


def test_options_of_genotypes_need_genotypes(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 3)))
    with pytest.raises(InputError, match="maf needs genotypes"):
        open_source(tmp_path / "x.npy", maf=0.1)
    with pytest.raises(InputError, match="does not contain genotypes"):
        open_genotypes(tmp_path / "x.npy")
    assert open_source(tmp_path / "x.npy", maf=None).shape == (4, 3)
    simulate_genotypes(tmp_path / "study", 12, 50)
    with pytest.raises(InputError, match="PLINK files have no variables"):
        open_source(tmp_path / "study.bed", variable="calls")
    with pytest.raises(InputError, match="no sample dimensions"):
        open_source(tmp_path / "study.bed", sample_dims="place")


def test_an_open_source_is_returned_as_it_is(tmp_path):
    simulate_genotypes(tmp_path / "study", 12, 50)
    source = open_genotypes(tmp_path / "study.bed", autosomes=False)
    assert open_source(source) is source
    assert open_source(source, maf=0.2).filter.maf == 0.2
