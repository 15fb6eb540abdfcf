"""The methods paragraph of a result, with its numbers: sentences, and one function per kind of model.

A sentence is its text and the references that it cites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca.results.kind import kind_of
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

Sentence = tuple[str, tuple[str, ...]]

GOLUB = (
    "Golub, G. H. & Underwood, R. (1977). The block Lanczos method for computing eigenvalues. In Mathematical Software "
    "III, 361-377. Academic Press."
)
MUSCO_KRYLOV = (
    "Musco, C. & Musco, C. (2015). Randomized block Krylov methods for stronger and faster approximate singular value "
    "decomposition. Advances in Neural Information Processing Systems 28."
)
PATTERSON = (
    "Patterson, N., Price, A. L. & Reich, D. (2006). Population structure and eigenanalysis. PLoS Genetics 2, e190."
)
PRICE = (
    "Price, A. L. et al. (2008). Long-range LD can confound genome scans in admixed populations. American Journal of "
    "Human Genetics 83, 132-135."
)
PRIVE = (
    "Privé, F. et al. (2020). Efficient toolkit implementing best practices for principal component analysis of "
    "population genetic data. Bioinformatics 36, 4449-4457."
)
TIPPING = (
    "Tipping, M. E. & Bishop, C. M. (1999). Probabilistic principal component analysis. Journal of the Royal "
    "Statistical Society B 61, 611-622."
)
MINKA = (
    "Minka, T. P. (2000). Automatic choice of dimensionality for PCA. Advances in Neural Information Processing "
    "Systems 13."
)
RUBIN = "Rubin, D. B. & Thayer, D. T. (1982). EM algorithms for ML factor analysis. Psychometrika 47, 69-76."
SCHOELKOPF = (
    "Schölkopf, B., Smola, A. & Müller, K.-R. (1998). Nonlinear component analysis as a kernel eigenvalue problem. "
    "Neural Computation 10, 1299-1319."
)
WILLIAMS = (
    "Williams, C. K. I. & Seeger, M. (2001). Using the Nyström method to speed up kernel machines. Advances in Neural "
    "Information Processing Systems 13."
)
MUSCO_NYSTROM = (
    "Musco, C. & Musco, C. (2017). Recursive sampling for the Nyström method. Advances in Neural Information "
    "Processing Systems 30."
)
RAHIMI = (
    "Rahimi, A. & Recht, B. (2007). Random features for large-scale kernel machines. Advances in Neural Information "
    "Processing Systems 20."
)
KERNELS = {"rbf": "Gaussian", "poly": "polynomial", "laplacian": "Laplacian"}
CHOSEN = {
    "leverage": " drawn by ridge leverage scores (Musco & Musco 2017)",
    "kmeans": " at k-means centres",
    "uniform": " drawn uniformly",
}
TIPPING_MIXTURES = (
    "Tipping, M. E. & Bishop, C. M. (1999). Mixtures of probabilistic principal component analyzers. Neural "
    "Computation 11, 443-482."
)
LAWRENCE = (
    "Lawrence, N. D. (2005). Probabilistic non-linear principal component analysis with Gaussian process latent "
    "variable models. Journal of Machine Learning Research 6, 1783-1816."
)
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
    "unit": "centred and divided by its standard deviation",
    "coslat": "centred and weighted by the square root of the cosine of its latitude",
}
CRITERIA = {
    "evidence": "the Laplace approximation of the evidence (Minka 2000)",
    "bic": "the Bayesian information criterion",
    "heldout": "the likelihood of held-out values",
}


def opening(result: xarray.Dataset, what: str, *references: str, verb: str = "was carried out") -> Sentence:
    """State the analysis, the size of the data and the program."""
    a = result.attrs
    versions = mapping_of(a.get("versions"))
    program = f"streampca {versions['streampca']}" if "streampca" in versions else "streampca"
    size = f"{int(a['n_samples']):,} samples and {int(a['n_features']):,} {feature_noun(a)}"
    return f"{what} {size} {verb} with {program}.", references


def filters(result: xarray.Dataset) -> list[Sentence]:
    """State which samples and variants were excluded."""
    p = parameters_of(result.attrs)
    sentences: list[Sentence] = [(text(p[name]), ()) for name, text in FILTERS.items() if p.get(name) is not None]
    regions = p.get("exclude_regions")
    if regions in ("GRCh37", "GRCh38"):
        text = f"Regions of long-range linkage disequilibrium ({regions}; Price et al. 2008) were excluded."
        sentences.append((text, (PRICE,)))
    elif regions:
        sentences.append(("Regions in a given list were excluded.", ()))
    if p.get("outliers") == "remove":
        text = "Outlying samples were removed and the components computed again (Privé et al. 2020)."
        sentences.append((text, (PRIVE,)))
    return sentences


def scaling(result: xarray.Dataset, missing: str = "were replaced by the mean", centred: bool = True) -> list[Sentence]:
    """State how features were centred and scaled, and how missing values were treated.

    Parameters
    ----------
    missing : what was done with missing values.
    centred : whether the model centres features that it does not scale.
    """
    a = result.attrs
    scale = parameters_of(a).get("scale", "auto")
    if scale == "auto":
        scale = "patterson" if a.get("genotypes") else None
    share = missing_share(a)
    rest = f"missing {'calls' if a.get('genotypes') else 'values'} ({percent(share)}) {missing}" if share else ""
    end = f"; {rest}." if rest else "."
    if scale == "patterson":
        text = (
            "Allele counts g were standardised as (g - 2p) / sqrt(2p(1 - p)), where p is the frequency of the allele "
            "(Patterson et al. 2006)"
        )
        return [(text + end, (PATTERSON,))]
    if scale in SCALED or centred:
        return [(f"Each feature was {SCALED.get(str(scale), 'centred')}{end}", ())]
    return [(f"{capitalised(rest)}.", ())] if rest else []


def eigen_solver(result: xarray.Dataset) -> list[Sentence]:
    """State the solver, the number of passes over the data, and the errors of the components."""
    a, k, sweeps = result.attrs, result.sizes["component"], int(result.attrs.get("n_sweeps", 0))
    passes = f"{sweeps:,} {'pass' if sweeps == 1 else 'passes'} over the data"
    leading = "The leading component was" if k == 1 else f"The leading {k:,} components were"
    warm = ", started from components of a tenth of the data" if a.get("warm_start_seconds") else ""
    solvers: dict[str, Sentence] = {
        "krylov": (f"block Lanczos iteration (Golub & Underwood 1977; Musco & Musco 2015) in {passes}{warm}",
                   (GOLUB, MUSCO_KRYLOV)),
        "covariance": (f"eigendecomposition of the covariance matrix, accumulated in {passes}", ()),
        "gram": (f"eigendecomposition of the Gram matrix of the samples, accumulated in {passes}", ()),
        "power": (f"power iteration with deflation in {passes}", ()),
    }  # fmt: skip
    sentences: list[Sentence] = []
    if a.get("solver") in solvers:
        how, references = solvers[a["solver"]]
        sentences.append((f"{leading} computed by {how}.", references))
    error = error_in(result)
    if error is not None:
        what = "Estimates of" if error == "estimate" else "Certificates, upper bounds of"
        text = (
            f"{what} the relative residuals ||S v - λ v|| / λ, with S the covariance matrix, were at most "
            f"{number(largest_error(result), 2)}."
        )
        sentences += [(text, ()), *measured(result)]
    return sentences


def measured(result: xarray.Dataset) -> list[Sentence]:
    """State how the certificates were obtained, if the result records it."""
    method = certificate_method(result.attrs)
    return [(MEASURED[method], ())] if method in MEASURED else []


def likelihood(result: xarray.Dataset, model: str) -> list[Sentence]:
    """State how a latent variable model was fitted, and how its size was chosen."""
    a = result.attrs
    how = "in closed form"
    if a.get("method") != "closed" and a.get("n_iterations"):
        how = f"by expectation-maximisation in {int(a['n_iterations']):,} iterations"
    total = float(a.get("total_log_likelihood", float("nan")))
    sentences: list[Sentence] = [
        (f"{model} was fitted by maximum likelihood, {how} (log-likelihood {total:,.1f}).", ())
    ]
    if "criterion" in result:
        rule = str(a.get("criterion"))
        text = f"The number of components was chosen by {CRITERIA.get(rule, rule)}."
        sentences.append((text, (MINKA,) if rule == "evidence" else ()))
    if "score_deviation" in result:
        text = "Scores are posterior means; their credible ellipses are those of the posterior standard deviations."
        sentences.append((text, ()))
    return sentences


def explained(result: xarray.Dataset, noun: str = "component", of: str = "of the total variance") -> list[Sentence]:
    """State the share of the variance that the components explain."""
    if "explained_variance_ratio" not in result:
        return []
    share, k = float(np.sum(result["explained_variance_ratio"].values)), result.sizes["component"]
    if not np.isfinite(share):
        return []
    subject = f"The {noun} explains" if k == 1 else f"The {k:,} {noun}s explain"
    return [(f"{subject} {percent(share)} {of}.", ())]


def linear(result: xarray.Dataset) -> list[Sentence]:
    """Return the methods paragraph of principal component analysis."""
    first = opening(result, "Principal components of", verb="were computed")
    return [first, *filters(result), *scaling(result), *eigen_solver(result), *explained(result)]


def latent(result: xarray.Dataset) -> list[Sentence]:
    """Return the methods paragraph of probabilistic PCA."""
    what = "Probabilistic principal component analysis (Tipping & Bishop 1999) of"
    model = f"The model with {plural(result.sizes['component'], 'latent dimension')}"
    return [
        opening(result, what, TIPPING),
        *filters(result),
        *scaling(result, "were excluded from the likelihood"),
        *likelihood(result, model),
        *explained(result),
    ]


def factors(result: xarray.Dataset) -> list[Sentence]:
    """Return the methods paragraph of factor analysis."""
    model = f"The model with {plural(result.sizes['component'], 'factor')}"
    return [
        opening(result, "Maximum-likelihood factor analysis (Rubin & Thayer 1982) of", RUBIN),
        *filters(result),
        *scaling(result, "were excluded from the likelihood"),
        *likelihood(result, model),
        *explained(result, "factor"),
    ]


def kernel(result: xarray.Dataset) -> list[Sentence]:
    """Return the methods paragraph of kernel PCA."""
    sentences = [
        opening(result, "Kernel principal component analysis (Schölkopf et al. 1998) of", SCHOELKOPF),
        *filters(result),
        *scaling(result, centred=False),
        _approximation(result.attrs),
    ]
    if "certificate" in result:
        components = plural(result.sizes["component"], "component")
        worst = number(largest_error(result), 2)
        sentences.append((f"Relative residuals of the {components} in feature space are at most {worst}.", ()))
        sentences += measured(result)
    return [*sentences, *explained(result, of="or more of the variance in feature space")]


def _approximation(a: Mapping[str, Any]) -> Sentence:
    """State the kernel, its parameters, and how it was approximated."""
    kernel, method, m = str(a.get("kernel")), str(a.get("method")), int(a.get("n_landmarks", 0))
    values = [] if kernel in ("linear", "cosine") else [f"gamma = {number(float(a['gamma']), 4)}"]
    if kernel == "poly":
        values.append(f"degree {float(a['degree']):g}")
    if kernel in ("poly", "sigmoid"):
        values.append(f"constant {float(a['coef0']):g}")
    text = f"The kernel was {KERNELS.get(kernel, kernel)}" + (f" ({', '.join(values)})" if values else "")
    if method == "fourier":
        return f"{text}, approximated by {m:,} random Fourier features (Rahimi & Recht 2007).", (RAHIMI,)
    if method == "exact":
        return f"{text}, evaluated between all pairs of samples.", ()
    kept = f", which keep {percent(float(a['kept_trace']))} of its trace" if "kept_trace" in a else ""
    landmarks = f"{m:,} landmarks{CHOSEN.get(method, '')}{kept}"
    text += f", approximated by the Nyström method (Williams & Seeger 2001) with {landmarks}."
    return text, (WILLIAMS, MUSCO_NYSTROM) if method == "leverage" else (WILLIAMS,)


def kernel_rows(a: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of a summary that only this kind has."""
    gamma = number(float(a.get("gamma", float("nan"))), 4)
    return [("Kernel", f"{a.get('kernel')}, gamma {gamma}"), ("Landmarks", f"{int(a.get('n_landmarks', 0)):,}")]


def landmarks_text(a: Mapping[str, Any]) -> str:
    """Describe the landmarks: kernel components have no loadings of features."""
    if "kept_trace" not in a:
        return ""
    variance = percent(float(a.get("kept_variance", float("nan"))))
    return (
        f"{int(a['n_landmarks']):,} landmarks ({a.get('method')}) keep {percent(float(a['kept_trace']))} of the "
        f"kernel's trace, and {variance} or more of the variance in feature space. Kernel components have no loadings "
        "of features."
    )


def regression(result: xarray.Dataset) -> list[Sentence]:
    """Return the methods paragraph of principal component regression."""
    return [
        opening(result, "Principal component regression on"),
        *filters(result),
        *scaling(result),
        *eigen_solver(result),
        *explained(result),
        *_targets(result),
    ]


def _targets(result: xarray.Dataset) -> list[Sentence]:
    """State the covariates, and for each target the number of components and R²."""
    sentences: list[Sentence] = []
    if "covariate" in result.coords:
        names = ", ".join(map(str, result["covariate"].values.tolist()))
        sentences.append((f"Covariates were {names}.", ()))
    if "target" not in result.coords or "chosen" not in result:
        return sentences
    folds = int(result.attrs.get("n_folds", 0))
    how = f", chosen by {folds}-fold cross-validation," if folds else ""
    for i, (name, m) in enumerate(zip(result["target"].values.tolist(), result["chosen"].values.tolist(), strict=True)):
        r2 = {key: float(result[key].isel(target=i, m=int(m))) for key in ("r2", "cv_r2") if key in result}
        if np.isnan(r2.get("r2", 0.0)):
            sentences.append((f"The target {name} is constant and was not regressed.", ()))
            continue
        shown = [f"R² = {r2['r2']:.3f}"] if "r2" in r2 else []
        shown += [f"{r2['cv_r2']:.3f} for held-out samples"] if "cv_r2" in r2 else []
        text = f"The regression of {name} used the first {int(m)} of them{how} with {', '.join(shown)}."
        sentences.append((text, ()))
    return sentences


def mixture(result: xarray.Dataset) -> list[Sentence]:
    """Return the methods paragraph of a mixture of probabilistic PCA."""
    clusters, k = result.sizes["cluster"], result.sizes["component"]
    model = f"The model with {clusters:,} clusters of {k:,} component{'s' if k != 1 else ''}"
    return [
        opening(result, "A mixture of probabilistic principal component analysers (Tipping & Bishop 1999) of",
                TIPPING_MIXTURES, verb="was fitted"),
        *filters(result),
        *scaling(result),
        *likelihood(result, model),
    ]  # fmt: skip


def dual(result: xarray.Dataset) -> list[Sentence]:
    """Return the methods paragraph of dual probabilistic PCA."""
    return [
        opening(result, "Dual probabilistic principal component analysis (Lawrence 2005) of", LAWRENCE),
        *filters(result),
        *scaling(result),
        *likelihood(result, f"The model with {plural(result.sizes['component'], 'latent dimension')}"),
        *eigen_solver(result),
        *explained(result),
    ]


def methods_of(result: xarray.Dataset) -> tuple[str, list[str]]:
    """Return the methods paragraph of a result, and its references in the order in which they are cited."""
    sentences = kind_of(str(result.attrs["kind"])).function("methods")(result)
    if not result.attrs.get("converged", 1):
        sentences = [*sentences, ("The computation stopped before it reached its tolerance.", ())]
    references = (reference for _, cited in sentences for reference in cited)
    return " ".join(text for text, _ in sentences), list(dict.fromkeys(references))
