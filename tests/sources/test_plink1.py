"""PLINK 1 files: packed genotypes are read as others read them, and what is wrong with a file is said."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from bed_reader import open_bed
from genotype_helpers import calls_in, needs_plink2, plink2, random_calls, table, write_bed
from helpers import one_line
from hypothesis import given
from hypothesis import strategies as st

from streampca import InputError, open_genotypes, open_source
from streampca.sources import packed, packed_numpy
from streampca.sources.formats.plink1 import BedSource
from streampca.sources.genotypes import packed_width
from streampca.sources.thresholds import Thresholds
from streampca.sweep.scaling import Scaling

SIZES = [*range(1, 10), 31, 32, 33, 64, 65]


def codes_of(n, m, seed=0):
    """Random codes (m x n) in which, if there is room, all four occur."""
    return np.random.default_rng(seed).integers(0, 4, (m, n)).astype(np.uint8)


def packed_from(codes, garbage=0):
    """Codes (m x n) packed by plain NumPy; the bits that pad each row are those of `garbage`."""
    m, n = codes.shape
    padded = np.full((m, 4 * packed_width(n)), garbage, np.uint8)
    padded[:, :n] = codes
    quads = padded.reshape(m, -1, 4)
    return quads[..., 0] | quads[..., 1] << 2 | quads[..., 2] << 4 | quads[..., 3] << 6


def dosages(codes):
    return np.array([2, np.nan, 1, 0])[codes]


def read_all(source):
    return np.array(source.read(slice(0, source.shape[0]), slice(0, source.shape[1]))[0])


def small_file(tmp_path, n=7, m=11, **labels):
    return write_bed(tmp_path / "x", random_calls(n, m, 3, missing=0.2), **labels)


# ---- decoding


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("garbage", range(4))
def test_padding_is_ignored_and_bed_reader_agrees(tmp_path, n, garbage):
    codes = codes_of(n, 40, n)
    path = write_bed(tmp_path / "x", np.zeros((n, 40)))
    path.write_bytes(b"\x6c\x1b\x01" + packed_from(codes, garbage).tobytes())
    ours = read_all(BedSource(path))
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, dosages(codes).T)
    with open_bed(path, count_A1=True) as theirs:
        np.testing.assert_array_equal(ours, theirs.read(dtype="float32"))


@pytest.mark.parametrize("n", SIZES)
def test_files_by_bed_reader(tmp_path, n):
    calls = dosages(codes_of(n, 300, n)).T
    path = write_bed(tmp_path / "x", calls)
    np.testing.assert_array_equal(read_all(BedSource(path)), calls)
    np.testing.assert_array_equal(calls_in(path), calls)


shapes = st.tuples(st.integers(1, 140), st.integers(1, 9), st.integers(0, 2**31), st.integers(0, 3))
# Compiled loops and those of small files have the same results.
both_loops = pytest.mark.parametrize("p", [packed, packed_numpy])


@both_loops
@given(shapes)
def test_counts(p, shape):
    n, m, seed, garbage = shape
    codes = codes_of(n, m, seed)
    bits = packed_from(codes, garbage)
    np.testing.assert_array_equal(p.count_codes(bits, n), [[(row == c).sum() for c in range(4)] for row in codes])
    totals = np.full(n, 5)
    p.count_missing(bits, totals)
    np.testing.assert_array_equal(totals, 5 + (codes == 1).sum(axis=0))


@both_loops
@given(shapes)
def test_pack_is_the_inverse_of_decode(p, shape):
    n, m, seed, garbage = shape
    codes = codes_of(n, m, seed)
    rng = np.random.default_rng(seed)
    calls = np.nan_to_num(dosages(codes), nan=-1).astype(np.int8)
    calls[codes == 1] = rng.choice([-1, -9, 3], (codes == 1).sum())
    out = np.full((m, packed_width(n)), 0xFF, np.uint8)
    p.pack(calls, out)
    np.testing.assert_array_equal(out, packed_from(codes, 0))
    values = np.empty((m, n), np.float64)
    p.decode(packed_from(codes, garbage), np.broadcast_to(p.DOSAGES, (m, 4)), values)
    np.testing.assert_array_equal(values, dosages(codes))


@both_loops
@given(shapes, st.data())
def test_take_samples_in_any_order(p, shape, data):
    n, m, seed, garbage = shape
    chosen = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n + 3)))
    codes = codes_of(n, m, seed)
    out = np.full((m, packed_width(chosen.size)), 0xFF, np.uint8)
    p.take_samples(packed_from(codes, garbage), chosen, out)
    np.testing.assert_array_equal(out, packed_from(codes[:, chosen], 0))


@both_loops
@given(shapes)
def test_each_variant_has_its_own_table(p, shape):
    n, m, seed, garbage = shape
    codes = codes_of(n, m, seed)
    values = np.random.default_rng(seed).standard_normal((m, 4)).astype(np.float32)
    out = np.empty((m, n), np.float32)
    p.decode(packed_from(codes, garbage), values, out)
    np.testing.assert_array_equal(out, np.take_along_axis(values, codes.astype(int), axis=1))


@given(shapes, st.integers(1, 2))
def test_alleles_are_packed_alike_by_both_loops(shape, ploidy):
    n, m, seed, _ = shape
    rng = np.random.default_rng(seed)
    calls = rng.integers(-1, 4, (m, n, ploidy)).astype(np.int8)
    if ploidy == 2:
        calls[rng.random((m, n)) < 0.2, 1] = -2
    cut = int(rng.integers(n + 1))
    outs = [np.full((m, packed_width(n)), 0xFF, np.uint8) for _ in range(2)]
    for p, out in zip((packed, packed_numpy), outs, strict=True):
        p.pack_alleles(calls[:, :cut], 0, out)
        p.pack_alleles(calls[:, cut:], cut, out)
    np.testing.assert_array_equal(*outs)


def test_table_has_zero_for_missing_and_for_what_is_not_used():
    table = Scaling(np.array([1.0, 0.5]), np.array([2.0, np.inf])).table(packed.DOSAGES)
    np.testing.assert_array_equal(table, [[0.5, 0, 0, -0.5], [0, 0, 0, 0]])


# ---- labels and lines


def test_labels_come_along(tmp_path):
    alleles = {"allele_1": ["T", "ATT", "0"], "allele_2": ["C", "A", "G"]}
    path = write_bed(
        tmp_path / "x", [[0, 1, 2], [1, 1, 0]], fid=["a", "a"], iid=["x", "y"], chromosome=["1", "chr2", "X"],
        sid=["rs1", "rs1", "."], bp_position=[5, 7, 2**31 - 2], **alleles,
    )  # fmt: skip
    source = BedSource(path)
    expected = {"fid": ["a", "a"], "iid": ["x", "y"], "chromosome": ["1", "chr2", "X"], "position": [5, 7, 2**31 - 2]}
    for name, values in (expected | {"variant_id": ["rs1", "rs1", "."]} | alleles).items():
        assert source.label(name).tolist() == values
    assert source.samples.dims == ("sample",)
    assert source.features.dims == ("variant",)
    assert source.shape == (2, 3)


@pytest.mark.parametrize("ending", ["\r\n", "\n\n\n", "\n \n\t\n", ""])
def test_line_endings_and_trailing_blank_lines(tmp_path, ending):
    path = small_file(tmp_path)
    before = BedSource(path)
    for suffix in (".bim", ".fam"):
        lines = path.with_suffix(suffix).read_text().splitlines()
        joined = ("\r\n" if ending == "\r\n" else "\n").join(lines) + ending
        path.with_suffix(suffix).write_bytes(joined.encode())
    after = BedSource(path)
    for name in ("iid", "position", "allele_2"):
        assert after.label(name).tolist() == before.label(name).tolist()


def test_columns_may_be_parted_by_several_blanks(tmp_path):
    path = small_file(tmp_path)
    for suffix in (".bim", ".fam"):
        file = path.with_suffix(suffix)
        file.write_text(file.read_text().replace("\t", "   ").replace(" ", "\t  "))
    assert BedSource(path).label("variant_id").tolist() == [f"rs{j}" for j in range(11)]


# ---- what is wrong with a file


def change_bed(change):
    return ".bed", change


def change_text(suffix, change):
    return suffix, lambda content: change(content.decode()).encode()


def edit(number, change):
    """Change the fields of one line, counted from 1."""

    def all_lines(text):
        lines = text.splitlines()
        lines[number - 1] = "\t".join(change(lines[number - 1].split()))
        return "\n".join(lines) + "\n"

    return all_lines


BROKEN = {
    "cut short": (change_bed(lambda b: b[:-1]), ["x.bed", "truncated", "24 bytes", "25"]),
    "too long": (change_bed(lambda b: b + b"\0"), ["x.bed", "too long", "26 bytes", "25"]),
    "wrong magic": (change_bed(lambda b: b"PK" + b[2:]), ["x.bed", "magic"]),
    "individual-major": (change_bed(lambda b: b[:2] + b"\0" + b[3:]), ["x.bed", "individual-major", "--make-bed"]),
    "empty": (change_bed(lambda _: b""), ["x.bed", "magic"]),
    "a sample more": (change_text(".fam", lambda t: t + "f9 i9 0 0 0 -9\nf8 i8 0 0 0 -9\n"), ["x.bed", "x.fam"]),
    "a variant less": (change_text(".bim", lambda t: t.split("\n", 1)[1]), ["x.bed", "too long"]),
    "empty fam": (change_text(".fam", lambda _: ""), ["x.fam", "empty"]),
    "empty bim": (change_text(".bim", lambda _: "\n\n"), ["x.bim", "empty"]),
    "five columns": (change_text(".fam", edit(3, lambda f: f[:5])), ["x.fam", "line 3", "5 columns", "6"]),
    "seven columns": (change_text(".bim", edit(2, lambda f: [*f, "A"])), ["x.bim", "line 2", "7 columns"]),
    "two wrong": (
        change_text(".fam", lambda t: edit(5, lambda f: [*f, "x"])(edit(4, lambda f: f[:5])(t))),
        ["x.fam", "line 4", "5 columns"],
    ),
    "blank line": (change_text(".fam", lambda t: t.replace("\n", "\n\n", 1)), ["x.fam", "line 2", "0 columns"]),
    "empty column": (change_text(".bim", edit(4, lambda f: [*f[:4], "", f[5]])), ["x.bim", "column"]),
    "position": (change_text(".bim", edit(6, lambda f: [*f[:3], "1e3", *f[4:]])), ["x.bim", "1e3", "must be integers"]),
    "huge position": (change_text(".bim", edit(6, lambda f: [*f[:3], "9" * 30, *f[4:]])), ["x.bim", "integers"]),
    "sample twice": (change_text(".fam", edit(7, lambda f: ["f2", "i2", *f[2:]])), ["x.fam", "f2 i2", "number 7 of"]),
    "variant twice": (
        change_text(".bim", edit(9, lambda f: [f[0], "rs2", *f[2:]])),
        ["x.bed", "1 duplicate variants (rs2 A G)", "--rm-dup"],
    ),
    "alleles swapped": (
        change_text(".bim", edit(9, lambda f: [f[0], "rs2", *f[2:4], "G", "A"])),
        ["x.bed", "1 duplicate variants (rs2 A G)", "--rm-dup"],
    ),
    "twice after one without a name": (
        change_text(".bim", lambda t: edit(9, lambda f: [f[0], "rs2", *f[2:]])(t.replace("rs0\t", ".\t"))),
        ["x.bed", "1 duplicate variants (rs2 A G)", "--rm-dup"],
    ),
    "not text": ((".bim", lambda b: b"\xff\xfe" + b), ["x.bim", "not text"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_in_one_line(tmp_path, name):
    path = small_file(tmp_path)
    (suffix, change), words = BROKEN[name]
    file = path.with_suffix(suffix)
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(InputError) as error:
        open_genotypes(path)
    text = one_line(error)
    for word in [str(tmp_path), *words]:
        assert word in text


@pytest.mark.parametrize("suffix", [".bed", ".bim", ".fam"])
def test_missing_files_are_named(tmp_path, suffix):
    path = small_file(tmp_path)
    path.with_suffix(suffix).unlink()
    with pytest.raises(InputError) as error:
        open_source(path)
    assert f"x{suffix}: {'does not exist' if suffix == '.bed' else 'cannot be read'}" in one_line(error)


def test_file_that_shrinks_while_it_is_read(tmp_path):
    source = BedSource(small_file(tmp_path))
    path = tmp_path / "x.bed"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match="truncated while it was read"):
        source.read_packed(0, 11)
    assert source.read_packed(0, 5)[0].shape == (5, 2)


def test_what_is_not_twice(tmp_path):
    same = {"sid": ["rs1", "rs1", ".", "."], "allele_1": ["A", "C", "A", "A"], "allele_2": ["G", "G", "G", "G"]}
    people = {"fid": ["a", "a", "b"], "iid": ["1", "2", "1"]}
    assert BedSource(write_bed(tmp_path / "x", np.zeros((3, 4)), **same, **people)).shape == (3, 4)


# ---- choosing samples and variants

CHOICES = {
    "mask": lambda size, rng: rng.random(size) < 0.5,
    "sorted": lambda size, rng: np.sort(rng.choice(size, size // 2, replace=False)),
    "unsorted": lambda size, rng: rng.permutation(size)[: size // 2],
    "reversed": lambda size, rng: np.arange(size)[::-1],  # noqa: ARG005
    "far apart": lambda size, rng: np.arange(0, size, max(2, size // 3)),  # noqa: ARG005
    "repeated": lambda size, rng: np.sort(rng.integers(0, size, size)),
    "one": lambda size, rng: np.array([size - 1]),  # noqa: ARG005
    "clusters": lambda size, rng: np.r_[0:3, size // 2 : size // 2 + 3, size - 2 : size],  # noqa: ARG005
}


@pytest.mark.parametrize("variants", CHOICES)
@pytest.mark.parametrize("samples", CHOICES)
def test_take_and_take_again(tmp_path, monkeypatch, samples, variants):
    # Gaps of more than 40 variants are not read across, and no more than 200 are read at a time.
    monkeypatch.setattr("streampca.sources.genotypes.GAP_BYTES", 400)
    monkeypatch.setattr("streampca.sources.genotypes.READ_BYTES", 2000)
    n, m = 37, 1100
    rng = np.random.default_rng(5)
    calls = random_calls(n, m, 5, missing=0.2)
    source = BedSource(write_bed(tmp_path / "x", calls))
    rows, columns = np.arange(n), np.arange(m)
    for number in range(2):
        chosen = CHOICES[samples](len(rows), rng), CHOICES[variants](len(columns), rng)
        rows, columns = rows[chosen[0]], columns[chosen[1]]
        source = source.take(samples=chosen[0], features=chosen[1], note=f"note {number}")
        assert source.shape == (len(rows), len(columns))
        np.testing.assert_array_equal(read_all(source), calls[np.ix_(rows, columns)])
        assert source.label("iid").tolist() == [f"i{i}" for i in rows]
        assert source.label("variant_id").tolist() == [f"rs{j}" for j in columns]
        assert source.label("position").tolist() == (1000 * (columns + 1)).tolist()
    assert source.notes == ("note 0", "note 1")
    middle = slice(len(columns) // 3, len(columns) // 3 + 1)
    np.testing.assert_array_equal(source.read(slice(0, len(rows)), middle)[0], calls[np.ix_(rows, columns[middle])])


def test_take_leaves_the_source_as_it_was(tmp_path):
    source = BedSource(small_file(tmp_path))
    before, mark = read_all(source), source.fingerprint()
    source.take(samples=np.array([1]), features=np.array([2]), note="less")
    np.testing.assert_array_equal(read_all(source), before)
    assert (source.fingerprint(), source.notes) == (mark, ())


def test_far_apart_rows_are_not_read_across(tmp_path, monkeypatch):
    monkeypatch.setattr("streampca.sources.genotypes.GAP_BYTES", 100)
    source = BedSource(write_bed(tmp_path / "x", np.zeros((4, 5000))))
    assert source.take(features=np.array([0, 4999])).read_packed(0, 2)[1] == 2
    assert source.take(features=np.arange(0, 5000, 2)).read_packed(0, 2500)[1] == 4999
    assert source.read_packed(10, 20)[1] == 10
    sizes, read = [], BedSource.read_stored

    def counting(self, start, stop):
        sizes.append(stop - start)
        return read(self, start, stop)

    monkeypatch.setattr(BedSource, "read_stored", counting)
    monkeypatch.setattr("streampca.sources.genotypes.READ_BYTES", 1000)
    source.take(features=np.arange(0, 5000, 2)).read_packed(0, 2500)
    assert max(sizes) <= 1000
    assert len(sizes) == 5


def test_fingerprint_changes_with_content_choice_and_filter(tmp_path):
    source = BedSource(small_file(tmp_path))
    filtered = source.take()
    filtered.filter = Thresholds(maf=0.1)
    first, second = np.array([0]), np.array([0, 0])
    marks = [
        source.fingerprint(),
        source.take(samples=np.arange(6)).fingerprint(),
        source.take(samples=np.arange(6)[::-1]).fingerprint(),
        source.take(features=np.arange(6)).fingerprint(),
        source.take(samples=first).fingerprint(),
        source.take(features=first).fingerprint(),
        source.take(samples=first, features=first).fingerprint(),
        source.take(samples=second).fingerprint(),
        filtered.fingerprint(),
        BedSource(write_bed(tmp_path / "y", np.zeros((7, 12)))).fingerprint(),
    ]
    assert len(set(marks)) == len(marks)
    assert BedSource(tmp_path / "x.bed").fingerprint() == marks[0]
    assert source.take(samples=np.arange(7) < 6).fingerprint() == marks[1]


@pytest.mark.parametrize("suffix", [".bed", ".bim", ".fam"])
def test_fingerprint_changes_with_each_file(tmp_path, suffix):
    source = BedSource(small_file(tmp_path))
    before = source.fingerprint()
    file = tmp_path / f"x{suffix}"
    file.write_bytes(file.read_bytes() + b"\n")
    assert source.fingerprint() != before


def test_pickle(tmp_path):
    calls = random_calls(9, 30, 1)
    source = BedSource(write_bed(tmp_path / "x", calls)).take(samples=np.arange(9) % 2 == 0, features=np.arange(5, 20))
    source.filter = Thresholds(maf=0.01)
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(read_all(again), calls[::2, 5:20])
    assert (again.shape, again.name, again.filter) == ((5, 15), source.name, source.filter)
    assert again.fingerprint() == source.fingerprint()


@pytest.mark.parametrize("given", ["x.bed", "x", "a.b.bed", "a.b"])
def test_paths_and_prefixes(tmp_path, given):
    write_bed(tmp_path / given.removesuffix(".bed"), np.zeros((3, 4)))
    assert open_source(tmp_path / given).shape == (3, 4)
    assert open_source(str(tmp_path / given)).shape == (3, 4)


# ---- plink2


@needs_plink2
@pytest.mark.parametrize("n", [37, 96])
def test_counts_are_those_of_plink2(tmp_path, n):
    calls = random_calls(n, 400, 11, missing=0.1)
    calls[:, 7] = np.nan
    source = BedSource(write_bed(tmp_path / "x", calls))
    plink2("--bfile", "x", "--freq", "--missing", "--out", "p", cwd=tmp_path)
    bits, _ = source.read_packed(0, 400)
    two, missing, one, none = packed.count_codes(bits, n).T
    freq, variants, samples = (table(tmp_path / f"p.{x}") for x in ("afreq", "vmiss", "smiss"))
    # The allele that plink2 counts, ALT, is A1.
    assert set(freq["ALT"]) == {"A"}
    called = two + one + none
    np.testing.assert_array_equal(2 * called, freq["OBS_CT"].astype(int))
    np.testing.assert_array_equal(missing, variants["MISSING_CT"].astype(int))
    some = called > 0
    theirs = freq["ALT_FREQS"][some].astype(float)
    np.testing.assert_allclose((2 * two + one)[some] / (2 * called[some]), theirs, rtol=1e-5)
    totals = np.zeros(n, np.int64)
    packed.count_missing(bits, totals)
    np.testing.assert_array_equal(totals, samples["MISSING_CT"].astype(int))
    assert totals.sum() == missing.sum() == np.isnan(calls).sum()


def test_bits_after_the_last_sample_are_noted(tmp_path):
    """A .fam of seven lines for eight samples has the right size."""
    path = write_bed(tmp_path / "x", random_calls(8, 30, 1))
    fam = path.with_suffix(".fam")
    fam.write_text("".join(fam.read_text().splitlines(keepends=True)[:7]))
    note = "x.bed has bits after the 7 samples of x.fam: check that no line is missing there"
    assert open_genotypes(path).notes == (note,)
    assert open_genotypes(write_bed(tmp_path / "y", random_calls(7, 30, 1))).notes == ()
