"""Principal component regression on columns of tables: fit, plan and predict."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.models.pcr.fit import fit_pcr, predict_targets
from streampca.models.pcr.options import PCRTableOptions
from streampca.models.pcr.record import PCRFit
from streampca.models.pcr.targets import Targets, plan_pcr
from streampca.progress import Progress, silent
from streampca.results.apply import Application
from streampca.solvers.choose import Plan
from streampca.sources import Source
from streampca.sources.tables import Table, read_table, source_ids, split_column
from streampca.sweep.sweep import Sweeps

MAX_CATEGORIES = 100  # of a covariate
PLINK_MISSING = -9  # PLINK's code for a missing phenotype


def fit_tables(
    source: Source, options: PCRTableOptions, *, memory: Any = None, progress: Progress = silent
) -> tuple[PCRFit, Sweeps]:
    """Fit a principal component regression to columns of tables; return it and its sweeps."""
    targets, categories, notes = targets_from(source, options.target, options.covariates)
    fitted, sweeps = fit_pcr(source, options, targets, memory=memory, progress=progress)
    return replace(fitted, covariate_kinds=json.dumps(categories), notes=(*notes, *fitted.notes)), sweeps


def plan_tables(source: Source, options: PCRTableOptions, *, memory: Any = None) -> Plan:
    """Choose the solver and estimate its cost; of the data, only the tables are read."""
    targets, _, _ = targets_from(source, options.target, options.covariates)
    return plan_pcr(source, options, targets, memory=memory)


def predict(to: Application, covariates: str | None) -> tuple[tuple[str, ...], Array, dict[str, Any]]:
    """Return the names of the targets, their predictions (n, q), and facts for the summary."""
    fitted: PCRFit = to.fitted()
    given = _covariates_of_new_samples(to.source, fitted, covariates)
    match = to.match() if fitted.genotypes else None
    values = predict_targets(to.source, fitted, given, match, to.missing, to.memory_limit, to.progress)
    return fitted.names, values, {} if match is None else {"variants": match.note}


def targets_from(
    source: Source, target: str, covariates: str | None = None
) -> tuple[Targets, dict[str, list[str]], tuple[str, ...]]:
    """Return targets and covariates from tables, each given as "traits.tsv:height,weight".

    Also returns the categories of the covariates that are text, and notes on how many samples the tables have.
    """
    table, columns = _table(source, target, "target")
    values = np.column_stack([table.numbers(name) for name in columns])
    notes = [table.note]
    second, chosen = (table, []) if covariates is None else _table(source, covariates, "covariates")
    others, names, categories = covariates_of(second, chosen)
    notes += [] if second.path == table.path else [second.note]
    notes += [_code_note(name, column) for name, column in zip(columns, values.T, strict=True) if _coded(column)]
    targets = Targets(values, others, tuple(columns), names, one_target=len(columns) == 1)
    return targets, categories, tuple(notes)


def _coded(values: Array) -> bool:
    """Whether PLINK's code for a missing phenotype is among positive values."""
    others = values[(values != PLINK_MISSING) & ~np.isnan(values)]
    return bool((values == PLINK_MISSING).any() and others.size and (others > 0).all())


def _code_note(name: str, values: Array) -> str:
    count = int((values == PLINK_MISSING).sum())
    return f"{name} is -9 in {count} samples, PLINK's code for missing; here it is a number: write NA for missing"


def _covariates_of_new_samples(source: Source, fitted: PCRFit, covariates: str | None) -> Array | None:
    """Return the covariates that a regression needs, from "traits.tsv" or "traits.tsv:age,sex"."""
    categories = json.loads(fitted.covariate_kinds)
    # A column of text is several covariates, named column=category.
    of_text = {f"{column}={category}": column for column in categories for category in categories[column]}
    columns = list(dict.fromkeys(of_text.get(name, name) for name in fitted.covariate_names))
    if not columns:
        if covariates is not None:
            raise InputError("this regression has no covariates; remove them")
        return None
    if covariates is None:
        raise InputError(f"this regression has covariates; give a table with {', '.join(columns)}")
    path, named = split_column(covariates)
    if named and not set(columns) <= set(named):
        raise InputError(f"covariates {covariates!r}: this regression was fitted with {', '.join(columns)}; name these")
    return covariates_of(read_table(path, source_ids(source.samples)), columns, categories)[0]


def _table(source: Source, text: str, what: str) -> tuple[Table, list[str]]:
    path, columns = split_column(text)
    if not columns:
        raise InputError(f"{what} {text!r} names no column; write it as table.tsv:column or table.tsv:one,two")
    if len(set(columns)) < len(columns):
        raise InputError(f"{what} {text!r} names a column twice; name each once")
    return read_table(path, source_ids(source.samples)), columns


def covariates_of(
    table: Table, columns: list[str], categories: Mapping[str, list[str]] | None = None
) -> tuple[Array, tuple[str, ...], dict[str, list[str]]]:
    """Return covariates from columns of a table: numbers, and text as indicators of all categories but the first.

    Parameters
    ----------
    categories : of each column of text, as fitted; None to use those of the table.

    Returns
    -------
    values : (n, c), NaN where missing.
    names : of the covariates: the column, or column=category.
    categories : of each column of text.
    """
    values: list[Array] = [np.empty((len(table.found), 0))]
    names: list[str] = []
    found: dict[str, list[str]] = {}
    for column in columns:
        if not (_is_text(table, column) if categories is None else column in categories):
            values.append(table.numbers(column))
            names.append(column)
            continue
        texts = table.label(column)
        found[column] = _categories(table, column, texts, None if categories is None else categories[column])
        for category in found[column][1:]:
            values.append(np.where(texts == "", np.nan, (texts == category).astype(np.float64)))
            names.append(f"{column}={category}")
    return np.column_stack(values), tuple(names), found


def _categories(table: Table, column: str, texts: Array, fitted: list[str] | None) -> list[str]:
    """Return the categories of a column; raise if there are too many, or others than the fitted ones."""
    given = sorted(set(texts.tolist()) - {""})
    known = given if fitted is None else fitted
    others = [category for category in given if category not in known]
    if others:
        raise InputError(
            f"{table.path}: column {column!r} has {others[0]!r}, which the fitted samples do not have; use "
            f"{', '.join(known)}"
        )
    if not 1 <= len(known) <= MAX_CATEGORIES:
        raise InputError(
            f"{table.path}: column {column!r} has {len(known)} different texts; give numbers, or text with 1 to "
            f"{MAX_CATEGORIES} categories"
        )
    return known


def _is_text(table: Table, column: str) -> bool:
    """Whether a column has cells that are not numbers; numeric codes are numbers."""
    if column not in table.cells or table.columns[column].dtype.kind == "f":
        return False
    try:
        table.numbers(column)
    except InputError:
        return True
    return False
