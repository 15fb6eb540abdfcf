"""Tables about samples, joined by id."""

from pathlib import Path

import numpy as np
import pytest
import xarray

from streampca.errors import InputError
from streampca.sources import Axis
from streampca.sources.tables import Ids, Table, ids_of, read_table, source_ids, split_column


@pytest.fixture
def read(tmp_path):
    def _read(text: str, names: list[str], families: list[str] | None = None, name: str = "table.tsv") -> Table:
        path = tmp_path / name
        path.write_text(text)
        return read_table(path, Ids(names, families))

    return _read


def test_rows_come_in_the_order_of_the_samples_with_gaps_where_there_is_none(read):
    table = read("id\tpop\tage\nc\tX\t31.5\na\tY\tNA\nz\tX\t1\n", ["a", "b", "c"])
    assert table.columns["pop"].tolist() == ["Y", "", "X"]
    np.testing.assert_array_equal(table.columns["age"], [np.nan, np.nan, 31.5])
    assert table.note == "2 of 3 samples are in table.tsv"
    assert table.label().tolist() == ["Y", "", "X"]


@pytest.mark.parametrize(
    "text", ["f1 a X\nf2 b Y\nf9 q X\n", "f1\ta\tX\nf2\tb\tY\nf9\tq\tX\n", "f1,a,X\nf2,b,Y\nf9,q,X\n"]
)
def test_tables_without_names_of_columns_are_known_by_their_ids(read, text):
    table = read(text, ["a", "b"], ["f1", "f2"])
    assert list(table.columns) == ["column 3"]
    assert table.label().tolist() == ["X", "Y"]


def test_a_first_line_of_another_sample_is_no_header(read):
    table = read("other X\na X\nb Y\n", ["a", "b"])
    assert list(table.columns) == ["column 2"]


def test_a_header_of_unknown_names_is_known_by_not_coming_again(read):
    table = read("who,where\na,X\nb,X\n", ["a", "b"], name="t.csv")
    assert table.columns["where"].tolist() == ["X", "X"]


def test_samples_of_one_name_are_told_apart_by_family(read):
    table = read("FID\tIID\tpop\n1\ts\tX\n2\ts\tY\n", ["s", "s"], ["2", "1"])
    assert table.label("pop").tolist() == ["Y", "X"]
    with pytest.raises(InputError, match="sample id 's' is not unique"):
        read("IID\tpop\ns\tX\n", ["s", "s"])


def test_families_called_like_their_members_are_not_taken_for_them(read):
    table = read("FID\tIID\tpop\na\ta\tX\nb\tb\tY\n", ["b", "a"], ["b", "a"])
    assert list(table.columns) == ["pop"]
    assert table.label().tolist() == ["Y", "X"]


@pytest.mark.parametrize("header", ["sample\tgroup\n", "who\tgroup\n", ""])
def test_codes_of_groups_are_not_taken_for_ids(read, header):
    """Of 200 samples in the table 60 are here, called by numbers, as the groups are."""
    text = header + "".join(f"{i + 50}\t{i % 3}\n" for i in range(200))
    table = read(text, [str(i) for i in range(60)])
    assert table.found.tolist() == [False] * 50 + [True] * 10
    assert table.label().tolist()[50:] == [str(i % 3) for i in range(10)]


def test_ids_far_down_a_table_are_found(read, monkeypatch):
    monkeypatch.setattr("streampca.sources.tables.HEAD", 20)
    table = read("id\tpop\n" + "".join(f"s{i}\t{i % 2}\n" for i in range(50)), ["s48", "s49"])
    assert table.label("pop").tolist() == ["0", "1"]


def test_few_whole_numbers_are_codes_but_can_be_asked_for_as_numbers(read):
    table = read("id\tsex\tage\na\t1\t30\nb\t2\t40.5\n", ["a", "b"])
    assert table.columns["sex"].tolist() == ["1", "2"]
    assert table.columns["age"].dtype == np.float64
    assert table.numbers("sex").tolist() == [1, 2]
    assert table.label().tolist() == ["1", "2"]


def test_dates_are_dates_and_no_labels(read):
    text = (
        "id\tpop\tborn\tseen\tnever\na\tX\t2001-02-03\t2001-02-03T04:05Z\t2001-02-30\nb\tY\tNA\t2001-02-04 06:07:08\t\n"
    )
    table = read(text, ["a", "b"])
    np.testing.assert_array_equal(table.columns["born"], np.array(["2001-02-03", "NaT"], "M8[ms]"))
    seen = np.array(["2001-02-03T04:05", "2001-02-04T06:07:08"], "M8[ms]")
    np.testing.assert_array_equal(table.columns["seen"], seen)
    assert table.columns["never"].tolist() == ["2001-02-30", ""]
    assert table.label("born").tolist() == ["2001-02-03", ""]
    assert read("id pop born\na X 2001-02-03\n", ["a"]).label().tolist() == ["X"]


def test_quoted_cells_byte_order_marks_and_names_given_twice(read):
    table = read('\ufeffid,note,note\na,"x, y",z\n', ["a"], name="t.csv")
    assert {name: cells.tolist() for name, cells in table.columns.items()} == {"note (2)": ["x, y"], "note (3)": ["z"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("id\tpop\nq\tX\n", "has no sample id like 'a'; its lines are like 'q X'"),
        ("id\tpop\na\tX\na\tY\n", "line 3 has other values of sample 'a'"),
        ("id\tpop\na\n", "line 2 has 1 cells"),
        ("id\tpop\n\n\na\n", "line 4 has 1 cells"),
        ("id pop\n\n \na\n", "line 4 has 1 cells"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(read, text, said):
    with pytest.raises(InputError, match=said):
        read(text, ["a", "b"])


def test_unknown_columns_and_text_for_numbers_are_refused(read):
    table = read("id\tpop\na\tX\n", ["a"])
    with pytest.raises(InputError, match="no column 'height'; it has pop"):
        table.numbers("height")
    with pytest.raises(InputError, match="column 'pop' must be numeric, but has text, e.g. 'X'"):
        table.numbers("pop")
    with pytest.raises(InputError, match="cannot be read"):
        read_table(Path("nowhere.tsv"), Ids(["a"]))


def test_a_cell_that_is_a_null_character_is_text(read):
    # NumPy drops null characters at the end of its own texts.
    with pytest.raises(InputError, match=r"must be numeric, but has text, e.g. '\\x00'"):
        read("id\theight\na\t\0\n", ["a"]).numbers("height")


def test_binary_files_are_refused(tmp_path):
    (tmp_path / "t").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not text .*; give tab-separated text in UTF-8"):
        read_table(tmp_path / "t", Ids(["a"]))


def test_ids_are_those_of_genotypes_the_dimension_or_numbers():
    assert source_ids(Axis(("sample",), (2,))).names == ["0", "1"]
    times = np.array(["2001-01-01", "2001-02-01"], "M8[D]")
    assert source_ids(Axis(("time",), (2,), {"time": (("time",), times)})).names == ["2001-01-01", "2001-02-01"]
    scores = xarray.Dataset(
        {"scores": (("sample", "component"), np.zeros((2, 1)))},
        {"iid": ("sample", ["a", "b"]), "fid": ("sample", ["1", "2"])},
    )
    assert ids_of(scores) == Ids(["a", "b"], ["1", "2"])
    stacked = xarray.Dataset({"scores": (("t", "x", "component"), np.zeros((2, 2, 1)))}, {"x": [5, 7]})
    assert ids_of(stacked).names == ["0, 5", "0, 7", "1, 5", "1, 7"]
    with pytest.raises(InputError, match="no scores"):
        ids_of(xarray.Dataset())


def test_columns_are_named_after_a_colon(tmp_path):
    assert split_column("traits.tsv:height,weight") == (Path("traits.tsv"), ["height", "weight"])
    assert split_column("traits.tsv") == (Path("traits.tsv"), [])
    odd = tmp_path / "a:b"
    odd.write_text("")
    assert split_column(str(odd)) == (odd, [])
