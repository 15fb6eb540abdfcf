"""Data at the limits of their types, and in the worst order: refused in one line, or right, under true certificates."""

from __future__ import annotations

import dask.array
import numpy as np
import pytest
from genotype_helpers import write_bed
from helpers import assert_orthonormal, falling, matrix_with_spectrum, mev_shortfall, one_line

from streampca import PCA, PCR, PPCA, FactorAnalysis, InputError, KernelPCA, MixtureOfPPCA

SOLVERS = ("covariance", "gram", "krylov", "power")
TOO_SMALL, TOO_LARGE, THE_SAME = "values are too small", "values are too large", "all samples are equal"


def plain(n=40, d=12):
    return matrix_with_spectrum(n, d, falling(8, 0.5, 1.0), seed=5)


def changed(x, place, value):
    x = x.copy()
    x[place] = value
    return x


def to_float32_limit(x):
    return (x * (3.4e38 / np.abs(x).max())).astype(np.float32)


def integers(low, high, dtype):
    return np.random.default_rng(0).integers(low, high, size=(40, 8), dtype=dtype)


def each_scaled(x, powers):
    return x * 10.0 ** np.linspace(*powers, x.shape[1])


ROWS = np.arange(40)[:, None]
CASES = {
    "denormal": (lambda: plain() * 1e-310, {}, TOO_SMALL),
    "squares are denormal": (lambda: plain() * 1e-160, {}, TOO_SMALL),
    "squares of variances are denormal": (lambda: plain() * 1e-85, {}, TOO_SMALL),
    "denormal, scaled": (lambda: plain() * 1e-310, {"scale": "unit"}, TOO_SMALL),
    "small": (lambda: plain() * 1e-60, {}, None),
    "denormal float32": (lambda: (plain() * 1e-42).astype(np.float32), {}, None),
    "limit of float32": (lambda: to_float32_limit(plain()), {}, None),
    "limit of float32, scaled": (lambda: to_float32_limit(plain()), {"scale": "unit"}, None),
    "squares fit float32, sums do not": (lambda: (plain() * 1e18).astype(np.float32), {}, None),
    "large": (lambda: plain() * 1e60, {}, None),
    "squares of variances overflow": (lambda: plain() * 1e85, {}, TOO_LARGE),
    "squares overflow": (lambda: plain() * 1e300, {}, TOO_LARGE),
    "squares overflow, scaled": (lambda: plain() * 1e300, {"scale": "unit"}, TOO_LARGE),
    "differences overflow": (lambda: np.sign(plain()) * 1.7e308, {}, TOO_LARGE),
    "one feature 1e12 times larger": (lambda: changed(plain(), np.s_[:, 3], 1e12 * plain()[:, 3]), {}, None),
    "scales from 1e-130 to 1e130": (lambda: each_scaled(plain(), (-130, 130)), {"scale": "unit"}, None),
    "float32 scales from 1e-30 to 1e30": (
        lambda: each_scaled(plain(), (-30, 30)).astype(np.float32), {"scale": "unit"}, None,
    ),
    "one feature too small to scale": (
        lambda: changed(plain(), np.s_[:, 3], 1e-200 * plain()[:, 3]), {"scale": "unit"}, "feature 3 .*too small",
    ),
    "all samples identical": (lambda: np.tile(1e8 * plain()[:1], (20, 1)), {}, THE_SAME),
    "all but one identical": (lambda: np.where(ROWS == 17, 7.1 + np.arange(12.0), 7.1), {"n_components": 1}, None),
    "all but one by little": (lambda: np.where(ROWS == 17, 7.1 + 1e-15 * np.arange(12.0), 7.1), {}, None),
    "duplicate features": (lambda: np.tile(plain(), 3), {}, None),
    "sorted": (lambda: plain() + 100.0 * ROWS, {}, None),
    "alternating": (lambda: plain() + 1e8 * (-1.0) ** ROWS, {}, None),
    "alternating float32": (lambda: (plain() + 1e5 * (-1.0) ** ROWS).astype(np.float32), {}, None),
    "mean of every other feature far off": (lambda: plain() + 1e8 * (-1.0) ** np.arange(12), {}, None),
    "the first block constant": (lambda: np.where(ROWS < 20, 3.3, plain()), {}, None),
    "blocks far apart": (lambda: plain() + 1e8 * (ROWS // 10), {}, None),
    "the first sample far off, float32": (lambda: changed(plain(), 0, 1e8).astype(np.float32), {}, None),
    "mean 1e15 times the deviation": (lambda: plain() + 1e15, {}, None),
    "infinite": (lambda: changed(plain(), (17, 3), np.inf), {}, "1 infinite .* sample 17, feature 3 "),
    "infinite float32": (
        lambda: changed(plain(), (17, 3), -np.inf).astype(np.float32), {}, "1 infinite .* sample 17, feature 3 ",
    ),
    "negative zeros": (lambda: changed(plain(), np.s_[::2, 3], -0.0), {}, None),
    "int8 extremes": (lambda: np.where(plain() < 0, -128, 127).astype(np.int8), {}, None),
    "int64 extremes": (lambda: changed(integers(-(2**63), 2**63 - 1, np.int64), (0, 0), -(2**63)), {}, None),
    "int64 far from zero": (lambda: 2**62 + integers(-1000, 1000, np.int64), {}, None),
    "uint64 above 2^63": (lambda: integers(2**63, 2**64 - 1, np.uint64), {}, None),
    "uint64 of one number in float64": (
        lambda: np.uint64(2**63) + integers(0, 1000, np.uint64), {}, "multiples of 2048: subtract an offset",
    ),
    "bool": (lambda: plain() > 0.1, {}, None),
}  # fmt: skip


def centred_and_scaled(x, scale):
    """Return the samples in extended precision, divided by a power of two, and its exponent."""
    wide = np.asarray(x).astype(np.longdouble)
    centred = wide - wide.mean(axis=0)
    centred -= centred.mean(axis=0)
    if scale == "unit":
        centred /= np.sqrt((centred**2).sum(axis=0) / (len(x) - 1))
    exponent = int(np.frexp(np.abs(centred).max())[1])
    return np.ldexp(centred, -exponent), exponent


# With few samples as well.
WIDE = ("limit of float32", "alternating", "mean of every other feature far off", "all but one identical", "bool")


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", [*CASES, *(f"{name}, wide" for name in WIDE)])
def test_stress_is_refused_or_certified(name, solver):
    make, options, refused = CASES[name.removesuffix(", wide")]
    x = np.ascontiguousarray(make().T) if name.endswith("wide") else make()
    # Blocks, so that means and sums are merged in the order of the samples. Peeling takes long: one component will do.
    blocks = dask.array.from_array(x, chunks=(6 if name.endswith("wide") else 15, 12))
    slow = {"n_components": 1, "tol": 1e-2} if solver == "power" else {"n_components": 3}
    model = PCA(**({"solver": solver} | slow | options))
    if refused:
        with pytest.raises(InputError, match=refused) as error:
            model.fit(blocks)
        one_line(error)
        return
    model.fit(blocks)
    V, theta = model.components_, model.explained_variance_
    assert np.isfinite(V).all()
    assert np.isfinite(theta).all()
    assert_orthonormal(V)
    A, exponent = centred_and_scaled(x, options.get("scale"))
    _, s, true = np.linalg.svd(A.astype(np.float64), full_matrices=False)
    theta = np.ldexp(theta.astype(np.longdouble), -2 * exponent)
    SV = A.T @ (A @ V.T.astype(np.longdouble)) / (len(x) - 1)
    said = model.certificate_ < 1
    residual = np.sqrt(((SV.T - theta[:, None] * V) ** 2).sum(axis=1))[said] / theta[said]
    assert (residual <= model.certificate_[said]).all()
    assert said.all() or model.advice_
    # All that are certified well, and a gap sets apart, are the true ones.
    values = s**2 / (len(x) - 1)
    sure = int((model.certificate_ < 1e-2).cumprod().sum())
    np.testing.assert_allclose(theta[:sure].astype(float), values[:sure], rtol=2e-2)
    if sure and sure < len(values) and values[sure] < 0.8 * values[sure - 1]:
        assert mev_shortfall(true[:sure], V[:sure]) <= 1e-3


@pytest.mark.parametrize(
    "name", ["int64 far from zero", "mean 1e15 times the deviation", "all but one by little"]
)  # fmt: skip
@pytest.mark.parametrize("solver", SOLVERS)
def test_means_beyond_double_precision_are_said(name, solver):
    model = PCA(1, solver=solver).fit(CASES[name][0]())
    assert not model.converged_
    assert model.certificate_[0] > 1e-3
    assert "subtract a constant from each feature" in model.advice_


def test_batches_are_refused_as_a_fit_is():
    for factor, refused in ((1e-310, TOO_SMALL), (1e300, TOO_LARGE), (0.0, THE_SAME)):
        with pytest.raises(InputError, match=refused), np.errstate(over="ignore", invalid="ignore"):
            PCA(2).partial_fit(plain() * factor)


MODELS = {
    "ppca": lambda x: PPCA(2).fit(x),
    "factors": lambda x: FactorAnalysis(2).fit(x),
    "mixture": lambda x: MixtureOfPPCA(n_components=2).fit(x),
    "pcr": lambda x: PCR(2).fit(x, np.arange(40.0)),
}


@pytest.mark.parametrize("name", ["denormal", "squares overflow", "all samples identical", "infinite"])
@pytest.mark.parametrize("model", MODELS)
def test_other_models_refuse_the_same(model, name):
    x = CASES[name][0]()
    with pytest.raises(InputError, match=CASES[name][2]) as error:
        MODELS[model](x if len(x) == 40 else np.tile(x, (2, 1)))
    one_line(error)


@pytest.mark.parametrize("name", ["denormal float32", "limit of float32", "bool", "int64 extremes"])
@pytest.mark.parametrize("model", MODELS)
def test_other_models_are_finite_at_the_limits(model, name):
    found = MODELS[model](CASES[name][0]())
    for attribute in ("components_", "explained_variance_", "noise_variance_", "coef_", "mean_"):
        assert np.isfinite(getattr(found, attribute, 0.0)).all(), attribute


@pytest.mark.parametrize("name", ["denormal", "squares overflow", "infinite"])
def test_kernels_of_impossible_values_are_refused(name):
    with pytest.raises(InputError) as error:
        KernelPCA(2).fit(CASES[name][0]())
    one_line(error)


CALLS = np.random.default_rng(0).integers(0, 3, size=(12, 40)).astype(float)
GENOTYPES = {
    "monomorphic": (np.zeros((12, 40)), "no variant is left: 40 monomorphic"),
    "all missing": (np.full((12, 40), np.nan), "no variant is left"),
    "all heterozygous": (np.ones((12, 40)), THE_SAME),
    "a single sample": (CALLS[:1], "at least 2 samples"),
    "two samples that are the same": (CALLS[[0, 0]], THE_SAME),
    "two samples": (CALLS[:2], None),
    "one variant that varies": (np.where(np.arange(40) == 7, CALLS, 0.0), None),
    "nearly all heterozygous": (np.where(np.arange(40) < 38, 1.0, CALLS), None),
    "a sample without calls": (changed(CALLS, 3, np.nan), None),
    "a variant without calls": (changed(CALLS, np.s_[:, 3], np.nan), None),
    "singletons": (np.eye(12, 40), None),
}


@pytest.mark.parametrize("name", GENOTYPES)
@pytest.mark.parametrize("solver", SOLVERS[1:])
def test_degenerate_genotypes_are_refused_or_certified(tmp_path, name, solver):
    calls, refused = GENOTYPES[name]
    path = write_bed(tmp_path / "calls", calls)
    model = PCA(1, solver=solver, tol=1e-6)
    if refused:
        with pytest.raises(InputError, match=refused) as error:
            model.fit(path)
        one_line(error)
        return
    model.fit(path)
    known = ~np.isnan(calls)
    p = np.where(known, calls, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1) / 2
    used = (p > 0) & (p < 1)
    A = (np.where(known, calls - 2 * p, 0.0) / np.sqrt(np.where(used, 2 * p * (1 - p), 1.0)))[:, used]
    v, theta = model.components_[0], model.explained_variance_[0]
    residual = np.linalg.norm(A.T @ (A @ v) / (len(A) - 1) - theta * v) / theta
    assert residual <= model.certificate_[0] <= 1e-6
    assert theta == pytest.approx(np.linalg.svd(A, compute_uv=False)[0] ** 2 / (len(A) - 1), rel=1e-6)
