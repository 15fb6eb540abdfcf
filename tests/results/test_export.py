"""Results as text: PLINK's files, which agree with those that plink2 writes, and tables."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from genotype_helpers import Truth, needs_plink2, plink2, random_calls, table, write_bed
from helpers import one_line

from streampca import PCA, InputError, load, open_genotypes
from streampca.models.pca.options import PCAOptions
from streampca.results.export import export
from streampca.results.fit import fit_to_store

PLINK = ("r.eigenval", "r.eigenvec", "r.eigenvec.var", "r.eigenvec.allele", "r.afreq")
# The program itself: Debian puts a script of the same name, with other arguments, in the path.
SMARTPCA = Path("/usr/lib/eigensoft/smartpca")


@pytest.fixture
def genotypes(tmp_path):
    """A file of 60 x 500 without missing calls, in which A1 is the commoner allele of about half the variants."""
    calls = random_calls(60, 500, 13, missing=0.0)
    # Both alleles as frequent as each other, and one that does not vary.
    calls[:, 3] = np.repeat([0, 1, 2], 20)
    calls[:, 4] = np.tile([0, 2], 30)
    alleles = np.random.default_rng(1).choice(["A", "C", "G", "T"], (500, 2)).astype("U2")
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
    plink2("--bfile", "x", "--pca", 4, "allele-wts", "--freq", "--out", "q", cwd=tmp_path)
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

    for suffix in ("eigenvec.allele", "afreq"):
        ours, theirs = table(tmp_path / f"r.{suffix}"), table(tmp_path / f"q.{suffix}")
        assert list(ours) == list(theirs)
        for name in (name for name in theirs if not name.startswith("PC") and name != "ALT_FREQS"):
            assert ours[name].tolist() == theirs[name].tolist(), name
    np.testing.assert_allclose(
        table(tmp_path / "r.afreq")["ALT_FREQS"].astype(float),
        table(tmp_path / "q.afreq")["ALT_FREQS"].astype(float),
        atol=1e-6,
    )
    ours, theirs = (table(tmp_path / f"{name}.eigenvec.allele")["PC1"].astype(float) for name in "rq")
    np.testing.assert_allclose(np.sign(ours @ theirs) * ours, theirs, atol=2e-4)


@needs_plink2
def test_plink2_scores_samples_with_the_weights(genotypes, tmp_path):
    """As its manual does it; scores of the fitted samples are their eigenvectors up to a factor."""
    exported(genotypes[0], tmp_path)
    plink2(
        "--bfile", "x", "--read-freq", "r.afreq", "--score", "r.eigenvec.allele", 2, 5, "header-read",
        "no-mean-imputation", "variance-standardize", "--score-col-nums", "6-9", "--out", "s", cwd=tmp_path,
    )  # fmt: skip
    vectors, scores = table(tmp_path / "r.eigenvec"), table(tmp_path / "s.sscore")
    assert scores["IID"].tolist() == vectors["IID"].tolist()
    for pc in ("PC1", "PC2", "PC3"):
        u, s = vectors[pc].astype(float), scores[f"{pc}_AVG"].astype(float)
        factor = (u @ s) / (u @ u)
        assert factor > 0
        np.testing.assert_allclose(s, factor * u, atol=1e-4 * np.abs(s).max())


@needs_plink2
def test_plink2_takes_the_vectors_of_a_vcf_as_covariates(tmp_path):
    """The same genotypes as VCF: without families in the store, in the .eigenvec and in what plink2 imports."""
    calls = random_calls(60, 300, 2, missing=0.0)
    write_bed(tmp_path / "x", calls)
    plink2("--bfile", "x", "--export", "vcf", "id-paste=iid", "--out", "v", cwd=tmp_path)
    group = zarr.open_group(tmp_path / "v.vcz", mode="w", zarr_format=2)
    lines = [line.split("\t") for line in (tmp_path / "v.vcf").read_text().splitlines() if not line.startswith("##")]
    samples, rows = lines[0][9:], lines[1:]
    alleles = [[[int(a) for a in call.split("/")] for call in row[9:]] for row in rows]
    arrays = {
        "call_genotype": np.array(alleles, np.int8), "sample_id": np.array(samples), "contig_id": np.array(["1"]),
        "variant_contig": np.zeros(300, np.int32), "variant_position": np.array([int(row[1]) for row in rows]),
        "variant_id": np.array([row[2] for row in rows]), "variant_allele": np.array([row[3:5] for row in rows]),
    }  # fmt: skip
    for name, values in arrays.items():
        group.create_array(name, data=values)
    export(PCA(2).fit(tmp_path / "v.vcz").result_, tmp_path / "r")
    assert list(table(tmp_path / "r.eigenvec")) == ["#IID", "PC1", "PC2"]
    (tmp_path / "y.txt").write_text("#IID\ty\n" + "".join(f"i{i}\t{i % 7}\n" for i in range(60)))
    done = plink2(
        "--vcf", "v.vcf", "--pheno", "y.txt", "--covar", "r.eigenvec", "--glm", "hide-covar", "--out", "g", cwd=tmp_path
    )
    text = (done / "g.log").read_text()
    assert "2 covariates loaded" in text
    assert set(table(tmp_path / "g.y.glm.linear")["OBS_CT"]) == {"60"}


@pytest.mark.skipif(not SMARTPCA.exists(), reason="eigensoft is not installed")
@pytest.mark.parametrize(
    ("scale", "lines"),
    [("patterson", "altnormstyle: YES"), ("eigenstrat", "altnormstyle: NO"), (None, "usenorm: NO")],
)
def test_smartpca_files_are_those_of_smartpca(tmp_path, scale, lines):
    calls = random_calls(50, 400, 5, missing=0.03)
    calls[:, 7] = 2.0
    path = write_bed(tmp_path / "x", calls, chromosome=np.arange(400) // 20 + 1)
    # smartpca ignores samples without a phenotype.
    fam = path.with_suffix(".fam")
    (tmp_path / "y.fam").write_text("".join(f"f{i} i{i} 0 0 1 1\n" for i in range(len(fam.read_text().splitlines()))))
    names = "genotypename: x.bed\nsnpname: x.bim\nindivname: y.fam\nevecoutname: s.evec\nevaloutname: s.eval\n"
    (tmp_path / "par").write_text(f"{names}numoutevec: 4\nnumoutlieriter: 0\n{lines}\n")
    subprocess.run([SMARTPCA, "-p", "par"], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    paths = export(PCA(49, tol=1e-8, scale=scale).fit(path).result_, tmp_path / "r", form="smartpca")
    assert [p.name for p in paths] == ["r.evec", "r.eval"]
    ours, theirs = (np.loadtxt(tmp_path / f"{name}.eval") for name in "rs")
    # It prints six decimals, and the eigenvalue zero of the mean too.
    np.testing.assert_allclose(ours, theirs[:49], atol=2e-6)
    vectors = [[line.split() for line in (tmp_path / f"{name}.evec").read_text().splitlines()] for name in "rs"]
    assert vectors[0][0][0] == vectors[1][0][0] == "#eigvals:"
    assert [row[0] for row in vectors[0]] == [row[0] for row in vectors[1]]
    assert vectors[0][1][-1] == "???"
    for pc in (1, 2):
        a, b = (np.array([float(row[pc]) for row in rows[1:]]) for rows in vectors)
        # smartpca weights the vectors that it prints by the missing calls of each sample.
        assert abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b) > 0.9995


@pytest.mark.skipif(shutil.which("evec2pca") is None, reason="eigensoft is not installed")
def test_eigensoft_reads_the_vectors(genotypes, tmp_path):
    result, _ = exported(genotypes[0], tmp_path, "smartpca", k=3)
    (tmp_path / "x.ind").write_text("".join(f"f{i}:i{i} U Control\n" for i in range(60)))
    subprocess.run(["evec2pca", "3", "r.evec", "x.ind", "r.pca"], cwd=tmp_path, check=True, timeout=60)
    lines = (tmp_path / "r.pca").read_text().split("\n")
    values = np.array([[float(cell) for cell in line.split()] for line in lines[4:64]])
    scores = result["scores"].values
    np.testing.assert_allclose(values, scores / np.linalg.norm(scores, axis=0), atol=1e-4)


def test_multiallelic_variants_are_not_in_the_weights_of_alleles(tmp_path):
    calls = random_calls(30, 100, 4, missing=0.0)
    first = ["A"] * 100
    first[7] = "A,T"
    path = write_bed(tmp_path / "x", calls, allele_1=first)
    exported(path, tmp_path, k=2)
    assert "rs7" in table(tmp_path / "r.eigenvec.var")["ID"]
    for suffix in ("eigenvec.allele", "afreq"):
        ids = table(tmp_path / f"r.{suffix}")["ID"]
        assert "rs7" not in ids
        assert len(set(ids)) == 99


def test_tables_of_genotypes(genotypes, tmp_path):
    result, paths = exported(genotypes[0], tmp_path, "tsv", k=2)
    assert [p.name for p in paths] == ["r.scores.tsv", "r.loadings.tsv", "r.components.tsv"]
    scores, loadings, components = (table(p) for p in paths)
    assert list(scores) == ["fid", "iid", "PC1", "PC2"]
    assert list(loadings) == ["allele_1", "allele_2", "chromosome", "position", "variant_id", "PC1", "PC2"]
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
    with pytest.raises(InputError, match="'plink', 'smartpca', 'tsv'"):
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
