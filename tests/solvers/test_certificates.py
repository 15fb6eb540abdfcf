"""Certificates are measured: they bound the true residual whatever the data and however products are rounded."""

import dask.array
import numpy as np
import pytest
from helpers import Reference, falling, matrix_with_spectrum, true_residual

from streampca import PCA
from streampca.errors import Stopped
from streampca.models.pca.fit import fit_pca
from streampca.models.pca.options import PCAOptions
from streampca.solvers import dense
from streampca.solvers.certificate import MARGIN, PROBES, Errors, Probe, certify, draw_probes
from streampca.solvers.krylov import Krylov
from streampca.sources import open_source
from streampca.sweep.checkpoint import Checkpoint
from streampca.sweep.statistics import Probed, ProbedRows, Product, ProductAndRows, Scatter, centred_parts


@pytest.fixture(autouse=True)
def float32_scatters(monkeypatch):
    """Sum small matrices in float32, too, as large ones are."""
    monkeypatch.setattr(dense, "FLOAT64_ORDER", 0)


def rare(n):
    rng = np.random.default_rng(5)
    return ((rng.random((n, 3)) < [1e-3, 2e-4, 1e-4]) * [200, 40, 200]).astype(np.float32)


def heavy(n):
    return np.random.default_rng(1).pareto(1.5, (n, 3)).astype(np.float32)


def flags(n):
    return (np.random.default_rng(2).random((n, 6)) < 0.3).astype(np.float32) * np.float32(0.1)


def spiky(n):
    x = np.random.default_rng(3).standard_normal((n, 4)).astype(np.float32)
    x[:: n // 20] *= 1e4
    return x


DATA = {"rare": rare, "heavy": heavy, "flags": flags, "spiky": spiky}


def assert_certified(model, x, scale=None):
    wide = np.asarray(x).astype(np.longdouble)
    centred = wide - wide.mean(axis=0)
    if scale == "unit":
        centred = centred / np.sqrt((centred**2).sum(axis=0) / (len(x) - 1))
    reference = Reference(centred, None, None)
    residual = true_residual(reference, model.components_, model.explained_variance_)
    assert (residual <= model.certificate_).all()
    # Components that are noise need not reach tol.
    noise = np.zeros(len(residual), bool) if model.noise_ is None else model.noise_
    assert not model.converged_ or (residual <= np.where(noise, 0.05, model.tol)).all()


@pytest.mark.parametrize("tol", [1e-3, 1e-7])
@pytest.mark.parametrize("solver", ["covariance", "krylov", "power"])
@pytest.mark.parametrize("name", DATA)
def test_data_that_round_in_one_direction_are_under_the_certificate(name, solver, tol):
    x = DATA[name](60_000)
    assert_certified(PCA(2, solver=solver, tol=tol).fit(x), x)


@pytest.mark.parametrize("solver", ["gram", "krylov"])
@pytest.mark.parametrize("name", DATA)
def test_wide_data_that_round_in_one_direction_are_under_the_certificate(name, solver):
    x = np.ascontiguousarray(DATA[name](12_000).reshape(-1, 300).T[:120])
    assert_certified(PCA(3, solver=solver).fit(x), x)


@pytest.mark.parametrize("name", DATA)
def test_merged_float32_scatters_are_under_the_certificate(name):
    x = DATA[name](30_000)
    parts = [PCA(2, solver="covariance").fit(part) for part in np.split(x, [4_000, 11_000])]
    # A probe that misses tol is followed by a float64 sweep; one part with a probe is enough to need it.
    assert name == "rare" or parts[0].certificate_method_ == "probe"
    merged = parts[2].merge(parts[0]).merge(parts[1])
    assert (merged.certificate_method_ == "probe") == any(part.certificate_method_ == "probe" for part in parts)
    assert_certified(merged, x)
    mixed = PCA(2).partial_fit(x[:4_000]).merge(parts[1]).merge(parts[2])
    assert_certified(mixed, x)
    restored = PCA.from_accumulator(mixed.accumulator_, n_components=2)
    np.testing.assert_array_equal(restored.certificate_, mixed.certificate_)


def test_a_merge_with_sums_that_were_not_measured_has_no_certificate():
    x = flags(3_000)
    unmeasured = PCA(2, solver="covariance", certificate=False).fit(x[:1_000])
    measured = PCA(2, solver="covariance").fit(x[1_000:])
    merged = measured.merge(unmeasured)
    assert merged.certificate_method_ == "none"
    assert not hasattr(merged, "certificate_")
    old = measured.accumulator_
    del old.attrs["chain"]
    assert PCA.from_accumulator(old, n_components=2).certificate_method_ == "none"


def test_unit_scales_carry_no_rounding_of_float32():
    x = flags(60_000) + np.float32(3)
    for solver in ("covariance", "krylov", "gram"):
        wide = x if solver != "gram" else x[:500]
        model = PCA(2, scale="unit", solver=solver, tol=1e-9).fit(wide)
        np.testing.assert_allclose(
            model.scale_, wide.astype(np.longdouble).std(axis=0, ddof=1).astype(float), rtol=1e-13
        )
        assert_certified(model, wide, "unit")


# ---------------------------------------------------------------- probes


def test_probes_measure_an_error_within_their_margin():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((400, 60))
    S = A.T @ A / 399
    values, vectors = np.linalg.eigh(S)
    values, vectors = values[:-6:-1], vectors[:, :-6:-1]
    probe = Probe(draw_probes(60), S @ draw_probes(60))
    # Errors along one coordinate, along another vector, and everywhere.
    for error in (np.eye(60)[:, [7]], vectors[:, [4]], rng.standard_normal((60, 1))):
        wrong = 1e-5 * error / np.linalg.norm(error)
        found = certify(values, vectors, np.repeat(wrong, 5, axis=1), 0.0, probe)
        assert found.method == "probe"
        # What is taken for the residual is not in the product: it is error, and the bound counts it.
        assert (found.rounding >= 1e-5).all()
        assert (found.rounding <= 5 * MARGIN * 1e-5).all()


def test_probes_do_not_depend_on_the_seed_of_the_solver():
    assert draw_probes(50).shape == (50, PROBES)
    np.testing.assert_array_equal(draw_probes(50), draw_probes(50))
    assert not np.array_equal(draw_probes(50)[:49], draw_probes(49))


def parts_of(A, rounded, whole_rows):
    """Parts of A in float64; the tile is empty until they were taken."""
    rounded[:] = np.nan
    return centred_parts(A, rounded, np.zeros(A.shape[1]), whole_rows=whole_rows)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(300, 20), (40, 5_000), (3, 200_000)])
def test_probed_statistics_hold_the_products_in_float64(shape, order):
    rng = np.random.default_rng(0)
    A = np.asarray(rng.standard_normal(shape), order=order)
    rounded, Q, G = A.astype(np.float32), rng.standard_normal((shape[1], 2)).astype(np.float32), draw_probes(shape[1])
    probed = Probed(Product(Q), G)
    value = probed.zero(shape[1])
    probed.update(value, rounded, 0, parts_of(A, rounded, True))
    np.testing.assert_array_equal(rounded, A.astype(np.float32))
    exact = A.T @ (A @ Q)
    np.testing.assert_allclose(value[0], exact, atol=1e-4 * np.abs(exact).max())
    np.testing.assert_allclose(value[1], A.T @ (A @ G), rtol=1e-12, atol=1e-9)
    rows = ProbedRows(ProductAndRows(Q), G, 7)
    one, two = rows.zero(shape[1]), rows.zero(shape[1])
    rows.update(one, rounded, 0, parts_of(A, rounded, True))
    rows.update(two, rounded, len(A), parts_of(A, rounded, False))
    (_, K, Y, R) = rows.combine(one, two)
    assert not np.array_equal(R[0], R[1])
    np.testing.assert_allclose(np.concatenate(Y), np.tile(A @ G, (2, 1)), rtol=1e-11, atol=1e-10)
    np.testing.assert_allclose(K, A.T @ (R[0].astype(float) + R[1]), rtol=1e-12, atol=1e-11)


def test_errors_of_changed_vectors_are_those_of_the_matrix():
    rng = np.random.default_rng(4)
    A = matrix_with_spectrum(200, 30, falling(30, 0.6))
    S = np.cov(A.T)
    values, vectors = np.linalg.eigh(S)
    values, vectors = values[:-5:-1], vectors[:, :-5:-1]
    exact = Errors(values, np.zeros(4), np.zeros(4), "exact")
    change = 1e-4 * rng.standard_normal((30, 4))
    moved = vectors + change
    true = np.linalg.norm(S @ moved - moved * values, axis=0)
    bound = exact.moved(vectors, change).rounding
    assert (true <= bound * (1 + 1e-9)).all()
    assert (bound <= 3 * true + 1e-12).all()


# ---------------------------------------------------------------- reads


def test_one_read_stays_one_read():
    x = matrix_with_spectrum(900, 200, falling(40), mean=2.0).astype(np.float32)
    assert PCA(4, solver="covariance").fit(x).n_sweeps_ == 1
    assert PCA(4, solver="covariance", scale="unit").fit(x).n_sweeps_ == 1
    assert PCA(4, solver="covariance", tol=1e-8).fit(x).n_sweeps_ == 1
    # The sweep that makes the components is the check.
    assert PCA(4, solver="gram").fit(x.T.copy()).n_sweeps_ == 2
    krylov, plain = (PCA(4, solver="krylov", certificate=c).fit(x) for c in (True, False))
    assert krylov.n_sweeps_ == plain.n_sweeps_
    assert (krylov.certificate_method_, plain.certificate_method_) == ("probe", "none")


def test_an_exact_certificate_is_the_residual_itself():
    x = matrix_with_spectrum(900, 200, falling(40, 0.9), mean=2.0).astype(np.float32)
    model = PCA(4, solver="krylov", certificate="exact").fit(x)
    residual = true_residual(Reference.of(x), model.components_, model.explained_variance_)
    np.testing.assert_allclose(model.certificate_, residual, rtol=1e-3)


def test_what_float64_cannot_reach_ends_with_the_smallest_tolerance():
    x = matrix_with_spectrum(400, 60, [1.0, 1e-3, 1e-6, 1e-9]).astype(np.float64)
    model = PCA(4, solver="krylov", tol=1e-10).fit(x)
    assert not model.converged_
    assert "float64 rounding limits tol to" in model.advice_
    assert model.n_sweeps_ < 30


def test_a_fraction_of_many_components_is_certified_after_the_switch_to_float64():
    """More vectors are handed over than a block has columns."""
    spectrum = np.concatenate([30 * 0.9 ** np.arange(4), 0.96 ** np.arange(220)])
    for shape in ((500, 300), (300, 600)):
        x = matrix_with_spectrum(*shape, spectrum).astype(np.float32)
        for tol in (1e-6, 1e-8):
            model = PCA(0.98, solver="krylov", tol=tol).fit(x)
            assert model.n_components_ > 32
            assert_certified(model, x)


def test_the_total_variance_is_that_of_float64():
    x = np.hstack([flags(60_000)[:, :4], 1e-4 * np.random.default_rng(0).standard_normal((60_000, 2))]).astype(
        np.float32
    )
    true = x.astype(np.float64).var(axis=0, ddof=1)
    for solver in ("covariance", "krylov"):
        model = PCA(4, solver=solver, tol=1e-6).fit(x)
        assert model.total_variance_ == pytest.approx(true.sum(), rel=1e-13)
        assert model.noise_variance_ == pytest.approx(1e-8, rel=0.02)
        assert np.isfinite(model.score(x[:100]))


def test_a_tolerance_that_float32_cannot_reach_is_handed_over_in_time():
    x = matrix_with_spectrum(1_500, 900, np.geomspace(1, 0.05, 700)).astype(np.float32)
    model = PCA(6, solver="krylov", tol=1e-9).fit(x)
    assert model.converged_
    assert model.n_sweeps_ < 60
    loose = PCA(6, solver="krylov", tol=1e-9, certificate=False).fit(x)
    assert loose.converged_


def test_residuals_of_gram_solutions_hold_for_the_components():
    """The residual of one vector has a part along the error of another, larger one, which A stretches."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((size, 6)))[0] for size in (80, 30))
    A = left * np.sqrt([1.0, 4e-4, 1e-4, 5e-5, 2e-5, 1e-5]) @ right.T
    S = A.T @ A
    V = np.linalg.qr(np.column_stack([right[:, 0] + 0.05 * right[:, 2], right[:, 1] + 0.3 * right[:, 2]]))[0]
    values, Y = np.linalg.eigh(V.T @ S @ V)
    values, U = values[::-1], V @ Y[:, ::-1]
    residuals = S @ U - U * values
    components = A @ U / np.linalg.norm(A @ U, axis=0)
    true = np.linalg.norm(A @ (A.T @ components) - components * values, axis=0) / values
    found = certify(values, U, residuals, 0.0, gram=True)
    assert (true <= found.certificate * (1 + 1e-9)).all()
    # Without the stretch the second would not hold.
    assert true[1] > np.linalg.norm(residuals, axis=0)[1] / values[1]


# ---------------------------------------------------------------- resume


class StopBefore:
    """Progress that stops a run before a sweep."""

    def __init__(self, label):
        self.label = label

    def __call__(self, step):
        if step.label == self.label:
            raise Stopped("for the test")


@pytest.mark.usefixtures("several_partitions")
def test_stopped_between_the_switch_to_float64_and_the_check_gives_the_same_bits(tmp_path):
    x = matrix_with_spectrum(2_000, 40, falling(40, 0.9)).astype(np.float32)
    source = open_source(dask.array.from_array(x, chunks=(300, 40)))
    options = PCAOptions(n_components=3, solver="krylov", tol=1e-8)
    whole, _ = fit_pca(source, options)
    assert whole.tile_dtype == "float64"
    with Checkpoint(tmp_path).active(), pytest.raises(Stopped):
        fit_pca(source, PCAOptions(n_components=3, solver="krylov", tol=1e-8), progress=StopBefore("check"))
    with Checkpoint(tmp_path).active():
        resumed, _ = fit_pca(source, options)
    np.testing.assert_array_equal(resumed.components, whole.components)
    np.testing.assert_array_equal(resumed.certificate, whole.certificate)


@pytest.mark.usefixtures("several_partitions")
def test_float64_products_of_other_vectors_are_not_used(tmp_path, monkeypatch):
    """As after a restart on a processor that rounds differently: their certificate would be of other vectors."""
    x = matrix_with_spectrum(900, 60, falling(60, 0.9))
    source = open_source(dask.array.from_array(x, chunks=(300, 60)))
    options = PCAOptions(n_components=3, solver="krylov", tol=1e-8)
    with Checkpoint(tmp_path).active():
        fit_pca(source, options)
    first_block = Krylov.first_block
    monkeypatch.setattr(Krylov, "first_block", lambda *given: first_block(*given) * (1 + 1e-7 * np.arange(60)[:, None]))
    with Checkpoint(tmp_path).active():
        found, _ = fit_pca(source, options)
    residual = true_residual(Reference.of(x), found.components, found.explained_variance)
    assert (residual <= found.certificate).all()


def test_a_float64_scatter_needs_no_probe():
    assert not Scatter().wants_exact
    x = matrix_with_spectrum(300, 30, falling(30))
    assert PCA(3, solver="covariance").fit(x).certificate_method_ == "exact"
