"""The methods paragraph of a result, with its numbers.

A kind declares its opening; the other sentences are about what the result has. They cite by author and year;
references.txt has the references.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca.results.kind import Kind, kind_of
from streampca.results.schema import error_in
from streampca.results.wording import (
    CERTIFIED_BY,
    at_chosen,
    capitalised,
    feature_noun,
    kernel_text,
    largest_error,
    missing_share,
    number,
    parameters_of,
    percent,
    plural,
)

if TYPE_CHECKING:
    import xarray

FILTERS: dict[str, Callable[[Any], str]] = {
    "maf": "Variants with a minor allele frequency below {:g} were excluded.".format,
    "geno": lambda share: f"Variants with more than {percent(share)} missing calls were excluded.",
    "mind": lambda share: f"Samples with more than {percent(share)} missing calls were excluded.",
    "unrelated": "Components were computed from samples with a pairwise kinship (KING-robust) below {:g}, on which the "
    "others were projected.".format,
    "ld_prune": "Variants were pruned to a pairwise r² of at most {:g} in windows of 50 variants, shifted by 5.".format,
}
SCALED = {
    "patterson": "Allele counts g were standardised as (g - 2p) / sqrt(2p(1 - p)), where p is the frequency of the "
    "allele (Patterson et al. 2006)",
    "eigenstrat": "Allele counts g were centred and divided by sqrt(2p(1 - p)), where p is (1 + sum of counts) / "
    "(2 + 2 calls) (Price et al. 2006)",
    "unit": "Each feature was centred and divided by its standard deviation",
    "coslat": "Each feature was centred and weighted by the square root of the cosine of its latitude",
}
SOLVERS = {
    "krylov": "block Lanczos iteration (Golub & Underwood 1977; Musco & Musco 2015) in",
    "covariance": "eigendecomposition of the covariance matrix, accumulated in",
    "gram": "eigendecomposition of the Gram matrix of the samples, accumulated in",
    "power": "power iteration with deflation in",
}
CRITERIA = {
    "evidence": "the Laplace approximation of the evidence (Minka 2000)",
    "bic": "the Bayesian information criterion",
    "heldout": "the likelihood of held-out values",
}
KERNELS = {"rbf": "Gaussian", "poly": "polynomial", "laplacian": "Laplacian"}
LANDMARKS = {
    "leverage": " drawn by ridge leverage scores (Musco & Musco 2017)",
    "kmeans": " at k-means centres",
    "uniform": " drawn uniformly",
}


def methods_of(result: xarray.Dataset) -> tuple[str, list[str]]:
    """Return the methods paragraph of a result, and its references in the order in which they are cited."""
    a, kind = result.attrs, kind_of(result.attrs["kind"])
    size = f"{a['n_samples']:,} samples and {a['n_features']:,} {feature_noun(a)}"
    program = f"streampca {json.loads(a['versions']).get('streampca', '')}".strip()
    sentences = [f"{kind.opening.format(size)} with {program}.", *_filters(result), *_scaling(result, kind)]
    if "total_log_likelihood" in a:
        sentences += _likelihood(result, kind.component)
    if "kernel" in a:
        sentences.append(_kernel(a))
    if a.get("solver") in SOLVERS:
        sentences.append(_solver(result))
    if "kernel" in a or "solver" in a:
        sentences += _errors(result)
    if "target" in result.coords:
        sentences += _regression(result)
    sentences += _explained(result, kind)
    if not a["converged"]:
        sentences.append("The computation stopped before it reached its tolerance.")
    text = " ".join(sentences)
    return text, _references(text)


def _references(text: str) -> list[str]:
    """Return the references of the citations in a text."""
    lines = files("streampca.results").joinpath("references.txt").read_text(encoding="utf-8").splitlines()
    cited = {}
    # 1999b before 1999.
    for citation, _, reference in sorted((line.partition(" = ") for line in lines), reverse=True):
        if citation in text:
            cited[text.index(citation)] = reference
            text = text.replace(citation, " " * len(citation))
    return [cited[place] for place in sorted(cited)]


def _filters(result: xarray.Dataset) -> list[str]:
    """State which samples and variants were excluded."""
    p = parameters_of(result.attrs)
    sentences = [text(p[name]) for name, text in FILTERS.items() if p.get(name) is not None]
    if p.get("exclude_regions") in ("GRCh37", "GRCh38"):
        which = f"{p['exclude_regions']}; Price et al. 2008"
        sentences.append(f"Regions of long-range linkage disequilibrium ({which}) were excluded.")
    elif p.get("exclude_regions"):
        sentences.append("Regions in a given list were excluded.")
    if p.get("outliers") == "remove":
        sentences.append("Outlying samples were removed and the components computed again (Privé et al. 2020).")
    return sentences


def _scaling(result: xarray.Dataset, kind: Kind) -> list[str]:
    """State how features were centred and scaled, and how missing values were treated."""
    a = result.attrs
    scale = parameters_of(a).get("scale", "auto")
    if scale == "auto":
        scale = "patterson" if a["genotypes"] else None
    parts = [SCALED.get(str(scale), "Each feature was centred" if kind.centres else "")]
    share = missing_share(a)
    if share:
        noun = "calls" if a["genotypes"] else "values"
        parts.append(f"missing {noun} ({percent(share)}) {kind.missing_values}")
        if parameters_of(a).get("missing") == "lsq":
            parts.append(f"scores were computed by least squares over the {noun} of each sample")
    text = "; ".join(filter(None, parts))
    return [f"{capitalised(text)}."] if text else []


def _explained(result: xarray.Dataset, kind: Kind) -> list[str]:
    """State the share of the variance that the components explain."""
    share = np.sum(result["explained_variance_ratio"].values) if "explained_variance_ratio" in result else np.nan
    if not np.isfinite(share):
        return []
    k = result.sizes["component"]
    subject = f"The {kind.component} explains" if k == 1 else f"The {k:,} {kind.component}s explain"
    return [f"{subject} {percent(float(share))} {kind.variance}."]


def _solver(result: xarray.Dataset) -> str:
    """State the solver and the number of passes over the data."""
    a, k, sweeps = result.attrs, result.sizes["component"], result.attrs["n_sweeps"]
    leading = "The leading component was" if k == 1 else f"The leading {k:,} components were"
    passes = f"{sweeps:,} {'pass' if sweeps == 1 else 'passes'} over the data"
    warm = ", started from components of a tenth of the data" if a.get("warm_start_seconds") else ""
    return f"{leading} computed by {SOLVERS[a['solver']]} {passes}{warm}."


def _errors(result: xarray.Dataset) -> list[str]:
    """State the errors of the components and how they were obtained, if the result has them."""
    error = error_in(result)
    if error is None:
        return []
    what = "Estimates of" if error == "estimate" else "Certificates, upper bounds of"
    where = "in feature space" if "kernel" in result.attrs else "with S the covariance matrix"
    residuals = f"the relative residuals ||S v - λ v|| / λ, {where},"
    sentences = [f"{what} {residuals} were at most {number(largest_error(result), 2)}."]
    method = result.attrs.get("certificate_method")
    return sentences if method is None else [*sentences, f"{capitalised(CERTIFIED_BY[method])}."]


def _likelihood(result: xarray.Dataset, noun: str) -> list[str]:
    """State how a latent variable model was fitted, and how its size was chosen."""
    a = result.attrs
    size = plural(result.sizes["component"], noun)
    if "cluster" in result.sizes:
        size = f"{plural(result.sizes['cluster'], 'cluster')} of {size}"
    how = "in closed form"
    if a.get("method") != "closed" and a.get("n_iterations"):
        how = f"by expectation-maximisation in {a['n_iterations']:,} iterations"
    total = a["total_log_likelihood"]
    sentences = [f"The model with {size} was fitted by maximum likelihood, {how} (log-likelihood {total:,.1f})."]
    if "criterion" in result:
        sentences.append(f"The number of {noun}s was chosen by {CRITERIA.get(str(a.get('criterion')), 'a criterion')}.")
    if "score_deviation" in result:
        sentences.append("Scores are posterior means; ellipses show their posterior standard deviations.")
    return sentences


def _kernel(a: Mapping[str, Any]) -> str:
    """State the kernel, its parameters, and how it was approximated."""
    kernel, method, m = a["kernel"], a["method"], a["n_landmarks"]
    if method == "fourier":
        how = f"approximated by {m:,} random Fourier features (Rahimi & Recht 2007)"
    elif method == "exact":
        how = "evaluated between all pairs of samples"
    else:
        kept = f", which keep {percent(a['kept_trace'])} of its trace" if "kept_trace" in a else ""
        landmarks = f"{m:,} landmarks{LANDMARKS.get(method, '')}{kept}"
        how = f"approximated by the Nyström method (Williams & Seeger 2001) with {landmarks}"
    parameters = kernel_text(a)
    shown = f" ({parameters})" if parameters else ""
    return f"The kernel was {KERNELS.get(kernel, kernel)}{shown}, {how}."


def _regression(result: xarray.Dataset) -> list[str]:
    """State the covariates, and for each target the number of components and R²."""
    sentences = []
    if "covariate" in result.coords:
        sentences.append(f"Covariates were {', '.join(map(str, result['covariate'].values.tolist()))}.")
    folds = result.attrs["n_folds"]
    how = f", chosen by {folds}-fold cross-validation," if folds else ""
    names, chosen = result["target"].values.tolist(), result["chosen"].values.tolist()
    r2 = at_chosen(result, "r2")
    held_out = at_chosen(result, "cv_r2") if "cv_r2" in result else None
    for i, (name, m) in enumerate(zip(names, chosen, strict=True)):
        if np.isnan(r2[i]):
            sentences.append(f"The target {name} is constant and was not regressed.")
            continue
        first = "the first component" if m == 1 else f"the first {m} components"
        also = "" if held_out is None else f", {held_out[i]:.3f} for held-out samples"
        sentences.append(f"The regression of {name} used {first}{how} with R² = {r2[i]:.3f}{also}.")
    return sentences
