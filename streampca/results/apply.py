"""Apply a result to other data: project, impute, denoise. Each writes a store.

A kind of model refers to the functions that it supports; all take (source, result, store, ...) and return facts for
the summary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import InputError, hint_for_missing
from streampca.genetics.matching import Match, match_samples, match_variants
from streampca.models.dataset import FORMAT_VERSION, Variables
from streampca.models.genotypes import placed_genotypes
from streampca.models.kernel_pca.preimages import RESTORED_ROWS, KernelDenoiser, LinearDenoiser, check_invertible
from streampca.models.kernel_pca.record import kernel_scores, kernel_sweeps
from streampca.models.pca.fit import linear_sweeps, project, project_observed
from streampca.models.pca.record import distances
from streampca.models.ppca.fit import infer_posterior
from streampca.models.ppca.plan import imputing_sweeps
from streampca.progress import Progress, silent
from streampca.results.kind import kind_of
from streampca.results.store import fit_id, variant_labels_in
from streampca.results.write import BlockWriter, save, score_writer
from streampca.solvers.em.statistics import Imputation
from streampca.sources import Axis, Source
from streampca.sweep.statistics import RowsOf
from streampca.sweep.sweep import Sweeps, active_client

if TYPE_CHECKING:
    import xarray

# Advice for missing values in samples that a result is applied to.
HINT = "fill them, or fit with --missing mean"
# Samples further from the components than this multiple of the typical distance are unlike the fitted samples.
FAR = 2.0
# Distances below this share of a sample's length are rounding, in float32.
RESOLVED = 1e-3
# Samples of one chunk of imputed genotypes.
IMPUTED_CHUNK = 4096


@dataclass(frozen=True)
class Application:
    """A result that is applied to data.

    Attributes
    ----------
    source, result : the data and the opened result.
    store : directory of the store that is written.
    path : of the result, for the record.
    projection : of genotypes on components: "oadp", "lsq" or "simple".
    drop_ambiguous : exclude variants that are the same on both strands.
    """

    source: Source
    result: xarray.Dataset
    store: Path
    path: str
    memory_limit: Any = None
    progress: Progress = field(default=silent, compare=False)
    projection: str = "oadp"
    drop_ambiguous: bool = False

    @property
    def genotypes(self) -> bool:
        """Whether the result is of genotypes."""
        return bool(self.result.attrs["genotypes"])

    @property
    def missing(self) -> str:
        """What the fit did with missing values."""
        return "mean" if self._missing in ("mean", "lsq") else "error"

    @property
    def least_squares(self) -> bool:
        """Whether scores of the fit are by least squares over observed values."""
        return self._missing == "lsq"

    @property
    def _missing(self) -> object:
        return json.loads(self.result.attrs["parameters"]).get("missing")

    def fitted(self, *, scores: bool = False) -> Any:
        """Return the fitted record of the result, with the scores of its samples if requested."""
        record: Any = kind_of(self.result.attrs["kind"]).function("fitted")
        return record.from_dataset(self.result, scores=scores)

    def fitted_places(self) -> Array:
        """Return for each sample its place among the fitted ones with the same id, or -1."""
        pairs = [zip(*(values.tolist() for values in labels), strict=True) for labels in (
            (self.result["fid"].values, self.result["iid"].values),
            (self.source.label("fid"), self.source.label("iid")),
        )]  # fmt: skip
        return match_samples(*map(list, pairs))

    def match(self) -> Match:
        """Match the variants of the data with those of the result."""
        return match_variants(variant_labels_in(self.result), self.source, drop_ambiguous=self.drop_ambiguous)

    def few(self, match: Match) -> dict[str, Any]:
        """Return the facts about matched variants."""
        share = len(match.fitted) / self.result.sizes["variant"]
        return {"variants": match.note} | ({} if share >= 0.9 else {"few_variants": 1 - share})


def project_linear(to: Application) -> dict[str, Any]:
    """Write scores on principal components, and the distance of each sample from their space (see `distances`)."""
    fitted = to.fitted(scores=to.genotypes)
    typical = fitted.typical_distance
    if to.genotypes:
        match, places = to.match(), to.fitted_places()
        projected = placed_genotypes(
            to.source, fitted, match, projection=to.projection, places=places, memory=to.memory_limit,
            progress=to.progress,
        )  # fmt: skip
        facts: dict[str, Any] = {"projection": to.projection, **to.few(match)}
        if projected.fitted is not None and (places >= 0).any():
            own = int(projected.fitted.sum())
            facts |= {"n_fitted": own, "n_same_id": int((places >= 0).sum()) - own}
        if np.isnan(projected.scores).any():
            facts["n_without_scores"] = int(np.isnan(projected.scores).any(axis=1).sum())
        scores, distance, deviations = projected[:3]
        _save_scores(to, scores, facts | {"typical_distance": typical}, deviations, distance)
        return facts
    with hint_for_missing(HINT):
        if to.least_squares:
            scores, deviations, _, squares = project_observed(to.source, fitted, to.memory_limit, to.progress)
        else:
            scores, squares = project(to.source, fitted, to.missing, to.memory_limit, to.progress)
            deviations = None
    distance = distances(scores, squares)
    far = distance > np.maximum(FAR * typical, RESOLVED * np.sqrt(squares))
    facts = {"typical_distance": typical, "far": FAR, "n_far": int(far.sum())}
    _save_scores(to, scores, facts, deviations, distance)
    return facts


def project_latent(to: Application) -> dict[str, Any]:
    """Write posterior means of a latent model, with their standard deviations."""
    latent, source, facts = to.fitted(), to.source, {}
    if to.genotypes:
        match = to.match()
        latent, source = latent.matching(match), source.take(features=match.new)
        facts = {"projection": "posterior", **to.few(match)}
    posterior, _, _ = infer_posterior(source, latent, "model", to.memory_limit, to.progress)
    _save_scores(to, posterior.mean, facts, posterior.deviation)
    return facts


def project_kernel(to: Application) -> dict[str, Any]:
    """Write scores on kernel components."""
    found, source = to.fitted(), to.source
    k = len(found.explained_variance)
    sweeps = kernel_sweeps(source, found, to.missing, to.memory_limit, to.progress)
    writer = score_writer(to.store, ("scores",), sweeps.matrix, k)
    if writer is None:
        sweeps = kernel_sweeps(source, found, to.missing, to.memory_limit, to.progress, held=True)
    with hint_for_missing(HINT):
        scores = kernel_scores(found, sweeps, True, writer)
    _save_scores(to, None if writer else scores, {})
    return {}


def _save_scores(
    to: Application, scores: Array | None, facts: Mapping[str, Any], deviations: Array | None = None,
    distance: Array | None = None,
) -> None:  # fmt: skip
    """Write scores that are in memory, labels and attributes."""
    samples, k = to.source.samples, to.result.sizes["component"]
    shape, dims = (*samples.sizes, k), (*samples.dims, "component")
    named = {"scores": scores, "score_deviation": deviations}
    variables: Variables = {name: (dims, v.reshape(shape)) for name, v in named.items() if v is not None}
    if distance is not None:
        variables["distance"] = (samples.dims, distance.reshape(samples.sizes))
    coords: Variables = {"component": (("component",), np.arange(1, k + 1)), **samples.coords}
    attributes = {"result": to.path, "source": to.source.name, "fit": fit_id(to.result), **facts}
    save(variables, coords, {"format_version": FORMAT_VERSION, "kind": "scores", **attributes}, to.store)


def impute_latent(to: Application) -> dict[str, Any]:
    """Write the data with each missing value at its mean given the observed values of its sample.

    Two sweeps: the posterior of each sample, and the values. Genotypes are counts of the first allele, from 0 to 2.
    Observed values are written unchanged.
    """
    latent, source, facts = to.fitted(), to.source, {}
    if to.genotypes:
        match = to.match()
        latent, source, facts = latent.matching(match), source.take(features=match.new), to.few(match)
    sweeps, length = imputing_sweeps(source, latent.n_components, to.memory_limit, to.progress)
    means = infer_posterior(source, latent, "model", to.memory_limit, to.progress)[0].mean
    axis, features = sweeps.matrix.axis, source.features
    samples = _one_dimension(source.samples)
    chunks = (length, *features.sizes) if axis == 0 else (min(len(samples), IMPUTED_CHUNK), length)
    writer = _sample_writer(to.store, "imputed", samples, features, chunks, sweeps.matrix.dtype, axis)
    statistic = Imputation(
        means, latent.factors, latent.scaling, axis, length, writer, 2.0 if latent.genotypes else None
    )
    with sweeps:
        count, _ = sweeps.run(statistic, "imputing", check=True)
    facts |= {"values": int(count[0]), "share": int(count[0]) / (source.shape[0] * source.shape[1])}
    _save_samples(to, "imputed", samples, features, facts)
    return facts


def denoise_linear(to: Application) -> dict[str, Any]:
    """Write samples projected on principal components and mapped back; images keep their dimensions."""
    if to.genotypes:
        raise InputError(f"{to.path}: denoise is for arrays, not genotypes; use a result of arrays")
    components = to.fitted()
    components.check_features(to.source)
    sweeps = linear_sweeps(to.source, components, to.missing, to.memory_limit, to.progress)
    return _denoise(to, LinearDenoiser(components.components, components.scaling), sweeps)


def denoise_kernel(to: Application) -> dict[str, Any]:
    """Write pre-images of samples projected on kernel components; images keep their dimensions."""
    found = to.fitted()
    check_invertible(found)
    sweeps = kernel_sweeps(to.source, found, to.missing, to.memory_limit, to.progress, restores=True)
    return _denoise(to, KernelDenoiser.of(found, sweeps.matrix.dtype), sweeps)


def _denoise(to: Application, denoiser: Callable[[Array], Array], sweeps: Sweeps) -> dict[str, Any]:
    matrix, features = sweeps.matrix, to.source.features
    samples = _one_dimension(to.source.samples)
    length = max(stop - start for start, stop in matrix.partitions)
    if any(start % length for start, _ in matrix.partitions):
        # Tasks that share a chunk of the output write one at a time.
        if active_client() is not None:
            raise InputError(
                f"{to.source.name}: blocks of uneven length cannot be written by several workers; rechunk the data"
            )
        sweeps.threads = 1
    chunks = (length, *features.sizes)
    writer = _sample_writer(to.store, "denoised", samples, features, chunks, matrix.dtype)
    with hint_for_missing(HINT), sweeps:
        sweeps.run(RowsOf(denoiser, writer, RESTORED_ROWS), "denoising", check=True)
    _save_samples(to, "denoised", samples, features, {})
    return {}


def _one_dimension(samples: Axis) -> Axis:
    """Return samples of several dimensions as one."""
    return samples if len(samples.dims) == 1 else Axis(("sample",), (len(samples),))


def _sample_writer(
    store: Path, name: str, samples: Axis, features: Axis, chunks: tuple[int, ...], dtype: Any, axis: int = 0
) -> BlockWriter:
    """Return a writer of samples in their own units: samples x the dimensions of their features."""
    shape, dims = (len(samples), *features.sizes), (*samples.dims, *features.dims)
    return BlockWriter(store, (name,), shape, chunks, dtype, dims, axis, features)


def _save_samples(to: Application, kind: str, samples: Axis, features: Axis, facts: Mapping[str, Any]) -> None:
    attributes = {"format_version": FORMAT_VERSION, "kind": kind, "source": to.source.name, "result": to.path, **facts}
    save({}, {**samples.coords, **features.coords}, attributes, to.store)
