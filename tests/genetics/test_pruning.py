"""Pruning by linkage disequilibrium: against the rule written out in NumPy, and against plink2 where it is there."""

from __future__ import annotations

import shutil
import subprocess
from fractions import Fraction

import numpy as np
import pytest

from streampca.errors import InputError
from streampca.genetics import pruning as module
from streampca.genetics.pruning import prune, write_lists
from streampca.sources.formats.plink1 import MAGIC, BedSource
from streampca.sources.packed import pack

WINDOWS = [
    ("50", 5, 0.2), (50, 5, 0.5), ("20", 20, 0.1), ("7", 1, 0.8), ("400", 10, 0.3), ("1", 1, 0.2), ("9", 4, 0),
    ("30kb", 1, 0.2), ("0.5 kb", 1, 0.4), ("3000KB", 1, 0.05), ("50", 5, 1),
]  # fmt: skip


def linked(rng, n, m, *, missing=0.02):
    """Draw genotypes (m x n, -1 missing) of haplotypes that copy few founders, switching now and then between them."""
    founders = rng.random((rng.integers(4, 20), m)) < rng.beta(0.6, 0.6, m)
    switches = rng.random((2 * n, m)) < rng.choice([0.02, 0.1])
    switches[:, 0] = True
    since = np.maximum.accumulate(np.where(switches, np.arange(m), 0), axis=1)
    copied = np.take_along_axis(rng.integers(len(founders), size=(2 * n, m)), since, axis=1)
    haplotypes = founders[copied, np.arange(m)] ^ (rng.random((2 * n, m)) < 0.005)
    calls = (haplotypes[:n].astype(np.int8) + haplotypes[n:]).T
    calls[rng.random(calls.shape) < missing] = -1
    return np.ascontiguousarray(calls)


def write(folder, calls, codes=None, positions=None, name="x"):
    """Write calls (m x n) as PLINK 1 files, and open them."""
    m, n = calls.shape
    codes = ["1"] * m if codes is None else codes
    positions = 1000 * np.arange(1, m + 1) if positions is None else positions
    packed = np.empty((m, -(-n // 4)), np.uint8)
    pack(np.ascontiguousarray(calls), packed)
    path = folder / f"{name}.bed"
    path.write_bytes(MAGIC + packed.tobytes())
    path.with_suffix(".fam").write_text("".join(f"f{i} s{i} 0 0 0 -9\n" for i in range(n)))
    rows = zip(codes, positions, strict=True)
    path.with_suffix(".bim").write_text("".join(f"{c} v{j} 0 {p} A G\n" for j, (c, p) in enumerate(rows)))
    return BedSource(path)


def genome(rng, n, sizes, missing=0.02):
    """Return calls, chromosomes and positions of some chromosomes, with variants that do not vary."""
    calls = np.concatenate([linked(rng, n, m, missing=missing) for m in sizes])
    for value in (0, 1, 2, -1):
        calls[rng.random(len(calls)) < 0.01] = value
    codes = np.repeat([str(c + 1) for c in range(len(sizes))], sizes)
    positions = np.concatenate([np.cumsum(rng.integers(0, 3000, m)) for m in sizes])
    return calls, codes, positions


def squared_correlation(a, b):
    """Return it exactly, of the samples with both calls."""
    both = (a >= 0) & (b >= 0)
    a, b, n = a[both].astype(int), b[both].astype(int), int(both.sum())
    covariance = int(n * (a @ b) - a.sum() * b.sum())
    variances = int(n * (a @ a) - a.sum() ** 2) * int(n * (b @ b) - b.sum() ** 2)
    return Fraction(covariance**2, variances) if variances else Fraction(0)


def minor(a):
    called = a[a >= 0].astype(int)
    return min(Fraction(int(called.sum()), 2 * called.size), 1 - Fraction(int(called.sum()), 2 * called.size))


def slow(calls, codes, positions, window, step, r2):
    """Prune by the rule, one window and one pair after another."""
    kept = np.array([len(set(row[row >= 0].tolist())) > 1 for row in calls])
    text = str(window).lower().replace(" ", "")
    limit = Fraction(str(r2)) * (1 + Fraction(1, 2**44))
    for code in dict.fromkeys(codes.tolist()):
        here = np.flatnonzero(codes == code)
        pairs_done = set()
        start, last_end = 0, 0
        while last_end < here.size:
            if text.endswith("kb"):
                end = int((positions[here] <= positions[here[start]] + 1000 * float(text[:-2])).sum())
            else:
                end = min(start + int(text), here.size)
            changed = end > last_end
            while changed:
                changed = False
                for i in range(start, end):
                    for j in range(i + 1, end):
                        a, b = here[i], here[j]
                        if not kept[a]:
                            break
                        if not kept[b] or (a, b) in pairs_done:
                            continue
                        pairs_done.add((a, b))
                        if squared_correlation(calls[a], calls[b]) > limit:
                            kept[a if minor(calls[a]) < minor(calls[b]) else b] = False
                            changed = True
                            break
            last_end = max(last_end, end)
            start += step
    return kept


@pytest.mark.parametrize(("window", "step", "r2"), WINDOWS)
def test_is_the_rule(tmp_path, rng, window, step, r2):
    calls, codes, positions = genome(rng, 43, (90, 1, 150, 2))
    source = write(tmp_path, calls, codes, positions)
    expected = slow(calls, codes, positions, window, step, r2)
    np.testing.assert_array_equal(prune(source, window=window, step=step, r2=r2), expected)
    assert 0 < expected.sum() < expected.size


@pytest.mark.skipif(shutil.which("plink2") is None, reason="plink2 is not there")
@pytest.mark.parametrize("missing", [0, 0.03])
@pytest.mark.parametrize(("window", "step", "r2"), [row for row in WINDOWS if row[0] != "1" and row[2] < 1])
def test_is_plink(tmp_path, rng, window, step, r2, missing):
    calls, codes, positions = genome(rng, 207, (700, 40, 900), missing)
    source = write(tmp_path, calls, codes, positions)
    order = () if b"--indep-order" not in _plink("--help", "indep-pairwise") else ("--indep-order", "1")
    _plink(
        "--bfile", tmp_path / "x", "--indep-pairwise", str(window).replace(" ", ""), step, r2, *order, "--out",
        tmp_path / "y",
    )  # fmt: skip
    listed = set((tmp_path / "y.prune.in").read_text().split())
    kept = prune(source, window=window, step=step, r2=r2)
    if "kb" in str(window).lower():
        # plink2 does not look at variants that are alone in their window, and so keeps those that do not vary.
        listed -= {f"v{i}" for i in np.flatnonzero([len(set(row[row >= 0].tolist())) < 2 for row in calls])}
    assert {f"v{i}" for i in np.flatnonzero(kept)} == listed


def _plink(*arguments):
    return subprocess.run(["plink2", *map(str, arguments)], check=True, capture_output=True).stdout


@pytest.mark.parametrize("n", [1, 3, 4, 31, 64, 65, 130])
def test_any_number_of_samples(tmp_path, rng, n):
    calls, codes, positions = genome(rng, n, (60,))
    expected = slow(calls, codes, positions, 10, 3, 0.3)
    np.testing.assert_array_equal(prune(write(tmp_path, calls), window=10, step=3, r2=0.3), expected)


def test_padding_is_not_looked_at(tmp_path, rng):
    calls = linked(rng, 41, 200)
    source = write(tmp_path, calls)
    expected = prune(source)
    raw = np.frombuffer((tmp_path / "x.bed").read_bytes()[3:], np.uint8).reshape(200, -1).copy()
    raw[:, -1] |= rng.integers(256, size=200, dtype=np.uint8) & 0xFC
    (tmp_path / "x.bed").write_bytes(MAGIC + raw.tobytes())
    np.testing.assert_array_equal(prune(source), expected)


def test_windows_do_not_cross_chromosomes(tmp_path, rng):
    row = linked(rng, 50, 1, missing=0)[0]
    row[:3] = 0, 1, 2
    calls = np.array([row, row, row, row])
    assert prune(write(tmp_path, calls, ["1", "1", "2", "2"])).tolist() == [True, False, True, False]
    assert prune(write(tmp_path, calls, ["1", "1", "2", "2"], [7] * 4), window="1kb", step=1).tolist() == [
        True, False, True, False,
    ]  # fmt: skip


def test_a_window_of_kilobases_has_both_ends(tmp_path):
    row = np.array([0, 1, 2, 1, 0, 2, 2, 1], np.int8)
    calls = np.array([row, row, row])
    assert prune(write(tmp_path, calls, positions=[1, 1001, 2002]), window="1kb", step=1).tolist() == [
        True, False, True,
    ]  # fmt: skip


def test_the_commoner_one_stays_and_the_first_of_equals(tmp_path):
    common, rare = [0, 1, 2, 1, 0, 2, 1, 1], [0, 0, 1, 0, 0, 1, 0, 0]
    flipped = [2 - x for x in common]
    assert prune(write(tmp_path, np.array([rare, common], np.int8)), r2=0.3).tolist() == [False, True]
    assert prune(write(tmp_path, np.array([common, rare], np.int8)), r2=0.3).tolist() == [True, False]
    assert prune(write(tmp_path, np.array([common, flipped], np.int8))).tolist() == [True, False]
    assert prune(write(tmp_path, np.array([flipped, common], np.int8))).tolist() == [True, False]
    # Frequencies are of each variant's own calls: the same share of fewer calls is equal.
    gaps = np.array([[0, 2, 0, 2, 0, 2, 0, 2], [0, 2, 0, 2, -1, -1, -1, -1]], np.int8)
    assert prune(write(tmp_path, gaps)).tolist() == [True, False]
    assert prune(write(tmp_path, gaps[::-1])).tolist() == [True, False]


def test_variants_that_do_not_vary_are_not_kept(tmp_path):
    calls = np.array([[0] * 6, [1] * 6, [2] * 6, [-1] * 6, [2, -1, 2, 2, 2, 2], [0, 0, 0, 0, 0, 1]], np.int8)
    assert prune(write(tmp_path, calls)).tolist() == [False] * 5 + [True]


def test_variants_without_a_common_sample_are_not_correlated(tmp_path):
    calls = np.array([[0, 1, 2, -1, -1, -1], [-1, -1, -1, 0, 1, 2]], np.int8)
    assert prune(write(tmp_path, calls), r2=0).all()


def test_sees_the_chosen_samples_and_variants_alone(tmp_path, rng):
    calls, codes, positions = genome(rng, 60, (150, 150))
    source = write(tmp_path, calls, codes, positions)
    samples, variants = rng.random(60) < 0.6, rng.random(300) < 0.5
    chosen = source.take(samples=samples, features=variants)
    alone = write(tmp_path, calls[variants][:, samples], codes[variants], positions[variants], name="alone")
    np.testing.assert_array_equal(prune(chosen), prune(alone))


def test_does_not_depend_on_threads_or_reads(tmp_path, rng, monkeypatch):
    source = write(tmp_path, *genome(rng, 50, (300, 10, 200, 270)))
    expected = {window: prune(source, window=window, step=1) for window in ("50", "40kb")}
    for threads, chunk in ((1, 128), (4, 1), (2, 7), (3, 1000)):
        monkeypatch.setattr(module, "thread_count", lambda threads=threads: threads)
        monkeypatch.setattr("streampca.sources.genotypes.CHUNK", chunk)
        for window, kept in expected.items():
            np.testing.assert_array_equal(prune(source, window=window, step=1), kept)


def test_shows_progress(tmp_path, rng):
    source, steps = write(tmp_path, *genome(rng, 10, (300, 10))), []
    prune(source, progress=steps.append)
    assert [(s.sweep, s.label, s.done, s.total) for s in steps] == [(0, "pruning", i, 4) for i in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("codes", "positions", "variant"),
    [
        ("1111", [1, 5, 4, 9], "v2 at 1:4 follows 5"),
        ("1121", [1, 5, 7, 9], "v3 at 1:9 follows another chromosome"),
        ("1122", [1, 5, 9, 2], "v3 at 2:2 follows 9"),
    ],
)
def test_refuses_unsorted_files(tmp_path, rng, codes, positions, variant):
    source = write(tmp_path, linked(rng, 10, 4), list(codes), positions)
    with pytest.raises(InputError, match=f"positions are not sorted, variant {variant}; .*--sort-vars") as caught:
        prune(source)
    assert str(tmp_path / "x.bed") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": "0"}, "window must .* got '0'"), ({"window": 0}, "window must .* got 0"),
        ({"window": -5}, "window must .* got -5"), ({"window": "0kb", "step": 1}, "window must .* got '0kb'"),
        ({"window": "1.5"}, "window must .* got '1.5'"), ({"window": "50mb"}, "window must .* got '50mb'"),
        ({"window": ""}, "window must .* got ''"), ({"step": 0}, "step must .* got 0"),
        ({"step": 2.5}, "step must .* got 2.5"), ({"step": 51}, "step must be at most window=50, .* got 51"),
        ({"window": "500kb"}, "step must be 1 .* got step=5"), ({"r2": -0.1}, "r2 must .* got -0.1"),
        ({"r2": 1.1}, "r2 must .* got 1.1"), ({"r2": float("nan")}, "r2 must .* got nan"),
        ({"r2": "0.2"}, "r2 must .* got '0.2'"),
    ],
)  # fmt: skip
def test_refuses_bad_parameters(tmp_path, rng, options, message):
    with pytest.raises(InputError, match=message):
        prune(write(tmp_path, linked(rng, 10, 4)), **options)


def test_lists(tmp_path, rng):
    source = write(tmp_path, linked(rng, 10, 3))
    paths = write_lists(source, np.array([True, False, True]), tmp_path / "a.b")
    assert [path.name for path in paths] == ["a.b.prune.in", "a.b.prune.out"]
    assert [path.read_text() for path in paths] == ["v0\nv2\n", "v1\n"]
    write_lists(source, np.ones(3, bool), tmp_path / "a.b")
    assert [path.read_text() for path in paths] == ["v0\nv1\nv2\n", ""]
    bim = tmp_path / "x.bim"
    bim.write_text(bim.read_text().replace("v1 0 2000 A", "v0 0 2000 C"))
    with pytest.raises(InputError, match="not unique"):
        write_lists(BedSource(tmp_path / "x.bed"), np.ones(3, bool), tmp_path / "c")
