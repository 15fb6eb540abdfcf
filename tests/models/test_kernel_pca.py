"""Kernel PCA: against scikit-learn and dense NumPy, its bounds, its promises on passes and memory, awkward input."""

from __future__ import annotations

import sys

import dask
import dask.array
import numpy as np
import pytest
import xarray
import zarr
from helpers import CountingSource, UnreadableSource, one_line, peak_of
from scipy.spatial.distance import cdist, pdist
from sklearn.base import clone
from sklearn.decomposition import KernelPCA as SklearnKernelPCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from streampca import PCA, InputError, KernelPCA, MemoryLimitError
from streampca.models.kernel_pca import fit as models
from streampca.models.kernel_pca.options import KernelPCAOptions

CHOICES = ("uniform", "kmeans", "leverage")


def points(n=240, d=5, seed=0, dtype=np.float64):
    """Points that are not centred, of different deviations."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, d)) * np.linspace(2, 0.5, d) + 1).astype(dtype)


def curve(n, seed=0, dtype=np.float64, noise=0.05):
    """Points along a curve in five dimensions: kernels of these fall quickly."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0, 6, n)
    x = np.c_[np.cos(t), np.sin(t), t / 3, np.cos(2 * t), np.sin(2 * t)]
    return (x + noise * rng.standard_normal((n, 5))).astype(dtype)


def assert_same_up_to_sign(ours, theirs, within=1e-6):
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    assert ours.shape == theirs.shape
    signs = np.where((ours * theirs).sum(axis=0) < 0, -1, 1)
    np.testing.assert_allclose(ours * signs, theirs, atol=within * np.abs(theirs).max())


def centred(K):
    J = np.eye(len(K)) - 1 / len(K)
    return J @ K @ J


def spectrum(K):
    """Eigenvalues of the centred kernel matrix, descending."""
    return np.linalg.eigvalsh(centred(K))[::-1]


class Dense:
    """Nystrom by its definition: phi = K^(-1/2) k for the landmarks, centred, covariance, eigh."""

    def __init__(self, x, landmarks, kernel, floor=1e-13):
        K, k = kernel(landmarks, landmarks), kernel(x, landmarks)
        values, U = np.linalg.eigh(K)
        used = values > floor * values[-1]
        self.phi = k @ (U[:, used] / np.sqrt(values[used]))
        middle = self.phi - self.phi.mean(axis=0)
        self.values, V = np.linalg.eigh(middle.T @ middle / (len(x) - 1))
        self.values = self.values[::-1]
        self.scores = middle @ V[:, ::-1]
        self.in_span = (middle**2).sum()
        self.kept_trace = (self.phi**2).sum() / np.trace(kernel(x, x))


def rbf(gamma):
    return lambda x, y: np.exp(-gamma * cdist(x, y, "sqeuclidean"))


def finite(model, *arrays):
    """Check that no number is NaN, and that infinity is only where a component is zero."""
    for name in ("eigenvalues_", "explained_variance_", "explained_variance_ratio_", "weights_", "landmarks_"):
        assert np.isfinite(getattr(model, name)).all(), name
    for array in arrays:
        assert np.isfinite(array).all()
    certificate = model.certificate_
    assert not np.isnan(certificate).any()
    assert (certificate >= 0).all()
    assert (model.eigenvalues_[np.isinf(certificate)] == 0).all()
    assert (model.eigenvalues_ >= 0).all()
    assert 0 <= model.kept_trace_ <= 1
    assert 0 <= model.kept_variance_ <= 1
    assert model.explained_variance_ratio_.sum() <= 1 + 1e-9


# ---------------------------------------------------------------- exact, against scikit-learn

PARAMETERS = {
    "linear": {"kernel": "linear"},
    "poly 3": {"kernel": "poly", "gamma": 0.2},
    "poly 2": {"kernel": "poly", "degree": 2, "coef0": 0, "gamma": 1.0},
    "poly 5": {"kernel": "poly", "degree": 5, "coef0": 2.5, "gamma": 0.01},
    "poly 1": {"kernel": "poly", "degree": 1, "coef0": 3, "gamma": None},
    "rbf": {"kernel": "rbf", "gamma": 0.1},
    "rbf wide": {"kernel": "rbf", "gamma": 1e-3},
    "rbf features": {"kernel": "rbf", "gamma": None},
    "sigmoid": {"kernel": "sigmoid", "gamma": 0.01, "coef0": 0.5},
    "cosine": {"kernel": "cosine"},
}


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize(("dtype", "within"), [(np.float64, 1e-6), (np.float32, 1e-4)])
def test_exact_components_are_those_of_scikit_learn(name, dtype, within):
    x, fresh = points(dtype=dtype), points(50, seed=1, dtype=dtype)
    theirs = SklearnKernelPCA(4, eigen_solver="dense", **PARAMETERS[name])
    expected = theirs.fit_transform(x.astype(float))
    ours = KernelPCA(4, n_landmarks=len(x), **PARAMETERS[name])
    assert_same_up_to_sign(ours.fit_transform(x), expected, within)
    # Kernels of float32 inputs are computed in float64.
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-6)
    np.testing.assert_allclose(ours.explained_variance_, theirs.eigenvalues_ / 239, rtol=1e-6)
    assert_same_up_to_sign(ours.transform(fresh), theirs.transform(fresh.astype(float)), within)
    assert_same_up_to_sign(ours.transform(x), expected, within)
    assert (ours.kept_trace_, ours.kept_variance_) == (1, 1)
    assert (ours.n_components_, ours.n_landmarks_, ours.n_samples_, ours.n_features_in_) == (4, 240, 240, 5)
    K = pairwise.pairwise_kernels(
        x.astype(float), metric=ours.kernel, filter_params=True, gamma=ours.gamma_, degree=ours.degree, coef0=ours.coef0
    )
    share = theirs.eigenvalues_ / np.trace(centred(K))
    np.testing.assert_allclose(ours.explained_variance_ratio_, share, rtol=1e-6)


@pytest.mark.parametrize("name", ["laplacian", "callable"])
def test_exact_components_of_other_kernels(name):
    x, fresh = np.abs(points()), np.abs(points(50, seed=1))
    function = pairwise.chi2_kernel if name == "callable" else lambda a, b: pairwise.laplacian_kernel(a, b, gamma=0.2)
    theirs = SklearnKernelPCA(4, kernel="precomputed", eigen_solver="dense")
    expected = theirs.fit_transform(function(x, x))
    ours = KernelPCA(4, kernel=function if name == "callable" else name, gamma=0.2, n_landmarks=1000)
    assert_same_up_to_sign(ours.fit_transform(x), expected)
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-6)
    assert_same_up_to_sign(ours.transform(fresh), theirs.transform(function(fresh, x)))


def test_all_components_are_those_of_scikit_learn():
    x = points(60)
    theirs = SklearnKernelPCA(kernel="rbf", gamma=0.1, eigen_solver="dense", remove_zero_eig=True)
    expected = theirs.fit_transform(x)
    ours = KernelPCA(gamma=0.1)
    scores = ours.fit_transform(x)
    # Centred in feature space, n samples have n - 1 directions.
    assert scores.shape == (60, 59)
    assert_same_up_to_sign(scores, expected[:, :59], 1e-5)
    assert ours.explained_variance_ratio_.sum() == pytest.approx(1)


@pytest.mark.parametrize("n_landmarks", [50, 1000])
def test_the_linear_kernel_is_pca(n_landmarks):
    x, fresh = points(), points(50, seed=1)
    pca = PCA(3).fit(x)
    model = KernelPCA(3, kernel="linear", n_landmarks=n_landmarks).fit(x)
    # Five directions, and the landmarks span them all.
    np.testing.assert_allclose(model.explained_variance_, pca.explained_variance_, rtol=1e-8)
    np.testing.assert_allclose(model.explained_variance_ratio_, pca.explained_variance_ratio_, rtol=1e-8)
    assert_same_up_to_sign(model.transform(fresh), pca.transform(fresh), 1e-8)
    assert_same_up_to_sign((model.weights_.T @ model.landmarks_).T, pca.components_.T, 1e-8)


def test_components_have_unit_length_and_are_orthogonal():
    x = points()
    model = KernelPCA(6, gamma=0.1, n_landmarks=80).fit(x)
    K = rbf(0.1)(model.landmarks_, model.landmarks_)
    np.testing.assert_allclose(model.weights_.T @ K @ model.weights_, np.eye(6), atol=1e-9)
    scores = model.transform(x)
    np.testing.assert_allclose(scores.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(np.cov(scores.T), np.diag(model.explained_variance_), atol=1e-10)


# ---------------------------------------------------------------- landmarks

LANDMARK_KERNELS = {
    "rbf": (lambda a, b: pairwise.rbf_kernel(a, b, gamma=0.5), {"kernel": "rbf", "gamma": 0.5}),
    "laplacian": (lambda a, b: pairwise.laplacian_kernel(a, b, gamma=0.5), {"kernel": "laplacian", "gamma": 0.5}),
    "poly": (
        lambda a, b: pairwise.polynomial_kernel(a, b, degree=2, gamma=0.5, coef0=1),
        {"kernel": "poly", "degree": 2, "gamma": 0.5},
    ),
    "cosine": (pairwise.cosine_similarity, {"kernel": "cosine"}),
    "linear": (pairwise.linear_kernel, {"kernel": "linear"}),
    "callable": (pairwise.additive_chi2_kernel, {"kernel": lambda a, b: np.minimum(a[:, None], b[None]).sum(axis=2)}),
}
LANDMARK_KERNELS["callable"] = (LANDMARK_KERNELS["callable"][1]["kernel"], LANDMARK_KERNELS["callable"][1])


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("name", LANDMARK_KERNELS)
@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize(("dtype", "within"), [(np.float64, 1e-8), (np.float32, 1e-4)])
def test_landmarks_give_what_dense_nystrom_gives(name, choose, dtype, within):
    x = np.abs(points(700, dtype=dtype))
    kernel, options = LANDMARK_KERNELS[name]
    model = KernelPCA(4, n_landmarks=40, landmarks=choose, **options)
    scores = model.fit_transform(x)
    assert model.landmarks_.shape == (40, 5)
    wide = x.astype(float)
    dense = Dense(wide, model.landmarks_, kernel)
    np.testing.assert_allclose(model.explained_variance_, dense.values[:4], rtol=within)
    assert_same_up_to_sign(scores, dense.scores[:, :4], 100 * within)
    # Float32 may leave out directions that hold a thousandth of the variance.
    assert model.kept_trace_ == pytest.approx(dense.kept_trace, rel=within if dtype == np.float64 else 1e-3)
    assert model.kept_trace_ <= dense.kept_trace + 1e-6
    whole = np.trace(centred(kernel(wide, wide)))
    assert model.kept_variance_ <= dense.in_span / whole + within
    assert (model.explained_variance_ratio_ <= model.eigenvalues_ / whole * (1 + within)).all()
    finite(model, scores)


@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize(("d", "gamma"), [(2, 1.0), (5, 0.1), (20, 0.02)])
def test_the_error_of_eigenvalues_is_estimated(d, gamma, choose):
    x = np.random.default_rng(1).normal(size=(1500, d)) * np.linspace(2, 0.3, d)
    exact = spectrum(rbf(gamma)(x, x))[:5]
    for m in (40, 200):
        model = KernelPCA(5, gamma=gamma, n_landmarks=m, landmarks=choose).fit(x)
        error = exact / model.eigenvalues_ - 1
        assert (error <= model.estimated_error_ + 1e-12).all()
        # It says more than the bound by the trace, where what is missed lies along many directions.
        bound = model._fitted.lost_variance / model.explained_variance_
        assert (model.estimated_error_ <= (bound if d < 20 else 0.2 * bound)).all()
        assert "too small" not in model.advice_


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("choose", CHOICES)
def test_eigenvalues_come_up_to_the_exact_ones(choose, dtype):
    x = curve(600, dtype=dtype)
    K = rbf(0.5)(*[x.astype(float)] * 2)
    exact, errors, kept = spectrum(K)[:5], [], []
    for m in (8, 32, 128, 600):
        model = KernelPCA(5, gamma=0.5, n_landmarks=m, landmarks=choose).fit(x)
        assert (model.eigenvalues_ <= exact * (1 + (1e-9 if dtype == np.float64 else 1e-5))).all()
        errors.append((1 - model.eigenvalues_ / exact).max())
        kept.append(model.kept_trace_)
        finite(model)
    assert errors[0] > 3 * errors[1] > 9 * errors[2]
    assert errors[2] < 1e-3
    assert abs(errors[3]) < 1e-6
    assert kept[0] < kept[1] < kept[2] <= kept[3] == 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize("m", [10, 40, 150])
@pytest.mark.parametrize("name", ["rbf", "laplacian"])
def test_certificates_hold_in_feature_space(name, choose, dtype, m):
    x = curve(500, dtype=dtype)
    kernel, options = LANDMARK_KERNELS[name]
    model = KernelPCA(5, n_landmarks=m, landmarks=choose, **options).fit(x)
    wide = x.astype(float)
    K, L = kernel(wide, wide), kernel(wide, model.landmarks_)
    n, W, values = len(x), model.weights_, model.explained_variance_
    # v = sum_l w_l phi(l), and C v = sum_x (phi(x) - mean) t(x) / (n - 1) for t(x) = <phi(x) - mean, v>.
    T = (L - L.mean(axis=0)) @ W / (n - 1)
    T -= T.mean(axis=0)
    inner = np.einsum("ik,ij,jk->k", T, K, T)
    cross = np.einsum("ik,il,lk->k", T, L, W)
    length = np.einsum("lk,lm,mk->k", W, kernel(model.landmarks_, model.landmarks_), W)
    squared = inner - 2 * values * cross + values**2 * length
    residual = np.sqrt(np.maximum(squared, 0)) / values
    assert (residual <= model.certificate_ + 1e-7).all()
    assert (residual[:2] > model.certificate_[:2] * 1e-4).all(), "a bound that is so far off tells nothing"
    exact = spectrum(K)[:5] / (n - 1)
    slack = 1e-9 if dtype == np.float64 else 1e-5
    lost = model._fitted.lost_variance
    assert (values <= exact * (1 + slack)).all()
    assert (exact <= values + lost + slack * exact).all()


@pytest.mark.parametrize("options", [{"gamma": 1e-3}, {"gamma": 1e-7}, {"kernel": "linear"}, {"kernel": "poly"}])
@pytest.mark.parametrize("shift", [0, 1e3, 1e5])
def test_certificates_of_exact_components_cover_rounding(options, shift):
    """Eigenvalues have an error of at most |C v - lambda v|: here against inputs that are centred exactly."""
    x = np.round(points(150) * 1024) / 1024 + shift
    model = KernelPCA(3, **options).fit(x)
    wide = x.astype(np.longdouble)
    if options.get("kernel") == "linear":
        K = (wide - wide.mean(axis=0)) @ (wide - wide.mean(axis=0)).T
    elif options.get("kernel") == "poly":
        K = (np.longdouble(model.gamma_) * (wide @ wide.T) + 1) ** 3
    else:
        K = np.expm1(-np.longdouble(model.gamma_) * ((wide[:, None] - wide[None]) ** 2).sum(axis=2))
    K = (K - K.mean(axis=0)) - (K - K.mean(axis=0)).mean(axis=1)[:, None]
    exact = np.linalg.eigvalsh(K.astype(float))[::-1][:3]
    assert (np.abs(model.eigenvalues_ / exact - 1) <= model.certificate_ + 1e-12).all()


# ---------------------------------------------------------------- how many landmarks


def test_as_many_landmarks_as_reach_the_target():
    x = curve(3000)
    counts = []
    for target in (0.6, 0.9, 0.99):
        model = KernelPCA(3, gamma=0.5, n_landmarks="auto", target_trace=target).fit(x)
        assert target <= model.kept_trace_ < 1
        assert model.advice_ == ""
        counts.append(model.n_landmarks_)
    assert counts[0] <= counts[1] <= counts[2] < 3000
    rough = points(1500, 5)
    counts = []
    for target in (0.3, 0.5, 0.7):
        model = KernelPCA(3, gamma=0.5, n_landmarks="auto", target_trace=target).fit(rough)
        assert model.kept_trace_ >= target
        counts.append(model.n_landmarks_)
    assert counts[0] < counts[1] < counts[2] < 1500


def test_all_samples_where_nothing_less_reaches_the_target():
    model = KernelPCA(2, gamma=1e3, n_landmarks="auto").fit(points(200))
    assert (model.n_landmarks_, model.kept_trace_) == (200, 1)


def test_few_samples_are_all_taken():
    model = KernelPCA(2, n_landmarks="auto").fit(points(40))
    assert (model.n_landmarks_, model.kept_trace_) == (40, 1)


def test_more_components_than_the_first_landmarks():
    model = KernelPCA(150, gamma=0.1, n_landmarks="auto", target_trace=0.3).fit(points(1200))
    assert model.n_landmarks_ >= 150
    assert (model.eigenvalues_ > 0).all()


def limit_landmarks(monkeypatch, most):
    """Let the memory be too little for more landmarks than these."""
    plan = models.plan_kernel

    def limited(source, request, m, *rest):
        if m > most:
            raise MemoryLimitError(f"{m} landmarks need more; raise the limit")
        return plan(source, request, m, *rest)

    monkeypatch.setattr(models, "plan_kernel", limited)


def test_where_memory_forbids_the_target_it_says_so(monkeypatch):
    limit_landmarks(monkeypatch, 100)
    model = KernelPCA(2, gamma=2.0, n_landmarks="auto", target_trace=0.9).fit(points(1500))
    assert model.n_landmarks_ <= 100
    assert model.kept_trace_ < 0.9
    assert "the landmarks keep less than target_trace=0.9" in model.advice_
    assert "memory limit" in model.advice_


@pytest.mark.parametrize("most", [100, 144])
def test_a_sample_that_promises_too_much_does_not_end_in_an_error(monkeypatch, most):
    limit_landmarks(monkeypatch, most)
    # Few of the rows are far from all others; a sample rarely holds them.
    monkeypatch.setattr(models, "SAMPLE", 40)
    x = curve(4000)
    x[::97] += np.random.default_rng(1).normal(scale=1000, size=x[::97].shape)
    model = KernelPCA(2, gamma=0.5, n_landmarks="auto", target_trace=0.9899).fit(x)
    assert model.kept_trace_ >= 0.9899 or "keep less than target_trace" in model.advice_


def test_where_a_sample_promises_too_much_and_memory_is_short_it_says_so(monkeypatch):
    limit_landmarks(monkeypatch, 64)
    monkeypatch.setattr(models._Fit, "_enough", lambda self, m: 64)  # noqa: ARG005
    model = KernelPCA(2, gamma=2.0, n_landmarks="auto", target_trace=0.95).fit(points(800))
    assert "keep less than target_trace" in model.advice_


def test_the_largest_number_of_landmarks_ends_the_search(monkeypatch):
    """A target that the sample reaches and the data do not, at the most landmarks there may be."""
    monkeypatch.setattr(models, "MOST_LANDMARKS", 64)
    fits = []
    fit = models._Fit._with_landmarks

    def counted(self, m):
        fits.append(m)
        assert len(fits) < 5, "the search goes on for ever"
        return fit(self, m)

    monkeypatch.setattr(models._Fit, "_with_landmarks", counted)
    monkeypatch.setattr(models._Fit, "_enough", lambda self, m: 64)  # noqa: ARG005
    model = KernelPCA(2, gamma=2.0, n_landmarks="auto", target_trace=0.95).fit(points(800))
    assert "keep less than target_trace" in model.advice_


# ---------------------------------------------------------------- gamma, and what is refused


def test_gamma_is_by_its_formula():
    x = points(500)
    gammas = {0.3: 0.3, None: 1 / 5, "scale": 1 / (5 * x.var()), "median": 1 / (2 * np.median(pdist(x)) ** 2)}
    for gamma, expected in gammas.items():
        for m in (50, 500):
            assert KernelPCA(2, gamma=gamma, n_landmarks=m).fit(x).gamma_ == pytest.approx(expected)
    found = KernelPCA(2, kernel="laplacian", gamma="median").fit(x).gamma_
    assert found == pytest.approx(1 / np.median(pdist(x, "cityblock")))
    assert KernelPCA(2, kernel="poly", gamma="scale").fit(x).gamma_ == pytest.approx(1 / (5 * x.var()))
    standard = (x - x.mean(axis=0)) / x.std(axis=0, ddof=1)
    found = KernelPCA(2, gamma="median", scale="unit", n_landmarks=50).fit(x).gamma_
    assert found == pytest.approx(1 / (2 * np.median(pdist(standard)) ** 2))


def test_gamma_of_many_samples_is_that_of_a_thousand():
    x = points(2500)
    for gamma, exact in {"scale": 1 / (5 * x.var()), "median": 1 / (2 * np.median(pdist(x)) ** 2)}.items():
        assert KernelPCA(2, gamma=gamma, n_landmarks=50).fit(x).gamma_ == pytest.approx(exact, rel=0.1)


REFUSED = {
    "kernel": ({"kernel": "gauss"}, "kernel must be rbf, linear, poly"),
    "kernel a number": ({"kernel": 3}, "got 3"),
    "gamma": ({"gamma": "auto"}, "scale, median or features"),
    "gamma zero": ({"gamma": 0}, "a number > 0"),
    "gamma negative": ({"gamma": -1.0}, "a number > 0"),
    "gamma nan": ({"gamma": float("nan")}, "a number > 0"),
    "gamma infinite": ({"gamma": float("inf")}, "a number > 0"),
    "gamma a flag": ({"gamma": True}, "a number > 0"),
    "gamma a list": ({"gamma": [1.0]}, "a number > 0"),
    "median of products": ({"kernel": "poly", "gamma": "median"}, "use 'scale'"),
    "no components": ({"n_components": 0}, "an integer >= 1"),
    "components of samples": ({"n_components": 61}, "at most 60"),
    "components of landmarks": ({"n_components": 21, "n_landmarks": 20}, "at most 20"),
    "components a share": ({"n_components": 0.9}, "an integer >= 1"),
    "components a flag": ({"n_components": True}, "got True"),
    "one landmark": ({"n_landmarks": 1}, "an integer >= 2 or auto"),
    "landmarks a share": ({"n_landmarks": 0.5}, "an integer >= 2 or auto"),
    "landmarks a word": ({"n_landmarks": "all"}, "an integer >= 2 or auto"),
    "landmarks a flag": ({"n_landmarks": True}, "an integer >= 2 or auto"),
    "choice": ({"landmarks": "random"}, "uniform, kmeans, leverage or fourier"),
    "fourier by itself": ({"landmarks": "fourier", "n_landmarks": "auto"}, "requires n_landmarks as a number"),
    "fourier of products": ({"landmarks": "fourier", "kernel": "poly"}, "kernel='rbf' or 'laplacian'"),
    "target": ({"target_trace": 1.5}, "between 0 and 1"),
    "degree": ({"degree": 0, "kernel": "poly"}, "between 0 and 100"),
    "coef0": ({"coef0": float("inf"), "kernel": "poly"}, "coef0 must be a number"),
    "alpha": ({"alpha": 0.0}, "a number > 0"),
    "scale": ({"scale": "patterson"}, "none or unit"),
    "missing": ({"missing": "model"}, "error or mean"),
    "missing with products": ({"missing": "mean", "kernel": "poly"}, "scale='unit'"),
    "memory": ({"memory_limit": "lots"}, "600MB"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused_before_reading(name):
    options, cure = REFUSED[name]
    with pytest.raises(InputError) as error:
        KernelPCA(**options).fit(UnreadableSource((60, 5), (10, 5)))
    assert cure in one_line(error)


def test_a_function_is_not_taken_for_a_kernel_of_its_name():
    x = points(300)

    def rbf(a, b):
        return (a @ b.T + 1) ** 2

    def linear(a, b):
        return (a @ b.T + 1) ** 2

    expected = KernelPCA(3, kernel=lambda a, b: (a @ b.T + 1) ** 2, n_landmarks=50).fit(x).eigenvalues_
    for function in (rbf, linear):
        model = KernelPCA(3, kernel=function, n_landmarks=50).fit(x)
        np.testing.assert_allclose(model.eigenvalues_, expected, rtol=1e-9)
        with pytest.raises(InputError, match="fit_inverse_transform"):
            model.inverse_transform(model.transform(x))
    with pytest.raises(InputError):
        KernelPCA(3, kernel=rbf, landmarks="fourier", n_landmarks=50).fit(x)


# ---------------------------------------------------------------- the same bits


def stored(folder, x, chunks=(64, 5)):
    zarr.create_array(folder / "x.zarr", data=x, chunks=chunks)
    return folder / "x.zarr"


def everything(x, **options):
    model = KernelPCA(3, gamma=0.5, n_landmarks=40, **options)
    scores = model.fit_transform(x)
    if type(scores).__module__.startswith("dask"):
        scores = scores.compute()
    return scores, model.eigenvalues_, model.weights_, model.landmarks_, model.certificate_


WAYS = [{"landmarks": way} for way in (*CHOICES, "fourier")] + [{"fit_inverse_transform": True}, {"scale": "unit"}]


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_any_number_of_threads_gives_the_same_bits(tmp_path, options, dtype):
    path = stored(tmp_path, curve(700, dtype=dtype))
    found = []
    for workers in (1, 4):
        with dask.config.set(num_workers=workers):
            found.append(everything(path, **options))
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.slow
@pytest.mark.usefixtures("small_partitions")
def test_same_bits_on_two_processes(tmp_path, two_workers):
    from distributed import Client

    path = stored(tmp_path, curve(900))
    cases = [(path, options) for options in WAYS[2:5]] + [(dask.array.from_zarr(path).rechunk((300, 5)), {})]
    here = [everything(x, **options) for x, options in cases]
    with Client(two_workers):
        there = [everything(x, **options) for x, options in cases]
    for one, other in zip(here, there, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_any_kind_of_input_gives_the_same(tmp_path, options):
    x = curve(900)
    np.save(tmp_path / "x.npy", x)
    numpy = everything(x, **options)
    labelled = xarray.DataArray(x, dims=("time", "place"))
    for given in (tmp_path / "x.npy", stored(tmp_path, x), labelled, dask.array.from_array(x, chunks=(250, 3))):
        *found, certificate = everything(given, **options)
        for one, other in zip(numpy[:-1], found, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-7, atol=1e-8)
        # It knows the length of the sums, which partitions decide.
        np.testing.assert_allclose(certificate, numpy[-1], rtol=1e-4, atol=1e-11)


def test_a_seed_chooses_landmarks_alone():
    x = curve(900)
    one, same, other = (KernelPCA(3, gamma=0.5, n_landmarks=60, random_state=s).fit(x) for s in (0, 0, 1))
    assert np.array_equal(one.weights_, same.weights_)
    assert not np.array_equal(one.landmarks_, other.landmarks_)
    np.testing.assert_allclose(one.eigenvalues_, other.eigenvalues_, rtol=0.02)
    known = {tuple(row) for row in x.tolist()}
    assert all(tuple(row) in known for row in np.round(one.landmarks_, 15).tolist()) or np.allclose(
        cdist(one.landmarks_, x).min(axis=1), 0, atol=1e-12
    )
    exact, again = (KernelPCA(3, gamma=0.5, random_state=s).fit(x) for s in (0, 1))
    assert np.array_equal(exact.weights_, again.weights_)


def test_certificates_hold_where_next_to_nothing_is_lost():
    # The true residual needs more digits than float64 has: the kernel in long double.
    x = np.random.default_rng(3).normal(size=(400, 3))
    wide = x.astype(np.longdouble)
    squares = ((wide[:, None] - wide[None]) ** 2).sum(axis=2)
    for gamma in (1e-3, 1e-2):
        model = KernelPCA(3, gamma=gamma, n_landmarks=60).fit(x)
        K = np.exp(-np.longdouble(gamma) * squares)
        L = np.exp(-np.longdouble(gamma) * ((wide[:, None] - model.landmarks_.astype(np.longdouble)[None]) ** 2).sum(2))
        M = model.landmarks_.astype(np.longdouble)
        LL = np.exp(-np.longdouble(gamma) * ((M[:, None] - M[None]) ** 2).sum(axis=2))
        W = model.weights_.astype(np.longdouble)
        mean = L.mean(axis=0)
        scores = (L - mean) @ W
        values = model.explained_variance_.astype(np.longdouble)
        # C v = sum_i z_i phi~(x_i) / (n - 1): the squared length of C v - lambda v from kernels alone.
        Kc = K - K.mean(axis=0) - K.mean(axis=0)[:, None] + K.mean()
        CC = np.einsum("ik,ij,jk->k", scores, Kc, scores) / 399**2
        Cv = np.einsum("ik,ik->k", scores, scores) / 399
        vv = np.einsum("lk,lm,mk->k", W, LL, W)
        residual = np.sqrt(np.maximum(CC - 2 * values * Cv + values**2 * vv, 0)) / values
        assert (residual <= model.certificate_).all(), (residual, model.certificate_)
        exact = np.linalg.eigvalsh(Kc.astype(float))[::-1][:3] / 399
        assert (exact <= model.explained_variance_ + model._fitted.lost_variance + 1e-14).all()


def test_results_do_not_depend_on_the_memory_limit():
    x = np.random.default_rng(0).normal(size=(600, 3000))
    limits = (400_000_000, 1_500_000_000)
    fits = [KernelPCA(3, gamma="median", n_landmarks=50, memory_limit=limit).fit(x) for limit in limits]
    assert fits[0].gamma_ == fits[1].gamma_
    assert np.array_equal(fits[0].landmarks_, fits[1].landmarks_)
    np.testing.assert_allclose(fits[0].eigenvalues_, fits[1].eigenvalues_, rtol=1e-9)


def test_gamma_does_not_depend_on_the_landmarks():
    x = curve(3000)
    gammas = {
        KernelPCA(3, gamma="median", n_landmarks=m, landmarks=choose).fit(x).gamma_
        for m, choose in ((50, "uniform"), (400, "uniform"), (50, "kmeans"), (50, "leverage"), (64, "fourier"))
    }
    assert len(gammas) == 1


def test_samples_much_larger_than_those_fitted_are_refused():
    x = points(200)
    for options in ({"kernel": "poly", "degree": 5, "gamma": 1.0}, {"landmarks": "fourier", "n_landmarks": 20}):
        model = KernelPCA(2, **options).fit(x)
        with pytest.raises(InputError, match="overflows on samples that are much larger"):
            model.transform(np.full((3, 5), 1e308))


# ---------------------------------------------------------------- passes and memory


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize(
    ("options", "sweeps"),
    [
        ({}, 1),
        ({"landmarks": "leverage"}, 2),
        ({"landmarks": "kmeans"}, 2),
        ({"landmarks": "fourier"}, 1),
        ({"scale": "unit"}, 2),
        ({"missing": "mean"}, 2),
        ({"fit_inverse_transform": True}, 2),
    ],
    ids=str,
)
def test_reads_are_as_few_as_said(options, sweeps):
    x = curve(2000)
    source = CountingSource(x, (16, 5))
    model = KernelPCA(3, gamma=0.5, n_landmarks=30, **options)
    model.fit(source)
    times = source.times_read()
    assert model.n_sweeps_ == sweeps
    # Rows of a sample are read once more, with the chunks that hold them.
    assert times.min() >= sweeps
    assert times.max() <= sweeps + 1
    source.reads.clear()
    model.fit_transform(source)
    assert model.n_sweeps_ == sweeps + 1
    assert source.times_read().max() <= sweeps + 2
    source.reads.clear()
    model.transform(source)
    assert source.times_read().min() == source.times_read().max() == 1


def test_chunks_without_a_drawn_row_are_read_once(monkeypatch):
    monkeypatch.setattr(models, "SAMPLE", 20)
    monkeypatch.setattr(models, "CHECKED", 10)
    monkeypatch.setattr(models, "LEAST_ROWS", 1)
    x = curve(4000)
    source = CountingSource(x, (10, 5))
    KernelPCA(3, gamma=0.5, n_landmarks=20).fit(source)
    times = source.times_read()[:, 0]
    assert times.min() == 1
    assert (times == 2).sum() <= 50 * 10
    assert times.max() == 2


def test_exact_components_need_one_read():
    source = CountingSource(points(200), (10, 5))
    model = KernelPCA(3).fit(source)
    assert source.times_read().min() == source.times_read().max() == 1
    assert model.n_sweeps_ == 0 or model.n_sweeps_ == 1


def test_too_little_memory_is_refused_before_reading_with_the_least_needed():
    source = UnreadableSource((10**6, 100), (10_000, 100))
    with pytest.raises(MemoryLimitError) as error:
        KernelPCA(10, n_landmarks=2000, memory_limit="300MB").fit(source)
    text = one_line(error)
    assert "kernel PCA with 2000 landmarks" in text
    assert "300 MB is allowed" in text
    least = int(text.split("use memory_limit='")[1].split("MB")[0])
    options = KernelPCAOptions(n_components=10, n_landmarks=2000)
    plan = models.plan_kernel_pca(source, options, memory=f"{least}MB")
    assert 100e6 < plan.peak_bytes <= least * 1e6
    # More landmarks need more.
    with pytest.raises(MemoryLimitError):
        models.plan_kernel_pca(source, KernelPCAOptions(n_components=10, n_landmarks=3000), memory=f"{least}MB")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        ("f4", ["--n-landmarks", 300]),
        ("f4", ["--n-landmarks", 1000, "--landmarks", "kmeans"]),
    ],
    ids=str,
)
def test_the_whole_process_keeps_to_the_limit(tmp_path, dtype, options):
    n = 60_000 if 300 in options else 8000
    rng = np.random.default_rng(0)
    array = zarr.create_array(tmp_path / "x.zarr", shape=(n, 32), chunks=(4000, 32), dtype=dtype)
    for i in range(0, n, 4000):
        array[i : i + 4000] = rng.standard_normal((4000, 32))
    peak, limit = peak_of("kpca", "x.zarr", *options, "--threads", 2, cwd=tmp_path)
    assert peak <= limit


# ---------------------------------------------------------------- awkward input


@pytest.mark.parametrize("m", [20, 60, 1000])
@pytest.mark.parametrize("choose", CHOICES)
def test_points_that_are_the_same(m, choose):
    x = np.repeat(points(12), 15, axis=0)
    model = KernelPCA(11, gamma=0.1, n_landmarks=m, landmarks=choose)
    scores = model.fit_transform(x)
    finite(model, scores)
    np.testing.assert_allclose(scores[::15], scores[14::15], atol=1e-9)
    # K-means finds all that differ; a draw may miss some.
    if m == 1000 or choose == "kmeans":
        exact = spectrum(rbf(0.1)(x, x))[:11]
        np.testing.assert_allclose(model.eigenvalues_, exact, rtol=1e-5)
    # More components than there are directions.
    model = KernelPCA(20, gamma=0.1, n_landmarks=m, landmarks=choose)
    finite(model, model.fit_transform(x))
    assert not model.eigenvalues_[11:].any()
    assert "components have variance above rounding" in model.advice_


@pytest.mark.parametrize("value", [0.0, 1e6 / 3, 1e-30])
@pytest.mark.parametrize(("m", "choose"), [(1000, "uniform"), *((10, choose) for choose in CHOICES)])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly", "laplacian", "cosine", "sigmoid"])
def test_constant_data_are_refused(value, m, kernel, choose):
    x = np.full((50, 4), value)
    with pytest.raises(InputError) as error:
        KernelPCA(2, kernel=kernel, gamma=0.1, n_landmarks=m, landmarks=choose).fit(x)
    assert one_line(error)


@pytest.mark.parametrize("gamma", ["scale", "median"])
def test_constant_data_have_no_gamma(gamma):
    with pytest.raises(InputError, match="give gamma as a number"):
        KernelPCA(2, gamma=gamma).fit(np.full((50, 4), 2.0))


@pytest.mark.parametrize("k", [1, 4, None])
@pytest.mark.parametrize("m", [50, 1000])
def test_a_gamma_so_large_that_no_two_samples_are_alike(m, k):
    model = KernelPCA(k, gamma=1e6, n_landmarks=m)
    scores = model.fit_transform(points(200))
    finite(model, scores)
    assert "gamma=1e+06 may be too large" in model.advice_


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("m", [60, 1000])
@pytest.mark.parametrize("gamma", [1e-3, 1e-6, 1e-9, 1e-11, 1e-14, 1e-30])
def test_a_gamma_so_small_that_all_samples_are_alike(gamma, m, dtype):
    """The numbers are right, or it says that there are none. By expm1, which rounding spares; k = 1 + expm1."""
    x = points(300, dtype=dtype)
    model = KernelPCA(3, gamma=gamma, n_landmarks=m)
    if gamma < 1e-12:
        with pytest.raises(InputError, match="gamma is much too small"):
            model.fit(x)
        return
    scores = model.fit_transform(x)
    finite(model, scores)
    exact = spectrum(np.expm1(-gamma * cdist(*[x.astype(float)] * 2, "sqeuclidean")))[:3]
    np.testing.assert_allclose(model.eigenvalues_, exact, rtol=1e-4 if m == 1000 else 1e-3)
    assert "may be too large" not in model.advice_
    assert "not positive" not in model.advice_


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian", "cosine"])
def test_two_samples(kernel):
    x = np.array([[0.0, 1, 2], [2, 1, 1]])
    model = KernelPCA(2, kernel=kernel, gamma=0.1)
    scores = model.fit_transform(x)
    finite(model, scores)
    theirs = SklearnKernelPCA(1, kernel="precomputed", eigen_solver="dense")
    K = pairwise.pairwise_kernels(x, metric=kernel, **({} if kernel in ("linear", "cosine") else {"gamma": 0.1}))
    assert_same_up_to_sign(scores[:, :1], theirs.fit_transform(K))
    assert not scores[:, 1].any()
    for choose in CHOICES:
        model = KernelPCA(1, kernel=kernel, gamma=0.1, n_landmarks=2, landmarks=choose)
        assert_same_up_to_sign(model.fit_transform(x), scores[:, :1])


def test_fourier_features_out_of_the_range_of_float32_are_fitted_in_float64(caplog):
    x = np.random.default_rng(0).standard_normal((200, 5)).astype(np.float32)
    with caplog.at_level("INFO", logger="streampca"):
        model = KernelPCA(2, gamma=1e-34, landmarks="fourier", n_landmarks=200).fit(x)
    assert "values are out of the range of float32 tiles; restarting in float64" in caplog.messages
    assert model.n_sweeps_ == 2
    assert (model.explained_variance_ > 0).all()


def test_two_samples_have_fourier_features():
    model = KernelPCA(1, gamma=0.1, landmarks="fourier", n_landmarks=1000)
    scores = model.fit_transform(np.array([[0.0, 1, 2], [2, 1, 1]]))
    assert np.isfinite(scores).all()
    assert model.eigenvalues_[0] == pytest.approx(1 - np.exp(-0.5), abs=0.05)


@pytest.mark.parametrize("m", [30, 1000])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly", "linear"])
def test_one_feature(kernel, m):
    x = points(150, 1)
    model = KernelPCA(3, kernel=kernel, gamma=0.3, n_landmarks=m)
    scores = model.fit_transform(x)
    finite(model, scores)
    exact = spectrum(pairwise.pairwise_kernels(x, metric=kernel, filter_params=True, gamma=0.3))[:3]
    np.testing.assert_allclose(model.eigenvalues_, exact, rtol=0.05, atol=1e-9 * exact[0])


@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_as_many_components_as_there_can_be(choose, dtype):
    x = points(80, dtype=dtype)
    for k, m in ((80, 80), (80, 1000), (20, 20), (None, 20)):
        model = KernelPCA(k, gamma=0.1, n_landmarks=m, landmarks=choose)
        scores = model.fit_transform(x)
        finite(model, scores)
        assert scores.shape == (80, k or 20)
        # Rows of all components are as far apart as the projections on the landmarks are.
        dense = Dense(x.astype(float), model.landmarks_, rbf(0.1))
        np.testing.assert_allclose(pdist(scores), pdist(dense.phi), atol=1e-3)


@pytest.mark.parametrize(("dtype", "within"), [(np.float64, 1e-7), (np.float32, 1e-5)])
@pytest.mark.parametrize("m", [60, 1000])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_huge_means_cost_no_digits(kernel, m, dtype, within):
    # Exact in float32 about 10^6.
    x = np.round(points(300) * 16) / 16
    far, near = (KernelPCA(3, kernel=kernel, gamma=0.1, n_landmarks=m) for _ in range(2))
    far_scores, scores = far.fit_transform((x + 1e6).astype(dtype)), near.fit_transform(x.astype(dtype))
    np.testing.assert_allclose(far.eigenvalues_, near.eigenvalues_, rtol=within)
    assert_same_up_to_sign(far_scores, scores, 10 * within)
    assert_same_up_to_sign(far.transform((x + 1e6).astype(dtype)), scores, 10 * within)


@pytest.mark.parametrize("m", [30, 60, 150, 1000])
@pytest.mark.parametrize("gamma", [0.01, 0.1, 0.5])
def test_float32_values_have_the_components_of_the_same_values_in_float64(m, gamma):
    x = points(300, dtype=np.float32)
    single, double = (KernelPCA(3, gamma=gamma, n_landmarks=m).fit(given) for given in (x, x.astype(float)))
    np.testing.assert_allclose(single.eigenvalues_, double.eigenvalues_, rtol=1e-3)
    assert single.kept_trace_ == pytest.approx(double.kept_trace_, rel=1e-3)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("m", [60, 1000])
@pytest.mark.parametrize("shift", [1e4, 1e6])
def test_huge_means_of_the_linear_kernel(m, dtype, shift):
    x = (np.round(points(300) * 16) / 16 + shift).astype(dtype)
    exact = PCA(3).fit(x).explained_variance_
    try:
        model = KernelPCA(3, kernel="linear", n_landmarks=m).fit(x)
    except InputError:
        return
    finite(model)
    np.testing.assert_allclose(model.explained_variance_, exact, rtol=1e-4)


@pytest.mark.parametrize("m", [60, 1000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_of_very_different_scale(m, dtype):
    x = (points(300) * 10.0 ** np.array([-20, -3, 0, 3, 6])).astype(dtype)
    for kernel in ("rbf", "laplacian", "linear", "cosine"):
        model = KernelPCA(3, kernel=kernel, gamma="scale", n_landmarks=m)
        scores = model.fit_transform(x)
        finite(model, scores)
        options = {} if kernel in ("linear", "cosine") else {"gamma": model.gamma_}
        exact = spectrum(pairwise.pairwise_kernels(x.astype(float), metric=kernel, **options))[:3]
        assert (model.eigenvalues_ <= exact * (1 + 1e-4) + 1e-9 * exact[0]).all()
        assert model.eigenvalues_[0] == pytest.approx(exact[0], rel=0.05)
    unit = KernelPCA(3, scale="unit", n_landmarks=m).fit(x)
    standard = x / x.std(axis=0, ddof=1, dtype=float)
    same = KernelPCA(3, gamma=unit.gamma_, n_landmarks=m).fit(standard)
    np.testing.assert_allclose(unit.eigenvalues_, same.eigenvalues_, rtol=1e-4)


@pytest.mark.parametrize("m", [40, 1000])
@pytest.mark.parametrize("choose", CHOICES)
def test_rows_of_zeros_with_cosine(m, choose):
    x = points(200)
    x[::3] = 0
    model = KernelPCA(3, kernel="cosine", n_landmarks=m, landmarks=choose)
    scores = model.fit_transform(x)
    finite(model, scores)
    exact = spectrum(pairwise.cosine_similarity(x))[:3]
    np.testing.assert_allclose(model.eigenvalues_, exact, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("m", [40, 1000, "auto"])
@pytest.mark.parametrize("choose", CHOICES)
def test_kernels_that_overflow_are_refused(m, choose, dtype):
    x = (points(200) * 1e6).astype(dtype)
    with pytest.raises(InputError) as error:
        KernelPCA(2, kernel="poly", degree=50, gamma=1.0, n_landmarks=m, landmarks=choose).fit(x)
    assert "scale='unit'" in one_line(error)


@pytest.mark.parametrize("choose", CHOICES)
def test_a_kernel_that_overflows_on_one_sample_is_refused(choose):
    x = points(1500)
    x[7] = 1e100
    for n_landmarks in (40, "auto"):
        with pytest.raises(InputError) as error:
            KernelPCA(2, kernel="poly", degree=5, gamma=1.0, n_landmarks=n_landmarks, landmarks=choose).fit(x)
        assert "scale='unit'" in one_line(error)


@pytest.mark.parametrize(("value", "dtype"), [(np.nan, np.float32), (np.inf, np.float32), (np.nan, np.float64)])
@pytest.mark.parametrize(("m", "choose"), [(1000, "uniform"), *((40, choose) for choose in CHOICES)])
def test_values_that_are_no_numbers_are_refused_with_their_place(value, m, dtype, choose):
    x = points(300, dtype=dtype)
    x[7, 2] = value
    with pytest.raises(InputError) as error:
        KernelPCA(2, n_landmarks=m, landmarks=choose).fit(x)
    text = one_line(error)
    assert "sample 7, feature 2" in text
    assert "PPCA can: `impute`" in text or np.isinf(value)
    model = KernelPCA(2, n_landmarks=m, landmarks=choose).fit(points(300, dtype=dtype))
    for act in (model.transform, model.denoise):
        with pytest.raises(InputError, match="sample 7, feature 2"):
            act(x)
    lazy = dask.array.from_array(x, chunks=(100, 5))
    with pytest.raises(InputError):
        model.transform(lazy).compute()


@pytest.mark.parametrize("m", [40, 1000])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_missing_values_stand_at_the_mean(m, kernel):
    x = points(300)
    x[np.random.default_rng(3).random(x.shape) < 0.1] = np.nan
    filled = np.where(np.isnan(x), np.nanmean(x, axis=0), x)
    model = KernelPCA(3, kernel=kernel, gamma=0.1, n_landmarks=m, missing="mean")
    other = KernelPCA(3, kernel=kernel, gamma=0.1, n_landmarks=m)
    assert_same_up_to_sign(model.fit_transform(x), other.fit_transform(filled), 1e-9)
    np.testing.assert_allclose(model.eigenvalues_, other.eigenvalues_, rtol=1e-9)
    assert_same_up_to_sign(model.transform(x), other.transform(filled), 1e-9)
    lazy = model.transform(dask.array.from_array(x, chunks=(100, 5))).compute()
    np.testing.assert_allclose(lazy, model.transform(x), atol=1e-9)
    infinite = x.copy()
    infinite[0, 0] = np.inf
    with pytest.raises(InputError, match="infinite"):
        model.fit(infinite)


@pytest.mark.parametrize("m", [40, 1000])
def test_constant_features_at_unit_scale(m):
    x = points(300)
    x[:, 2] = 1e6 / 3
    model = KernelPCA(3, gamma=0.1, scale="unit", n_landmarks=m)
    scores = model.fit_transform(x)
    finite(model, scores)
    rest = np.delete(x, 2, axis=1)
    other = KernelPCA(3, gamma=0.1, scale="unit", n_landmarks=m)
    assert_same_up_to_sign(scores, other.fit_transform(rest), 1e-9)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, bool, np.float16])
@pytest.mark.parametrize("m", [60, 1000])
def test_any_type_of_numbers(dtype, m):
    x = np.round(points(300) * 2 + 4).clip(0, 20)
    x = (x > 5) if dtype is bool else x.astype(dtype)
    model, wide = KernelPCA(3, gamma=0.1, n_landmarks=m), KernelPCA(3, gamma=0.1, n_landmarks=m)
    # Of few distinct values, those that round alike add up.
    within = 1e-3 if dtype is bool else 1e-4
    assert_same_up_to_sign(model.fit_transform(x), wide.fit_transform(x.astype(float)), within)
    np.testing.assert_allclose(model.eigenvalues_, wide.eigenvalues_, rtol=within)


def test_a_kernel_that_is_not_positive_is_told():
    model = KernelPCA(3, kernel="sigmoid", gamma=1.0, coef0=-1).fit(points(200))
    assert "the kernel is not positive" in model.advice_
    assert (model.eigenvalues_ >= 0).all()


# ---------------------------------------------------------------- labelled data


def cube():
    x = points(240, 6).reshape(12, 20, 2, 3)
    coords = {"time": np.arange(12) * 10, "place": [f"p{i}" for i in range(20)]}
    return xarray.DataArray(x, dims=("time", "place", "y", "x"), coords=coords)


def test_samples_of_several_dimensions_keep_them():
    given = cube()
    model = KernelPCA(3, gamma=0.1, n_landmarks=50)
    scores = model.fit_transform(given, sample_dims=("time", "place"))
    assert scores.dims == ("time", "place", "component")
    assert list(scores["place"].values[:2]) == ["p0", "p1"]
    plain = KernelPCA(3, gamma=0.1, n_landmarks=50).fit_transform(given.values.reshape(240, 6))
    np.testing.assert_allclose(scores.values.reshape(240, 3), plain, atol=1e-12)
    turned = model.transform(given.transpose("x", "time", "y", "place"))
    np.testing.assert_allclose(turned.transpose("time", "place", "component").values, scores.values, atol=1e-12)
    result = model.result_
    assert result["landmarks"].dims[1:] == ("y", "x")
    assert result["scores"].dims == ("time", "place", "component")
    np.testing.assert_allclose(result["landmarks"].values.reshape(50, 6), model.landmarks_)
    assert result.attrs["kind"] == "kpca"


# ---------------------------------------------------------------- random Fourier features


@pytest.mark.parametrize(("dtype", "within"), [(np.float64, 1e-9), (np.float32, 1e-4)])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_fourier_features_come_near_the_exact_components(kernel, dtype, within):
    x, fresh = curve(400, dtype=dtype), curve(50, seed=1, dtype=dtype)
    K = pairwise.pairwise_kernels(x.astype(float), metric=kernel, gamma=0.5)
    exact, errors = spectrum(K)[:3], []
    for m in (20, 160, 1000):
        model = KernelPCA(3, kernel=kernel, gamma=0.5, landmarks="fourier", n_landmarks=m)
        scores = model.fit_transform(x)
        errors.append(np.abs(model.eigenvalues_ / exact - 1).max())
        assert (np.isnan(model.kept_trace_), np.isnan(model.kept_variance_)) == (True, True)
        assert model.landmarks_.shape == (m // 2, 5)
        assert model.weights_.shape == (m, 3)

        # The frequencies are of centred inputs.
        def features(given, model=model, m=m):
            phases = (given.astype(float) - model._fitted.mean) @ model.landmarks_.T
            return np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(m // 2)

        F = features(x)
        middle = F - F.mean(axis=0)
        dense = np.linalg.eigvalsh(middle @ middle.T / 399)[::-1][:3]
        np.testing.assert_allclose(model.explained_variance_, dense, rtol=within)
        for given, found in ((x, scores), (fresh, model.transform(fresh))):
            expected = (features(given) - F.mean(axis=0)) @ model.weights_
            np.testing.assert_allclose(found, expected, atol=within)
    assert errors[2] < errors[0] / 2
    assert errors[2] < 0.15
    assert "random Fourier features approximate the kernel" in model._fitted.notes[0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_many_fourier_features_go_through_krylov(monkeypatch, dtype):
    x = curve(500, dtype=dtype)
    dense = KernelPCA(3, gamma=0.5, landmarks="fourier", n_landmarks=300)
    expected = dense.fit_transform(x)
    monkeypatch.setattr(models, "LARGEST_COVARIANCE", 100)
    krylov = KernelPCA(3, gamma=0.5, landmarks="fourier", n_landmarks=300)
    scores = krylov.fit_transform(x)
    assert krylov.n_sweeps_ > dense.n_sweeps_
    assert np.array_equal(krylov.landmarks_, dense.landmarks_)
    np.testing.assert_allclose(krylov.eigenvalues_, dense.eigenvalues_, rtol=1e-5)
    assert_same_up_to_sign(scores, expected, 1e-2)
    assert (krylov.certificate_ <= 1e-3).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("gamma", [1e-3, 1e-6, 1e-9, 1e-14])
def test_fourier_features_of_a_small_gamma(gamma, dtype):
    """These are nearly linear: sin(w'x) is w'x."""
    x = points(300, dtype=dtype)
    model = KernelPCA(3, gamma=gamma, landmarks="fourier", n_landmarks=600)
    scores = model.fit_transform(x)
    assert np.isfinite(scores).all()
    assert np.isfinite(model.certificate_).all()
    exact = spectrum(np.expm1(-gamma * cdist(*[x.astype(float)] * 2, "sqeuclidean")))[:3]
    np.testing.assert_allclose(model.eigenvalues_, exact, rtol=0.3)


def test_an_odd_number_of_fourier_features_is_one_more():
    model = KernelPCA(2, gamma=0.5, landmarks="fourier", n_landmarks=31).fit(curve(100))
    assert model.n_landmarks_ == 32


# ---------------------------------------------------------------- scikit-learn's contract


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_landmarks": 5, "n_components": 2},
        {"landmarks": "fourier", "n_landmarks": 20, "n_components": 1},
    ],
    ids=str,
)
def test_scikit_learns_own_checks_pass(options):
    results = check_estimator(KernelPCA(**options), on_skip=None, on_fail=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert not failed
    assert sum(result["status"] == "passed" for result in results) > 35


def test_pipelines_names_and_clones():
    x, y = points(200), np.arange(200) % 2
    x[y == 0] *= 3
    pipeline = make_pipeline(StandardScaler(), KernelPCA(6, gamma=0.2), LogisticRegression())
    assert pipeline.fit(x, y).score(x, y) > 0.7
    search = GridSearchCV(pipeline, {"kernelpca__gamma": [0.1, 0.5], "kernelpca__kernel": ["rbf", "laplacian"]}, cv=2)
    search.fit(x, y)
    model = KernelPCA(3, kernel=pairwise.chi2_kernel, n_landmarks=7, fit_inverse_transform=True)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        model.transform(x)
    names = KernelPCA(3).fit(x).get_feature_names_out()
    assert list(names) == ["kernelpca0", "kernelpca1", "kernelpca2"]
    with pytest.raises(InputError, match="5 features"):
        KernelPCA(3).fit(x).transform(CountingSource(x[:, :4], (10, 4)))
    frame = KernelPCA(2, gamma=0.1).set_output(transform="pandas").fit_transform(x) if _has_pandas() else None
    assert frame is None or list(frame.columns) == ["kernelpca0", "kernelpca1"]


def _has_pandas():
    try:
        import pandas  # noqa: F401
    except ImportError:
        return False
    return True


def test_dask_in_gives_lazy_dask_out():
    x = curve(600)
    lazy = dask.array.from_array(x, chunks=(170, 2))
    model = KernelPCA(3, gamma=0.5, n_landmarks=40)
    scores = model.fit_transform(lazy)
    assert isinstance(scores, dask.array.Array)
    assert scores.shape == (600, 3)
    np.testing.assert_allclose(scores.compute(), model.transform(x), atol=1e-10)


def test_advice_is_empty_where_all_is_well():
    assert KernelPCA(3, gamma=0.5, n_landmarks=100).fit(curve(500)).advice_ == ""
    assert KernelPCA(gamma=0.5).fit(points(100)).advice_ == ""
