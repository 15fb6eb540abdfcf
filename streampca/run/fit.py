"""One fit from data to store, as commands and configurations ask for it: open, check, plan, fit, write, export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streampca.errors import InputError
from streampca.files import text_paths
from streampca.models.kernel_pca.fit import plan_kernel_pca
from streampca.models.kernel_pca.options import KernelPCAOptions
from streampca.models.pca.fit import plan_pca
from streampca.models.pca.options import PCAOptions
from streampca.models.ppca.fit import plan_ppca
from streampca.models.ppca.options import FactorAnalysisOptions, PPCAOptions
from streampca.progress import Progress, silent
from streampca.results.export import FORMATS, export
from streampca.results.store import kernel_to_store, latent_to_store, pca_to_store
from streampca.solvers.choose import Plan
from streampca.sources import PLINK_SUFFIXES, Source, is_genotypes, open_genotypes, open_source
from streampca.sweep.scaling import check_choice
from streampca.validation import Options

GENOTYPE_CHOICES = (
    "maf", "geno", "mind", "keep", "remove", "extract", "exclude", "exclude_regions", "all_chromosomes",
)  # fmt: skip
# What each kind may do with missing values; the first is what "auto" stands for, but for pca, which decides itself.
MISSING = {
    "pca": ("auto", "error", "mean"),
    "ppca": ("model", "error"),
    "factor_analysis": ("model", "error"),
    "kpca": ("error", "mean"),
}
# Names that options records spell differently.
RECORD_NAMES = {"seed": "random_state", "target": "target_trace", "fit_inverse": "fit_inverse_transform"}


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given; 0 is one."""
    return {name: value for name, value in options.items() if value is not None and value is not False}


def filling(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is to become of chunks that are not there, for the record, if they are to be filled."""
    return {name: value for name, value in options.items() if name == "missing_chunks" and value == "fill"}


def open_data(path: str, options: Mapping[str, Any]) -> Any:
    """Open data, of genotypes those chosen; the choices are only for genotypes."""
    variable, dims = options.get("variable"), options.get("sample_dims")
    dims = dims.split(",") if isinstance(dims, str) else dims
    chosen = given({name: options.get(name) for name in GENOTYPE_CHOICES})
    missing_chunks = options.get("missing_chunks", "error")
    if is_genotypes(path):
        if dims or (variable and Path(path).suffix in PLINK_SUFFIXES):
            raise InputError(f"{path}: sample dimensions and variables are not for genotypes; leave them out")
        if chosen.pop("all_chromosomes", False):
            chosen["autosomes"] = False
        return open_genotypes(path, variable=variable, missing_chunks=missing_chunks, **chosen)
    if chosen:
        option = next(iter(chosen)).replace("_", "-")
        raise InputError(f"{path}: {option} is for genotypes (.bed, .pgen, VCF Zarr); leave it out")
    return open_source(path, variable=variable, sample_dims=dims or None, missing_chunks=missing_chunks)


@dataclass(frozen=True)
class Job:
    """One fit.

    Attributes
    ----------
    kind : "pca", "ppca", "factor_analysis" or "kpca".
    data, options : the opened data, and the options record of the kind.
    parameters : what was asked, for the record.
    ld_prune, outliers, outlier_rounds : for genotypes.
    """

    kind: str
    data: Source
    options: Any
    parameters: Mapping[str, Any]
    memory: Any = None
    progress: Progress = silent
    ld_prune: float | None = None
    outliers: str | None = None
    outlier_rounds: int = 5

    @classmethod
    def of(
        cls, data: Source, source: Mapping[str, Any], model: Mapping[str, Any], memory: Any, progress: Progress = silent
    ) -> Job:
        """Make a job of data and options: those of the source, and those of the model with its kind."""
        kind = model["kind"]
        genotypes = data.is_genotypes
        ld_prune, outliers = source.get("ld_prune"), model.get("outliers")
        if (ld_prune is not None or outliers) and not genotypes:
            raise InputError(f"{data.name}: ld-prune and outliers are for genotypes; leave them out")
        missing = source["missing"]
        if missing == "auto":
            missing = MISSING[kind][0]
        check_choice("missing", missing, MISSING[kind])
        scale = None if source["scale"] == "none" else source["scale"]
        if kind == "kpca":
            parameters = _kernel(data, model, scale, missing, memory)
            which = given({name: source.get(name) for name in ("variable", "sample_dims")})
            which |= filling(source)
            return cls(kind, data, _record(KernelPCAOptions, parameters), parameters | which, memory, progress)
        k = model["n_components"]
        if k is None and data.default_components is None:
            k = max(1, min(10, *(size - (kind != "pca") for size in data.shape)))
        common = {"n_components": k, "scale": scale, "solver": model["solver"], "memory": memory, "seed": model["seed"]}
        own = {"missing": missing, "tol": model["tol"]}
        record: type[Options] = PCAOptions
        if kind == "pca":
            own["certificate"] = model.get("certificate", True)
        else:
            record = FactorAnalysisOptions if kind == "factor_analysis" else PPCAOptions
            own |= {
                "method": model["method"], "own_noise": kind == "factor_analysis", "criterion": model["criterion"],
                "max_iter": model["max_iter"] or record.model_fields["max_iter"].default,
            }  # fmt: skip
        names = ("variable", "sample_dims", *GENOTYPE_CHOICES)
        more = {"ld_prune": ld_prune, "outliers": outliers, **filling(source)}
        more |= {name: source.get(name) for name in names}
        if outliers:
            more["outlier_rounds"] = model.get("outlier_rounds", 5)
        parameters = common | own
        return cls(
            kind, data, _record(record, parameters), parameters | given(more), memory, progress, ld_prune, outliers,
            model.get("outlier_rounds", 5),
        )  # fmt: skip

    def plan(self) -> Plan:
        """Choose how to do it and count the cost, without reading."""
        if self.kind == "kpca":
            return plan_kernel_pca(self.data, self.options, memory=self.memory, extra_sweeps=1)
        plan: Any = plan_pca if self.kind == "pca" else plan_ppca
        chosen: Plan = plan(self.data, self.options, memory=self.memory, extra_sweeps=1)
        return chosen

    def check_export(self, form: str, prefix: Path, overwrite: bool) -> None:
        """Refuse text files that could not be written at the end, before the work begins."""
        text_paths(prefix, FORMATS[form], overwrite)
        if form == "plink" and not self.data.is_genotypes:
            raise InputError("plink's text files are for genotypes; export tsv")

    def fit(self, store: Path) -> tuple[Any, dict[str, Any]]:
        """Fit the model and write it to a store; returns what was found, and the attributes of the result."""
        if self.kind == "kpca":
            return kernel_to_store(
                self.data,
                self.options,
                store,
                self.parameters,
                self.memory,
                self.progress,
            )
        to_store: Any = pca_to_store if self.kind == "pca" else latent_to_store
        job = self if self.ld_prune is None else self._pruned(self.ld_prune)
        found, attributes = to_store(
            job.data, job.options, store, job.parameters, find_outliers=job.outliers,
            outlier_rounds=job.outlier_rounds, memory=job.memory, progress=job.progress,
        )  # fmt: skip
        return found, attributes

    def _pruned(self, r2: float) -> Job:
        """Return the same without variants in linkage with others."""
        # numba, which this needs, takes a moment to load, and much memory.
        from streampca.genetics.pruning import filtered, prune

        data: Any = filtered(self.data)
        kept = prune(data, r2=r2, progress=self.progress)
        return replace(self, data=data.take(features=kept, note=f"variants left out: {int((~kept).sum())} by pruning"))


def _kernel(data: Source, model: Mapping[str, Any], scale: str | None, missing: str, memory: Any) -> dict[str, Any]:
    """Return the parameters of kernel PCA."""
    names = (
        "kernel", "gamma", "degree", "coef0", "n_landmarks", "landmarks", "target", "fit_inverse", "alpha", "seed",
    )  # fmt: skip
    own = {name: model[name] for name in names}
    own["gamma"] = None if own["gamma"] == "features" else own["gamma"]
    k, m = model["n_components"], model["n_landmarks"]
    k = min(10, data.shape[0], *([] if m == "auto" else [m])) if k is None else k
    parameters = {"n_components": k, **own, "scale": None if scale == "auto" else scale, "missing": missing}
    parameters["memory"] = memory
    return parameters


def _record(options: type[Options], parameters: Mapping[str, Any]) -> Options:
    """Return the options record of parameters as commands and configurations name them."""
    return options.of({RECORD_NAMES.get(name, name): value for name, value in parameters.items()})


def export_prefix(result: Path) -> Path:
    """Return how the text files of a result begin."""
    return result.with_name(result.name.removesuffix(".zarr").removesuffix(".pca"))


def write_export(result: Path, form: str, prefix: Path | None, overwrite: bool) -> list[Path]:
    """Write a result as text, beside it unless a prefix is given."""
    return export(result, prefix or export_prefix(result), form=form, overwrite=overwrite)
