"""The methods paragraph of a result, with its numbers.

A kind declares its opening and the function of the sentences that only some kinds have. A sentence cites by author and
year; references.txt has the references.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca.results.kind import Kind, kind_of
from streampca.results.schema import certificate_method, error_in
from streampca.results.wording import (
    capitalised,
    feature_noun,
    largest_error,
    mapping_of,
    missing_share,
    number,
    parameters_of,
    percent,
    plural,
)
from streampca.solvers.certificate import PROBES

if TYPE_CHECKING:
    import xarray

# How certificates were obtained.
MEASURED = {
    "probe": f"Rounding was measured with {PROBES} random probes in double precision; a certificate is wrong with "
    "probability below 1e-11.",
    "exact": "Certificates are residuals computed in double precision.",
    "none": "Rounding is not included.",
    "modelled": "Rounding was modelled, not measured.",
}
FILTERS: dict[str, Callable[[Any], str]] = {
    "maf": "Variants with a minor allele frequency below {:g} were excluded.".format,
    "geno": lambda share: f"Variants with more than {percent(share)} missing calls were excluded.",
    "mind": lambda share: f"Samples with more than {percent(share)} missing calls were excluded.",
    "ld_prune": "Variants were pruned to a pairwise r² of at most {:g} in windows of 50 variants, shifted by 5.".format,
}
SCALED = {
    "patterson": "Allele counts g were standardised as (g - 2p) / sqrt(2p(1 - p)), where p is the frequency of the "
    "allele (Patterson et al. 2006)",
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
    kind = kind_of(str(result.attrs["kind"]))
    sentences = [_opening(result, kind), *_filters(result), *_scaling(result, kind)]
    sentences += [*kind.function("methods")(result), *_explained(result, kind)]
    if not result.attrs.get("converged", 1):
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


def _opening(result: xarray.Dataset, kind: Kind) -> str:
    """State the analysis, the size of the data and the program."""
    a = result.attrs
    size = f"{int(a['n_samples']):,} samples and {int(a['n_features']):,} {feature_noun(a)}"
    return (
        f"{kind.opening.format(size)} with streampca {mapping_of(a.get('versions')).get('streampca', '')}".strip() + "."
    )


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
        scale = "patterson" if a.get("genotypes") else None
    parts = [SCALED.get(str(scale), "Each feature was centred" if kind.centres else "")]
    share = missing_share(a)
    if share:
        noun = "calls" if a.get("genotypes") else "values"
        parts.append(f"missing {noun} ({percent(share)}) {kind.missing_values}")
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


def eigen_solver(result: xarray.Dataset) -> list[str]:
    """State the solver, the number of passes over the data, and the errors of the components."""
    a, k, sweeps = result.attrs, result.sizes["component"], int(result.attrs.get("n_sweeps", 0))
    sentences = []
    if a.get("solver") in SOLVERS:
        leading = "The leading component was" if k == 1 else f"The leading {k:,} components were"
        passes = f"{sweeps:,} {'pass' if sweeps == 1 else 'passes'} over the data"
        warm = ", started from components of a tenth of the data" if a.get("warm_start_seconds") else ""
        sentences.append(f"{leading} computed by {SOLVERS[a['solver']]} {passes}{warm}.")
    error = error_in(result)
    if error is not None:
        what = "Estimates of" if error == "estimate" else "Certificates, upper bounds of"
        residuals = "the relative residuals ||S v - λ v|| / λ, with S the covariance matrix,"
        sentences.append(f"{what} {residuals} were at most {number(largest_error(result), 2)}.")
        sentences += _measured(result)
    return sentences


def _measured(result: xarray.Dataset) -> list[str]:
    """State how the certificates were obtained, if the result records it."""
    method = certificate_method(result.attrs)
    return [MEASURED[method]] if method in MEASURED else []


def likelihood(result: xarray.Dataset) -> list[str]:
    """State how a latent variable model was fitted, and how its size was chosen."""
    a, noun = result.attrs, kind_of(str(result.attrs["kind"])).component
    size = plural(result.sizes["component"], noun)
    if "cluster" in result.sizes:
        size = f"{plural(result.sizes['cluster'], 'cluster')} of {size}"
    how = "in closed form"
    if a.get("method") != "closed" and a.get("n_iterations"):
        how = f"by expectation-maximisation in {int(a['n_iterations']):,} iterations"
    total = float(a.get("total_log_likelihood", float("nan")))
    sentences = [f"The model with {size} was fitted by maximum likelihood, {how} (log-likelihood {total:,.1f})."]
    if "criterion" in result:
        rule = str(a.get("criterion"))
        sentences.append(f"The number of {noun}s was chosen by {CRITERIA.get(rule, rule)}.")
    if "score_deviation" in result:
        sentences.append("Scores are posterior means; ellipses show their posterior standard deviations.")
    return sentences


def dual(result: xarray.Dataset) -> list[str]:
    """State the likelihood, and the solver of the eigenvectors."""
    return [*likelihood(result), *eigen_solver(result)]


def kernel(result: xarray.Dataset) -> list[str]:
    """State the kernel, its parameters, how it was approximated, and the errors of the components."""
    a = result.attrs
    kernel, method, m = str(a.get("kernel")), str(a.get("method")), int(a.get("n_landmarks", 0))
    values = [] if kernel in ("linear", "cosine") else [f"gamma = {number(float(a['gamma']), 4)}"]
    if kernel == "poly":
        values.append(f"degree {float(a['degree']):g}")
    if kernel in ("poly", "sigmoid"):
        values.append(f"constant {float(a['coef0']):g}")
    kept = f", which keep {percent(float(a['kept_trace']))} of its trace" if "kept_trace" in a else ""
    landmarks = f"{m:,} landmarks{LANDMARKS.get(method, '')}{kept}"
    how = f"approximated by the Nyström method (Williams & Seeger 2001) with {landmarks}"
    if method == "fourier":
        how = f"approximated by {m:,} random Fourier features (Rahimi & Recht 2007)"
    elif method == "exact":
        how = "evaluated between all pairs of samples"
    shown = f" ({', '.join(values)})" if values else ""
    sentences = [f"The kernel was {KERNELS.get(kernel, kernel)}{shown}, {how}."]
    if "certificate" in result:
        components = plural(result.sizes["component"], "component")
        worst = number(largest_error(result), 2)
        sentences.append(f"Relative residuals of the {components} in feature space are at most {worst}.")
        sentences += _measured(result)
    return sentences


def regression(result: xarray.Dataset) -> list[str]:
    """State the components, the covariates, and for each target the number of components and R²."""
    sentences = eigen_solver(result)
    if "covariate" in result.coords:
        sentences.append(f"Covariates were {', '.join(map(str, result['covariate'].values.tolist()))}.")
    if "target" not in result.coords or "chosen" not in result:
        return sentences
    folds = int(result.attrs.get("n_folds", 0))
    how = f", chosen by {folds}-fold cross-validation," if folds else ""
    for i, (name, m) in enumerate(zip(result["target"].values.tolist(), result["chosen"].values.tolist(), strict=True)):
        r2 = {key: float(result[key].isel(target=i, m=int(m))) for key in ("r2", "cv_r2") if key in result}
        if np.isnan(r2.get("r2", 0.0)):
            sentences.append(f"The target {name} is constant and was not regressed.")
            continue
        shown = [f"R² = {r2['r2']:.3f}"] if "r2" in r2 else []
        shown += [f"{r2['cv_r2']:.3f} for held-out samples"] if "cv_r2" in r2 else []
        first = "the first component" if m == 1 else f"the first {int(m)} components"
        sentences.append(f"The regression of {name} used {first}{how} with {', '.join(shown)}.")
    return sentences
