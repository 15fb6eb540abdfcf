"""`streampca kpca`, `denoise`, and `project` of arrays: against the estimators in Python; what they refuse."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
import pytest
import xarray
import zarr
from genotype_helpers import random_calls, write_bed
from helpers import peak_of

from streampca import PCA, PPCA, FactorAnalysis, InputError, KernelPCA, load, open_source
from streampca.models.kernel_pca.fit import fit_kernel_pca
from streampca.models.kernel_pca.options import KernelPCAOptions
from streampca.models.kernel_pca.record import KernelPCAFit, kernel_scores


def values(n=400, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    t = rng.uniform(0, 6, n)
    x = np.c_[np.cos(t), np.sin(t), t / 3, np.cos(2 * t), np.sin(2 * t), t]
    return (x + 0.1 * rng.standard_normal((n, 6))).astype(dtype)


def uneven(folder):
    zarr.create_array(folder / "uneven.zarr", data=values(500), chunks=(7, 6))


def images(folder):
    x = values().reshape(400, 2, 3)
    labelled = xarray.DataArray(x, dims=("time", "y", "x"), name="field", coords={"time": np.arange(400) * 2.0})
    stored = labelled.chunk({"time": 64}).to_dataset()
    stored.to_zarr(folder / "images.zarr", zarr_format=3, consolidated=False)


MORE = {
    "uneven.zarr": uneven,
    "images.zarr": images,
    "x.zarr": lambda folder: zarr.create_array(folder / "x.zarr", data=values(), chunks=(40, 6)),
    "g.bed": lambda folder: write_bed(folder / "g", random_calls(60, 300, 1)),
}


@pytest.fixture
def data(tmp_path):
    """Samples, new ones, ones with a gap or with fewer features."""
    gaps = values()
    gaps[3, 1] = np.nan
    arrays = {
        "x": values(), "single": values(dtype=np.float32), "new": values(50, seed=1), "gaps": gaps,
        "few": values()[:, :4], "constant": np.full((30, 4), 2.0),
    }  # fmt: skip
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def add(folder, *given):
    """Write what is named of the other kinds of data."""
    for name in MORE.keys() & set(map(str, given)):
        MORE[name](folder)


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def assert_same_up_to_sign(ours, theirs, within=1e-8):
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    assert ours.shape == theirs.shape
    signs = np.where((ours * theirs).sum(axis=0) < 0, -1, 1)
    np.testing.assert_allclose(ours * signs, theirs, atol=within * max(1.0, np.abs(theirs).max()))


def opened(path):
    """Open a store as anyone does, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xarray.open_zarr(path).load()


# ---------------------------------------------------------------- kpca


@pytest.mark.parametrize(
    ("name", "choose"),
    [
        ("x.npy", "uniform"),
        ("x.zarr", "kmeans"),
        ("images.zarr", "leverage"),
        ("images.zarr", "fourier"),
        ("single.npy", "uniform"),
        ("single.npy", "fourier"),
    ],
)
def test_kpca_writes_what_the_estimator_finds(data, here, name, choose):
    add(data, name)
    before = names(data)
    code, out, err = here("kpca", name, "-k", 3, "--n-landmarks", 40, "--landmarks", choose, "--gamma", 0.5, "--out",
                          "r.zarr", "--quiet", "--json")  # fmt: skip
    assert code == 0, err
    said = json.loads(out)
    found, sweeps = fit_kernel_pca(
        open_source(data / name),
        KernelPCAOptions(n_components=3, gamma=0.5, n_landmarks=40, landmarks=choose, random_state=0),
    )
    expected = kernel_scores(found, sweeps)
    np.testing.assert_allclose(said["explained_variance"], found.explained_variance, rtol=1e-12)
    np.testing.assert_allclose(said["certificate"], found.certificate, rtol=1e-9)
    assert (said["kind"], said["kernel"], said["gamma"], said["method"]) == ("kpca", "rbf", 0.5, choose)
    assert (said["n_samples"], said["n_features"], said["n_landmarks"]) == (400, 6, 40)
    result = opened(data / "r.zarr")
    np.testing.assert_array_equal(result["scores"].values, expected)
    assert result["scores"].dims[1] == "component"
    assert json.loads(result.attrs["parameters"])["n_landmarks"] == 40
    again = KernelPCAFit.from_dataset(load(data / "r.zarr"))
    np.testing.assert_allclose(again.points, found.points, atol=1e-6 if "single" in name else 1e-12)
    np.testing.assert_array_equal(again.weights, found.weights)
    code, out, _ = here("info", "r.zarr", "--json")
    assert code == 0
    facts = json.loads(out)
    assert {key: facts[key] for key in said if key != "result"} == {key: said[key] for key in said if key != "result"}
    assert names(data) == sorted([*before, "r.zarr"])
    assert ("kept_trace" in said) == (choose != "fourier")


def test_the_table_says_what_was_done(data, here):
    code, out, _ = here("kpca", "x.npy", "-k", 2, "--n-landmarks", 40, "--quiet")
    assert code == 0
    assert "rbf, gamma" in out
    assert "40 landmarks (uniform) keep" in out
    assert "400 samples x 6 features, 0.000% missing\n2 sweeps, " in out
    assert "result: x.kpca.zarr" in out
    assert here("info", "x.kpca.zarr")[1] == out
    assert (data / "x.kpca.zarr").is_dir()
    code, out, _ = here("kpca", "x.npy", "-k", 2, "--kernel", "poly", "--quiet", "--overwrite")
    assert "degree 3, coef0 1: all samples are landmarks, exact" in out
    code, out, _ = here("kpca", "x.npy", "--landmarks", "fourier", "--n-landmarks", 100, "--quiet", "--overwrite")
    assert "100 random Fourier features" in out
    assert "note: 100 random Fourier features approximate the kernel with a root mean square error of" in out
    assert here("info", "x.kpca.zarr")[1] == out


OPTIONS = {
    "poly": (["--kernel", "poly", "--degree", 2, "--coef0", 0.5, "--gamma", 0.2],
             {"kernel": "poly", "degree": 2, "coef0": 0.5, "gamma": 0.2}),
    "median": (["--gamma", "median"], {"gamma": "median"}),
    "features": (["--gamma", "features"], {"gamma": None}),
    "laplacian": (["--kernel", "laplacian"], {"kernel": "laplacian"}),
    "scale": (["--scale", "unit"], {"scale": "unit"}),
    "cosine": (["--kernel", "cosine"], {"kernel": "cosine"}),
    "linear": (["--kernel", "linear"], {"kernel": "linear"}),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_options_reach_the_model(data, here, name):
    given, options = OPTIONS[name]
    code, out, err = here("kpca", "x.npy", "-k", 3, *given, "--quiet", "--json")
    assert code == 0, err
    model = KernelPCA(3, **options)
    expected = model.fit_transform(data / "x.npy")
    said = json.loads(out)
    np.testing.assert_allclose(said["explained_variance"], model.explained_variance_, rtol=1e-10)
    assert said["gamma"] == pytest.approx(model.gamma_)
    np.testing.assert_allclose(opened(data / "x.kpca.zarr")["scores"], expected, atol=1e-10)


def test_ten_components_unless_asked_or_as_many_as_there_can_be(data, here):
    def count(*options):
        out = here("kpca", "x.npy", "--quiet", "--json", "--overwrite", *options)[1]
        return len(json.loads(out)["explained_variance"])

    assert count() == 10
    assert count("--n-landmarks", 5) == 5
    assert count("--n-landmarks", "auto", "--target-trace", 0.5) == 10
    np.save(data / "x.npy", values(6))
    assert count() == 6


def test_zero_components_are_null_in_json(data, here):
    np.save(data / "same.npy", np.repeat(values(3), 20, axis=0))
    code, out, _ = here("kpca", "same.npy", "-k", 4, "--quiet", "--json")
    assert code == 0
    said = json.loads(out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
    assert said["certificate"][2:] == [None, None]
    assert said["explained_variance"][2:] == [0, 0]
    assert here("kpca", "same.npy", "-k", 4, "--quiet", "--overwrite")[0] == 0


def test_a_plan_reads_and_writes_nothing(tmp_path, here):
    zarr.create_array(tmp_path / "big.zarr", shape=(10**6, 100), chunks=(10_000, 100), dtype="f4")
    code, out, _ = here("kpca", "big.zarr", "-k", 10, "--plan", "--memory", "1GB")
    assert code == 0
    assert "1000 landmarks (uniform)" in out
    plan = json.loads(here("kpca", "big.zarr", "-k", 10, "--plan", "--json", "--memory", "1GB")[1])
    assert 0 < plan["peak_bytes"] <= 1e9
    assert plan["sweeps"] == 2
    assert names(tmp_path) == ["big.zarr"]


def test_overwrite_is_asked_for(data, here):
    asked = ("kpca", "x.npy", "--out", "r.zarr", "--quiet")
    assert here(*asked, "-k", 2)[0] == 0
    code, _, err = here(*asked, "-k", 3)
    assert code == 2
    assert "--overwrite" in err
    assert load(data / "r.zarr").sizes["component"] == 2
    assert here(*asked, "-k", 3, "--overwrite")[0] == 0
    assert load(data / "r.zarr").sizes["component"] == 3


def test_scores_of_genotypes_have_kernel_components(data, here):
    """What is said where genotypes are refused."""
    add(data, "g.bed")
    assert here("pca", "g.bed", "-k", 4, "--quiet")[0] == 0
    code, out, err = here("kpca", "g.pca.zarr/scores", "-k", 2, "--quiet", "--json", "--out", "k.zarr")
    assert code == 0, err
    assert json.loads(out)["n_features"] == 4
    assert json.loads(out)["n_samples"] == 60


def test_samples_of_several_dimensions(data, here):
    add(data, "images.zarr")
    code, out, err = here("kpca", "images.zarr", "--variable", "field", "--sample-dims", "time,y", "-k", 2, "--quiet",
                          "--json", "--n-landmarks", 40)  # fmt: skip
    assert code == 0, err
    assert (json.loads(out)["n_samples"], json.loads(out)["n_features"]) == (800, 3)
    result = opened(data / "images.kpca.zarr")
    assert result["scores"].dims == ("time", "y", "component")
    assert here("info", "images.kpca.zarr")[0] == 0


@pytest.mark.parametrize("name", ["results.fit.save", "models.kernel_pca.record.kernel_scores"])
def test_a_full_disk_keeps_finished_work_under_another_name(name, data, here, monkeypatch):
    before = names(data)

    def fail(*_args, **_options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(f"streampca.{name}", fail)
        code, _, err = here("kpca", "x.npy", "-k", 2, "--quiet")
    assert code == 2
    assert "no space left for the output in x.kpca.zarr.unfinished; finished work is kept" in err
    assert names(data) == sorted([*before, "x.kpca.zarr.unfinished"])
    assert here("kpca", "x.npy", "-k", 2, "--quiet")[0] == 0
    assert names(data) == sorted([*before, "x.kpca.zarr"])


def test_an_interrupt_leaves_no_output(data, here, monkeypatch):
    before = names(data)

    def stop(*_args, **_options):
        raise KeyboardInterrupt

    assert here("pca", "x.npy", "-k", 2, "--quiet")[0] == 0
    for command, module in ((("kpca", "x.npy", "-k", 2), "fit"), (("denoise", "x.pca.zarr", "x.npy"), "apply")):
        with monkeypatch.context() as patch:
            patch.setattr(f"streampca.results.{module}.save", stop)
            assert here(*command, "--quiet")[0] == 130
        assert {name.removesuffix(".unfinished") for name in names(data)} >= {*before, "x.pca.zarr"}
        assert not {"x.kpca.zarr", "x.pca.denoised.zarr"} & set(names(data))
    assert here("kpca", "x.npy", "-k", 2, "--quiet")[0] == here("denoise", "x.pca.zarr", "x.npy", "--quiet")[0] == 0
    assert names(data) == sorted([*before, "x.pca.zarr", "x.kpca.zarr", "x.pca.denoised.zarr"])


def test_a_function_is_not_stored(data, here):
    model = KernelPCA(2, kernel=lambda a, b: (a @ b.T + 1) ** 2, n_landmarks=30)
    model.fit_transform(values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.result_.to_zarr(data / "f.zarr", zarr_format=3)
    with pytest.raises(InputError, match="is a Python function"):
        KernelPCAFit.from_dataset(load(data / "f.zarr"))
    for command in ("project", "denoise"):
        code, out, err = here(command, "f.zarr", "x.npy", "--quiet")
        assert (code, out) == (2, "")
        assert "fit the model again in Python" in err
    assert here("info", "f.zarr")[0] == 0


def test_a_result_made_in_python_is_used_by_the_commands(data, here):
    model = KernelPCA(2, n_landmarks=30, gamma=0.5).fit(values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.result_.to_zarr(data / "m.zarr", zarr_format=3)
    code, _, err = here("project", "m.zarr", "new.npy", "--quiet")
    assert code == 0, err
    np.testing.assert_allclose(
        opened(data / "new.kpca.scores.zarr")["scores"], model.transform(data / "new.npy"), atol=1e-10
    )


# ---------------------------------------------------------------- project


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("single.npy", ["--n-landmarks", 40]),
        ("single.npy", ["--n-landmarks", 60, "--landmarks", "fourier"]),
        ("x.npy", []),
        ("x.npy", ["--kernel", "poly", "--scale", "unit"]),
        ("x.npy", ["--kernel", "laplacian", "--n-landmarks", 50, "--landmarks", "kmeans"]),
    ],
    ids=str,
)
def test_projected_samples_are_where_the_fit_has_them(data, here, source, options):
    assert here("kpca", source, "-k", 3, *options, "--out", "r.zarr", "--quiet")[0] == 0
    code, out, err = here("project", "r.zarr", source, "--quiet", "--out", "s.zarr")
    assert code == 0, err
    assert "400, on 3 components of r.zarr" in out
    fitted, projected = load(data / "r.zarr"), opened(data / "s.zarr")
    within = 1e-9 if source == "x.npy" else 1e-4
    np.testing.assert_allclose(projected["scores"], fitted["scores"], atol=within)


def test_new_samples_are_projected_as_transform_does(data, here):
    for command, model in (
        ("kpca", KernelPCA(3)),
        ("pca", PCA(3)),
        ("pca", PCA(3, scale="unit")),
        ("ppca", PPCA(3)),
        ("factor_analysis", FactorAnalysis(3)),
    ):
        options = ["--scale", "unit"] if getattr(model, "scale", None) == "unit" else []
        assert here(command, "x.npy", "-k", 3, *options, "--out", "r.zarr", "--overwrite", "--quiet")[0] == 0
        code, out, err = here("project", "r.zarr", "new.npy", "--quiet", "--overwrite", "--json")
        assert code == 0, err
        assert json.loads(out)["n_samples"] == 50
        found = opened(data / f"new.{command}.scores.zarr")
        expected = model.fit(data / "x.npy").transform(data / "new.npy")
        within = 1e-3 if isinstance(model, FactorAnalysis) else 1e-7
        np.testing.assert_allclose(found["scores"], expected, atol=within)
        assert ("score_deviation" in found) == (command in ("ppca", "factor_analysis"))


def test_projected_images_keep_their_labels(data, here):
    add(data, "images.zarr")
    assert here("kpca", "images.zarr", "-k", 2, "--quiet", "--variable", "field")[0] == 0
    code, _, err = here("project", "images.kpca.zarr", "images.zarr", "--quiet", "--variable", "field")
    assert code == 0, err
    found = opened(data / "images.kpca.scores.zarr")
    assert found["scores"].dims == ("time", "component")
    np.testing.assert_array_equal(found["time"], np.arange(400) * 2.0)


def test_missing_values_are_projected_as_they_were_fitted(data, here):
    assert here("kpca", "gaps.npy", "-k", 2, "--missing", "mean", "--quiet")[0] == 0
    assert here("project", "gaps.kpca.zarr", "gaps.npy", "--quiet")[0] == 0
    fitted, projected = load(data / "gaps.kpca.zarr"), opened(data / "gaps.kpca.scores.zarr")
    np.testing.assert_allclose(projected["scores"], fitted["scores"], atol=1e-9)
    assert here("kpca", "x.npy", "-k", 2, "--quiet")[0] == 0
    code, _, err = here("project", "x.kpca.zarr", "gaps.npy", "--quiet", "--overwrite")
    assert code == 2
    assert "sample 3, feature 1" in err
    assert err.count("\n") == 1


# ---------------------------------------------------------------- denoise

DENOISERS = {
    "pca": (["pca", "-k", 2], lambda: PCA(2)),
    "pca unit": (["pca", "-k", 2, "--scale", "unit"], lambda: PCA(2, scale="unit")),
    "kpca": (["kpca", "-k", 4, "--gamma", 0.5], lambda: KernelPCA(4, gamma=0.5)),
    "kpca unit": (["kpca", "-k", 4, "--gamma", 0.2, "--scale", "unit"],
                  lambda: KernelPCA(4, gamma=0.2, scale="unit")),
    "linear": (["kpca", "-k", 2, "--kernel", "linear"], lambda: KernelPCA(2, kernel="linear")),
    "ridge": (["kpca", "-k", 4, "--kernel", "poly", "--fit-inverse-transform", "--alpha", 0.01],
              lambda: KernelPCA(4, kernel="poly", fit_inverse_transform=True, alpha=0.01)),
}  # fmt: skip


def denoised_by(model, path):
    model.fit(path)
    return model.denoise(path) if isinstance(model, KernelPCA) else model.inverse_transform(model.transform(path))


@pytest.mark.parametrize(
    ("name", "source"),
    [*((name, "uneven.zarr") for name in DENOISERS), ("pca", "single.npy"), ("kpca", "single.npy")],
)
def test_denoised_samples_are_those_of_python(data, here, name, source):
    add(data, source)
    (command, *options), make = DENOISERS[name]
    assert here(command, source, *options, "--out", "r.zarr", "--quiet")[0] == 0
    code, out, err = here("denoise", "r.zarr", source, "--quiet", "--out", "d.zarr", "--threads", 2)
    assert code == 0, err
    assert f"by {command}" in out
    assert "store: d.zarr" in out
    found = opened(data / "d.zarr")["denoised"]
    # The fixed point is found to a ten-thousandth of the width of the kernel.
    within = 1e-3 if source == "single.npy" or "kpca" in name else 1e-7
    np.testing.assert_allclose(found, denoised_by(make(), data / source), atol=within)
    assert here("info", "d.zarr")[0] == 0
    assert open_source(data / "d.zarr").shape == found.shape


@pytest.mark.parametrize("name", ["pca", "kpca"])
@pytest.mark.usefixtures("small_partitions")
def test_many_partitions_write_all_rows(data, here, name):
    add(data, "uneven.zarr")
    (command, *options), _ = DENOISERS[name]
    assert here(command, "uneven.zarr", *options, "--out", "r.zarr", "--quiet")[0] == 0
    assert here("denoise", "r.zarr", "uneven.zarr", "--quiet", "--threads", 4)[0] == 0
    many = opened(data / f"uneven.{command}.denoised.zarr")["denoised"].values
    assert np.isfinite(many).all()
    np.save(data / "same.npy", values(500))
    assert here("denoise", "r.zarr", "same.npy", "--quiet", "--threads", 1)[0] == 0
    np.testing.assert_allclose(many, opened(data / f"same.{command}.denoised.zarr")["denoised"].values, atol=1e-6)


@pytest.mark.parametrize("name", ["pca", "kpca", "ridge"])
def test_images_keep_their_dimensions(data, here, name):
    add(data, "images.zarr")
    (command, *options), _ = DENOISERS[name]
    assert here(command, "images.zarr", "--variable", "field", *options, "--out", "r.zarr", "--quiet")[0] == 0
    code, _, err = here("denoise", "r.zarr", "images.zarr", "--variable", "field", "--quiet", "--picture", "p.png")
    assert code == 0, err
    found = opened(data / f"images.{command}.denoised.zarr")["denoised"]
    assert (found.dims, found.shape) == (("time", "y", "x"), (400, 2, 3))
    np.testing.assert_array_equal(found["time"], np.arange(400) * 2.0)
    assert (data / "p.png").read_bytes().startswith(b"\x89PNG")
    assert here("denoise", "r.zarr", "x.npy", "--quiet")[0] == 2


@pytest.mark.usefixtures("data")
def test_a_picture_is_not_in_the_way_of_json(here):
    assert here("pca", "x.npy", "-k", 2, "--quiet")[0] == 0
    code, out, _ = here("denoise", "x.pca.zarr", "x.npy", "--quiet", "--json", "--picture", "p.png")
    assert code == 0
    assert json.loads(out)["denoised"] == "x.pca.denoised.zarr"


def test_a_picture_of_samples_with_gaps(data, here):
    assert here("pca", "gaps.npy", "-k", 2, "--missing", "mean", "--quiet")[0] == 0
    code, _, err = here("denoise", "gaps.pca.zarr", "gaps.npy", "--quiet", "--picture", "p.png")
    assert code == 0, err
    assert (data / "p.png").exists()


@pytest.mark.parametrize("picture", ["p.xyz", "no/where.png"])
def test_a_picture_that_cannot_be_drawn_is_one_line(data, here, picture):
    assert here("pca", "x.npy", "-k", 2, "--quiet")[0] == 0
    code, _, err = here("denoise", "x.pca.zarr", "x.npy", "--quiet", "--picture", picture)
    assert code == 2
    assert err.startswith("streampca: ")
    assert err.count("\n") == 1
    assert not (data / picture).exists()


@pytest.mark.usefixtures("data")
def test_denoising_is_not_written_over(here):
    assert here("pca", "x.npy", "-k", 2, "--quiet")[0] == 0
    asked = ("denoise", "x.pca.zarr", "x.npy", "--quiet")
    assert here(*asked)[0] == 0
    assert here("pca", "x.npy", "-k", 3, "--quiet", "--overwrite")[0] == 0
    code, out, err = here(*asked)
    assert (code, out) == (2, "")
    assert "--overwrite" in err
    assert here(*asked, "--overwrite")[0] == 0


def test_one_sample_is_denoised(data, here):
    np.save(data / "one.npy", values()[:1])
    for command in ("pca", "kpca"):
        assert here(command, "x.npy", "-k", 2, "--out", f"{command}.zarr", "--quiet")[0] == 0
        code, _, err = here("denoise", f"{command}.zarr", "one.npy", "--quiet", "--overwrite", "--picture", "p.png")
        assert code == 0, err
        assert here("project", f"{command}.zarr", "one.npy", "--quiet", "--overwrite")[0] == 0


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("command", "chunk"), [("denoise", 4096)])
def test_new_samples_keep_to_the_limit(data, here, command, chunk):
    """Few features, many landmarks: what the kernel makes of a tile is much larger than the tile."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12_288, 6))
    zarr.create_array(data / "many.zarr", data=x, chunks=(chunk, 6))
    np.save(data / "fit.npy", x[:3000])
    assert here("kpca", "fit.npy", "-k", 3, "--n-landmarks", 1200, "--out", "r.zarr", "--quiet")[0] == 0
    peak, limit = peak_of(command, "r.zarr", "many.zarr", "--threads", 2, cwd=data)
    assert peak <= limit


def test_tables_of_kernel_components(data, here):
    """Scores as text, or one line that says why not."""
    assert here("kpca", "x.npy", "-k", 2, "--quiet")[0] == 0
    code, _, err = here("export", "x.kpca.zarr", "--format", "tsv")
    assert code in (0, 2)
    assert err.count("\n") <= 1
    if code == 0:
        assert any(name.endswith(".scores.tsv") for name in names(data))
