"""Assign samples to classes by their scores on the components of a result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca.errors import InputError, opening
from streampca.files import table_cell, text_paths, writing_text
from streampca.models.assign.assign import assign
from streampca.models.assign.options import AssignOptions
from streampca.models.assign.records import NONE, Assignment
from streampca.results.apply import FAR, RESOLVED
from streampca.results.store import fit_id, load_scores, load_within
from streampca.sources.tables import Ids, ids_of, read_table, split_column

if TYPE_CHECKING:
    import xarray

# Classes whose table fits a terminal; of more, the largest confusions are listed.
MOST_SHOWN = 15
MOST_LISTED = 20
# Rows whose text is in memory at a time.
WRITE_ROWS = 4096
# scikit-learn, and tables of labels.
SKLEARN_BYTES = 130 << 20


def assign_samples(
    result: Path, options: Mapping[str, Any], *, labels: str | None = None, n_components: int | None = None,
    new: Path | None = None, far: float | None = None, out: Path | None = None, overwrite: bool = False,
    memory: str | None = None,
) -> tuple[Path, Assignment, list[str], dict[str, Any]]:  # fmt: skip
    """Assign the samples of a result, or new ones, to the classes of labelled samples, and write a table.

    Parameters
    ----------
    result : path of the result.
    options : method and its options; see `AssignOptions`.
    labels : table with ids and labels, as pops.tsv or pops.tsv:COLUMN; those in the result by default.
    n_components : use the first components only.
    new : scores of new samples, as `project` writes them, to assign instead.
    far : new samples this many times as far from the components as is typical are in no class.
    out : the table; next to the scores by default.

    Returns
    -------
    Path of the table, the assignment, lines for the terminal, and facts for JSON.
    """
    choice = AssignOptions.of(options)
    target = text_paths(out or _default_path(new or result), ("",), overwrite)[0]
    fitted = load_within(result, memory, "the assignment", libraries=SKLEARN_BYTES)
    scores = _scores(fitted, result, n_components)
    names, note = _labels(fitted, result, labels, needed=choice.method != "gmm")
    others = None if new is None else _open_scores(new, fitted)
    judged = fitted if others is None else others
    found = assign(
        scores,
        names,
        choice,
        None if others is None else _scores(others, new, n_components),
        None if others is None else _far(others, new, far),
    )
    given = names if others is None else _labels_in(others)
    _write(target, ids_of(judged), given, found, held_out=others is None)
    facts = {"assigned": str(target), "n_samples": len(found.assigned), "labels": note, **found.facts()}
    lines = [*_pairs(found, note), *_rest(found, None if others is not None else names)]
    return target, found, lines, facts


def _default_path(path: Path) -> Path:
    """Return NAME.pca.assigned.tsv for NAME.pca.zarr or NAME.pca.scores.zarr, next to it."""
    return path.with_name(path.name.removesuffix(".zarr").removesuffix(".scores") + ".assigned.tsv")


def _open_scores(path: Path, fitted: xarray.Dataset) -> xarray.Dataset:
    """Open the scores of new samples on the components of a result."""
    new = load_scores(path)
    if new.sizes["component"] != fitted.sizes["component"]:
        raise InputError(
            f"{path}: has scores on {new.sizes['component']} components, the result on {fitted.sizes['component']}; "
            "project the samples on this result"
        )
    # Earlier versions did not say of which fit scores are.
    if new.attrs.get("fit", fit_id(fitted)) != fit_id(fitted):
        raise InputError(
            f"{path}: has scores on the components of another fit, {new.attrs.get('result')}; project the samples on "
            "this result"
        )
    return new


def _scores(dataset: xarray.Dataset, path: Path | None, components: int | None) -> Any:
    """Return scores on the first components, n x m."""
    if "scores" not in dataset:
        raise InputError(f"{path}: holds no scores; make it with `streampca pca`, `ppca` or `kpca`")
    k = dataset.sizes["component"]
    if components is not None and components > k:
        raise InputError(f"{path}: has {k} components, not {components}; give --components {k} or fewer")
    with opening(str(path), "read", "make it again"):
        values = dataset["scores"].transpose(..., "component").values
    if not np.isfinite(values).all():
        raise InputError(f"{path}: has scores that are no numbers; make it again")
    return values.reshape(-1, k)[:, :components]


def _labels(
    fitted: xarray.Dataset, path: Path, labels: str | None, needed: bool
) -> tuple[Any, str | None]:  # fmt: skip
    """Return a label for each sample, "" where there is none, and how the table matched; None if there are none."""
    if labels is None:
        inside = _labels_in(fitted)
        if inside is None and needed:
            raise InputError(f"{path}: holds no labels; give a table by --labels, or use --method gmm")
        return inside, None
    table_path, columns = split_column(labels)
    if len(columns) > 1:
        raise InputError(f"labels are in one column; {', '.join(columns)} are {len(columns)}")
    table = read_table(table_path, ids_of(fitted))
    return table.label(columns[0] if columns else None), table.note


def _labels_in(dataset: xarray.Dataset) -> Any:
    """Return the labels that samples have in a store, as images do; None if they have none."""
    dims = tuple(dim for dim in dataset["scores"].dims if dim != "component")
    if "label" not in dataset.coords or dataset["label"].dims != dims:
        return None
    return [str(label) for label in dataset["label"].values.ravel().tolist()]


def _far(new: xarray.Dataset, path: Path | None, far: float | None) -> Any:
    """Tell which samples are far from the components; None where their distance is not known."""
    typical = new.attrs.get("typical_distance")
    if "distance" not in new or typical is None:
        if far is not None:
            raise InputError(
                f"{path}: holds no distances, which `project` gives on results of pca alone; leave out --far, or "
                "project the samples anew"
            )
        return None
    distance = new["distance"].values.ravel()
    # Components that leave nothing over have distances of rounding errors alone.
    length = np.hypot(distance, np.linalg.norm(_scores(new, None, None), axis=1))
    return distance > np.maximum((FAR if far is None else far) * float(typical), RESOLVED * length)


def _write(path: Path, ids: Ids, given: Any, found: Assignment, held_out: bool) -> None:
    """Write the table, a line for each sample."""
    columns: dict[str, Any] = {"id": ids.names} if ids.families is None else {"FID": ids.families, "IID": ids.names}
    columns |= {"label": [""] * len(ids.names) if given is None else given, "assigned": found.assigned}
    columns |= {"probability": found.probability}
    columns |= {"distance": -found.density} if found.method == "nn" else {"log_density": found.density}
    if held_out and found.held_out is not None:
        columns["held_out"] = found.held_out
    columns |= {f"p_{name}": found.probabilities[:, i] for i, name in enumerate(found.classes)}
    with writing_text(path) as file:
        file.write("\t".join(map(table_cell, columns)) + "\n")
        for start in range(0, len(ids.names), WRITE_ROWS):
            parts = (map(table_cell, values[start : start + WRITE_ROWS]) for values in columns.values())
            file.writelines("\t".join(row) + "\n" for row in zip(*parts, strict=True))


def _pairs(found: Assignment, note: str | None) -> Iterator[str]:
    """Yield the accuracy of the model, and which classes it confuses."""
    pairs = [] if note is None else [("labels", note)]
    many = "groups" if found.method == "gmm" else "classes"
    details = "".join(
        f", {name} {found.details[name]:.6g}" for name in ("neighbours", "bandwidth") if name in found.details
    )
    if found.method == "gmm":
        details = f", {found.details['covariances']} covariances"
    labelled = "" if found.method == "gmm" else f" of {found.n_labelled} labelled samples"
    pairs.append(("method", f"{found.method}, {len(found.classes)} {many}{labelled}{details}"))
    if found.accuracy is not None:
        pairs += [
            ("accuracy", f"{found.accuracy:.2%} of {found.n_judged} held out, in {found.folds} parts"),
            ("balanced", f"{found.balanced_accuracy:.2%}, the mean over classes"),
        ]
    if found.rand_index is not None:
        pairs.append(("agreement", f"{found.rand_index:.4f}, adjusted Rand index of groups and labels"))
    width = max(len(name) for name, _ in pairs)
    yield from (f"{name:<{width}}  {text}" for name, text in pairs)
    if found.confusion is not None and found.confusion.any():
        yield "labels in rows, groups in columns" if found.method == "gmm" else "labels in rows, held out:"
        yield from confusion_lines(found)
    yield from (f"note: {text}" for text in found.notes)


def _rest(found: Assignment, given: Any) -> Iterator[str]:
    """Yield the number of samples in no class: of new ones, of those without a label, or of all in groups."""
    assigned, which = found.assigned, "samples" if found.method == "gmm" else "new samples"
    if given is not None and found.method != "gmm":
        assigned, which = assigned[[not label for label in given]], "samples without a label"
    if len(assigned):
        yield f"{NONE}: {int((assigned == NONE).sum())} of {len(assigned)} {which}"


def confusion_lines(found: Assignment) -> Iterator[str]:
    """Yield labels in rows, what held-out samples were assigned to in columns; or the worst, where there are many."""
    assert found.confusion is not None
    columns = [*(name.removeprefix("group ") if found.method == "gmm" else name for name in found.classes), "none"]
    if max(len(columns), len(found.rows)) > MOST_SHOWN + 1:
        yield from _worst(found, columns)
        return
    first = max(map(len, found.rows))
    widths = [max(len(name), len(str(found.confusion[:, i].max()))) for i, name in enumerate(columns)]
    yield "  ".join([" " * first, *(f"{name:>{width}}" for name, width in zip(columns, widths, strict=True))])
    for name, counts in zip(found.rows, found.confusion, strict=True):
        cells = (f"{count or '.':>{width}}" for count, width in zip(counts.tolist(), widths, strict=True))
        yield "  ".join([f"{name:<{first}}", *cells])


def _worst(found: Assignment, columns: list[str]) -> Iterator[str]:
    """Yield the labels that are taken for others most often."""
    assert found.confusion is not None
    counts = found.confusion.copy()
    if found.method != "gmm":
        np.fill_diagonal(counts, 0)
    order = np.argsort(-counts.ravel(), kind="stable")[: int(np.count_nonzero(counts))]
    for at in order[:MOST_LISTED].tolist():
        row, column = divmod(at, counts.shape[1])
        verb = "in group" if found.method == "gmm" else "taken for"
        yield f"{found.rows[row]} {verb} {columns[column]}: {counts[row, column]} of {found.confusion[row].sum()}"
    if len(order) > MOST_LISTED:
        yield f"and {len(order) - MOST_LISTED} pairs more"
