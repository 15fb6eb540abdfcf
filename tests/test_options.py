"""Records of options: values become the type of their option, or are rejected with the values that are allowed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from streampca import InputError
from streampca.validation import Amount, Between, Count, Limits, Names, Options, Shape, Text, option


class Base(Options):
    """A record to inherit from."""

    first: Count = option(default=1, description="A count.")
    last: Text = option(description="Required.", examples=("x",))


class Record(Base):
    """A record of all types."""

    either: Count | Between | Literal["all"] | None = option(default=None, description="One of several.")
    flag: bool = option(default=False, description="A flag.")
    truth: bool | Literal["exact"] = option(default=True, description="A flag or a word.")
    zero: Literal[0] | Annotated[int, Limits(ge=2)] = option(default=0, description="0, or 2 and more.")
    names: Names = option(default=("a",), description="Names.")
    shape: Shape | None = option(default=None, description="Two counts.")
    amount: Amount | None = option(default=None, description="An amount.")
    kernel: Literal["rbf"] | Callable[[Any, Any], Any] = option(default="rbf", description="A word or a function.")

    def check(self):
        """Options that contradict each other."""
        if self.flag and self.zero:
            raise InputError("flag needs zero=0")


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("first", "3", 3), ("first", 3.0, 3), ("first", "1e3", 1000), ("first", np.int32(4), 4),
        ("either", "0.5", 0.5), ("either", np.float32(0.5), 0.5), ("either", 2, 2), ("either", "all", "all"),
        ("either", None, None), ("flag", "Yes", True), ("flag", "0", False), ("flag", np.True_, True),
        ("truth", "exact", "exact"), ("truth", "false", False), ("zero", 0, 0), ("zero", 2, 2),
        ("names", "a, b", ("a", "b")), ("names", ["a", "b"], ("a", "b")), ("shape", "3,4", (3, 4)),
        ("amount", "2GB", "2GB"), ("amount", "2000", 2000), ("amount", 1.5e9, 1_500_000_000), ("kernel", min, min),
    ],
)  # fmt: skip
def test_values_become_the_type_of_their_option(name, given, value):
    found = getattr(Record(last="x", **{name: given}), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("first", 0), ("first", True), ("first", 1.5), ("first", "x"), ("first", None), ("first", [1]),
        ("last", ""), ("last", 3), ("either", 1.5), ("either", float("nan")), ("either", True), ("either", "ALL"),
        ("flag", "maybe"), ("flag", 2), ("flag", None), ("zero", 1), ("zero", False), ("names", []), ("names", [1]),
        ("names", "a,,b"), ("shape", [1]), ("shape", [1, 2, 3]), ("amount", "2GB\n"), ("amount", "0"),
        ("amount", float("inf")), ("kernel", "poly"),
    ],
)  # fmt: skip
def test_other_values_are_rejected(name, given):
    with pytest.raises(InputError, match=f"^{name} must be "):
        Record(**{"last": "x", name: given})


def test_messages_list_what_is_allowed():
    with pytest.raises(InputError, match="either must be an integer >= 1, a number between 0 and 1 or all, got -1"):
        Record(last="x", either=-1)


def test_required_unknown_and_contradicting_options():
    with pytest.raises(InputError, match="last is missing"):
        Record()
    with pytest.raises(InputError, match="typo is not an option"):
        Record(last="x", typo=1)
    with pytest.raises(InputError, match="flag needs zero=0"):
        Record(last="x", flag=True, zero=3)
    # `of` takes what a record has.
    assert Base.of({"last": "x", "typo": 1}) == Base(last="x")


def test_a_record_is_a_value():
    record = Record(last="x", names="a,b")
    assert record == Record(names=["a", "b"], last="x") != record.changed(first=2)
    assert hash(record) == hash(Record(last="x", names="a,b"))
    assert pickle.loads(pickle.dumps(record)) == record
    assert list(record.fields)[:2] == ["first", "last"]
    assert record != Base(last="x")
    with pytest.raises(AttributeError, match="frozen"):
        record.first = 3
    with pytest.raises(InputError, match="first must be"):
        record.changed(first=0)


def test_the_schema_describes_types_limits_and_defaults():
    schema = Record.schema()
    assert schema["required"] == ["last"]
    assert schema["properties"]["names"]["default"] == ["a"]
    assert schema["properties"]["kernel"] == {
        "const": "rbf", "type": "string", "description": "A word or a function.", "default": "rbf"
    }  # fmt: skip
    assert schema["properties"]["either"]["anyOf"] == [
        {"type": "integer", "minimum": 1},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"const": "all", "type": "string"},
        {"type": "null"},
    ]
