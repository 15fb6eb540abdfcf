"""A methods paragraph, with the numbers of a result, ready for a paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from streampca.report.markup import number, percent
from streampca.report.provenance import largest_error, mapping_of, parameters_of
from streampca.results.schema import certificate_method, error_in

if TYPE_CHECKING:
    import xarray

REFERENCES = {
    "golub": "Golub, G. H. & Underwood, R. (1977). The block Lanczos method for computing eigenvalues. In "
    "Mathematical Software III, 361-377. Academic Press.",
    "musco2015": "Musco, C. & Musco, C. (2015). Randomized block Krylov methods for stronger and faster approximate "
    "singular value decomposition. Advances in Neural Information Processing Systems 28.",
    "patterson": "Patterson, N., Price, A. L. & Reich, D. (2006). Population structure and eigenanalysis. PLoS "
    "Genetics 2, e190.",
    "price": "Price, A. L. et al. (2008). Long-range LD can confound genome scans in admixed populations. "
    "American Journal of Human Genetics 83, 132-135.",
    "prive": "Privé, F. et al. (2020). Efficient toolkit implementing best practices for principal component "
    "analysis of population genetic data. Bioinformatics 36, 4449-4457.",
    "tipping": "Tipping, M. E. & Bishop, C. M. (1999). Probabilistic principal component analysis. Journal of the "
    "Royal Statistical Society B 61, 611-622.",
    "rubin": "Rubin, D. B. & Thayer, D. T. (1982). EM algorithms for ML factor analysis. Psychometrika 47, 69-76.",
    "minka": "Minka, T. P. (2000). Automatic choice of dimensionality for PCA. Advances in Neural Information "
    "Processing Systems 13.",
    "schoelkopf": "Schölkopf, B., Smola, A. & Müller, K.-R. (1998). Nonlinear component analysis as a kernel "
    "eigenvalue problem. Neural Computation 10, 1299-1319.",
    "williams": "Williams, C. K. I. & Seeger, M. (2001). Using the Nyström method to speed up kernel machines. "
    "Advances in Neural Information Processing Systems 13.",
    "musco2017": "Musco, C. & Musco, C. (2017). Recursive sampling for the Nyström method. Advances in Neural "
    "Information Processing Systems 30.",
    "rahimi": "Rahimi, A. & Recht, B. (2007). Random features for large-scale kernel machines. Advances in "
    "Neural Information Processing Systems 20.",
}
# How the errors of components were obtained; probes and probability are those of streampca.solvers.certificate.
MEASURED = {
    "probe": "Rounding was measured with 8 random probes in double precision; a certificate is wrong with probability "
    "below 1e-11.",
    "exact": "Certificates are residuals computed in double precision.",
    "none": "Rounding is not included.",
    "modelled": "Rounding was modelled, not measured.",
}


@dataclass
class Draft:
    """Sentences, and the references that they name, in order."""

    sentences: list[str] = field(default_factory=list)
    cited: list[str] = field(default_factory=list)

    def say(self, sentence: str, *references: str) -> None:
        """Add a sentence."""
        self.sentences.append(sentence)
        self.cited += [name for name in references if name not in self.cited]


def methods_of(result: xarray.Dataset) -> tuple[str, list[str]]:
    """Return the paragraph, and its references."""
    a, p = result.attrs, parameters_of(result.attrs)
    draft = Draft()
    kind, k = str(a.get("kind")), int(result.sizes.get("component", 0))
    versions = mapping_of(a.get("versions"))
    program = f"streampca {versions['streampca']}" if "streampca" in versions else "streampca"
    features = "variants" if a.get("genotypes") else "features"
    size = f"{int(a['n_samples']):,} samples and {int(a['n_features']):,} {features}"
    begin = {
        "pca": "Principal components of",
        "ppca": "Probabilistic principal component analysis (Tipping & Bishop 1999) of",
        "factor_analysis": "Maximum-likelihood factor analysis (Rubin & Thayer 1982) of",
        "kpca": "Kernel principal component analysis (Schölkopf et al. 1998) of",
        "pcr": "Principal component regression on",
    }.get(kind, "Principal components of")  # fmt: skip
    cited = {"ppca": ("tipping",), "factor_analysis": ("rubin",), "kpca": ("schoelkopf",)}.get(kind, ())
    verb = "were computed" if begin.startswith("Principal components") else "was carried out"
    draft.say(f"{begin} {size} {verb} with {program}.", *cited)
    _filters(draft, p)
    _scaling(draft, a, p, kind)
    solve = {"ppca": _latent, "factor_analysis": _latent, "kpca": _kernel}.get(kind, _linear)
    solve(draft, result, a, k)
    share = float(np.sum(result["explained_variance_ratio"].values)) if "explained_variance_ratio" in result else np.nan
    if np.isfinite(share) and k:
        least = "at least " if kind == "kpca" else ""
        noun = "factor" if kind == "factor_analysis" else "component"
        verb = "explains" if k == 1 else "together explain"
        what = "variance in feature space" if kind == "kpca" else "total variance"
        draft.say(f"The {_plural(k, noun)} {verb} {least}{percent(share)} of the {what}.")
    if kind == "pcr":
        _regression(draft, result, a)
    if not a.get("converged", 1):
        draft.say("The computation was stopped before it met its tolerance.")
    return " ".join(draft.sentences), [REFERENCES[name] for name in draft.cited]


def _plural(count: int, noun: str) -> str:
    return f"{noun}" if count == 1 else f"{count:,} {noun}s"


def _filters(draft: Draft, p: Mapping[str, Any]) -> None:
    """Say which samples and variants were left out."""
    rules = []
    if p.get("maf") is not None:
        rules.append(f"a minor allele frequency below {p['maf']:g}")
    if p.get("geno") is not None:
        rules.append(f"more than {percent(p['geno'])} missing calls")
    if rules:
        draft.say(f"Variants with {' or '.join(rules)} were left out.")
    if p.get("mind") is not None:
        draft.say(f"Samples with more than {percent(p['mind'])} missing calls were left out.")
    if p.get("exclude_regions"):
        named = p["exclude_regions"] in ("GRCh37", "GRCh38")
        which = f" ({p['exclude_regions']}; Price et al. 2008)" if named else ""
        what = "Regions of long-range linkage disequilibrium" if named else "Regions given in a list"
        draft.say(f"{what}{which} were left out.", *(["price"] if named else []))
    if p.get("ld_prune") is not None:
        draft.say(f"Variants were pruned to pairwise r² of at most {p['ld_prune']:g} in windows of 50 variants, "
                  "shifted by 5.")  # fmt: skip
    if p.get("outliers") == "remove":
        draft.say("Samples apart from all others were removed and the components computed again "
                  "(Privé et al. 2020).", "prive")  # fmt: skip


def _scaling(draft: Draft, a: Mapping[str, Any], p: Mapping[str, Any], kind: str) -> None:
    """Say how features were centred and scaled, and what stood for missing values."""
    scale = p.get("scale", "auto")
    if scale == "auto":
        scale = "patterson" if a.get("genotypes") else None
    cells = max(1, int(a.get("n_samples", 1)) * int(a.get("n_features", 1)))
    share = int(a.get("n_missing", 0)) / cells
    gaps = ""
    if share and kind in ("ppca", "factor_analysis"):
        gaps = f"; missing values ({percent(share)}) were left out of the likelihood"
    elif share:
        gaps = f"; missing {'calls' if a.get('genotypes') else 'values'} ({percent(share)}) were set to the mean"
    if scale == "patterson":
        draft.say(f"Allele counts g were standardised as (g - 2p) / sqrt(2p(1 - p)), where p is the frequency of the "
                  f"allele (Patterson et al. 2006){gaps}.", "patterson")  # fmt: skip
    else:
        scaled = {
            "unit": "centred and divided by its standard deviation",
            "coslat": "centred and weighted by the square root of the cosine of its latitude",
        }.get(str(scale), "centred")
        if kind == "kpca" and scale != "unit":
            if gaps:
                draft.say(gaps[2:].capitalize() + ".")
            return
        draft.say(f"Each feature was {scaled}{gaps}.")


def _linear(draft: Draft, result: xarray.Dataset, a: Mapping[str, Any], k: int) -> None:
    sweeps = int(a.get("n_sweeps", 0))
    passes = f"{sweeps:,} {'pass' if sweeps == 1 else 'passes'} over the data"
    leading = f"The leading {_plural(k, 'component')}"
    was = "was" if k == 1 else "were"
    solver = a.get("solver")
    if solver == "krylov":
        warm = ", started from components of a tenth of the data" if a.get("warm_start_seconds") else ""
        draft.say(f"{leading} {was} found by block Lanczos iteration (Golub & Underwood 1977; Musco & Musco 2015) in "
                  f"{passes}{warm}.", "golub", "musco2015")  # fmt: skip
    elif solver == "covariance":
        draft.say(f"{leading} {was} found by eigendecomposition of the covariance matrix, accumulated in {passes}.")
    elif solver == "gram":
        draft.say(f"{leading} {was} found by eigendecomposition of the matrix of inner products of the samples, "
                  f"accumulated in {passes}.")  # fmt: skip
    elif solver == "power":
        draft.say(f"{leading} {was} found by power iteration with deflation in {passes}.")
    error = error_in(result)
    if error is not None:
        what = "Estimates of" if error == "estimate" else "Certificates, bounds on"
        draft.say(
            f"{what} the relative residuals ||S v - λ v|| / λ, with S the covariance matrix, were at most "
            f"{number(largest_error(result), 2)}."
        )
        _measured(draft, a)


def _measured(draft: Draft, a: Mapping[str, Any]) -> None:
    """Report how the certificates were obtained, if the result records it."""
    method = certificate_method(a)
    if method in MEASURED:
        draft.say(MEASURED[method])


def _regression(draft: Draft, result: xarray.Dataset, a: Mapping[str, Any]) -> None:
    """Say how many components each target was regressed on, and how well that foretells it."""
    folds = int(a.get("n_folds", 0))
    if "covariate" in result.coords:
        draft.say(f"Covariates were {', '.join(map(str, result['covariate'].values.tolist()))}.")
    if "target" not in result.coords or "chosen" not in result:
        return
    how = f", chosen by {folds}-fold cross-validation," if folds else ""
    for i, (name, m) in enumerate(zip(result["target"].values.tolist(), result["chosen"].values.tolist(), strict=True)):
        at = {"target": i, "m": int(m)}
        if "r2" in result and np.isnan(result["r2"].isel(at).values):
            draft.say(f"The target {name} does not vary: there is nothing to regress.")
            continue
        r2 = [f"R² = {float(result['r2'].isel(at)):.3f}"] if "r2" in result else []
        if "cv_r2" in result:
            r2.append(f"{float(result['cv_r2'].isel(at)):.3f} for samples left out")
        draft.say(f"The regression of {name} used the first {int(m)} of them{how} with {', '.join(r2)}.")


def _latent(draft: Draft, result: xarray.Dataset, a: Mapping[str, Any], k: int) -> None:
    noun = "factor" if a.get("kind") == "factor_analysis" else "latent dimension"
    if a.get("method") == "em":
        how = f"by expectation-maximisation in {int(a.get('n_iterations', 0)):,} iterations"
    else:
        how = "in closed form"
    draft.say(f"The model with {k} {noun}{'s' if k != 1 else ''} was fitted by maximum likelihood, {how} "
              f"(log-likelihood {float(a.get('total_log_likelihood', float('nan'))):,.1f}).")  # fmt: skip
    if "criterion" in result:
        by = {"evidence": "the Laplace approximation of the evidence (Minka 2000)",
              "bic": "the Bayesian information criterion", "heldout": "the likelihood of held-out values"}  # fmt: skip
        rule = str(a.get("criterion"))
        draft.say(f"Their number was chosen by {by.get(rule, rule)}.", *(["minka"] if rule == "evidence" else []))
    if "score_deviation" in result:
        draft.say(
            "Scores are posterior means, and their credible ellipses come from the posterior standard deviations."
        )


def _kernel(draft: Draft, result: xarray.Dataset, a: Mapping[str, Any], k: int) -> None:
    kernel = str(a.get("kernel"))
    named = {"rbf": "Gaussian", "poly": "polynomial", "laplacian": "Laplacian"}.get(kernel, kernel)
    values = []
    if kernel not in ("linear", "cosine"):
        values.append(f"gamma = {number(float(a['gamma']), 4)}")
    if kernel == "poly":
        values.append(f"degree {float(a['degree']):g}")
    if kernel in ("poly", "sigmoid"):
        values.append(f"constant {float(a['coef0']):g}")
    text = f"The kernel was {named}" + (f" ({', '.join(values)})" if values else "")
    method, m = a.get("method"), int(a.get("n_landmarks", 0))
    if method == "fourier":
        draft.say(f"{text}, approximated by {m:,} random Fourier features (Rahimi & Recht 2007).", "rahimi")
    elif method == "exact":
        draft.say(f"{text}, evaluated between all pairs of samples.")
    else:
        chosen = {
            "leverage": " drawn by ridge leverage scores (Musco & Musco 2017)",
            "kmeans": " at centres of k-means",
            "uniform": " drawn uniformly",
        }.get(str(method), "")
        kept = a.get("kept_trace")
        keeps = f", which keep {percent(float(kept))} of its trace" if kept is not None else ""
        more = ["musco2017"] if method == "leverage" else []
        draft.say(f"{text}, approximated by the Nyström method (Williams & Seeger 2001) with {m:,} landmarks{chosen}"
                  f"{keeps}.", "williams", *more)  # fmt: skip
    if "certificate" in result:
        worst = largest_error(result)
        draft.say(
            f"Relative residuals of the {_plural(k, 'component')} in feature space are at most {number(worst, 2)}."
        )
        _measured(draft, a)
