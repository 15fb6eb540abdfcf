"""Samples apart from all others, and components that show the linkage of one region."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
from genotype_helpers import random_calls, write_bed
from helpers import one_line

from streampca import PCA, InputError, open_genotypes
from streampca.genetics.outliers import outliers, region_notes
from streampca.models.genotypes import fit_genotypes
from streampca.models.pca.fit import fit_pca
from streampca.models.pca.options import PCAOptions
from streampca.sources.genotypes import TEXT

# ---- outliers


def clusters(rng, sizes=(400, 300, 60, 15)):
    """Populations of different size and spread, on four components."""
    centres = rng.normal(0, 30, (len(sizes), 4))
    spreads = (1.0, 2.0, 1.5, 1.0)
    return np.concatenate(
        [c + s * rng.standard_normal((n, 4)) for c, n, s in zip(centres, sizes, spreads, strict=True)]
    )


@pytest.mark.parametrize("seed", range(5))
def test_samples_far_from_all_are_found_and_small_populations_are_not(seed):
    rng = np.random.default_rng(seed)
    scores = clusters(rng)
    assert not outliers(scores).any()
    planted = rng.choice(len(scores), 4, replace=False)
    scores[planted] += np.array([200, -150, 120, 90])[:, None] * np.sign(rng.standard_normal((4, 4)))
    np.testing.assert_array_equal(np.flatnonzero(outliers(scores)), np.sort(planted))


def scattered(rng, spread):
    """A close population of 600, and one of 60 whose samples lie so many times as far from each other."""
    close, wide = rng.standard_normal((600, 4)), spread * rng.standard_normal((60, 4)) + 80
    return np.concatenate([close, wide])


@pytest.mark.parametrize("seed", range(3))
def test_most_of_a_scattered_population_is_not_apart(seed):
    """Distances alone would take a half of it or more."""
    assert not outliers(scattered(np.random.default_rng(seed), 2)).any()
    assert outliers(scattered(np.random.default_rng(seed), 5)).sum() <= 12


def test_scale_and_shift_do_not_matter(rng):
    scores = clusters(rng)
    scores[5] += 100
    found = outliers(scores)
    assert found.sum() == 1
    np.testing.assert_array_equal(outliers(1e-3 * scores + 7), found)
    np.testing.assert_array_equal(outliers(scores[::-1])[::-1], found)


@pytest.mark.parametrize("n", [2, 3, 8, 11])
def test_few_samples(n, rng):
    assert outliers(rng.standard_normal((n, 2))).shape == (n,)


def test_the_same_sample_many_times():
    assert not outliers(np.ones((50, 3))).any()
    twins = np.repeat(np.random.default_rng(0).standard_normal((100, 3)), 2, axis=0)
    assert not outliers(twins).any()


@pytest.fixture
def strange(tmp_path):
    """150 samples of three groups; two have half their genotypes from nowhere."""
    rng = np.random.default_rng(6)
    calls = random_calls(150, 2000, 6, missing=0.01)
    for i in (20, 90):
        chosen = rng.random(2000) < 0.6
        calls[i, chosen] = rng.choice([0.0, 2.0], chosen.sum())
    return write_bed(tmp_path / "strange", calls)


def test_outliers_are_reported(strange):
    source = open_genotypes(strange)
    found, sweeps, apart = fit_genotypes(
        source, partial(fit_pca, options=PCAOptions(n_components=4)), find_outliers="report"
    )
    assert np.flatnonzero(apart).tolist() == [20, 90]
    assert found.n_samples == 150
    note = [note for note in found.notes if "outliers" in note]
    assert note == ["2 outliers on the components (f20 i20, f90 i90); see the variable outlier"]
    assert sweeps.matrix.source.shape[0] == 150


def test_outliers_are_removed_until_there_are_none(strange):
    found, sweeps, apart = fit_genotypes(
        open_genotypes(strange), partial(fit_pca, options=PCAOptions(n_components=4)), find_outliers="remove"
    )
    assert not apart.any()
    left = sweeps.matrix.source
    assert found.n_samples == left.shape[0] == 148
    assert not {"i20", "i90"} & set(left.label("iid"))
    assert any("samples excluded: 2 outliers on the components (f20 i20, f90 i90)" in note for note in found.notes)
    assert len(found.scores) == 148


def test_rounds_are_counted(strange, monkeypatch):
    """Each fit has another outlier: as many are removed as there are rounds, and the last is reported."""
    seen = []

    def one(scores):
        seen.append(len(scores))
        return np.arange(len(scores)) == 0

    monkeypatch.setattr("streampca.models.genotypes.outliers", one)
    for rounds in (1, 3):
        seen.clear()
        found, _, apart = fit_genotypes(
            open_genotypes(strange),
            partial(fit_pca, options=PCAOptions(n_components=2)),
            find_outliers="remove",
            rounds=rounds,
        )
        assert seen == [150 - i for i in range(rounds + 1)]
        assert found.n_samples == 150 - rounds
        assert apart.sum() == 1
        assert any(note.startswith("1 outlier on the components (f") for note in found.notes)


def test_not_looking_finds_nothing(strange):
    found, _, apart = fit_genotypes(open_genotypes(strange), partial(fit_pca, options=PCAOptions(n_components=2)))
    assert apart is None
    assert not [note for note in found.notes if "outlier" in note]


def test_unknown_choice_is_refused(strange):
    with pytest.raises(InputError) as error:
        fit_genotypes(
            open_genotypes(strange), partial(fit_pca, options=PCAOptions(n_components=2)), find_outliers="yes"
        )
    assert "'report', 'remove'" in one_line(error)


# ---- regions

HLA = ("6", 28_000_000)
NOWHERE = ("9", 100_000_000)


def genome(per_chromosome=100):
    """Chromosomes and positions: variants a megabase apart on each of 22."""
    codes = np.repeat([str(c) for c in range(1, 23)], per_chromosome).astype(TEXT)
    return codes, np.tile(1_000_000 * np.arange(1, per_chromosome + 1), 22)


def with_block(tmp_path, where, prefix=""):
    """200 unlinked samples of one population, with 150 near copies of one variant in two megabases."""
    rng = np.random.default_rng(3)
    codes, positions = genome()
    calls = random_calls(200, len(codes), 3, missing=0.0, groups=1)
    haplotype = rng.binomial(2, 0.4, 200).astype(float)
    block = np.where(rng.random((200, 150)) < 0.02, rng.binomial(2, 0.4, (200, 150)), haplotype[:, None])
    chromosome, start = where
    place = 100 * (int(chromosome) - 1)
    codes = np.insert(codes.astype(object), place, [chromosome] * 150)
    positions = np.insert(positions, place, start + 13_000 * np.arange(150))
    calls = np.insert(calls, [place] * 150, block, axis=1)
    chromosomes = [f"{prefix}{code}" for code in codes]
    return write_bed(tmp_path / "block", calls, chromosome=chromosomes, bp_position=positions)


@pytest.mark.parametrize("prefix", ["", "chr"])
def test_a_block_of_linkage_is_named(tmp_path, prefix):
    path = with_block(tmp_path, NOWHERE, prefix)
    found = fit_genotypes(open_genotypes(path), partial(fit_pca, options=PCAOptions(n_components=2)))[0]
    notes = [note for note in found.notes if "squared loadings" in note]
    assert len(notes) == 1
    assert notes[0].startswith("PC 1 has 9")
    # From 100 to 101.9 megabases; its ends hold a twentieth of it each.
    assert re.search(r"chromosome 9, 100\.1 to 101\.[89] Mb:", notes[0])
    assert "--exclude-regions" in notes[0]


def test_the_hla_has_a_name(tmp_path):
    path = with_block(tmp_path, HLA)
    found = fit_genotypes(open_genotypes(path), partial(fit_pca, options=PCAOptions(n_components=2)))[0]
    notes = [note for note in found.notes if "squared loadings" in note]
    assert len(notes) == 1
    assert re.search(r"chromosome 6, 28\.1 to 29\.[89] Mb \(HLA\)", notes[0])
    without = fit_genotypes(
        open_genotypes(path, exclude_regions="GRCh37"), partial(fit_pca, options=PCAOptions(n_components=2))
    )[0]
    assert not [note for note in without.notes if "squared loadings" in note]


def test_unlinked_variants_get_no_note(tmp_path):
    codes, positions = genome()
    calls = random_calls(200, len(codes), 3)
    path = write_bed(tmp_path / "x", calls, chromosome=codes.tolist(), bp_position=positions)
    assert not [
        note
        for note in fit_genotypes(open_genotypes(path), partial(fit_pca, options=PCAOptions(n_components=4)))[0].notes
        if "loadings" in note
    ]


def loadings_in(first, last, count=2200):
    loadings = np.full(count, 1e-3)
    loadings[first:last] = 1
    return loadings / np.linalg.norm(loadings)


def test_each_component_is_looked_at():
    codes, positions = genome()
    even = np.full(2200, 2200**-0.5)
    notes = region_notes(np.array([even, loadings_in(510, 513), even, loadings_in(2199, 2200)]), codes, positions)
    assert [note.split(" has")[0] for note in notes] == ["PC 2", "PC 4"]
    assert "chromosome 6, 11.0 to 13.0 Mb" in notes[0]
    assert "chromosome 22, 100.0 to 100.0 Mb" in notes[1]


def test_order_of_variants_does_not_matter():
    codes, positions = genome()
    components = loadings_in(510, 513)[None, :]
    order = np.random.default_rng(0).permutation(2200)
    assert region_notes(components[:, order], codes[order], positions[order]) == region_notes(
        components, codes, positions
    )


def test_a_window_does_not_go_from_one_chromosome_to_the_next():
    codes, positions = genome(10)
    loadings = loadings_in(8, 12, 220)
    notes = region_notes(loadings[None, :], codes, positions)
    assert len(notes) == 1
    assert "50% of its squared loadings" in notes[0]


def test_all_in_one_window_is_not_a_region():
    codes = np.array(["1"] * 50, TEXT)
    assert region_notes(loadings_in(0, 5, 50)[None, :], codes, 1000 * np.arange(50)) == ()


def few(path, **options):
    notes = PCA(10, **options).fit(path).notes_
    return [note for note in notes if "of the variance of PC" in note]


def test_duplicates_that_drive_components_are_noted(tmp_path):
    calls = random_calls(500, 4000, 0, missing=0.01)
    assert few(write_bed(tmp_path / "plain", calls)) == []
    calls[470:] = calls[440:470]
    (note,) = few(write_bed(tmp_path / "twice", calls))
    count, share = re.match(
        r"(\d+) of 500 samples hold (\d+)% of the variance of PC \d+ \(f4\d\d i4\d\d, ", note
    ).groups()
    assert 2 <= int(count) <= 12
    assert 50 <= int(share) < 75
    assert "they may be relatives or duplicates" in note


def test_a_family_is_named(tmp_path):
    calls = random_calls(300, 4000, 1, missing=0)
    rng = np.random.default_rng(1)
    calls[100:105] = np.where(rng.random((5, 4000)) < 0.7, calls[100], calls[100:105])
    (note,) = few(write_bed(tmp_path / "x", calls))
    named = re.search(r"\((.*?)\)", note)[1]
    assert set(re.findall(r"i\d+", named)) <= {f"i{i}" for i in range(100, 105)}


@pytest.mark.parametrize(("n", "groups"), [(500, 1), (60, 1), (30, 2), (400, 3), (200, 8)])
def test_samples_without_relatives_have_no_such_note(tmp_path, n, groups):
    assert few(write_bed(tmp_path / "x", random_calls(n, 1500, n, groups=groups))) == []


def test_a_small_population_does_not_count_as_few_samples(tmp_path):
    calls = random_calls(500, 3000, 2, groups=1)
    p = np.random.default_rng(3).uniform(0.2, 0.8, 3000)
    calls[:30] = np.random.default_rng(4).binomial(2, p, (30, 3000))
    assert few(write_bed(tmp_path / "x", calls)) == []
