"""Results as text: PLINK's files, which agree with those that plink2 writes, and tables."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from genotype_helpers import Truth, needs_plink2, plink2, random_calls, table, write_bed
from helpers import one_line

from streampca import PCA, InputError, load, open_genotypes
from streampca.models.pca.options import PCAOptions
from streampca.results.export import export
from streampca.results.fit.job import fit_to_store

PLINK = ("r.eigenval", "r.eigenvec", "r.eigenvec.var")


@pytest.fixture
def genotypes(tmp_path):
    """A file of 60 x 500 without missing calls, in which A1 is the commoner allele of about half the variants."""
    calls = random_calls(60, 500, 13, missing=0.0)
    # Both alleles as frequent as each other, and one that does not vary.
    calls[:, 3] = np.repeat([0, 1, 2], 20)
    calls[:, 4] = np.tile([0, 2], 30)
    alleles = np.random.default_rng(1).choice(["A", "C", "G", "T"], (500, 2))
    alleles[alleles[:, 0] == alleles[:, 1]] = ["A", "AT"]
    path = write_bed(
        tmp_path / "x", calls, allele_1=alleles[:, 0], allele_2=alleles[:, 1], chromosome=np.arange(500) // 25 + 1
    )
    return path, calls


def exported(path, folder, form="plink", k=4, **options):
    result = PCA(k, tol=1e-6).fit(path).result_
    return result, export(result, folder / "r", form=form, **options)


def test_plink_files(genotypes, tmp_path):
    path, calls = genotypes
    result, paths = exported(path, tmp_path)
    assert sorted(p.name for p in paths) == sorted(PLINK)
    vectors, weights = table(tmp_path / "r.eigenvec"), table(tmp_path / "r.eigenvec.var")
    pcs = [f"PC{i}" for i in range(1, 5)]
    assert list(vectors) == ["#FID", "IID", *pcs]
    assert list(weights) == ["#CHROM", "ID", "MAJ", "NONMAJ", *pcs]
    assert vectors["#FID"].tolist() == [f"f{i}" for i in range(60)]
    assert weights["ID"].tolist() == [f"rs{j}" for j in range(500)]
    true = Truth(calls)
    np.testing.assert_allclose(np.loadtxt(tmp_path / "r.eigenval"), true.values[:4], rtol=1e-5)
    U = np.array([vectors[pc].astype(float) for pc in pcs])
    np.testing.assert_allclose(U @ U.T, np.eye(4), atol=1e-5)
    np.testing.assert_allclose(np.abs((U[:2] * true.vectors[:2]).sum(axis=1)), 1, atol=1e-6)
    W = np.array([weights[pc].astype(float) for pc in pcs])
    np.testing.assert_allclose((W**2).mean(axis=1), 1, rtol=1e-6)
    # The weight is for the rarer allele: X'u, of the counts of NONMAJ.
    minor = np.where(calls.mean(axis=0) > 1, 2 - calls, calls)
    x = (minor - minor.mean(axis=0)) / np.sqrt(minor.mean(axis=0) * (1 - minor.mean(axis=0) / 2))
    np.testing.assert_allclose(W, (U @ x) / np.sqrt(true.values[:4])[:, None], atol=1e-4)
    commoner = calls.mean(axis=0) > 1
    assert 100 < commoner.sum() < 400
    assert (weights["MAJ"] == np.where(commoner, result["allele_1"], result["allele_2"])).all()
    assert (weights["NONMAJ"] == np.where(commoner, result["allele_2"], result["allele_1"])).all()


@needs_plink2
def test_plink_files_are_those_of_plink2(genotypes, tmp_path):
    path, _ = genotypes
    _, paths = exported(path, tmp_path)
    plink2("--bfile", "x", "--pca", 4, "biallelic-var-wts", "--out", "p", cwd=tmp_path)
    for suffix in ("eigenvec", "eigenvec.var"):
        ours, theirs = table(tmp_path / f"r.{suffix}"), table(tmp_path / f"p.{suffix}")
        assert list(ours) == list(theirs)
        for name in (name for name in theirs if not name.startswith("PC")):
            assert ours[name].tolist() == theirs[name].tolist(), name
    np.testing.assert_allclose(np.loadtxt(tmp_path / "r.eigenval"), np.loadtxt(tmp_path / "p.eigenval"), rtol=1e-4)
    # Two components stand apart; the sign of each is free, but the same in both files.
    for pc in ("PC1", "PC2"):
        (u, w), (their_u, their_w) = (
            [table(tmp_path / f"{name}.{suffix}")[pc].astype(float) for suffix in ("eigenvec", "eigenvec.var")]
            for name in "rp"
        )
        sign = np.sign(u @ their_u)
        np.testing.assert_allclose(sign * u, their_u, atol=2e-5)
        np.testing.assert_allclose(sign * w, their_w, atol=2e-4)


def test_tables_of_genotypes(genotypes, tmp_path):
    result, paths = exported(genotypes[0], tmp_path, "tsv", k=2)
    assert [p.name for p in paths] == ["r.scores.tsv", "r.loadings.tsv", "r.components.tsv"]
    scores, loadings, components = (table(p) for p in paths)
    assert list(scores) == ["fid", "iid", "PC1", "PC2"]
    assert set(loadings) == {"chromosome", "position", "variant_id", "allele_1", "allele_2", "PC1", "PC2"}
    assert list(components) == [
        "PC", "explained_variance", "eigenvalue", "explained_variance_ratio", "certificate",
    ]  # fmt: skip
    np.testing.assert_allclose(scores["PC2"].astype(float), result["scores"][:, 1], rtol=1e-7)
    np.testing.assert_allclose(loadings["PC1"].astype(float), result["components"][0], rtol=1e-7)
    assert loadings["variant_id"].tolist() == result["variant_id"].values.tolist()
    assert loadings["position"].astype(int).tolist() == result["position"].values.tolist()
    assert components["PC"].tolist() == ["PC1", "PC2"]
    np.testing.assert_allclose(components["eigenvalue"].astype(float), result["eigenvalue"], rtol=1e-8)


def test_tables_of_labelled_data(tmp_path):
    rng = np.random.default_rng(0)
    field = xr.DataArray(
        rng.normal(size=(20, 3, 4)) * np.arange(1, 5), dims=("time", "lat", "lon"),
        coords={"time": np.arange(20) + 1990, "lat": [-10.5, 0.0, 10.5]},
    )  # fmt: skip
    model = PCA(2)
    model.fit_transform(field)
    paths = export(model.result_, tmp_path / "eof", form="tsv")
    scores, loadings, components = (table(p) for p in paths)
    assert list(scores) == ["time", "PC1", "PC2"]
    assert scores["time"].tolist() == [str(t) for t in range(1990, 2010)]
    assert list(loadings) == ["lat", "lon", "PC1", "PC2"]
    assert loadings["lat"].astype(float).tolist() == np.repeat([-10.5, 0, 10.5], 4).tolist()
    # Without labels, places are counted from 0.
    assert loadings["lon"].tolist() == ["0", "1", "2", "3"] * 3
    np.testing.assert_allclose(loadings["PC1"].astype(float), model.components_[0], rtol=1e-8)
    assert "eigenvalue" not in components


def test_stored_result_gives_the_same_files(genotypes, tmp_path):
    path, _ = genotypes
    fit_to_store(PCAOptions(n_components=2), open_genotypes(path), tmp_path / "r.zarr")
    stored = export(load(tmp_path / "r.zarr"), tmp_path / "a")
    direct = export(PCA(2).fit(path).result_, tmp_path / "b")
    for one, other in zip(stored, direct, strict=True):
        if one.name.endswith(".eigenval"):
            assert one.read_text() == other.read_text()
        else:
            assert list(table(one)) == list(table(other))


def test_plink_files_of_other_data_are_refused(tmp_path):
    model = PCA(2)
    model.fit_transform(np.random.default_rng(0).normal(size=(20, 5)))
    with pytest.raises(InputError) as error:
        export(model.result_, tmp_path / "r")
    assert "--format tsv" in one_line(error)
    assert list(tmp_path.iterdir()) == []


def test_unknown_format_and_result_without_scores(genotypes, tmp_path):
    result = PCA(2).fit(genotypes[0]).result_
    with pytest.raises(InputError, match="'plink', 'tsv'"):
        export(result, tmp_path / "r", form="csv")
    with pytest.raises(InputError, match="no scores"):
        export(result.drop_vars("scores"), tmp_path / "r")


def test_existing_files_are_kept_unless_asked(genotypes, tmp_path):
    result, paths = exported(genotypes[0], tmp_path)
    (tmp_path / "r.eigenvec").write_text("mine")
    (tmp_path / "r.eigenval").unlink()
    with pytest.raises(InputError) as error:
        export(result, tmp_path / "r")
    assert "r.eigenvec" in one_line(error)
    assert "--overwrite" in str(error.value)
    assert (tmp_path / "r.eigenvec").read_text() == "mine"
    assert not (tmp_path / "r.eigenval").exists()
    export(result, tmp_path / "r", overwrite=True)
    assert (tmp_path / "r.eigenvec").read_text().startswith("#FID")
    assert all(p.exists() for p in paths)


def test_folder_must_exist(genotypes, tmp_path):
    result = PCA(2).fit(genotypes[0]).result_
    with pytest.raises(InputError) as error:
        export(result, tmp_path / "no" / "r")
    assert "create it first" in one_line(error)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_nothing_is_left_when_writing_fails(genotypes, tmp_path, monkeypatch, number, overwrite):
    import streampca.results.export as module

    result = PCA(2).fit(genotypes[0]).result_
    if overwrite:
        for name in PLINK:
            (tmp_path / name).write_text("old")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    write, count = module._write_table, [0]

    def failing(*arguments):
        count[0] += 1
        write(*arguments)
        if count[0] == number:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_write_table", failing)
    with pytest.raises(OSError, match="No space"):
        export(result, tmp_path / "r", overwrite=overwrite)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
