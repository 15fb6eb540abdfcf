"""New samples on components that were fitted without them: variants matched, shrinkage undone."""

from __future__ import annotations

import numpy as np
import pytest
from genotype_helpers import Truth, calls_in, labels_of, random_calls, write_bed, write_part
from helpers import one_line

from streampca import InputError, open_genotypes
from streampca.demos.simulate_genotypes import simulate_genotypes
from streampca.genetics.matching import VARIANT_LABELS, match_variants
from streampca.genetics.projection import oadp_scores
from streampca.models.genotypes import placed_genotypes
from streampca.models.pca.fit import fit_pca
from streampca.models.pca.options import PCAOptions
from streampca.sources.genotypes import TEXT

COMPLEMENT = dict(zip("ACGT", "TGCA", strict=True))


def labels(rows):
    """Labels of fitted variants, from (id, A1, A2)."""
    columns = zip(*rows, strict=True)
    named = zip(("variant_id", "allele_1", "allele_2"), columns, strict=True)
    places = {"chromosome": np.full(len(rows), "1", TEXT), "position": np.arange(1, len(rows) + 1)}
    return {name: np.array(values, TEXT) for name, values in named} | places


def new_data(tmp_path, rows):
    ids, first, second = map(list, zip(*rows, strict=True))
    path = write_bed(tmp_path / "new", np.ones((2, len(rows))), sid=ids, allele_1=first, allele_2=second)
    return open_genotypes(path)


FITTED = ("rs1", "A", "G")
MATCHES = {
    "the same": (FITTED, ("rs1", "A", "G"), False),
    "swapped": (FITTED, ("rs1", "G", "A"), True),
    "other strand": (FITTED, ("rs1", "T", "C"), False),
    "other strand, swapped": (FITTED, ("rs1", "C", "T"), True),
    "lower case": (FITTED, ("rs1", "a", "g"), False),
    "ambiguous": (("rs1", "A", "T"), ("rs1", "A", "T"), False),
    "ambiguous, swapped": (("rs1", "C", "G"), ("rs1", "G", "C"), True),
    "long alleles": (("rs1", "ATT", "A"), ("rs1", "A", "ATT"), True),
    "long alleles of the other strand": (("rs1", "ACC", "A"), ("rs1", "TGG", "T"), False),
    "one allele unseen": (FITTED, ("rs1", "0", "G"), False),
    "one allele unseen, swapped": (FITTED, ("rs1", "0", "A"), True),
    "one allele unseen, other strand": (FITTED, ("rs1", "C", "0"), True),
    "other alleles": (FITTED, ("rs1", "A", "C"), "other_alleles"),
    "one allele unseen, the other unknown": (("rs1", "ACC", "A"), ("rs1", "0", "G"), "other_alleles"),
    "other id": (FITTED, ("rs2", "A", "G"), "absent"),
}


@pytest.mark.parametrize("name", MATCHES)
def test_one_variant(tmp_path, name):
    fitted, new, expected = MATCHES[name]
    match = match_variants(labels([fitted, ("ok", "A", "C")]), new_data(tmp_path, [("ok", "A", "C"), new]))
    # In the order of the new data, so that these are read as they lie.
    if isinstance(expected, bool):
        assert match.fitted.tolist() == [1, 0]
        assert match.new.tolist() == [0, 1]
        assert match.flipped.tolist() == [False, expected]
        assert (match.absent, match.other_alleles, match.ambiguous) == (0, 0, 0)
        assert match.note.startswith("2 of 2 variants match")
        assert ("swapped alleles" in match.note) == expected
    else:
        assert match.fitted.tolist() == [1]
        assert getattr(match, expected) == 1
        assert match.absent + match.other_alleles == 1
        assert (
            match.note
            == "1 of 2 variants match, 1 " + {"absent": "missing", "other_alleles": "with other alleles"}[expected]
        )


@pytest.mark.parametrize(("drop", "left"), [(False, 4), (True, 2)])
def test_ambiguous_variants_may_be_dropped(tmp_path, drop, left):
    rows = [("a", "A", "T"), ("b", "G", "C"), ("c", "A", "G"), ("d", "T", "G")]
    match = match_variants(labels(rows), new_data(tmp_path, rows), drop_ambiguous=drop)
    assert len(match.fitted) == left
    assert match.ambiguous == 4 - left
    assert ("strand-ambiguous" in match.note) == drop


def test_same_id_with_other_alleles_is_told_apart(tmp_path):
    rows = [("a", "A", "C"), ("a", "A", "G"), ("b", "A", "C")]
    match = match_variants(labels(rows), new_data(tmp_path, rows[::-1]))
    assert match.fitted.tolist() == [2, 1, 0]
    assert match.new.tolist() == [0, 1, 2]


def test_variants_that_cannot_be_told_apart_are_refused(tmp_path):
    data = new_data(tmp_path, [("a", "A", "G"), ("a", "T", "C")])
    with pytest.raises(InputError) as error:
        match_variants(labels([("a", "A", "G")]), data)
    assert "duplicate variant a A G" in one_line(error)


def test_variants_without_id_go_by_position(tmp_path):
    """The file has chromosomes and positions of its own; those fitted are given the second one's."""
    data = new_data(tmp_path, [(".", "A", "G"), (".", "A", "G"), ("rs3", "A", "G")])
    fitted = labels([("rs3", "A", "G"), (".", "G", "A")])
    fitted["chromosome"][1], fitted["position"][1] = str(data.label("chromosome")[1]), data.label("position")[1]
    match = match_variants(fitted, data)
    assert sorted(zip(match.fitted.tolist(), match.new.tolist(), strict=True)) == [(0, 2), (1, 1)]
    assert match.flipped[match.fitted == 1].all()


def test_nothing_in_common(tmp_path):
    with pytest.raises(InputError) as error:
        match_variants(labels([FITTED]), new_data(tmp_path, [("rs9", "A", "G")]))
    assert "none of the 1 variants" in one_line(error)


# ---- scores


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("projection")


@pytest.fixture(scope="module")
def small(folder):
    calls = random_calls(50, 600, 3)
    path = write_bed(folder / "small", calls)
    return path, calls, fit(path, 3, tol=1e-6)


def fit(path, k, tol=1e-3):
    """Components, and the labels of their variants."""
    source = open_genotypes(path)
    found, sweeps = fit_pca(source, PCAOptions(n_components=k, tol=tol))
    return found, {name: values for name, (_, values) in found.axes(sweeps.matrix.source)[1].coords.items()}


def scores_of(path, fitted, projection, **options):
    found, variants = fitted
    source = open_genotypes(path, autosomes=False)
    return placed_genotypes(source, found, match_variants(variants, source, **options), projection=projection)[0]


def test_fitted_samples_get_their_scores(small):
    path, _, fitted = small
    ours = scores_of(path, fitted, "simple")
    np.testing.assert_allclose(ours, fitted[0].scores, atol=1e-5 * np.abs(fitted[0].scores).max())


@pytest.mark.parametrize("projection", ["simple", "oadp"])
def test_swapped_alleles_other_strand_and_order_change_nothing(small, folder, projection):
    path, calls, fitted = small
    before = scores_of(path, fitted, projection)
    order = np.random.default_rng(1).permutation(600)
    # A/G throughout: every third swapped with its counts, every fifth of the other strand.
    swapped, turned = np.arange(600) % 3 == 0, np.arange(600) % 5 == 0
    first, second = np.where(swapped, "G", "A"), np.where(swapped, "A", "G")
    first, second = (
        np.array([COMPLEMENT[x] if t else x for x, t in zip(a, turned, strict=True)]) for a in (first, second)
    )
    recoded = np.where(swapped, 2 - calls, calls)
    more = np.column_stack([recoded[:, order], random_calls(50, 7, 1)])
    ids = [f"rs{j}" for j in order] + [f"other{j}" for j in range(7)]
    again = write_bed(
        folder / f"recoded-{projection}", more, sid=ids, allele_1=[*first[order], *"AAAAAAA"],
        allele_2=[*second[order], *"CCCCCCC"],
    )  # fmt: skip
    source = open_genotypes(again)
    match = match_variants(fitted[1], source)
    assert match.flipped.sum() == 200
    np.testing.assert_allclose(scores_of(again, fitted, projection), before, atol=1e-5 * np.abs(before).max())
    # Counts recoded but not the labels: the test would notice.
    wrong = write_bed(folder / f"wrong-{projection}", recoded)
    assert np.abs(scores_of(wrong, fitted, projection) - before).max() > 0.1 * np.abs(before).max()


def test_absent_variants_are_solved_for(small, folder):
    """A sample that lies within the components keeps its scores whichever variants are there."""
    path, calls, fitted = small
    found, _ = fitted
    kept = np.random.default_rng(2).random(600) < 0.7
    part = write_part(folder / "kept", path, variants=kept)
    ours = scores_of(part, fitted, "simple")
    p = np.nanmean(calls, axis=0) / 2
    X = np.where(np.isnan(calls), 0, (calls - 2 * p) / np.sqrt(2 * p * (1 - p)))
    best = np.linalg.lstsq(found.components[:, kept].T, X[:, kept].T, rcond=None)[0].T
    np.testing.assert_allclose(ours, best, atol=1e-4 * np.abs(best).max())


def test_unknown_projection_is_refused(small):
    path, _, fitted = small
    with pytest.raises(InputError) as error:
        scores_of(path, fitted, "magic")
    assert "'oadp', 'lsq', 'simple'" in one_line(error)


# ---- online augmentation, decomposition and Procrustes


def test_augmented_is_what_it_says(small):
    """Naively: a full SVD of the fitted matrix with the new sample below it, and Procrustes onto the scores."""
    _, calls, _ = small
    true = Truth(calls[:40])
    _, s, Vt = np.linalg.svd(true.X, full_matrices=False)
    k = 3
    fitted = np.linalg.svd(true.X, full_matrices=False)[0][:, :k] * s[:k]
    p = np.nanmean(calls[:40], axis=0)[true.varies] / 2
    new = calls[40:, true.varies]
    new = np.where(np.isnan(new), 0, (new - 2 * p) / np.sqrt(2 * p * (1 - p)))
    ours = oadp_scores(new @ Vt[:k].T, (new**2).sum(axis=1), s[:k])
    for x, given in zip(new, ours, strict=True):
        U, t, _ = np.linalg.svd(np.vstack([fitted @ Vt[:k], x]), full_matrices=False)
        both = U[:, :k] * t[:k]
        # Procrustes: min || c both[:-1] R - fitted ||
        left, strength, right = np.linalg.svd(both[:-1].T @ fitted)
        c = strength.sum() / (both[:-1] ** 2).sum()
        np.testing.assert_allclose(given, c * both[-1] @ left @ right, rtol=1e-8, atol=1e-8 * s[0])
    assert not np.allclose(ours, new @ Vt[:k].T, rtol=0.01)


def test_augmented_leaves_a_sample_within_the_components_almost_where_it_is():
    lengths = np.array([100.0, 80.0])
    scores = np.array([[3.0, -2.0], [0.0, 0.0]])
    ours = oadp_scores(scores, (scores**2).sum(axis=1), lengths)
    np.testing.assert_allclose(ours, scores, rtol=2e-3, atol=1e-12)


def test_augmented_goes_by_parts(rng):
    scores = rng.standard_normal((5000, 2))
    squares = (scores**2).sum(axis=1) + 50
    whole = oadp_scores(scores, squares, np.array([20.0, 15.0]))
    np.testing.assert_allclose(
        whole[4090:4100], oadp_scores(scores[4090:4100], squares[4090:4100], np.array([20.0, 15.0]))
    )


STRUCTURAL = 11


@pytest.fixture(scope="module")
def split(folder):
    """A simulated set, a fit on four fifths of it, and where a joint fit has the others."""
    groups = simulate_genotypes(folder / "all", 1200, 8000, admixed=0.0, missing=0.002, seed=21)
    rng = np.random.default_rng(0)
    new = np.zeros(1200, bool)
    new[rng.permutation(1200)[:240]] = True
    path = folder / "all.bed"
    reference = fit(write_part(folder / "reference", path, ~new), STRUCTURAL)
    joint = fit(path, STRUCTURAL)[0].scores.astype(float)
    # Close eigenvalues mix: the joint fit is turned onto the reference first, over all components of the structure.
    left, strength, right = np.linalg.svd(joint[~new].T @ reference[0].scores)
    assert strength[-1] > 0.5 * strength[0] * (reference[0].explained_variance[-1] / reference[0].explained_variance[0])
    return write_part(folder / "new", path, new), reference, (joint @ left @ right)[new], groups[new] // 2


def group_means(scores, groups):
    return np.array([scores[groups == g, :4].mean(axis=0) for g in range(12)])


def error_and_slope(ours, theirs):
    """Along each component: difference of group means relative to their spread, and slope of one on the other."""
    squares = (theirs**2).sum(axis=0)
    return np.sqrt(((ours - theirs) ** 2).sum(axis=0) / squares), (ours * theirs).sum(axis=0) / squares


def test_oadp_puts_new_samples_where_a_joint_fit_has_them(split):
    path, reference, joint, groups = split
    # In the joint fit 0.2% of the calls are at the mean.
    theirs = group_means(joint, groups) / 0.998
    error, slope = error_and_slope(group_means(scores_of(path, reference, "oadp"), groups), theirs)
    _, shrunk = error_and_slope(group_means(scores_of(path, reference, "simple"), groups), theirs)
    assert (error[:3] < 0.02).all()
    assert error[3] < 0.05
    assert (np.abs(slope - 1) < 0.01).all()
    # The weaker the component, the more a simple projection shrinks.
    assert (shrunk < 0.98).all()
    assert shrunk[3] < 0.85


def test_oadp_with_variants_absent(split, folder):
    path, reference, joint, groups = split
    kept = np.random.default_rng(3).random(8000) < 0.7
    less = write_part(folder / "less", path, variants=kept)
    theirs = group_means(joint, groups)
    error, slope = error_and_slope(group_means(scores_of(less, reference, "oadp"), groups), theirs)
    assert (np.abs(slope - 1) < 0.05).all()
    assert (error[:3] < 0.05).all()
    assert error[3] < 0.1
    source = open_genotypes(less)
    match = match_variants(reference[1], source)
    assert match.absent == len(reference[1]["variant_id"]) - len(match.fitted) > 2000


def test_labels_of_the_fit_are_those_used(small):
    path, _, (found, variants) = small
    assert len(found.mean) == len(variants["variant_id"])
    assert labels_of(path)[1]["sid"][0] == variants["variant_id"][0]
    assert calls_in(path).shape == (50, 600)


def test_too_few_variants_to_tell_components_apart_are_refused(tmp_path):
    simulate_genotypes(tmp_path / "x", 60, 400, seed=4)
    source = open_genotypes(tmp_path / "x")
    found, _ = fit_pca(source, PCAOptions(n_components=10))
    variants = {name: source.label(name) for name in VARIANT_LABELS}
    few = source.take(features=np.array([3, 7, 11]))
    for projection in ("simple", "oadp"):
        with pytest.raises(InputError) as error:
            placed_genotypes(few, found, match_variants(variants, few), projection=projection)
        assert "3 of 400 variants match" in one_line(error)
