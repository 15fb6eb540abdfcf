"""Kinship: against the formula in NumPy, and against plink2 to its digits; unrelated sets of simulated families."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from genotype_helpers import calls_in, needs_plink2, plink2, random_calls, write_bed

from streampca import load, load_model
from streampca.errors import InputError, MemoryLimitError
from streampca.genetics import kinship as module
from streampca.genetics.kinship import KinshipPlan, Pairs, kinship, plan_kinship, unrelated, write_ids, write_table
from streampca.sources import open_source
from streampca.sources.formats.plink1 import MAGIC

ALL = -1e9  # the minimum kinship that lists all pairs
CUTOFF = 0.0884


def brute_force(calls):
    """Return {(i, j): (called, hethet, ibs0, kinship)} of all pairs j < i of calls (n x m, NaN missing)."""
    pairs = {}
    for i in range(len(calls)):
        for j in range(i):
            both = ~np.isnan(calls[i]) & ~np.isnan(calls[j])
            a, b = calls[i, both], calls[j, both]
            least = 4 * min((a == 1).sum(), (b == 1).sum())
            # The squared distance of the genotypes is 4 IBS0 + d_i + d_j.
            value = 0.5 - ((a - b) ** 2).sum() / least if least else np.nan
            pairs[i, j] = (a.size, ((a == 1) & (b == 1)).sum(), (np.abs(a - b) == 2).sum(), value)
    return pairs


def families(n_families, m, seed, alone=20, groups=2):
    """Draw calls (n x m) of two parents and three children each, some families joined by a marriage, and others."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.1, 0.9, m)
    frequencies = np.clip(p + 0.15 * rng.standard_normal((groups, m)), 0.05, 0.95)
    people = []

    def founder(group):
        return rng.random((2, m)) < frequencies[group]

    def child(mother, father):
        return np.array([np.where(rng.random(m) < 0.5, *parent) for parent in (mother, father)])

    for number in range(n_families):
        group = number % groups
        mother = child(*people[-2:]) if number % 3 == 2 else founder(group)
        family = [mother, founder(group)]
        family += [child(*family) for _ in range(1 + number % 4)]
        people += family
    people += [founder(number % groups) for number in range(alone)]
    calls = np.array(people).sum(axis=1).astype(float)
    calls = calls[rng.permutation(len(calls))]
    calls[rng.random(calls.shape) < 0.01] = np.nan
    return calls


def check_pairs(found, expected):
    assert [*zip(found.first.tolist(), found.second.tolist(), strict=True)] == sorted(expected)
    for i, j, counts, value in zip(found.first, found.second, found.counts, found.kinship, strict=True):
        called, hethet, ibs0, true = expected[i, j]
        assert (counts[:4].sum(), counts[0], counts[4]) == (called, hethet, ibs0)
        assert value == pytest.approx(true, abs=1e-14)


@pytest.mark.parametrize("n", [2, 3, 31, 32, 33, 65])
def test_counts_are_those_of_each_pair(tmp_path, n):
    calls = random_calls(n, 150, n, missing=0.2)
    check_pairs(kinship(open_source(write_bed(tmp_path / "x", calls)), ALL), brute_force(calls))


@pytest.mark.parametrize(("read", "reads"), [(64, 1), (128, 3), (100, 2), (7, 5), (1000, 1)])
def test_any_reads_and_passes_give_the_same_pairs(tmp_path, monkeypatch, read, reads):
    calls = random_calls(75, 333, 1, missing=0.05)
    source = open_source(write_bed(tmp_path / "x", calls))
    expected = kinship(source, -0.05)
    assert 0 < len(expected) < 75 * 74 // 2
    plan = KinshipPlan(read, reads, ((0, 20), (20, 64), (64, 75)), 2, 10**6, 0)
    monkeypatch.setattr(module, "plan_kinship", lambda *_: plan)
    found = kinship(source, -0.05)
    for name in ("first", "second", "counts", "kinship", "divergent"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_only_pairs_with_the_minimum_are_listed_and_divergent_ones_counted(tmp_path):
    calls = families(4, 2000, 3)
    true = {pair: row[3] for pair, row in brute_force(calls).items()}
    found = kinship(open_source(write_bed(tmp_path / "x", calls)), CUTOFF)
    assert {*zip(found.first.tolist(), found.second.tolist(), strict=True)} == {
        pair for pair, value in true.items() if value >= CUTOFF
    }
    apart = [pair for pair, value in true.items() if value < -CUTOFF]
    assert len(apart) > 0
    np.testing.assert_array_equal(found.divergent, np.bincount(np.ravel(apart), minlength=len(calls)))


def test_pairs_without_heterozygous_calls_are_not_listed(tmp_path):
    calls = np.array([[0.0, 2, 2, 0], [2, 0, 2, 0], [np.nan] * 4, [1, 1, 2, 0]])
    found = kinship(open_source(write_bed(tmp_path / "x", calls)), -2)
    assert len(found) == 0
    assert unrelated(found).all()


def test_padding_is_not_counted(tmp_path, rng):
    path = write_bed(tmp_path / "x", random_calls(41, 200, 5))
    source = open_source(path)
    expected = kinship(source, ALL)
    raw = np.frombuffer(path.read_bytes()[3:], np.uint8).reshape(200, -1).copy()
    raw[:, -1] |= rng.integers(256, size=200, dtype=np.uint8) & 0xFC
    path.write_bytes(MAGIC + raw.tobytes())
    np.testing.assert_array_equal(kinship(open_source(path), ALL).counts, expected.counts)


@needs_plink2
@pytest.mark.parametrize("missing", [0, 0.04])
def test_the_table_is_that_of_plink2(tmp_path, missing):
    calls = random_calls(123, 1600, 7, missing=missing)
    path = write_bed(tmp_path / "x", calls, chromosome=["1"] * 800 + ["22"] * 700 + ["X"] * 100)
    plink2("--bfile", "x", "--make-king-table", "--out", "theirs", cwd=tmp_path)
    source = open_source(path)
    write_table(source, kinship(source, ALL), tmp_path / "ours.kin0")
    assert (tmp_path / "ours.kin0").read_text() == (tmp_path / "theirs.kin0").read_text()


@needs_plink2
def test_every_format_gives_the_table_of_plink2(tmp_path, here):
    path = write_bed(tmp_path / "x", families(5, 700, 2), chromosome=["1"] * 300 + ["2"] * 400)
    plink2("--bfile", "x", "--make-pgen", "--out", "x", cwd=tmp_path)
    plink2("--bfile", "x", "--make-pgen", "psam-cols=sex", "--out", "y", cwd=tmp_path)
    for code in (1, 2):
        plink2("--bfile", "x", "--chr", code, "--make-bed", "--out", f"chr{code}", cwd=tmp_path)
    assert here("convert", "x.bed", "x.vcz", "--quiet")[0] == 0
    for name in ("x", "y"):
        plink2("--pfile", name, "--make-king-table", "--king-table-filter", CUTOFF, "--out", name, cwd=tmp_path)
    with_families, without = ((tmp_path / f"{name}.kin0").read_text() for name in ("x", "y"))
    assert len(with_families.splitlines()) > 20
    expected = {path: with_families, "x.pgen": with_families, "chr*.bed": with_families, "y.pgen": without}
    for name, table in (expected | {"x.vcz": without}).items():
        source = open_source(str(tmp_path / name))
        write_table(source, kinship(source, CUTOFF), tmp_path / "ours.kin0")
        assert (tmp_path / "ours.kin0").read_text() == table, name
    plink2("--bfile", "x", "--export", "bgen-1.2", "--out", "dosages", cwd=tmp_path)
    with pytest.raises(InputError, match=r"dosages.bgen: kinship needs genotype calls"):
        kinship(open_source(tmp_path / "dosages.bgen"), CUTOFF)


@needs_plink2
@pytest.mark.parametrize("seed", range(3))
def test_the_unrelated_set_is_as_large_as_that_of_plink2(tmp_path, seed):
    calls = families(40, 1500, seed)
    source = open_source(write_bed(tmp_path / "x", calls))
    pairs = kinship(source, CUTOFF)
    kept = unrelated(pairs)
    assert not (kept[pairs.first] & kept[pairs.second]).any()
    plink2("--bfile", "x", "--king-cutoff", CUTOFF, "--out", "theirs", cwd=tmp_path)
    theirs = (tmp_path / "theirs.king.cutoff.in.id").read_text().splitlines()
    assert len(theirs) - 1 < len(calls)
    assert kept.sum() >= 0.99 * (len(theirs) - 1)
    write_ids(source, kept, tmp_path / "ours.id")
    ours = (tmp_path / "ours.id").read_text().splitlines()
    assert ours[0] == theirs[0]
    assert len(ours) - 1 == kept.sum()


def made(pairs, divergent):
    first, second = np.array(pairs, np.int32).reshape(-1, 2).T
    return Pairs(first, second, np.zeros((len(first), 5), np.int32), np.full(len(first), 0.25), np.array(divergent))


def test_ties_are_broken_by_divergence_then_by_order():
    assert unrelated(made([(1, 0)], [3, 2, 0])).tolist() == [True, False, True]
    assert unrelated(made([(1, 0)], [2, 3, 0])).tolist() == [False, True, True]
    assert unrelated(made([(1, 0)], [2, 2, 0])).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("pairs", "n", "size"),
    [
        ([(1, 0), (2, 0), (3, 0)], 4, 3),  # a star
        ([(1, 0), (2, 1), (3, 2), (4, 3)], 5, 3),  # a chain
        ([(1, 0), (2, 0), (2, 1)], 3, 1),  # a clique
        ([(1, 0), (2, 1), (3, 2), (4, 3), (4, 0)], 5, 2),  # a ring
        ([(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)], 7, 5),  # a tree
        ([], 3, 3),
    ],
)
def test_small_graphs_get_their_largest_set(pairs, n, size):
    kept = unrelated(made(pairs, np.zeros(n, int)))
    assert kept.sum() == size
    assert not any(kept[i] and kept[j] for i, j in pairs)


def test_plans_cover_all_rows_within_the_limit(tmp_path):
    source = open_source(write_bed(tmp_path / "x", random_calls(1500, 60, 1)))
    with pytest.raises(MemoryLimitError, match="kinship needs at least") as error:
        plan_kinship(source, "200MB")
    least = error.value.needed_bytes
    counts = set()
    for limit in range(least + 10_000_000, least + 60_000_000, 10_000_000):
        plan = plan_kinship(source, limit)
        ends = [stop for _, stop in plan.passes]
        assert [start for start, _ in plan.passes] == [0, *ends[:-1]]
        assert ends[-1] == 1500
        assert plan.peak_bytes <= limit
        counts.add(len(ends))
    assert len(counts) > 1


def test_more_pairs_than_fit_are_an_error(tmp_path, monkeypatch):
    source = open_source(write_bed(tmp_path / "x", random_calls(20, 60, 1)))
    monkeypatch.setattr(module, "plan_kinship", lambda *_: KinshipPlan(64, 1, ((0, 20),), 1, 189, 0))
    with pytest.raises(InputError, match="190 pairs or more .* 189 fit in memory; increase the minimum kinship"):
        kinship(source, ALL)


@pytest.mark.parametrize("least", [0.6, float("nan")])
def test_a_minimum_above_that_of_duplicates_is_an_error(tmp_path, least):
    source = open_source(write_bed(tmp_path / "x", random_calls(3, 60, 1)))
    with pytest.raises(InputError, match=r"at most 0\.5"):
        kinship(source, least)


def test_the_command_writes_table_and_lists_and_resumes(tmp_path, here, monkeypatch):
    write_bed(tmp_path / "x", families(6, 1500, 1))
    code, out, err = here("kinship", "x.bed", "--threshold", 0.1, "--out", "a.kin0", "--quiet", "--memory", "1GB")
    assert code == 0, err
    rows = (tmp_path / "a.kin0").read_text().splitlines()
    inside, outside = ((tmp_path / f"a.king.cutoff.{name}.id").read_text().splitlines() for name in ("in", "out"))
    n = len(inside) + len(outside) - 2
    assert f"{len(rows) - 1} pairs of relatives\n{len(inside) - 1} of {n} samples unrelated\ntable: a.kin0" in out
    assert here("pca", "x.bed", "-k", 2, "--keep", "a.king.cutoff.in.id", "--out", "r.zarr", "--quiet")[0] == 0

    def full(*_):
        raise OSError(28, "No space left on device")

    again = ("kinship", "x.bed", "--threshold", 0.1, "--out", "b.kin0", "--quiet", "--memory", "1GB")
    with monkeypatch.context() as patched:
        patched.setattr("streampca.run.kinship.write_table", full)
        assert "no space left" in here(*again)[2]
    monkeypatch.setattr(module, "count_pairs", None)  # the counts are on record
    code, _, err = here(*again, "--only-resume")
    assert code == 0, err
    for suffix in (".kin0", ".king.cutoff.in.id", ".king.cutoff.out.id"):
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_pca_fits_unrelated_samples_and_projects_the_others(tmp_path, here):
    write_bed(tmp_path / "x", families(30, 3000, 4, alone=60))
    assert here("kinship", "x.bed", "--quiet")[0] == 0
    code, out, err = here(
        "pca", "x.bed", "-k", 2, "--unrelated", CUTOFF, "--out", "a.zarr", "--quiet", "--export", "plink"
    )
    assert code == 0, err
    listed = [line.split()[1] for line in (tmp_path / "x.king.cutoff.in.id").read_text().splitlines()[1:]]
    result = load(tmp_path / "a.zarr")
    n, iids = result.sizes["sample"], result["iid"].values
    assert iids.tolist() == [f"i{i}" for i in range(n)], "the order of the file"
    assert iids[~result["projected"].values].tolist() == listed
    assert f"fitted to {len(listed)} of {n} samples without relatives (kinship of 0.0884 or more)" in out
    # In two commands, with the list.
    assert here("pca", "x.bed", "-k", 2, "--keep", "x.king.cutoff.in.id", "--out", "b.zarr", "--quiet")[0] == 0
    assert here("project", "b.zarr", "x.bed", "--out", "c.zarr", "--quiet")[0] == 0
    expected, scores = load(tmp_path / "b.zarr"), zarr.open_array(tmp_path / "c.zarr", path="scores", mode="r")[:]
    assert result.attrs["n_samples"] == expected.attrs["n_samples"] == len(listed)
    for name in ("components", "explained_variance", "mean", "certificate"):
        np.testing.assert_array_equal(result[name], expected[name])
    np.testing.assert_allclose(result["scores"], scores, rtol=1e-4, atol=1e-3)
    missing = np.isnan(calls_in(tmp_path / "x.bed")[:, np.isin(table_ids(tmp_path / "x.bim"), result["variant_id"])])
    np.testing.assert_array_equal(result["sample_missing"], missing.sum(axis=1))
    model = load_model(tmp_path / "a.zarr")
    np.testing.assert_allclose(model.transform(tmp_path / "x.bed")[~result["projected"].values], expected["scores"],
                               rtol=1e-3, atol=1e-2)  # fmt: skip
    vectors = np.loadtxt(tmp_path / "a.eigenvec", usecols=(2, 3), skiprows=1)
    np.testing.assert_allclose((vectors[~result["projected"].values] ** 2).sum(axis=0), 1, rtol=1e-4)
    assert here("report", "a.zarr", "--out", "a.html")[0] == 0
    page = (tmp_path / "a.html").read_text()
    assert "below 0.0884, on which the others were projected" in page
    assert "--unrelated 0.0884" in page


def test_relatives_with_pruning_outliers_and_none(tmp_path, here):
    calls = families(12, 1500, 5, alone=60)
    write_bed(tmp_path / "x", calls)
    given = ("--unrelated", CUTOFF, "--ld-prune", 0.5, "--maf", 0.05, "--mind", 0.5, "--outliers", "remove")
    code, _, err = here("pca", "x.bed", "-k", 2, *given, "--out", "a.zarr", "--quiet")
    assert code == 0, err
    result = load(tmp_path / "a.zarr")
    assert 0 < result["projected"].sum() < result.sizes["sample"]
    assert result["outlier"].shape == result["projected"].shape
    assert np.isfinite(result["scores"]).all()
    assert here("pca", "x.bed", "-k", 2, "--unrelated", 0.4, "--out", "b.zarr", "--quiet")[0] == 0
    none = load(tmp_path / "b.zarr")
    assert "projected" not in none
    assert none.sizes["sample"] == len(calls)
    assert "no pair of samples has a kinship of 0.4 or more" in none.attrs["notes"]


def table_ids(path):
    return [line.split()[1] for line in path.read_text().splitlines()]
