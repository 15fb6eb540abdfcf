"""Pre-images: exact for the linear kernel, fixed points of rbf, a ridge map for any; and denoising by way of them."""

from __future__ import annotations

import dask.array
import numpy as np
import pytest
import xarray
from helpers import CountingSource, one_line
from scipy.spatial.distance import cdist, pdist
from sklearn.decomposition import KernelPCA as SklearnKernelPCA

from streampca import PCA, InputError, KernelPCA
from streampca.models.kernel_pca import preimages
from streampca.models.kernel_pca.preimages import fixed_point, pre_images
from streampca.solvers.kernel.kernels import Kernel


def points(n=240, d=5, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, d)) * np.linspace(2, 0.5, d) + 1).astype(dtype)


def curve(n=300, noise=0.0, seed=0, dtype=np.float64):
    """Points near a curve of one parameter in five dimensions."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0, 6, n)
    x = np.c_[np.cos(t), np.sin(t), t / 3, np.cos(2 * t), np.sin(2 * t)]
    return (x + noise * rng.standard_normal((n, 5))).astype(dtype)


def rbf(gamma, x, y):
    return np.exp(-gamma * cdist(x, y, "sqeuclidean"))


# ---------------------------------------------------------------- linear


@pytest.mark.parametrize("m", [40, 1000])
@pytest.mark.parametrize("scale", [None, "unit"])
@pytest.mark.parametrize(("dtype", "within"), [(np.float64, 1e-9), (np.float32, 1e-4)])
def test_the_linear_kernel_gives_back_what_pca_gives(m, scale, dtype, within):
    x, fresh = points(dtype=dtype), points(30, seed=1, dtype=dtype)
    pca = PCA(3, scale=scale).fit(x)
    expected = pca.inverse_transform(pca.transform(fresh))
    model = KernelPCA(3, kernel="linear", n_landmarks=m, scale=scale).fit(x)
    found = model.inverse_transform(model.transform(fresh))
    np.testing.assert_allclose(found, expected, atol=within * 10)
    np.testing.assert_allclose(model.denoise(fresh), expected, atol=within * 10)
    whole = KernelPCA(5, kernel="linear", n_landmarks=m, scale=scale).fit(x)
    np.testing.assert_allclose(whole.inverse_transform(whole.transform(fresh)), fresh, atol=within * 10)


# ---------------------------------------------------------------- fixed points


@pytest.mark.parametrize("m", [40, 1000])
@pytest.mark.parametrize("scale", [None, "unit"])
def test_a_landmark_with_all_components_comes_back_to_itself(m, scale):
    x = points(200)
    model = KernelPCA(gamma=0.5, n_landmarks=m, scale=scale).fit(x)
    found = model.inverse_transform(model.transform(model.landmarks_))
    np.testing.assert_allclose(found, model.landmarks_, atol=2e-3)
    np.testing.assert_allclose(model.denoise(model.landmarks_), model.landmarks_, atol=2e-3)


@pytest.mark.parametrize("m", [40, 1000])
def test_the_fixed_point_equation_holds(m):
    x = curve(noise=0.1)
    model = KernelPCA(4, gamma=0.5, n_landmarks=m).fit(x)
    scores = model.transform(x)
    L = model.landmarks_
    # The mean in feature space, as a sum of landmarks, has the same products with all of them as that of the samples.
    K = rbf(0.5, L, L)
    mean_weights = np.linalg.lstsq(K, rbf(0.5, L, x).mean(axis=1), rcond=1e-12)[0]
    weights = scores @ model.weights_.T + mean_weights
    for found in (model.inverse_transform(scores), model.denoise(x)):
        pull = weights * rbf(0.5, found, L)
        sound = pull.sum(axis=1) > 1e-6 * np.abs(pull).sum(axis=1)
        assert sound.mean() > 0.95
        moved = (pull @ L / pull.sum(axis=1)[:, None])[sound]
        # A step is shorter than a hundredth of a percent of the width of the kernel, 1 / sqrt(gamma).
        assert np.linalg.norm(moved - found[sound], axis=1).max() < 1e-3


def test_a_fixed_point_is_where_the_image_is_nearest():
    """It is a stationary point of the squared distance in feature space: -2 sum_l c_l k(x, l) + constant."""
    x = curve(noise=0.1)
    model = KernelPCA(4, gamma=0.5).fit(x)
    scores = model.transform(x[:20])
    found = model.inverse_transform(scores)
    weights = scores @ model.weights_.T + 1 / len(x)

    def distance(y):
        return -(weights * rbf(0.5, y, x)).sum(axis=1)

    rng = np.random.default_rng(0)
    for _ in range(20):
        step = rng.standard_normal(found.shape) * 0.02
        assert (distance(found + step) >= distance(found) - 1e-5).all()


def test_weights_that_cancel_leave_a_sample_where_it_is():
    landmarks = np.array([[0.0, 0.0], [1.0, 0.0]])
    start = np.array([[0.5, 3.0], [0.2, 0.0], [0.3, 0.4]])
    weights = np.array([[1.0, -1.0], [-1.0, -1.0], [1.0, 1.0]])
    found = fixed_point(Kernel("rbf", 1.0), landmarks, weights, start)
    np.testing.assert_array_equal(found[:2], start[:2])
    assert not np.array_equal(found[2], start[2])
    assert np.isfinite(found).all()
    far = fixed_point(Kernel("rbf", 1e8), landmarks, np.ones((1, 2)), np.array([[50.0, 50.0]]))
    np.testing.assert_array_equal(far, [[50.0, 50.0]])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("m", [50, 1000])
def test_noise_about_a_curve_is_taken_off(m, dtype):
    clean = curve(900)
    rng = np.random.default_rng(5)
    noisy = (clean + 0.15 * rng.standard_normal(clean.shape)).astype(dtype)
    model = KernelPCA(8, gamma=0.5, n_landmarks=m).fit(noisy)
    found = model.denoise(noisy)
    assert np.isfinite(found).all()
    before, after = (np.square(y - clean).mean() for y in (noisy, found))
    assert after < 0.6 * before


def test_denoising_starts_from_the_sample_itself():
    x = curve(noise=0.1)
    model = KernelPCA(4, gamma=0.5, n_landmarks=60).fit(x)
    scores = model.transform(x)
    centre = model._fitted.mean
    expected = pre_images(model._fitted, scores, x - centre) + centre
    np.testing.assert_allclose(model.denoise(x), expected, atol=1e-9)
    source = CountingSource(x, (20, 5))
    np.testing.assert_allclose(model.denoise(source), expected, atol=1e-9)
    assert source.times_read().min() == source.times_read().max() == 1
    lazy = dask.array.from_array(x, chunks=(70, 2))
    np.testing.assert_allclose(model.denoise(lazy), expected, atol=1e-9)


def test_far_away_and_huge_means_have_pre_images():
    x = np.round(curve(noise=0.1) * 64) / 64
    near, far = KernelPCA(4, gamma=0.5).fit(x), KernelPCA(4, gamma=0.5).fit(x + 1e6)
    np.testing.assert_allclose(far.denoise(x + 1e6) - 1e6, near.denoise(x), atol=1e-3)
    away = near.denoise(x[:3] + 1e3)
    assert np.isfinite(away).all()


# ---------------------------------------------------------------- the ridge map


@pytest.mark.usefixtures("small_partitions")
@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "poly", "gamma": 0.2, "degree": 2},
        {"kernel": "laplacian", "gamma": 0.2},
        {"kernel": "rbf", "gamma": 0.5},
        {"kernel": "rbf", "gamma": 0.5, "landmarks": "fourier"},
        {"kernel": "cosine"},
        {"kernel": lambda a, b: (a @ b.T + 1) ** 2},
    ],
    ids=lambda options: str(options.get("landmarks", options["kernel"]))[:10],
)
@pytest.mark.parametrize("alpha", [1e-3, 1.0])
def test_the_ridge_map_is_the_solution_of_its_equations(options, alpha):
    x = points(300)
    # So many that the anchors are all of different directions; cosines have five.
    k = 5 if options["kernel"] == "cosine" else 10
    model = KernelPCA(k, n_landmarks=30, fit_inverse_transform=True, alpha=alpha, **options)
    scores = model.fit_transform(x)
    ridge = model._fitted.ridge
    anchors = ridge.anchors
    if options.get("landmarks") != "fourier":
        np.testing.assert_allclose(anchors, model.transform(model.landmarks_), atol=1e-9)
    gamma = 1 / (2 * np.median(pdist(anchors)) ** 2)
    assert ridge.gamma == pytest.approx(gamma, rel=1e-9)
    Knq, Kqq = rbf(gamma, scores, anchors), rbf(gamma, anchors, anchors)
    offset = ridge.offset + model._fitted.mean
    left = np.vstack([Knq, np.sqrt(alpha) * np.linalg.cholesky(Kqq + 1e-12 * np.eye(len(Kqq))).T])
    right = np.vstack([x - offset, np.zeros((len(Kqq), 5))])
    expected = Knq @ np.linalg.lstsq(left, right, rcond=None)[0] + offset
    found = model.inverse_transform(scores)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    np.testing.assert_allclose(model.denoise(x), found, atol=1e-8)


def test_the_ridge_map_of_all_samples_is_near_that_of_scikit_learn():
    x = curve(200)
    theirs = SklearnKernelPCA(5, kernel="rbf", gamma=0.5, fit_inverse_transform=True, alpha=1e-3, eigen_solver="dense")
    expected = theirs.inverse_transform(theirs.fit_transform(x))
    ours = KernelPCA(5, gamma=0.5, fit_inverse_transform=True, alpha=1e-3)
    found = ours.inverse_transform(ours.fit_transform(x))
    assert np.square(found - x).mean() < 2 * np.square(expected - x).mean() + 1e-4


@pytest.mark.parametrize("options", [{"kernel": "poly", "gamma": 0.3}, {"kernel": "laplacian", "gamma": 0.2}], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [None, "unit"])
def test_many_components_give_the_samples_back(options, dtype, scale):
    x = curve(500, dtype=dtype)
    errors = []
    for k in (2, 20):
        model = KernelPCA(k, n_landmarks=100, fit_inverse_transform=True, alpha=1e-4, scale=scale, **options)
        found = model.inverse_transform(model.fit_transform(x))
        errors.append(np.square(found - x).mean() / x.var())
    assert errors[1] < errors[0]
    assert errors[1] < 0.01


def test_no_more_anchors_than_allowed(monkeypatch):
    monkeypatch.setattr(preimages, "MOST_ANCHORS", 12)
    model = KernelPCA(3, kernel="laplacian", gamma=0.2, fit_inverse_transform=True).fit(points(100))
    assert model._fitted.ridge.anchors.shape == (12, 3)


@pytest.mark.parametrize("m", [8, 20, 1000])
@pytest.mark.parametrize("choose", ["uniform", "kmeans"])
def test_samples_that_are_the_same_have_a_ridge_map(m, choose):
    """More than half of all pairs are the same: their median distance is zero."""
    x = np.repeat([[0.0, 1, 2], [1, 0, 0], [2, 2, 1]], [180, 10, 10], axis=0)
    model = KernelPCA(2, kernel="laplacian", gamma=0.5, n_landmarks=m, landmarks=choose, fit_inverse_transform=True)
    model.fit(x)
    assert np.isfinite(model.inverse_transform(model.transform(x))).all()


# ---------------------------------------------------------------- what is refused

WITHOUT = {
    "poly": {"kernel": "poly"},
    "laplacian": {"kernel": "laplacian"},
    "cosine": {"kernel": "cosine"},
    "sigmoid": {"kernel": "sigmoid", "gamma": 0.01},
    "fourier": {"landmarks": "fourier", "n_landmarks": 40},
    "callable": {"kernel": lambda a, b: a @ b.T},
}


@pytest.mark.parametrize("name", WITHOUT)
def test_kernels_without_a_pre_image_are_refused_with_the_cure(name):
    x = points()
    model = KernelPCA(3, **WITHOUT[name]).fit(x)
    for act in (lambda: model.inverse_transform(model.transform(x)), lambda: model.denoise(x)):
        with pytest.raises(InputError) as error:
            act()
        assert "fit_inverse_transform=True" in one_line(error)


def test_wrong_shapes_are_refused():
    x = points()
    model = KernelPCA(3).fit(x)
    for scores in (np.zeros((5, 2)), np.zeros(3), np.zeros((2, 2, 3))):
        with pytest.raises(InputError, match="samples x 3 components"):
            model.inverse_transform(scores)
    for bad in (x[:, :4], CountingSource(x[:, :4], (10, 4))):
        with pytest.raises(ValueError, match="features"):
            model.denoise(bad)
    assert model.inverse_transform(np.zeros((0, 3))).shape == (0, 5)


# ---------------------------------------------------------------- labelled


@pytest.mark.parametrize("options", [{}, {"kernel": "laplacian", "fit_inverse_transform": True}], ids=["rbf", "ridge"])
def test_labelled_in_labelled_out(options):
    x = points(120, 6).reshape(10, 12, 2, 3)
    coords = {"time": np.arange(10) * 5, "y": [10.0, 20.0]}
    given = xarray.DataArray(x, dims=("time", "place", "y", "x"), coords=coords)
    model = KernelPCA(3, gamma=0.1, n_landmarks=40, **options)
    scores = model.fit_transform(given, sample_dims=("time", "place"))
    plain = KernelPCA(3, gamma=0.1, n_landmarks=40, **options).fit(x.reshape(120, 6))
    back, denoised = model.inverse_transform(scores), model.denoise(given)
    for found in (back, denoised):
        assert found.dims == ("time", "place", "y", "x")
        assert list(found["y"].values) == [10, 20]
        assert list(found["time"].values[:2]) == [0, 5]
    np.testing.assert_allclose(denoised.values.reshape(120, 6), plain.denoise(x.reshape(120, 6)), atol=1e-9)
    expected = plain.inverse_transform(plain.transform(x.reshape(120, 6)))
    np.testing.assert_allclose(back.values.reshape(120, 6), expected, atol=1e-9)
    one = model.inverse_transform(scores.isel(time=0))
    assert one.dims == ("place", "y", "x")
    np.testing.assert_allclose(one.values, back.values[0], atol=1e-9)
