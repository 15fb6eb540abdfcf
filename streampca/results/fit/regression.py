"""Principal component regression on columns of tables: fit into a store, and predict by one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError
from streampca.genetics.matching import Match, match_variants
from streampca.models.pcr import dataset as pcr_dataset
from streampca.models.pcr.fit import fit_pcr, predict_targets
from streampca.models.pcr.targets import Targets, plan_pcr
from streampca.progress import Progress, silent
from streampca.results.apply import Application
from streampca.results.fit.job import FitJob, Fitted, saved
from streampca.results.store import variant_labels_in
from streampca.solvers.choose import Plan
from streampca.sources import Source
from streampca.sources.tables import Table, read_table, source_ids, split_column

if TYPE_CHECKING:
    import xarray

# Maximum number of categories of a covariate.
MOST_KINDS = 100
# PLINK's code for a missing phenotype.
PLINK_MISSING = -9


def fit(job: FitJob, store: Path) -> Fitted:
    """Fit a principal component regression and write it to a store."""
    options: Any = job.options
    targets, kinds, notes = targets_from(job.source, options.target, options.covariates)
    fit, source = fit_pcr(job.source, options, targets, memory=job.memory_limit, progress=job.progress)
    attributes = pcr_dataset.attributes(fit, job.origin)
    # Categories of each covariate that was text, as `covariates_of` returns them.
    attributes["covariate_kinds"] = json.dumps(kinds)
    attributes["notes"] = json.dumps([*notes, *json.loads(attributes["notes"])])
    return saved(pcr_dataset.variables(fit, *fit.pca.axes(source)), attributes, store)


def plan(job: FitJob) -> Plan:
    """Choose the solver and estimate its cost, without reading."""
    options: Any = job.options
    targets, _, _ = targets_from(job.source, options.target, options.covariates)
    return plan_pcr(job.source, options, targets, memory=job.memory_limit)


def predict(to: Application, covariates: str | None) -> tuple[tuple[str, ...], Array, dict[str, Any]]:
    """Return the names of the targets, their predictions (n, q), and facts for the summary."""
    values, match = predict_by(
        to.source, to.result, covariates_from(to.source, to.result, covariates), to.memory_limit, to.progress
    )
    return pcr_dataset.from_dataset(to.result).names, values, {} if match is None else {"variants": match.note}


def targets_from(
    source: Source, target: str, covariates: str | None = None
) -> tuple[Targets, dict[str, list[str]], tuple[str, ...]]:
    """Return targets and covariates from tables, each given as "traits.tsv:height,weight".

    Returns kinds of the covariates that are text as well, and notes on how many samples the tables have.
    """
    table, columns = _table(source, target, "target")
    values = np.column_stack([table.numbers(name) for name in columns])
    codes = tuple(_code_note(name, column) for name, column in zip(columns, values.T, strict=True) if _coded(column))
    one = len(columns) == 1
    if covariates is None:
        return Targets(values, np.empty((len(values), 0)), tuple(columns), one_target=one), {}, (table.note, *codes)
    beside, chosen = _table(source, covariates, "covariates")
    others, names, kinds = covariates_of(beside, chosen)
    notes = (table.note,) if beside.path == table.path else (table.note, beside.note)
    return Targets(values, others, tuple(columns), names, one_target=one), kinds, notes + codes


def _coded(values: Array) -> bool:
    """Whether PLINK's code for a missing phenotype is among positive values."""
    others = values[(values != PLINK_MISSING) & ~np.isnan(values)]
    return bool((values == PLINK_MISSING).any() and others.size and (others > 0).all())


def _code_note(name: str, values: Array) -> str:
    count = int((values == PLINK_MISSING).sum())
    return f"{name} is -9 in {count} samples, PLINK's code for missing; here it is a number: write NA for missing"


def covariates_from(source: Source, result: xarray.Dataset, covariates: str | None) -> Array | None:
    """Return the covariates of new samples that a result asks for, from "traits.tsv" or "traits.tsv:age,sex"."""
    found, kinds = pcr_dataset.from_dataset(result), json.loads(result.attrs["covariate_kinds"])
    # Columns of the table, of which text has made several covariates.
    columns = list(
        dict.fromkeys(
            next((column for column in kinds if name.startswith(f"{column}=")), name) for name in found.covariate_names
        )
    )
    if not columns:
        if covariates is not None:
            raise InputError("this regression has no covariates; leave them out")
        return None
    if covariates is None:
        raise InputError(f"this regression has covariates; give a table with {', '.join(columns)}")
    path, named = split_column(covariates)
    if named and not set(columns) <= set(named):
        raise InputError(f"covariates {covariates!r}: this regression was fitted with {', '.join(columns)}; name these")
    return covariates_of(read_table(path, source_ids(source.samples)), columns, kinds)[0]


def _table(source: Source, text: str, what: str) -> tuple[Table, list[str]]:
    path, columns = split_column(text)
    if not columns:
        raise InputError(f"{what} {text!r} names no column; write it as table.tsv:column or table.tsv:one,two")
    if len(set(columns)) < len(columns):
        raise InputError(f"{what} {text!r} names a column twice; name each once")
    return read_table(path, source_ids(source.samples)), columns


def predict_by(
    source: Source, result: xarray.Dataset, covariates: Array | None = None, memory: Any = None,
    progress: Progress = silent,
) -> tuple[Array, Match | None]:  # fmt: skip
    """Return the predicted targets (n, q) of samples, and the matched variants of genotypes."""
    found, match = pcr_dataset.from_dataset(result), None
    if found.genotypes:
        if not source.is_genotypes:
            raise InputError(f"{source.name}: the regression is on genotypes; give a genotype file")
        match = match_variants(variant_labels_in(result), source)
    missing = "mean" if json.loads(result.attrs["parameters"]).get("missing") == "mean" else "error"
    return predict_targets(source, found, covariates, match, missing, memory, progress), match


def covariates_of(
    table: Table, columns: list[str], kinds: Mapping[str, list[str]] | None = None
) -> tuple[Array, tuple[str, ...], dict[str, list[str]]]:
    """Return covariates from columns of a table: numbers as they are, text as 0 and 1, one column less than kinds.

    Parameters
    ----------
    kinds : of each column of text what it may be, of a fit; None to take those that are there.

    Returns
    -------
    values : (n, c), NaN where missing.
    names : of the covariates: that of the column, for text with = and the kind.
    kinds : of each column of text; the first has no column of its own.
    """
    values: list[Array] = []
    names: list[str] = []
    found: dict[str, list[str]] = {}
    for column in columns:
        if kinds is not None and column not in kinds or kinds is None and not _is_text(table, column):
            values.append(table.numbers(column))
            names.append(column)
            continue
        texts = table.label(column)
        there = sorted(set(texts.tolist()) - {""})
        known = there if kinds is None else kinds[column]
        others = [kind for kind in there if kind not in known]
        if others:
            raise InputError(
                f"{table.path}: column {column!r} has {others[0]!r}, which the samples fitted had not; they had "
                f"{', '.join(known)}"
            )
        if not 1 <= len(known) <= MOST_KINDS:
            raise InputError(
                f"{table.path}: column {column!r} is text of {len(known)} kinds; give numbers, or text of up to "
                f"{MOST_KINDS} kinds"
            )
        found[column] = known
        for kind in known[1:]:
            values.append(np.where(texts == "", np.nan, (texts == kind).astype(np.float64)))
            names.append(f"{column}={kind}")
    n = len(table.found)
    return np.column_stack(values) if values else np.empty((n, 0)), tuple(names), found


def _is_text(table: Table, column: str) -> bool:
    """Whether a column has cells that are not numbers; numeric codes are numbers."""
    if column not in table.cells or table.columns[column].dtype.kind == "f":
        return False
    try:
        table.numbers(column)
    except InputError:
        return True
    return False
