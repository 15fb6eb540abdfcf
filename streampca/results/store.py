"""Results: one xarray Dataset in one Zarr store, written beside its final name and renamed when whole."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import shutil
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca._typing import Array
from streampca.errors import DAMAGED, InputError, curing_gaps
from streampca.files import writing_text
from streampca.models.dataset import (
    FORMAT_VERSION,
    Variables,
    as_dataset,
    error_name,
    kernel_attributes,
    kernel_variables,
    latent_attributes,
    latent_variables,
    long_names,
    pca_variables,
    provenance,
)
from streampca.models.genotypes import VARIANT_LABELS, fit_genotypes
from streampca.models.kernel_pca.fit import fit_kernel_pca
from streampca.models.kernel_pca.options import KernelPCAOptions
from streampca.models.kernel_pca.preimages import (
    RESTORED_ROWS,
    KernelDenoiser,
    LinearDenoiser,
    RidgeMap,
    check_invertible,
)
from streampca.models.kernel_pca.record import KernelPCAFit, kernel_scores, kernel_sweeps
from streampca.models.pca.fit import (
    PCAFit,
    check_width,
    distances,
    fit_pca,
    linear_sweeps,
    project,
    scores_of,
)
from streampca.models.pca.options import PCAOptions
from streampca.models.ppca.fit import (
    PPCAFit,
    fit_ppca,
    infer_latent,
    with_posterior,
)
from streampca.models.ppca.options import FactorAnalysisOptions, PPCAOptions
from streampca.models.ppca.plan import imputing_sweeps
from streampca.progress import Progress, silent
from streampca.results.schema import (
    ERROR_ARRAYS,
    RESULT_ARRAYS,
    absent_arrays,
    certificate_method,
    check_arrays,
    check_attributes,
    error_in,
)
from streampca.solvers.em.factors import Factors, Known
from streampca.solvers.em.statistics import Imputation
from streampca.solvers.kernel.kernels import Kernel
from streampca.solvers.kernel.nystrom import KernelSolution
from streampca.sources import Axis, Source
from streampca.sources.completeness import WRITTEN, refuse_damage, written_whole
from streampca.sources.remote import is_url, root_at
from streampca.sources.zarr_arrays import arrays_in, check_size, open_store
from streampca.sweep.matrix import Matrix
from streampca.sweep.scaling import Scaling
from streampca.sweep.statistics import RowsOf
from streampca.sweep.sweep import Sweeps, active_client

if TYPE_CHECKING:
    import xarray


# What to do about missing values in samples that a result is applied to.
CURE = "fill them, or fit with --missing mean"
# Samples further from the components than so many times the typical distance are unlike those fitted.
FAR = 2.0
# Distances below this share of a sample's length are rounding, in float32.
RESOLVED = 1e-3
# Samples of one chunk of imputed genotypes.
IMPUTED_CHUNK = 4096
# Arrays of a result that are no larger are read when it is opened.
READ_AT_ONCE = 16 << 20


@contextmanager
def writing(path: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a fresh place beside `path`, and rename it to `path` when the block ends well; else remove it."""
    check_output(path, overwrite)
    name = f".{path.name}.{uuid.uuid4().hex[:8]}"
    beside = path.with_name(f"{name}.unfinished")
    try:
        beside.mkdir()
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error
    try:
        yield beside
        put_in_place(beside, path, overwrite, path.with_name(f"{name}.old"))
    finally:
        if beside.exists():
            shutil.rmtree(beside)


def put_in_place(store: Path, path: Path, overwrite: bool, old: Path) -> None:
    """Give a store that is whole its name; what had the name before goes by way of `old`."""
    if path.exists():
        check_output(path, overwrite)
        if old.exists():
            shutil.rmtree(old)
        path.rename(old)
    os.rename(store, path)
    if old.exists():
        shutil.rmtree(old)


def add_attributes(store: Path, attributes: Mapping[str, Any]) -> None:
    """Add attributes to a store that is written."""
    root = json.loads((store / "zarr.json").read_text())
    root["attributes"] |= attributes
    with writing_text(store / "zarr.json") as file:
        json.dump(root, file)


def check_output(path: Path, overwrite: bool) -> None:
    """Refuse an output that exists, or that is not a result of ours, or whose folder does not."""
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; make it first")
    if not path.exists():
        return
    if not overwrite:
        raise InputError(f"{path}: exists already; choose another name or add --overwrite")
    if kind_of(path) is None:
        raise InputError(f"{path}: was not written by streampca, and will not be overwritten; choose another name")


def kind_of(path: Path) -> str | None:
    """Return what kind of store this program wrote at a path ("pca", "simulated"), or None if it wrote none."""
    attributes = attributes_in(path) or {}
    return str(attributes["kind"]) if {"kind", "format_version"} <= set(attributes) else None


def attributes_in(path: Path) -> dict[str, Any] | None:
    """Return the attributes of the store at a path; None if there is none."""
    try:
        found = json.loads((path / "zarr.json").read_text())["attributes"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class RowsWriter:
    """Writes the rows of a partition at a time into arrays of a store; each fills whole chunks."""

    def __init__(self, store: Path, names: tuple[str, ...], samples: Axis, k: int, dtype: Any, partition_length: int):
        import zarr

        group = zarr.open_group(store, mode="a")
        shape, chunks = (len(samples), k), (partition_length, k)
        there: list[Any] = [group[name] for name in names if name in group]
        # What an earlier run began is gone on with.
        same = [a for a in there if (a.shape, a.chunks, a.dtype) == (shape, chunks, np.dtype(dtype))]
        self._arrays: list[Any] = same if len(same) == len(names) else [
            zarr.create_array(
                store, name=name, shape=shape, chunks=chunks, dtype=dtype, fill_value=float("nan"), overwrite=True,
                dimension_names=(samples.dims[0], "component"), **WRITTEN,
            )
            for name in names
        ]  # fmt: skip
        self._store, self._unsafe = store, queue.SimpleQueue[Path]()
        # Whose rows a checkpoint counts on.
        self.token = ", ".join(str((store / name / "zarr.json").stat().st_mtime_ns) for name in names)

    def __call__(self, start: int, *parts: Array) -> None:
        """Write these rows, of one array each."""
        for array, rows in zip(self._arrays, parts, strict=True):
            array[start : start + len(rows)] = rows
            self._unsafe.put(self._store / array.path / array.metadata.encode_chunk_key((start // array.chunks[0], 0)))

    def flush(self) -> None:
        """Have what was written on disk, before a checkpoint counts on it."""
        while not self._unsafe.empty():
            with suppress(FileNotFoundError), self._unsafe.get().open("rb") as file:
                os.fsync(file.fileno())


def _writer(store: Path, names: tuple[str, ...], matrix: Matrix, k: int) -> RowsWriter | None:
    """Return what takes rows as they come, where partitions of samples are whole chunks on this machine; or nothing."""
    lengths = {stop - start for start, stop in matrix.partitions[:-1]} or {matrix.n_block}
    samples = matrix.source.samples
    if matrix.axis == 1 or len(lengths) > 1 or len(samples.dims) > 1 or active_client() is not None:
        return None
    return RowsWriter(store, names, samples, k, matrix.dtype, lengths.pop())


def pca_to_store(
    source: Source, options: PCAOptions, store: Path, parameters: Mapping[str, Any],
    find_outliers: str | None = None, outlier_rounds: int = 5, memory: Any = None, progress: Progress = silent,
) -> tuple[PCAFit, dict[str, Any]]:  # fmt: skip
    """Find the components of a source, and write them with the scores of its samples to a store.

    Cut along samples, each task writes the scores of its partition, so that they need not fit in memory either.
    Returns the components, and the attributes of the result.
    """
    started = time.monotonic()
    apart, fit = None, partial(fit_pca, options=options, memory=memory, progress=progress)
    if source.is_genotypes:
        found, sweeps, apart = fit_genotypes(source, fit, find_outliers=find_outliers, rounds=outlier_rounds)
    else:
        found, sweeps = fit(source, extra_sweeps=1)
    matrix = sweeps.matrix
    writer = None if found.scores is not None else _writer(store, ("scores",), matrix, len(found.components))
    scores, found = scores_of(found, sweeps, writer)
    found = replace(found, seconds=time.monotonic() - started)
    attributes = provenance(found, source.name, source.fingerprint(), parameters)
    samples, features = found.axes(matrix.source)
    variables, coords = pca_variables(found, samples, features, scores if writer is None else None)
    if apart is not None:
        variables["outlier"] = (samples.dims, apart)
    save(variables, coords, attributes, store)
    return found, attributes


def latent_to_store(
    source: Source, options: PPCAOptions | FactorAnalysisOptions, store: Path, parameters: Mapping[str, Any],
    find_outliers: str | None = None, outlier_rounds: int = 5, memory: Any = None, progress: Progress = silent,
) -> tuple[PPCAFit, dict[str, Any]]:  # fmt: skip
    """Fit probabilistic PCA or factor analysis, and write it with what is known of its samples to a store."""
    started = time.monotonic()
    apart, fit = None, partial(fit_ppca, options=options, memory=memory, progress=progress)
    if source.is_genotypes:
        found, sweeps, apart = fit_genotypes(source, fit, find_outliers=find_outliers, rounds=outlier_rounds)
    else:
        found, sweeps = fit(source)
    matrix = sweeps.matrix
    names = ("scores", "score_deviation")
    writer = None if found.posterior is not None else _writer(store, names, matrix, found.n_components)
    found = replace(with_posterior(found, sweeps, writer), seconds=time.monotonic() - started)
    if found.posterior is not None:
        # The same type as of what is written partition by partition.
        known = (part.astype(matrix.dtype) for part in (found.posterior.mean, found.posterior.deviation))
        found = replace(found, posterior=Known(*known))
    attributes = latent_attributes(found, source.name, source.fingerprint(), parameters)
    samples, features = found.axes(matrix.source)
    variables, coords = latent_variables(found, samples, features)
    if apart is not None:
        variables["outlier"] = (samples.dims, apart)
    save(variables, {**coords, **samples.coords}, attributes, store)
    return found, attributes


def kernel_to_store(
    source: Source, options: KernelPCAOptions, store: Path, parameters: Mapping[str, Any], memory: Any = None,
    progress: Progress = silent,
) -> tuple[KernelPCAFit, dict[str, Any]]:  # fmt: skip
    """Fit kernel PCA, and write it with the scores of its samples to a store, as `pca_to_store` does."""
    started = time.monotonic()
    found, sweeps = fit_kernel_pca(source, options, memory=memory, progress=progress)
    writer = _writer(store, ("scores",), sweeps.matrix, len(found.explained_variance))
    scores = kernel_scores(found, sweeps, sink=writer)
    found = replace(
        found, sweep_seconds=tuple(sweeps.seconds), bytes_read=sweeps.bytes_read, seconds=time.monotonic() - started
    )
    attributes = kernel_attributes(found, source.name, source.fingerprint(), parameters)
    variables, coords = kernel_variables(found, source.samples, source.features, scores if writer is None else None)
    save(variables, {**coords, **source.samples.coords}, attributes, store)
    return found, attributes


def kernel_in(result: xarray.Dataset) -> KernelPCAFit:
    """Return the kernel components that a result holds."""
    a = result.attrs
    if a["kernel_is_function"]:
        raise InputError(
            f"the kernel of this result is a Python function ({a['kernel']}), which is not stored; use the fitted "
            "model in Python"
        )
    fourier = "frequencies" in result
    scaling = Scaling(result["mean"].values.ravel(), result["scale"].values.ravel())
    d = len(scaling.mean)
    points = (result["frequencies"] if fourier else result["landmarks"]).values.reshape(-1, d)
    if not fourier:
        points = ((points - scaling.mean) / scaling.scale).astype(a["tile_dtype"])
    ridge = None
    if "anchors" in result:
        ridge = RidgeMap(
            float(a["anchor_gamma"]), result["anchors"].values, result["anchor_weights"].values.reshape(-1, d),
            result["anchor_offset"].values.ravel(),
        )  # fmt: skip
    solution = KernelSolution(
        weights=result["weights"].values,
        centre=result["kernel_mean"].values,
        mean_weights=None if fourier else result["mean_weights"].values,
        values=result["explained_variance"].values,
        certificate=result["certificate"].values,
        total=float(a["total_variance"]),
        lost=float(a.get("lost_variance", 0.0)),
        kept=float(a.get("kept_trace", 1.0)),
        rank=int(a["rank"]),
        advice="",
    )
    return KernelPCAFit(
        kernel=Kernel(str(a["kernel"]), float(a["gamma"]), float(a["degree"]), float(a["coef0"])),
        points=points,
        fourier=fourier,
        solution=solution,
        scaling=scaling,
        missing=result["missing"].values.ravel(),
        n_samples=int(a["n_samples"]),
        tile_dtype=str(a["tile_dtype"]),
        sweep_seconds=(),
        bytes_read=0,
        seconds=0.0,
        advice=str(a["advice"]),
        method=str(a["method"]),
        missed=float(a.get("missed_variance", float("nan"))),
        ridge=ridge,
    )


def latent_in(result: xarray.Dataset) -> PPCAFit:
    """Return the latent model that a result holds."""
    kind, values = result.attrs.get("kind"), {name: result[name].values for name in ("mean", "scale", "missing")}
    if kind not in ("ppca", "factor_analysis"):
        raise InputError(f"a result of kind {kind} is no model of missing values; make one with `streampca ppca`")
    components = result["components"].values.reshape(result.sizes["component"], -1)
    noise: Any = float(result.attrs["noise_variance"]) if kind == "ppca" else result["noise_variance"].values.ravel()
    lengths = np.sqrt(np.maximum(result["explained_variance"].values - noise, 0.0)) if kind == "ppca" else 1.0
    mean = values["mean"].ravel()
    attributes, error = result.attrs, error_in(result)
    return PPCAFit(
        factors=Factors(components.T * lengths, np.zeros(len(mean)), noise),
        scaling=Scaling(mean, values["scale"].ravel()),
        likelihoods=tuple(result["log_likelihood"].values.tolist()),
        change=float(attributes["change"]),
        certificate=None if error is None else result[error].values,
        missing=values["missing"].ravel(),
        n_samples=int(attributes["n_samples"]),
        converged=bool(attributes["converged"]),
        advice=str(attributes["advice"]),
        method=str(attributes["method"]),
        tile_dtype=str(attributes["tile_dtype"]),
        sweep_seconds=(),
        n_iterations=int(attributes["n_iterations"]),
        bytes_read=0,
        seconds=0.0,
        genotypes=bool(attributes["genotypes"]),
        notes=(),
        certificate_method=None if error is None else certificate_method(attributes),
    )


def impute_to_store(
    source: Source, latent: PPCAFit, path: Path, overwrite: bool, attributes: Mapping[str, Any],
    memory: Any = None, progress: Progress = silent,
) -> int:  # fmt: skip
    """Write the data with each missing value at its mean given the values that its sample has; returns how many.

    Two sweeps: what is known of each sample, and the values. Of genotypes these are counts of the first allele, from
    0 to 2. Values that are there are written as they are.
    """
    sweeps, length = imputing_sweeps(source, latent.n_components, memory, progress)
    means = infer_latent(source, latent, "model", memory, progress)[0].mean
    axis, samples, features = sweeps.matrix.axis, source.samples, source.features
    if len(samples.dims) > 1:
        samples = Axis(("sample",), (len(samples),))
    chunks = (length, *features.sizes) if axis == 0 else (min(len(samples), IMPUTED_CHUNK), length)
    facts = {"format_version": FORMAT_VERSION, "kind": "imputed", "source": source.name, **attributes}
    with writing(path, overwrite) as store:
        array = _like_samples(store, "imputed", samples, features, chunks, sweeps.matrix.dtype)

        def write(start: int, rows: Array) -> None:
            if axis == 0:
                array[start : start + len(rows)] = rows.reshape(-1, *features.sizes)
            else:
                array[:, start : start + len(rows)] = rows.T

        top = 2.0 if latent.genotypes else None
        statistic = Imputation(means, latent.factors, latent.scaling, axis, length, write, top)
        count, _ = sweeps.run(statistic, "imputing", check=True)
        save({}, {**samples.coords, **features.coords}, facts, store)
    return int(count[0])


def _like_samples(store: Path, name: str, samples: Axis, features: Axis, chunks: tuple[int, ...], dtype: Any) -> Any:
    """Create an array for samples as they came: samples x the dimensions of their features."""
    import zarr

    zarr.open_group(store, mode="a")
    return zarr.create_array(
        store, name=name, shape=(len(samples), *features.sizes), chunks=chunks, dtype=dtype,
        dimension_names=(*samples.dims, *features.dims), fill_value=float("nan"), **WRITTEN,
    )  # fmt: skip


def denoise_to_store(
    source: Source, result: xarray.Dataset, path: Path, overwrite: bool, attributes: Mapping[str, Any],
    memory: Any = None, progress: Progress = silent,
) -> None:  # fmt: skip
    """Write samples denoised: projected on the components of a result and mapped back; one sweep.

    A result of kernel PCA gives pre-images. Images keep their dimensions.
    """
    denoiser, sweeps = _denoising(source, result, memory, progress)
    matrix, samples, features = sweeps.matrix, source.samples, source.features
    if len(samples.dims) > 1:
        samples = Axis(("sample",), (len(samples),))
    length = max(stop - start for start, stop in matrix.partitions)
    if any(start % length for start, _ in matrix.partitions):
        # Where tasks share a chunk of what is written, one of them writes at a time.
        if active_client() is not None:
            raise InputError(f"{source.name}: has blocks of uneven length, which need one task at a time; rechunk it")
        sweeps.threads = 1
    facts = {"format_version": FORMAT_VERSION, "kind": "denoised", "source": source.name, **attributes}
    with writing(path, overwrite) as store:
        array = _like_samples(store, "denoised", samples, features, (length, *features.sizes), matrix.dtype)

        def write(start: int, rows: Array) -> None:
            array[start : start + len(rows)] = rows.reshape(-1, *features.sizes)

        with curing_gaps(CURE):
            sweeps.run(RowsOf(denoiser, write, RESTORED_ROWS), "denoising", check=True)
        save({}, {**samples.coords, **features.coords}, facts, store)


def _denoising(
    source: Source, result: xarray.Dataset, memory: Any, progress: Progress
) -> tuple[Callable[[Array], Array], Sweeps]:
    """Return what denoises rows by a result, and sweeps to do it in."""
    kind = result.attrs["kind"]
    missing = _missing_rule(result)
    if kind == "kpca":
        found = kernel_in(result)
        check_invertible(found)
        sweeps = kernel_sweeps(source, found, missing, memory, progress, "denoising")
        return KernelDenoiser.of(found, sweeps.matrix.dtype), sweeps
    if kind != "pca" or result.attrs["genotypes"]:
        raise InputError(
            f"a result of kind {kind}{' of genotypes' if result.attrs['genotypes'] else ''} is not for denoising; give "
            "one that `streampca pca` or `kpca` made of arrays"
        )
    components = components_in(result)
    check_width(source, components)
    sweeps = linear_sweeps(source, components, missing, memory, progress)
    return LinearDenoiser(components.components, components.scaling), sweeps


def project_to_store(
    source: Source, result: xarray.Dataset, path: Path, overwrite: bool, attributes: Mapping[str, Any],
    memory: Any = None, progress: Progress = silent,
) -> dict[str, Any]:  # fmt: skip
    """Write the scores of samples that are no genotypes on the components of a result; of `ppca` with deviations.

    Of `pca`, the store has the `distance` of each sample from the space of the components too (see `distances`), and
    what is returned says how large it is for the samples fitted, and how many here are FAR times further or more.
    """
    kind, missing = result.attrs["kind"], _missing_rule(result)
    if kind in ("pca", "pcr"):
        fitted = components_in(result)
        with curing_gaps(CURE):
            scores, squares = project(source, fitted, missing, memory, progress)
        distance = distances(scores, squares)
        typical = fitted.typical_distance
        far = distance > np.maximum(FAR * typical, RESOLVED * np.sqrt(squares))
        facts = {"typical_distance": typical, "n_far": int(far.sum())}
        stored = {**attributes, "fit": fit_id(result), **facts}
        scores_to_store(scores, source.samples, path, overwrite, stored, distance=distance)
        return facts
    if kind == "kpca":
        found = kernel_in(result)
        k = len(found.explained_variance)
        with writing(path, overwrite) as store:
            sweeps = kernel_sweeps(source, found, missing, memory, progress, "projecting")
            writer = _writer(store, ("scores",), sweeps.matrix, k)
            if writer is None:
                sweeps = kernel_sweeps(source, found, missing, memory, progress, "projecting", held=k)
            with curing_gaps(CURE):
                scores = kernel_scores(found, sweeps, True, writer)
            stored = {**attributes, "fit": fit_id(result)}
            variables, coords, facts = scores_variables(None if writer else scores, k, source.samples, stored)
            save(variables, coords, facts, store)
    else:
        posterior, _, _ = infer_latent(source, latent_in(result), "model", memory, progress)
        stored = {**attributes, "fit": fit_id(result)}
        scores_to_store(posterior.mean, source.samples, path, overwrite, stored, posterior.deviation)
    return {}


def fit_id(result: xarray.Dataset) -> str:
    """Return what tells a fit from others: its kind, its data and its variances; a copy of it has the same."""
    told = hashlib.sha256(f"{result.attrs['kind']} {result.attrs.get('source_fingerprint')}".encode())
    told.update(np.asarray(result["explained_variance"].values, "<f8").tobytes())
    return told.hexdigest()[:16]


def _missing_rule(result: xarray.Dataset) -> str:
    """Return what a result was asked to do with missing values."""
    return "mean" if json.loads(result.attrs["parameters"]).get("missing") == "mean" else "error"


def scores_to_store(
    scores: Array, samples: Axis, path: Path, overwrite: bool, attributes: Mapping[str, Any],
    deviations: Array | None = None, distance: Array | None = None,
) -> None:  # fmt: skip
    """Write the scores of projected samples, with their labels, to a store; deviations and distances too, if known."""
    with writing(path, overwrite) as store:
        save(*scores_variables(scores, scores.shape[1], samples, attributes, deviations, distance), store)


def scores_variables(
    scores: Array | None, k: int, samples: Axis, attributes: Mapping[str, Any], deviations: Array | None = None,
    distance: Array | None = None,
) -> tuple[Variables, Variables, dict[str, Any]]:  # fmt: skip
    """Return variables, coordinates and attributes of scores on k components."""
    shape, dims = (*samples.sizes, k), (*samples.dims, "component")
    named = {"scores": scores, "score_deviation": deviations}
    variables: Variables = {name: (dims, v.reshape(shape)) for name, v in named.items() if v is not None}
    if distance is not None:
        variables["distance"] = (samples.dims, distance.reshape(samples.sizes))
    coords: Variables = {"component": (("component",), np.arange(1, k + 1)), **samples.coords}
    return variables, coords, {"format_version": FORMAT_VERSION, "kind": "scores", **attributes}


def components_in(result: xarray.Dataset) -> PCAFit:
    """Return the components that a result of PCA holds; features of several dimensions as one."""
    values: dict[str, Any] = {name: result[name].values.ravel() for name in ("mean", "scale", "missing")}
    method = certificate_method(result.attrs)
    assert method is not None
    return PCAFit(
        **values,
        certificate=result[error_name(method)].values,
        certificate_method=method,
        components=result["components"].values.reshape(result.sizes["component"], -1),
        explained_variance=result["explained_variance"].values,
        total_variance=float(result.attrs["total_variance"]),
        n_samples=int(result.attrs["n_samples"]),
        converged=bool(result.attrs["converged"]),
        advice=str(result.attrs["advice"]),
        solver=str(result.attrs["solver"]),
        tile_dtype=str(result.attrs["tile_dtype"]),
        sweep_seconds=(),
        warm_seconds=0.0,
        bytes_read=0,
        seconds=0.0,
        genotypes=bool(result.attrs["genotypes"]),
    )


def variant_labels_in(result: xarray.Dataset) -> dict[str, Array]:
    """Return the labels of the variants that a result of genotypes holds."""
    return {name: result[name].values for name in VARIANT_LABELS}


def save(variables: Variables, coords: Variables, attributes: Mapping[str, Any], store: Path) -> None:
    """Write variables into a Zarr store, beside arrays that may be there already, as xarray lays them out.

    Text and time labels go through xarray, which knows how to encode them; plain numbers need not wait for it to load.
    """
    import zarr

    for name in variables | coords:
        if "/" in name or name in ("", ".", "..", "zarr.json") or (name in variables and name in coords):
            # Labels come by whatever name their file has for them.
            raise InputError(f"{store}: a label called {name!r} cannot be written beside what is there; rename it")
        if (store / name).exists():
            # Of a run that was killed as it wrote.
            shutil.rmtree(store / name)
    # xarray finds coordinates that are not named after their dimension by this attribute; "T" is text.
    others = [name for name, (dims, _) in coords.items() if dims != (name,)]
    plain = all(np.asarray(v).dtype.kind in "biufT" for _, v in coords.values())
    with warnings.catch_warnings():
        # Extensions of format 3 still: text labels, and the consolidated metadata that `xarray.open_zarr` looks for.
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        warnings.filterwarnings("ignore", message="The data type .* does not have a Zarr V3 specification")
        if plain:
            named = {"coordinates": " ".join(others)} if others else {}
            _write_arrays(zarr.open_group(store, mode="a"), variables | coords, {**attributes, **named})
        else:
            coding = {name: {"compressors": WRITTEN["compressors"]} for name in variables | coords}
            as_dataset(variables, coords, attributes).to_zarr(
                store, mode="a", consolidated=False, zarr_format=3, encoding=coding, write_empty_chunks=True
            )
        zarr.consolidate_metadata(store, zarr_format=3)


def _write_arrays(group: Any, arrays: Variables, attributes: Mapping[str, Any]) -> None:
    names = long_names(str(attributes.get("kind")))
    for name, (dims, values) in arrays.items():
        described = {"long_name": names[name]} if name in names else {}
        group.create_array(name, data=np.asarray(values), dimension_names=dims, attributes=described, **WRITTEN)
    group.attrs.update(attributes)


def load(path: str | Path) -> xarray.Dataset:
    """Open a result, at a path or behind a URL; refuses what is not one, is damaged, or of a newer format.

    Parameters
    ----------
    path : of a store that a command wrote, or its URL.

    Returns
    -------
    The result as a labelled Dataset, of which arrays are read when they are used.

    Examples
    --------
    >>> import numpy as np, streampca
    >>> X = np.random.default_rng(0).normal(size=(1000, 5))
    >>> stored = streampca.PCA(n_components=2).fit(X).result_.to_zarr("points.pca.zarr", consolidated=False)
    >>> result = streampca.load("points.pca.zarr")     # or of `streampca pca points.npy -k 2`
    >>> result.components.dims, result.attrs["kind"]
    (('component', 'feature'), 'pca')
    """
    _check_result(path)
    dataset = _opened(path)
    check_arrays(path, dataset)
    return dataset


def _opened(path: str | Path) -> xarray.Dataset:
    """Open a store of ours as a Dataset; labels, which are read now, must not claim more than there is memory."""
    import xarray
    import zarr

    with _damage_told(path):
        # Names in consolidated metadata need not be those of what is there.
        consolidated = None if is_url(path) else False
        group = zarr.open_group(open_store(str(path), "fill"), mode="r", use_consolidated=consolidated)
        arrays = list(arrays_in(group, deep=False))
        for array in arrays:
            check_size(array)
        whole = written_whole(arrays)
        if whole and not is_url(path):
            refuse_damage(Path(path))
        store = open_store(str(path), "error" if whole else "fill")
        dataset: xarray.Dataset = xarray.open_zarr(store, chunks=None, consolidated=False)
        for variable in dataset.variables.values():
            if variable.nbytes <= READ_AT_ONCE:
                # Whatever is wrong with it shows now, not in the middle of what it is for.
                variable.load()
        return dataset


def load_scores(path: Path) -> xarray.Dataset:
    """Open the scores of new samples on the components of a result."""
    if kind_of(path) != "scores":
        raise InputError(f"{path}: holds no scores of new samples; give a store that `streampca project` wrote")
    dataset = _opened(path)
    if "scores" not in dataset:
        raise InputError(f"{path}: is not whole, scores is not there; project the samples again")
    check_arrays(path, dataset)
    return dataset


def load_arrays(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read all arrays of a result, and its attributes."""
    result = load(path)
    with _damage_told(path):
        return {str(name): variable.values for name, variable in result.variables.items()}, result.attrs


@contextmanager
def _damage_told(path: str | Path) -> Iterator[None]:
    """Say that a result is damaged, whatever it is that finds out."""
    try:
        yield
    except DAMAGED as error:
        first = str(error).partition("; ")[0].partition("\n")[0] or type(error).__name__
        cure = "restore it from a copy or make it again"
        raise InputError(f"{path}: the result is damaged ({first}); {cure}") from error


def check_whole(store: Path, cure: str) -> None:
    """Refuse a store that was written here and is not whole, before it gets its name."""
    try:
        refuse_damage(store)
    except InputError as error:
        raise InputError(f"{error}; {cure}") from error


def _check_result(path: str | Path) -> None:
    attributes, there = _looked_at(path)
    kind = attributes.get("kind")
    if not attributes and not is_url(path) and not Path(path).exists():
        raise InputError(f"{path}: does not exist; check the path")
    if not isinstance(kind, str) or kind not in RESULT_ARRAYS:
        raise InputError(
            f"{path}: is not a streampca result; give a store that `streampca pca`, `ppca`, `kpca` or `pcr` wrote"
        )
    absent = absent_arrays(kind, there)
    if absent:
        raise InputError(f"{path}: is not whole, {', '.join(absent)} is not there; make the result again")
    newest = attributes["format_version"]
    if isinstance(newest, int) and newest > FORMAT_VERSION:
        raise InputError(f"{path}: was written by a newer streampca (format {newest}); update streampca")
    check_attributes(path, attributes)


def _looked_at(path: str | Path) -> tuple[dict[str, Any], set[str]]:
    """Return the attributes of a store of ours, and the names of its arrays; nothing if it is none of ours."""
    if is_url(path):
        root = root_at(str(path)) or {}
        attributes = root.get("attributes", {})
        there = set((root.get("consolidated_metadata") or {}).get("metadata", {}))
    else:
        attributes = attributes_in(Path(path)) or {}
        needed = (*RESULT_ARRAYS.get(str(attributes.get("kind")), ()), *ERROR_ARRAYS)
        there = {name for name in needed if (Path(path) / name).is_dir()}
    return (attributes, there) if "format_version" in attributes else ({}, set())
