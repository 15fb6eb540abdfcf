"""Checks of parameters and of declared sizes; base and types of the option records.

An option is a field of one record: its type, default, limits and one help sentence. Flags, YAML keys, the JSON schema
and starter files are generated from the record; estimators repeat names and defaults, as scikit-learn requires.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import psutil
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from streampca.errors import InputError, listed

CGROUPS, OWN_CGROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# Files of limit, usage and statistics, and the name of reclaimable pages, by version of cgroups.
_V2 = ("memory.max", "memory.current", "memory.stat", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat", "total_inactive_file")


def available_memory() -> int:
    """Return the bytes that this process may still allocate.

    The least of what the machine has, what its control groups leave (versions 1 and 2, and all groups above it), what
    a Slurm job was given, and `ulimit`. PBS, SGE and LSF limit jobs by control groups or `ulimit`.
    """
    process = psutil.Process().memory_info()
    limits = [int(psutil.virtual_memory().available), *_cgroup_limits()]
    job = _slurm_limit()
    if job is not None:
        limits.append(job - int(process.rss))
    for kind, used in ((resource.RLIMIT_AS, process.vms), (resource.RLIMIT_DATA, process.rss)):
        most = resource.getrlimit(kind)[0]
        if most != resource.RLIM_INFINITY:
            limits.append(most - int(used))
    return max(0, min(limits))


def _cgroup_limits() -> Iterator[int]:
    """Yield what the memory control group of this process leaves, and those above it."""
    try:
        lines = OWN_CGROUP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, files = (CGROUPS / "memory", _V1) if controllers else (CGROUPS, _V2)
        # Within a container the root of the mount is the group itself.
        group = root / place.strip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                yield from _left_in(folder, *files)


def _left_in(folder: Path, limit: str, used: str, statistics: str, reclaimable: str) -> Iterator[int]:
    """Yield the bytes that one control group leaves; nothing if it has no limit."""
    with suppress(OSError, ValueError):
        most, taken = int((folder / limit).read_text()), int((folder / used).read_text())
        pages = dict(line.split() for line in (folder / statistics).read_text().splitlines())
        yield most - taken + int(pages.get(reclaimable, 0))


def _slurm_limit() -> int | None:
    """Return the bytes of this Slurm job on this node; None outside of a job, or without a limit."""
    with suppress(KeyError, ValueError):
        node = int(os.environ.get("SLURM_MEM_PER_NODE", 0))
        core = 0 if node else int(os.environ["SLURM_MEM_PER_CPU"]) * int(os.environ["SLURM_CPUS_ON_NODE"])
        return (node + core) << 20 or None
    return None


def check_declared_size(where: str, n_bytes: int) -> None:
    """Check a declared size against the available memory before allocating: labels, or one chunk."""
    # Asking the system takes longer than reading a small array.
    if n_bytes > 1 << 20 and n_bytes > available_memory() // 2:
        raise InputError(
            f"{where}: declares {n_bytes / 1e9:.3g} GB, more than half of the available memory; check the file"
        )


def _number(value: Any) -> Any:
    """Convert NumPy scalars and text that is a number; 1e3 is an integer where integers are allowed."""
    if type(value).__module__ == "numpy" and not getattr(value, "shape", ()):
        return value.item()
    for kind in (int, float):
        try:
            return kind(value) if isinstance(value, str) else value
        except ValueError:
            continue
    return value


def plain_number(value: Any) -> Any:
    """Convert text and NumPy scalars to numbers; reject booleans, which Python takes for integers."""
    value = _number(value)
    return str(value) if isinstance(value, bool) else value


def _parts(value: Any) -> Any:
    """Split "a,b" into [a, b]."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _lines(value: Any) -> Any:
    """Split text into its lines; drop blank ones."""
    return [line for line in value.splitlines() if line.strip()] if isinstance(value, str) else value


def _null(value: Any) -> Any:
    return None if value == "none" else value


AMOUNT = r"^(?:[1-9][0-9]*(?:\.[0-9]*)?|0*\.[0-9]*[1-9][0-9]*)(?:[eE][+-]?[0-9]+)? ?(?:[kKmMgGtTpP][iI]?[bB]?|[bB])?$"
TIME = r"^(?:[0-9]+-)?[0-9]{1,3}:[0-5][0-9]:[0-5][0-9]$"

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1), BeforeValidator(plain_number)]
Seed = Annotated[int, Field(ge=0), BeforeValidator(plain_number)]
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(plain_number)]
Between = Annotated[float, Field(gt=0, lt=1), BeforeValidator(plain_number)]
Positive = Annotated[float, Field(gt=0), BeforeValidator(plain_number)]
Number = Annotated[float, BeforeValidator(plain_number)]
Amount = Annotated[Count | Annotated[str, Field(pattern=AMOUNT, examples=["2GB"])], BeforeValidator(_number)]
Time = Annotated[str, Field(pattern=TIME, examples=["01:30:00", "2-00:00:00"])]
Names = Annotated[
    tuple[Text, ...], Field(min_length=1), BeforeValidator(_parts, json_schema_input_type=list[str] | str)
]
Lines = Annotated[tuple[Text, ...], BeforeValidator(_lines, json_schema_input_type=list[str] | str)]
Shape = Annotated[tuple[Count, Count], BeforeValidator(_parts)]
CountOrAuto = Annotated[Count | Literal["auto"] | None, BeforeValidator(plain_number)]
Solver = Literal["auto", "covariance", "gram", "krylov", "power"]
# "none" in the shell and in YAML is None in Python.
Scale = Annotated[
    Literal["auto", "unit", "patterson"] | None,
    BeforeValidator(_null, json_schema_input_type=Literal["auto", "none", "unit", "patterson"] | None),
]
FieldScale = Annotated[
    Literal["auto", "unit", "patterson", "coslat"] | None,
    BeforeValidator(_null, json_schema_input_type=Literal["auto", "none", "unit", "patterson", "coslat"] | None),
]
PlainScale = Annotated[
    Literal["unit"] | None, BeforeValidator(_null, json_schema_input_type=Literal["none", "unit"] | None)
]


class Options(BaseModel):
    """Options that belong together: no others are allowed, and none changes after it was checked."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return the record of these options, those that it has; raise `InputError` for the first invalid one."""
        try:
            return cls.model_validate({name: value for name, value in given.items() if name in cls.model_fields})
        except ValidationError as error:
            detail = error.errors(include_url=False)[0]
            if not detail["loc"]:
                raise InputError(str(detail.get("ctx", {}).get("error", detail["msg"]))) from None
            name = str(detail["loc"][0])
            raise InputError(f"{name} must be {allowed(cls, name)}, got {given[name]!r}") from None

    def changed(self, **values: Any) -> Self:
        """Return the record with other values, checked again."""
        return type(self).of(dict(self) | values)


def allowed(options: type[Options], name: str) -> str:
    """Return the values that an option may have, as messages list them."""
    return listed(allowed_values(options.model_json_schema(mode="validation")["properties"][name]))


def allowed_values(fragment: Mapping[str, Any]) -> list[str]:
    """Return the values that a fragment of a JSON schema allows, in words."""
    if "anyOf" in fragment:
        # None stands for the default; messages list the other values.
        parts = [part for part in fragment["anyOf"] if part.get("type") != "null"]
        return [words for part in parts for words in allowed_values(part)]
    if "enum" in fragment or "const" in fragment:
        return [str(choice) for choice in fragment.get("enum", [fragment.get("const")])]
    kind = fragment["type"]
    if kind in ("integer", "number"):
        return [_numbers(fragment, "an integer" if kind == "integer" else "a number")]
    if kind == "array":
        return ["two integers, as [1000, 50000]" if "prefixItems" in fragment else "a list, as [a, b]"]
    if kind == "string":
        return [f"text such as {listed(fragment['examples'])}" if "examples" in fragment else "text"]
    return {"boolean": ["true", "false"]}[kind]


def _numbers(fragment: Mapping[str, Any], what: str) -> str:
    """Return the range of a number in words."""
    least, most = fragment.get("minimum"), fragment.get("maximum")
    above, below = fragment.get("exclusiveMinimum"), fragment.get("exclusiveMaximum")
    if above is not None and below is not None:
        return f"{what} between {above:g} and {below:g}"
    if least is not None and most is not None:
        return f"{what} from {least:g} to {most:g}"
    if least is not None:
        return f"{what} >= {least:g}"
    return what if above is None else f"{what} > {above:g}"
