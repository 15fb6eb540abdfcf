"""Genotypes on the command line: in a process of its own where exit codes and output count, else called directly."""

from __future__ import annotations

import json

import numpy as np
import pytest
from genotype_helpers import Truth, calls_in, labels_of, random_calls, table, write_bed, write_part
from helpers import run

from streampca import load
from streampca.demos.simulate_genotypes import simulate_genotypes


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    simulate_genotypes(folder / "x", 80, 2000, missing=0.01, seed=4)
    return folder / "x.bed"


@pytest.fixture
def data(tmp_path, simulated):
    for suffix in (".bed", ".bim", ".fam"):
        (tmp_path / f"x{suffix}").write_bytes(simulated.with_suffix(suffix).read_bytes())
    return tmp_path / "x.bed"


def names(folder):
    return sorted(p.name for p in folder.iterdir())


FILES = ["x.bed", "x.bim", "x.fam"]


def test_pca_of_a_file(tmp_path, data):
    done = run("pca", "x.bed", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "eigenvalues of X X' / m" in done.stdout
    assert "80 samples" in done.stdout
    assert done.stdout.endswith("result: x.pca.zarr\n")
    assert names(tmp_path) == [*FILES[:2], "x.fam", "x.pca.zarr"]
    result = load(tmp_path / "x.pca.zarr")
    true = Truth(calls_in(data))
    np.testing.assert_allclose(result["eigenvalue"], true.values[:10], rtol=1e-3)
    assert result["iid"].values.tolist() == [f"s{i}" for i in range(80)]
    shown = [line.split() for line in done.stdout.splitlines()[1:11]]
    np.testing.assert_allclose([float(row[1]) for row in shown], result["eigenvalue"], rtol=1e-5)
    assert [row[0] for row in shown] == [str(i) for i in range(1, 11)]


def test_prefix_and_json(tmp_path, data, here):
    code, out, err = here("pca", "x", "-k", 3, "--json", "--quiet", "--out", "r.zarr")
    assert (code, err) == (0, "")
    said = json.loads(out)
    true = Truth(calls_in(data))
    np.testing.assert_allclose(said["eigenvalue"], true.values[:3], rtol=1e-3)
    variance = np.array(said["eigenvalue"]) * true.X.shape[1] / 79
    np.testing.assert_allclose(said["explained_variance"], variance, rtol=1e-12)
    np.testing.assert_allclose(variance / said["total_variance"], said["explained_variance_ratio"], rtol=1e-12)
    assert said["n_samples"] == 80
    assert said["converged"] is True
    assert isinstance(said["notes"], list)
    assert names(tmp_path) == ["r.zarr", *FILES]
    _, again, _ = here("info", "r.zarr", "--json")
    assert json.loads(again)["explained_variance"] == said["explained_variance"]


def test_prefix_with_a_dot_names_the_result_after_all_of_it(tmp_path, data, here):
    for suffix in (".bed", ".bim", ".fam"):
        data.with_suffix(suffix).rename(tmp_path / f"study.v2{suffix}")
    code, out, err = here("pca", "study.v2", "-k", 2, "--quiet")
    assert code == 0, err
    assert "result: study.v2.pca.zarr" in out


def test_plan(tmp_path, data, here):
    code, out, _ = here("pca", "x.bed", "--plan")
    assert code == 0
    assert "gram" in out
    assert "along features" in out
    assert names(tmp_path) == FILES
    code, out, _ = here("pca", "x", "--plan", "--json", "--solver", "krylov", "-k", 5)
    assert json.loads(out)["name"] == "krylov"
    assert json.loads(out)["sweep_bytes"] == data.stat().st_size - 3


def test_info_of_a_file(data, here):  # noqa: ARG001
    code, out, _ = here("info", "x.bed")
    assert code == 0
    assert "80 (sample)" in out
    assert "2000 (variant)" in out
    assert json.loads(here("info", "x", "--json")[1])["shape"] == [80, 2000]


@pytest.mark.parametrize(
    ("options", "samples", "variants"),
    [
        (["--keep", "few.txt"], range(0, 80, 2), None),
        (["--remove", "few.txt"], range(1, 80, 2), None),
        (["--extract", "some.txt"], None, range(0, 2000, 3)),
        (["--exclude", "some.txt"], None, [j for j in range(2000) if j % 3]),
        (["--exclude-regions", "regions.txt"], None, range(91, 2000)),
        (["--keep", "few.txt", "--extract", "some.txt"], range(0, 80, 2), range(0, 2000, 3)),
    ],
)
def test_filters(tmp_path, data, here, options, samples, variants):
    (tmp_path / "few.txt").write_text("".join(f"s{i}\n" for i in range(0, 80, 2)))
    (tmp_path / "some.txt").write_text("".join(f"snp{j}\n" for j in range(0, 2000, 3)))
    (tmp_path / "regions.txt").write_text("1 1 91000\n")
    rows = slice(None) if samples is None else np.array(samples)
    columns = slice(None) if variants is None else np.array(variants)
    write_part(tmp_path / "part", data, rows, columns)
    said = json.loads(here("pca", "x.bed", "-k", 2, *options, "--json", "--quiet")[1])
    part = json.loads(here("pca", "part.bed", "-k", 2, "--json", "--quiet")[1])
    np.testing.assert_allclose(said["explained_variance"], part["explained_variance"], rtol=1e-5)
    assert said["n_samples"] == part["n_samples"]
    assert any("excluded" in note for note in said["notes"])
    asked = json.loads(load(tmp_path / "x.pca.zarr").attrs["parameters"])
    assert asked[options[0][2:].replace("-", "_")] == options[1]


def test_maf_geno_and_mind(tmp_path, here):
    calls = random_calls(40, 400, 2, missing=0.0)
    calls[:, :30] = 0
    calls[:2, :30] = 1
    calls[:10, 50:70] = np.nan
    calls[39, 100:300] = np.nan
    write_bed(tmp_path / "x", calls)
    said = json.loads(here("pca", "x", "-k", 2, "--json", "--quiet", "--mind", 0.3, "--geno", 0.1, "--maf", 0.05)[1])
    assert said["n_samples"] == 39
    result = load(tmp_path / "x.pca.zarr")
    assert result.sizes["variant"] == 350
    assert "i39" not in result["iid"].values
    notes = " ".join(said["notes"])
    for words in ("1 with more than 0.3 missing", "20 with more than 0.1 missing", "30 with a minor allele rarer than"):
        assert words in notes


@pytest.mark.parametrize(("option", "left"), [("--geno", (40, 380)), ("--mind", (30, 400))])
def test_zero_is_a_limit_too(tmp_path, here, option, left):
    """None may be missing, which is not the same as saying nothing."""
    calls = random_calls(40, 400, 2, missing=0.0)
    calls[:10, 50:70] = np.nan
    write_bed(tmp_path / "x", calls)
    code, _, err = here("pca", "x", "-k", 2, "--quiet", option, 0)
    assert code == 0, err
    result = load(tmp_path / "x.pca.zarr")
    assert (result.sizes["sample"], result.sizes["variant"]) == left
    assert json.loads(result.attrs["parameters"])[option[2:]] == 0


def test_all_chromosomes(tmp_path, here):
    calls = random_calls(30, 100, 2)
    write_bed(tmp_path / "x", calls, chromosome=["2"] * 60 + ["X"] * 40)
    here("pca", "x", "-k", 2, "--quiet", "--out", "a.zarr")
    here("pca", "x", "-k", 2, "--quiet", "--out", "b.zarr", "--all-chromosomes")
    assert load(tmp_path / "a.zarr").sizes["variant"] == 60
    assert load(tmp_path / "b.zarr").sizes["variant"] == 100


def test_outliers(tmp_path, here):
    rng = np.random.default_rng(6)
    calls = random_calls(120, 1500, 6, missing=0.01)
    chosen = rng.random(1500) < 0.6
    calls[20, chosen] = rng.choice([0.0, 2.0], chosen.sum())
    write_bed(tmp_path / "x", calls)
    said = json.loads(here("pca", "x", "-k", 4, "--quiet", "--json", "--outliers", "report")[1])
    assert any("f20 i20" in note for note in said["notes"])
    assert np.flatnonzero(load(tmp_path / "x.pca.zarr")["outlier"]).tolist() == [20]
    here("pca", "x", "-k", 4, "--quiet", "--outliers", "remove", "--out", "r.zarr")
    assert load(tmp_path / "r.zarr").sizes["sample"] == 119


def test_project(tmp_path, data, here):
    write_part(tmp_path / "reference", data, np.arange(0, 80, 2))
    write_part(tmp_path / "new", data, np.arange(1, 80, 2), np.arange(0, 2000) % 10 != 0)
    here("pca", "reference", "-k", 3, "--quiet")
    done = run("project", "reference.pca.zarr", "new.bed", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "40, on 3 components of reference.pca.zarr, projection oadp" in done.stdout
    assert "missing" in done.stdout
    assert done.stdout.endswith("scores: new.pca.scores.zarr\n")
    import xarray as xr

    scores = xr.open_zarr(tmp_path / "new.pca.scores.zarr", consolidated=False)
    assert scores["scores"].shape == (40, 3)
    assert scores["iid"].values.tolist() == [f"s{i}" for i in range(1, 80, 2)]
    assert np.isfinite(scores["scores"].values).all()
    code, out, _ = here("project", "reference.pca.zarr", "reference", "--projection", "simple", "--json", "--quiet")
    assert json.loads(out)["n_samples"] == 40
    again = xr.open_zarr(tmp_path / "reference.pca.scores.zarr", consolidated=False)["scores"].values
    fitted = load(tmp_path / "reference.pca.zarr")["scores"].values
    np.testing.assert_allclose(again, fitted, atol=2e-3 * np.abs(fitted).max())
    # Distances from the components: of those fitted the typical one, of the others somewhat more.
    own = xr.open_zarr(tmp_path / "reference.pca.scores.zarr", consolidated=False)
    typical = own.attrs["typical_distance"]
    assert np.sqrt((own["distance"].values ** 2).mean()) == pytest.approx(typical, rel=1e-3)
    assert 1 < np.sqrt((scores["distance"].values ** 2).mean()) / typical < 1.5
    assert own.attrs["fit"] == scores.attrs["fit"]
    code, _, err = here("project", "reference.pca.zarr", "new", "--quiet")
    assert code == 2
    assert "--overwrite" in err
    assert here("project", "reference.pca.zarr", "new", "--quiet", "--overwrite", "--keep", "who.txt")[0] == 2
    (tmp_path / "who.txt").write_text("s1\ns3\n")
    assert here("project", "reference.pca.zarr", "new", "--quiet", "--overwrite", "--keep", "who.txt")[0] == 0
    assert xr.open_zarr(tmp_path / "new.pca.scores.zarr", consolidated=False)["scores"].shape == (2, 3)


def test_info_of_scores(tmp_path, data, here):  # noqa: ARG001
    here("pca", "x", "-k", 3, "--quiet")
    here("project", "x.pca.zarr", "x", "--quiet")
    code, out, err = here("info", "x.pca.scores.zarr")
    assert code == 0, err
    assert "80" in out
    assert names(tmp_path) == [*FILES, "x.pca.scores.zarr", "x.pca.zarr"]


def test_export(tmp_path, data, here):  # noqa: ARG001
    here("pca", "x", "-k", 3, "--quiet")
    code, out, err = here("export", "x.pca.zarr")
    assert code == 0, err
    assert sorted(out.split()) == ["x.afreq", "x.eigenval", "x.eigenvec", "x.eigenvec.allele", "x.eigenvec.var"]
    assert list(table(tmp_path / "x.eigenvec")) == ["#FID", "IID", "PC1", "PC2", "PC3"]
    assert here("export", "x.pca.zarr")[0] == 2
    assert here("export", "x.pca.zarr", "--overwrite")[0] == 0
    assert here("export", "x.pca.zarr", "--format", "tsv", "--out", "t")[1].split() == [
        "t.scores.tsv", "t.loadings.tsv", "t.components.tsv",
    ]  # fmt: skip


# ---- bad input


def shorten(folder):
    path = folder / "x.bed"
    path.write_bytes(path.read_bytes()[:-7])


def lengthen(folder):
    path = folder / "x.bed"
    path.write_bytes(path.read_bytes() + b"1234567")


def rewrite(name, change):
    def apply(folder):
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return apply


def one_sample(folder):
    write_bed(folder / "x", np.ones((1, 20)))


def constant(folder):
    write_bed(folder / "x", np.full((5, 20), 2.0))


def rare(folder):
    write_bed(folder / "x", np.tile(np.arange(10) < 2, (20, 1)).T)


def gaps(folder):
    calls = random_calls(10, 20, 3, missing=0.0)
    calls[np.arange(20) % 10, np.arange(20)] = calls[np.arange(20) % 9 + 1, np.arange(20)] = np.nan
    calls[0], calls[5] = np.nan, np.nan
    write_bed(folder / "x", calls)


def twice(content):
    first, _, *rest = content.split(b"\n")
    return b"\n".join([first, first, *rest])


def dense(folder):
    np.save(folder / "x.npy", np.random.default_rng(0).normal(size=(20, 4)))
    (folder / "ids.txt").write_text("a\n")


def backwards(text):
    """Swap the first two variants."""
    first, second, rest = text.split(b"\n", 2)
    return b"\n".join([second, first, rest])


X = ("pca", "x.bed")
BAD = {
    "cut short": (shorten, X, "truncated"),
    "too long": (lengthen, X, "too long"),
    "fam of another file": (rewrite("x.fam", lambda b: b + b"a b 0 0 0 1\n"), X, "81 samples in x.fam"),
    "bim of another file": (rewrite("x.bim", lambda b: b.split(b"\n", 1)[1]), X, "1999 variants in x.bim"),
    "individual-major": (rewrite("x.bed", lambda b: b[:2] + b"\0" + b[3:]), X, "individual-major"),
    "wrong magic": (rewrite("x.bed", lambda b: b"XX" + b[2:]), X, "magic"),
    "sample twice": (rewrite("x.fam", twice), X, "duplicate sample pop0 s0, number 2 of"),
    "variant twice": (rewrite("x.bim", lambda b: b.replace(b" snp1 ", b" snp0 ")), X, "duplicate variants (snp0 A G)"),
    "fewer columns": (rewrite("x.fam", lambda b: b.replace(b" s4 0", b" s4")), X, "line 5 has 5 columns"),
    "no bim": (lambda folder: (folder / "x.bim").unlink(), X, "x.bim: cannot be read"),
    "no bed": (lambda folder: (folder / "x.bed").unlink(), X, "x.bed"),
    "all monomorphic": (constant, X, "no variant is left: 20 monomorphic"),
    "all too rare": (rare, (*X, "--maf", "0.2"), "no variant is left: 20 with a minor allele rarer than 0.2"),
    "all with gaps": (gaps, (*X, "--geno", "0.1"), "no variant is left: 20 with more than 0.1 missing"),
    "all excluded": (constant, (*X, "--exclude", "x.bim"), "contains no variant"),
    "one sample": (one_sample, X, "at least 2 samples"),
    "pruning unsorted positions": (rewrite("x.bim", backwards), ("prune", "x.bed"), "positions are not sorted"),
    "kinship of one sample": (one_sample, ("kinship", "x.bed"), "kinship needs at least 2 samples"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_with_exit_code_2_and_touches_nothing(tmp_path, data, here, name):  # noqa: ARG001
    prepare, arguments, cure = BAD[name]
    prepare(tmp_path)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    code, out, err = here(*arguments, *(["--quiet"] if arguments[0] != "export" else []))
    assert code == 2, err
    assert out == ""
    assert err.startswith("streampca: ")
    assert err.count("\n") == 1
    assert cure in err
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("name", ["cut short", "fewer columns"])
def test_bad_input_in_a_process_of_its_own(tmp_path, data, name):  # noqa: ARG001
    prepare, arguments, cure = BAD[name]
    prepare(tmp_path)
    done = run(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert cure in done.stderr
    assert names(tmp_path) == FILES


def test_projecting_dense_results_is_refused(tmp_path, here):
    dense(tmp_path)
    write_bed(tmp_path / "x", random_calls(10, 30, 1))
    here("pca", "x.npy", "-k", 2, "--quiet", "--out", "d.zarr")
    before = names(tmp_path)
    for arguments in (("project", "d.zarr", "x.bed"), ("export", "d.zarr")):
        code, out, err = here(*arguments)
        assert (code, out) == (2, "")
        assert "genotypes" in err
        assert err.count("\n") == 1
    assert names(tmp_path) == before


def test_labels_of_the_simulated_file(data):
    samples, variants = labels_of(data)
    assert samples["iid"][4] == "s4"
    assert variants["bp_position"][90] == 91000


def test_pruned_lists_and_pruning_inline_are_the_same(tmp_path, data, here):  # noqa: ARG001
    code, out, err = here("prune", "x.bed", "--r2", 0.05, "--maf", 0.1, "--quiet")
    assert code == 0, err
    kept = (tmp_path / "x.prune.in").read_text().split()
    left = (tmp_path / "x.prune.out").read_text().split()
    assert 0 < len(kept) < 2000
    assert len(left) > 0
    assert f"{len(kept)} of {len(kept) + len(left)} variants kept" in out
    for name, options in (("list", ("--extract", "x.prune.in")), ("inline", ("--ld-prune", 0.05, "--maf", 0.1))):
        code, _, err = here("pca", "x.bed", "-k", 2, *options, "--quiet", "--out", f"{name}.zarr")
        assert code == 0, err
    a, b = (load(tmp_path / f"{name}.zarr") for name in ("list", "inline"))
    assert a["variant_id"].values.tolist() == b["variant_id"].values.tolist() == kept
    np.testing.assert_array_equal(a["explained_variance"], b["explained_variance"])


def test_text_files_with_the_fit_are_those_of_export(tmp_path, data, here):  # noqa: ARG001
    assert here("pca", "x.bed", "-k", 2, "--quiet", "--out", "r.zarr", "--export", "plink")[0] == 0
    assert here("export", "r.zarr", "--out", "again")[0] == 0
    for suffix in (".eigenvec", ".eigenval", ".eigenvec.var"):
        assert (tmp_path / f"r{suffix}").read_bytes() == (tmp_path / f"again{suffix}").read_bytes()
    (tmp_path / "q.eigenval").write_text("mine")
    code, _, err = here("pca", "x.bed", "-k", 2, "--quiet", "--out", "q.zarr", "--export", "plink")
    assert (code, (tmp_path / "q.eigenval").read_text()) == (2, "mine")
    assert "q.eigenval: exists already" in err
    assert not (tmp_path / "q.zarr").exists()


def test_converted_store_gives_the_same_components(tmp_path, data, here):  # noqa: ARG001
    assert here("convert", "x.bed", "x.vcz", "--quiet")[0] == 0
    for source in ("x.bed", "x.vcz"):
        assert here("pca", source, "-k", 2, "--tol", 1e-6, "--quiet", "--out", f"{source}.zarr")[0] == 0
    a, b = (load(tmp_path / f"{source}.zarr") for source in ("x.bed", "x.vcz"))
    np.testing.assert_allclose(a["eigenvalue"], b["eigenvalue"], rtol=1e-5)
    assert a["variant_id"].values.tolist() == b["variant_id"].values.tolist()


def test_all_components_of_what_is_left(tmp_path, data, here):
    calls = calls_in(data)
    assert calls.shape == (80, 2000)
    share = np.isnan(calls).mean(axis=1)
    limit = float(np.median(share))
    assert here("pca", "x.bed", "-k", "all", "--mind", limit, "--quiet", "--out", "r.zarr")[0] == 0
    assert load(tmp_path / "r.zarr").sizes["component"] == (share <= limit).sum() < 80
