"""Classes of samples by their scores: those of scikit-learn, held out as it does; or none of these."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal, norm
from sklearn.base import clone
from sklearn.metrics import balanced_accuracy_score, confusion_matrix
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity, KNeighborsClassifier

from streampca import InputError
from streampca.cli.assign import assign as command
from streampca.models.assign.assign import assign
from streampca.models.assign.classes import BANDWIDTHS, KernelClasses, scott
from streampca.models.assign.options import AssignOptions
from streampca.models.assign.records import NONE, Assignment, threshold_of
from streampca.results.write import save, writing
from streampca.run.assign import MOST_SHOWN, confusion_lines
from streampca.sources import Axis
from streampca.sources.tables import Ids, ids_of, read_table

CENTRES = np.array([[0.0, 0, 0], [4, 0, 0], [0, 5, 0], [4, 6, 3]])
NAMES = np.array(["ash", "beech", "elm", "oak"])
SPREAD = np.array([[1.0, 1, 1], [1, 2, 0.5], [1.5, 0.7, 1], [1, 1, 1]])


def draw(n, seed, kinds=4):
    """Samples of overlapping classes with different spreads, of unequal shares."""
    rng = np.random.default_rng(seed)
    y = rng.choice(kinds, n, p=np.arange(2, kinds + 2) / np.arange(2, kinds + 2).sum())
    return CENTRES[y] + SPREAD[y] * rng.standard_normal((n, 3)), NAMES[y]


@pytest.fixture(scope="module")
def trees():
    return draw(300, 1)


def kernel_probabilities(X, y, h, new):
    """The same by scikit-learn's densities, one for each class; and log p(x)."""
    kinds = np.unique(y)
    joint = [np.log((y == c).mean()) + KernelDensity(bandwidth=h).fit(X[y == c]).score_samples(new) for c in kinds]
    return softmax(np.stack(joint, 1), axis=1), logsumexp(joint, axis=0)


def test_naive_bayes_and_neighbours_are_those_of_scikit_learn(trees):
    X, y = trees
    known = np.arange(300) % 3 > 0
    labels = np.where(known, y, "")
    own = GaussianNB().fit(X[known], y[known])
    found = assign(X, labels, AssignOptions(method="nb"))
    assert found.classes == own.classes_.tolist()
    np.testing.assert_allclose(found.probabilities, own.predict_proba(X), rtol=0, atol=1e-12)
    # log p(x) from the normal densities themselves.
    joint = [
        np.log(own.class_prior_[c]) + norm.logpdf(X, own.theta_[c], np.sqrt(own.var_[c])).sum(axis=1) for c in range(4)
    ]
    np.testing.assert_allclose(found.density, logsumexp(joint, axis=0), rtol=1e-10)
    assert (found.n_labelled, found.n_judged, found.folds) == (200, 200, 5)
    likely = found.density >= found.threshold
    assert (found.assigned[likely] == own.predict(X)[likely]).all()
    assert set(found.assigned[~likely]) == {NONE}
    for k in (1, 4):
        near = KNeighborsClassifier(k).fit(X[known], y[known])
        found = assign(X, labels, AssignOptions(method="nn", neighbours=k), new=X[~known] + 0.1)
        np.testing.assert_allclose(found.probabilities, near.predict_proba(X[~known] + 0.1), rtol=0, atol=1e-12)
        np.testing.assert_allclose(-found.density, near.kneighbors(X[~known] + 0.1)[0][:, 0], rtol=1e-12)


def test_kernel_densities_and_their_bandwidth_are_those_of_scikit_learn(trees):
    X, y = trees
    new = draw(50, 2)[0]
    found = assign(X, y, AssignOptions(method="kde", seed=3), new=new)
    # One class at a time: the held-out likelihood of a bandwidth is the sum over classes of those by GridSearchCV.
    folds = StratifiedKFold(5, shuffle=True, random_state=3)
    h0 = np.sqrt(np.mean([X[y == c].var(axis=0) * (y == c).sum() for c in NAMES], axis=0).sum() * 4 / 296 / 3)
    grid = BANDWIDTHS * h0 * 75 ** (-1 / 7)
    assert scott(X, np.unique(y, return_inverse=True)[1]) == pytest.approx(h0 * 75 ** (-1 / 7), rel=1e-12)
    totals = np.zeros(len(grid))
    for c in NAMES:
        members = np.cumsum(y == c) - 1
        splits = [(members[a][y[a] == c], members[b][y[b] == c]) for a, b in folds.split(X, y)]
        search = GridSearchCV(KernelDensity(), {"bandwidth": grid}, cv=splits, refit=False).fit(X[y == c])
        # Each is a sum over held-out samples.
        totals += search.cv_results_["mean_test_score"]
    h = found.details["bandwidth"]
    assert h == pytest.approx(grid[np.argmax(totals)], rel=1e-12)
    assert BANDWIDTHS[0] < h / h0 / 75 ** (-1 / 7) < BANDWIDTHS[-1]
    assert found.notes == ()
    probabilities, density = kernel_probabilities(X, y, h, new)
    np.testing.assert_allclose(found.probabilities, probabilities, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.density, density, rtol=1e-12)
    given = assign(X, y, AssignOptions(method="kde", bandwidth=0.8))
    np.testing.assert_allclose(given.probabilities, kernel_probabilities(X, y, 0.8, X)[0], rtol=0, atol=1e-12)
    assert given.details == {"bandwidth": 0.8}
    assert clone(KernelClasses(0.8)).get_params()["bandwidth"] == 0.8


def test_accuracy_is_that_of_cross_val_predict(trees):
    X, y = trees
    folds = StratifiedKFold(5, shuffle=True, random_state=7)
    for method, model in (("nb", GaussianNB()), ("nn", KNeighborsClassifier(3))):
        guessed = cross_val_predict(model, X, y, cv=folds)
        found = assign(X, y, AssignOptions(method=method, neighbours=3, seed=7))
        assert 0.7 < found.accuracy < 0.99
        assert found.accuracy == pytest.approx((guessed == y).mean(), rel=1e-12)
        assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(y, guessed), rel=1e-12)
        # 1% of 300: three are in less likely places than the threshold, and only these are none of these.
        none = found.held_out == NONE
        assert none.sum() == 3
        assert (found.held_out[~none] == guessed[~none]).all()
        np.testing.assert_array_equal(found.confusion[:, :-1], confusion_matrix(y[~none], guessed[~none]))
        np.testing.assert_array_equal(found.confusion[:, -1], [(none & (y == c)).sum() for c in NAMES])
        other = assign(X, y, AssignOptions(method=method, neighbours=3, seed=8))
        assert (other.held_out != found.held_out).any()
        np.testing.assert_array_equal(other.probabilities, found.probabilities)
    # By hand of kernels, whose held-out model has the bandwidth of all.
    guessed = np.empty(300, object)
    for train, test in folds.split(X, y):
        guessed[test] = NAMES[kernel_probabilities(X[train], y[train], 0.9, X[test])[0].argmax(axis=1)]
    assert assign(X, y, AssignOptions(method="kde", seed=7, bandwidth=0.9)).accuracy == pytest.approx(
        (guessed == y).mean()
    )


@pytest.mark.parametrize("method", ["nn", "nb", "kde", "gmm"])
def test_none_of_these(trees, method):
    X, y = trees
    like, _ = draw(2000, 5)
    choice = AssignOptions(method=method, outside=0.05, bandwidth=0.8, groups=4)
    share = (assign(X, y, choice, new=like).assigned == NONE).mean()
    assert 0.02 < share < 0.09
    far = np.array([40.0, -40, 0]) + like[:20]
    found = assign(X, y, choice, new=far)
    assert (found.assigned == NONE).all()
    # Probabilities are given all the same.
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1, rtol=1e-12)
    all_in = AssignOptions(method=method, outside=0, bandwidth=0.8, groups=4)
    assert (assign(X, y, all_in, new=far).assigned != NONE).all()
    marked = assign(X, y, all_in, new=like, far=np.arange(2000) < 7)
    assert np.flatnonzero(marked.assigned == NONE).tolist() == list(range(7))
    both = assign(X, y, choice, new=like, far=np.arange(2000) < 7).assigned == NONE
    assert both[:7].all()
    assert 0.02 < both[7:].mean() < 0.09


def test_groups_are_found_without_labels(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [40, 120, 80])
    X = np.array([[0, 0], [9, 0], [0, 9]])[y] + rng.standard_normal((240, 2)) * [1, 0.5]
    found = assign(X, options=AssignOptions(method="gmm", max_groups=6))
    assert found.classes == ["group 1", "group 2", "group 3"]
    assert (found.rand_index, found.confusion, found.accuracy, found.held_out) == (None, None, None, None)
    # The largest group first.
    assert [np.bincount(y[found.probabilities[:, g] > 0.5]).argmax() for g in range(3)] == [1, 2, 0]
    shape, count, least = min(found.details["bic"], key=lambda tried: tried[2])
    unit = np.sqrt(X.var(axis=0).mean())
    scaled = (X - X.mean(axis=0)) / unit
    own = GaussianMixture(3, covariance_type=shape, random_state=0, n_init=3).fit(scaled)
    assert (count, shape) == (3, found.details["covariances"])
    assert least == pytest.approx(own.bic(scaled) + 240 * 2 * 2 * np.log(unit), rel=1e-10)
    # Held-out samples are in less likely places than those that the mixture has seen.
    few = assign(X[::4], options=AssignOptions(method="gmm", groups=3, outside=0.1))
    assert few.threshold < np.quantile(few.density, 0.1) - 0.01
    np.testing.assert_allclose(found.density, own.score_samples(scaled) - 2 * np.log(unit), rtol=1e-9)
    covariances = unit**2 * np.array([np.diag(c) if shape == "diag" else c for c in own.covariances_])
    middles = unit * own.means_ + X.mean(axis=0)
    each = [w * multivariate_normal(m, c).pdf(X) for w, m, c in zip(own.weights_, middles, covariances, strict=True)]
    np.testing.assert_allclose(found.density, np.log(np.sum(each, axis=0)), rtol=1e-9)
    # Two labels lie in one group: index by hand, of pairs that are together.
    labels = np.where(y == 0, "a", np.where(np.arange(240) < 100, "b", "c"))
    labels[::10] = ""
    known = labels != ""
    table = np.array([[((labels == a) & (y == g)).sum() for g in (1, 2, 0)] for a in "abc"])
    for seed in (0, 4):
        with_labels = assign(X, labels, AssignOptions(method="gmm", groups=3, outside=0, seed=seed))
        np.testing.assert_array_equal(with_labels.confusion, np.column_stack([table, [0, 0, 0]]))
    pairs = lambda counts: (counts * (counts - 1) / 2).sum()  # noqa: E731
    rows, columns, all_pairs = pairs(table.sum(1)), pairs(table.sum(0)), pairs(np.array(known.sum()))
    expected = rows * columns / all_pairs
    index = (pairs(table) - expected) / ((rows + columns) / 2 - expected)
    assert with_labels.rand_index == pytest.approx(index, rel=1e-12)
    capped = assign(X, options=AssignOptions(method="gmm", max_groups=2))
    assert any("increase --max-groups" in note for note in capped.notes)
    monkeypatch.setattr("streampca.models.assign.groups.MOST_SEARCHED", 100)
    some = assign(X, labels, AssignOptions(method="gmm", max_groups=4))
    assert len(some.classes) == 3
    assert "BIC on 100 of 240 samples" in some.notes[0]
    assert some.probabilities.shape == (240, 3)


def test_groups_are_the_same_in_any_unit_and_place(monkeypatch):
    X, _ = draw(120, 3, kinds=3)
    found = assign(X, options=AssignOptions(method="gmm", max_groups=4))
    for unit in (1e-8, 1e8):
        other = assign((X + 1000) * unit, options=AssignOptions(method="gmm", max_groups=4))
        assert other.assigned.tolist() == found.assigned.tolist()
        np.testing.assert_allclose(other.density, found.density - 3 * np.log(unit), rtol=1e-6)
        assert other.threshold == pytest.approx(found.threshold - 3 * np.log(unit), rel=1e-6)

    def collapsed(*_):
        raise ValueError(
            "Fitting the mixture model failed because some components have ill-defined empirical covariance"
        )

    monkeypatch.setattr(GaussianMixture, "fit", collapsed)
    with pytest.raises(InputError, match="some groups have no variance in a direction; use fewer --groups"):
        assign(X, options=AssignOptions(method="gmm", groups=2))


def test_densities_without_bounds_leave_the_threshold_alone():
    assert threshold_of(np.array([np.nan, np.inf, 1.0, 1.0, -np.inf]), 0.5) == 1.0
    assert threshold_of(np.array([np.nan]), 0.5) is None


def test_kernels_of_some_where_there_are_many(trees, monkeypatch):
    X, y = trees
    labels = np.append(y, ["yew"] * 5)
    X = np.vstack([X, np.random.default_rng(0).standard_normal((5, 3)) + [-9, 0, 0]])
    monkeypatch.setattr("streampca.models.assign.classes.MOST_KERNELS", 105)
    found = assign(X, labels, AssignOptions(method="kde", bandwidth=0.9))
    assert found.notes == ("105 of 305 labelled samples, drawn at random, have kernels",)
    # All of the rare class, as many of each other; shares remain those of all.
    assert found.n_judged == 305
    assert found.confusion[4, 4] + found.confusion[4, -1] == 5
    assert abs(found.accuracy - assign(X, labels, AssignOptions(method="nb")).accuracy) < 0.07
    again = assign(X, labels, AssignOptions(method="kde", bandwidth=0.9), new=X)
    np.testing.assert_array_equal(again.probabilities, found.probabilities)
    assert again.accuracy == found.accuracy
    # Kernels so wide that the shares alone are left.
    wide = assign(X, labels, AssignOptions(method="kde", bandwidth=1e6)).probabilities
    np.testing.assert_allclose(wide, np.tile([(labels == c).mean() for c in found.classes], (305, 1)), rtol=1e-6)


def test_classes_of_few_members(trees):
    X, y = trees
    X, labels = np.vstack([X, [[0, 0, 20]], [[0, 20, 20], [0, 21, 20]]]), [*y, "one", "two", "two"]
    for method in ("nn", "nb", "kde"):
        found = assign(X, labels, AssignOptions(method=method, bandwidth=0.8, outside=0))
        assert found.classes == ["ash", "beech", "elm", "oak", "one", "two"]
        assert found.notes == ("1 of 6 classes have one member (one), which cannot be held out",)
        assert (found.n_labelled, found.n_judged, found.folds) == (303, 302, 5)
        assert found.held_out[300] == ""
        assert found.confusion[4].sum() == 0
        assert found.confusion[5].sum() == 2
    only = assign(X[:4], ["a", "b", "c", "d"], AssignOptions(method="nn"))
    assert (only.accuracy, only.balanced_accuracy, only.threshold) == (None, None, None)
    assert any("no sample could be held out" in note for note in only.notes)
    one = assign(X[:50], ["a"] * 50, AssignOptions(method="nb"))
    assert "there is one class" in one.notes[0]
    json.dumps(only.facts())


def test_labels_that_are_open_or_hold_tabs(trees):
    X, y = trees
    labels = y.astype(object)
    labels[y == "elm"] = "wych\telm\r\n of\u2028Scotland "
    labels[:3] = NONE
    found = assign(X, labels, AssignOptions(method="nb"))
    assert found.classes == ["ash", "beech", "oak", "wych elm of Scotland"]
    assert found.n_labelled == 297


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"labels": [""] * 300}, "no sample has a label"),
        ({"labels": ["a"] * 299}, "299 labels for 300 samples"),
        ({"new": np.zeros((2, 2))}, "2 components, the others 3"),
        ({"new": np.array([[0, 0, 0], [0, np.nan, 0]])}, "new scores of 1 samples are not finite, first of sample 1"),
        ({"scores": np.full((300, 3), np.inf)}, "scores of 300 samples"),
        ({"choice": {"method": "knn"}}, "knn"),
        ({"choice": {"outside": 1.0}}, "outside must be a number >= 0, got 1.0"),
        ({"choice": {"bandwidth": -1.0}}, "bandwidth must be a number > 0, got -1.0"),
        ({"choice": {"method": "nn", "neighbours": 250}}, "neighbours must be at most 240"),
        ({"choice": {"method": "gmm", "groups": 0}}, "groups must be an integer >= 1, got 0"),
        ({"choice": {"method": "gmm", "groups": 200}}, "groups must be at most 150"),
        ({"choice": {"method": "kde"}, "labels": [str(i) for i in range(300)]}, "give --bandwidth"),
        ({"choice": {"method": "kde"}, "scores": np.zeros((300, 3))}, "give --bandwidth"),
        ({"choice": {"method": "nb"}, "scores": np.zeros((300, 3))}, "which naive Bayes cannot use; use --method nn"),
        ({"choice": {"method": "gmm"}, "scores": np.zeros((300, 3))}, "the same scores, so that there are no groups"),
        ({"choice": {"method": "gmm"}, "scores": np.eye(2), "labels": ["", ""]}, "at least 3 samples, got 2"),
    ],
)
def test_what_cannot_be_done_is_said(trees, arguments, said):
    X, y = trees
    with pytest.raises(InputError, match=said) as caught:
        assign(
            arguments.get("scores", X), arguments.get("labels", y), AssignOptions.of(arguments.get("choice", {})),
            arguments.get("new"),
        )  # fmt: skip
    assert "\n" not in str(caught.value)


@pytest.fixture
def stored(tmp_path, trees, monkeypatch):
    """A result of genotypes with these scores, and a table of two thirds of its samples."""
    X, y = trees
    monkeypatch.chdir(tmp_path)
    coords = {"component": (("component",), np.arange(1, 4))}
    samples = {"fid": [f"f{i}" for i in range(300)], "iid": [f"i{i}" for i in range(300)]}
    save_result(tmp_path / "r.pca.zarr", X, coords | {name: (("sample",), np.array(v)) for name, v in samples.items()})
    rows = [f"f{i}\ti{i}\t{name}\t{i / 7}\n" for i, name in enumerate(y) if i % 3]
    (tmp_path / "trees.tsv").write_text("FID\tIID\tkind\theight\n" + "".join(rows))
    return X, np.where(np.arange(300) % 3, y, "")


def save_result(path, X, coords):
    """Write no more of a result of PCA than is looked at."""
    along = {name: (("feature",), np.ones(5)) for name in ("mean", "scale", "missing")}
    along |= {name: (("component",), np.ones(3)) for name in ("explained_variance", "explained_variance_ratio")}
    along |= {"certificate": (("component",), np.zeros(3)), "components": (("component", "feature"), np.ones((3, 5)))}
    path.mkdir()
    counts = dict.fromkeys(("n_samples", "n_sweeps", "bytes_read", "seconds", "peak_memory_bytes", "total_variance"), 1)
    texts = dict.fromkeys(("source", "solver", "advice"), "") | {"parameters": "{}", "tile_dtype": "float64"}
    attributes = {"kind": "pca", "format_version": 1, "genotypes": 0, "converged": 1, **counts, **texts}
    save({**along, "scores": (("sample", "component"), X)}, coords, attributes, path)


def scores_to_store(scores, samples, path, overwrite, facts, distance=None):
    """Write scores of new samples as `streampca project` does."""
    variables = {"scores": ((*samples.dims, "component"), scores)}
    if distance is not None:
        variables["distance"] = (samples.dims, distance)
    coords = {"component": (("component",), np.arange(1, scores.shape[1] + 1)), **samples.coords}
    with writing(path, overwrite) as store:
        save(variables, coords, {"format_version": 1, "kind": "scores", **facts}, store)


def call(*arguments):
    done = CliRunner().invoke(command, [str(a) for a in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_the_command_writes_a_table_of_samples(stored, tmp_path):
    X, labels = stored
    told = call("r.pca.zarr", "--labels", "trees.tsv", "--method", "nb")
    own = assign(X, labels, AssignOptions(method="nb"))
    assert "200 of 300 samples are in trees.tsv" in told
    assert f"{own.accuracy:.2%} of 200 held out, in 5 parts" in told
    assert "of 100 samples without a label" in told
    assert told.endswith("table: r.pca.assigned.tsv\n")
    for line in confusion_lines(own):
        assert line in told
    ids = Ids([f"i{i}" for i in range(300)], [f"f{i}" for i in range(300)])
    table = read_table(tmp_path / "r.pca.assigned.tsv", ids)
    assert table.found.all()
    assert list(table.cells) == ["label", "assigned", "probability", "log_density", "held_out",
                                 "p_ash", "p_beech", "p_elm", "p_oak"]  # fmt: skip
    assert (table.label("assigned") == own.assigned).all()
    assert (table.label("label") == labels).all()
    assert (table.label("held_out") == own.held_out).all()
    np.testing.assert_allclose(table.numbers("p_elm"), own.probabilities[:, 2], rtol=1e-8)
    np.testing.assert_allclose(table.numbers("log_density"), own.density, rtol=1e-8)
    with pytest.raises(InputError, match="exists already"):
        call("r.pca.zarr", "--labels", "trees.tsv")
    # The table is one of labels itself, and says as JSON what it said as text.
    again = json.loads(
        call(
            "r.pca.zarr",
            "--labels",
            "r.pca.assigned.tsv:assigned",
            "--components",
            2,
            "--method",
            "nn",
            "--out",
            "again.tsv",
            "--json",
        )  # fmt: skip
    )
    by_two = assign(X[:, :2], own.assigned, AssignOptions(method="nn"))
    assert (again["assigned"], again["accuracy"], again["n_none"]) == (
        "again.tsv",
        by_two.accuracy,
        (by_two.assigned == NONE).sum(),
    )
    assert again["confusion"] == by_two.confusion.tolist()
    assert (tmp_path / "again.tsv").read_text().split("\n")[0].split("\t")[5] == "distance"
    groups = call("r.pca.zarr", "--labels", "trees.tsv:kind", "--method", "gmm", "--groups", 4, "--overwrite")
    assert "adjusted Rand index" in groups
    for arguments, said in (
        (["--labels", "trees.tsv:size"], "has no column 'size'"),
        (["--labels", "trees.tsv:kind,height"], "labels are in one column"),
        ([], "holds no labels"),
        (["--labels", "trees.tsv", "--components", 4], "has 3 components, not 4"),
        (["--labels", "trees.tsv", "--new", "trees.tsv"], "has no scores of new samples"),
        (["--labels", "absent.tsv"], "absent.tsv"),
        (["--labels", "trees.tsv", "--bandwidth", 3], "--bandwidth is for --method kde, not nb; remove it"),
        (["--labels", "trees.tsv", "--max-groups", 12], "--max-groups is for --method gmm, not nb"),
        (["--labels", "trees.tsv", "--far", 2], "--far is for new samples"),
    ):
        with pytest.raises(InputError, match=said):
            call("r.pca.zarr", *arguments, "--out", "other.tsv")
    assert not (tmp_path / "other.tsv").exists()


def test_new_samples_and_labels_of_the_store(trees, tmp_path, monkeypatch):
    X, y = trees
    monkeypatch.chdir(tmp_path)
    label = np.where(y == "elm", 'wych\t"elm"', y)
    along = {"sample": (("sample",), np.array([f"{i}.png" for i in range(300)])), "label": (("sample",), label)}
    save_result(tmp_path / "r.zarr", X, {"component": (("component",), np.arange(1, 4)), **along})
    new, truth = draw(60, 9)
    named = Axis(("sample",), (60,), {"sample": (("sample",), np.array([f"new{i}" for i in range(60)]))})
    facts = {"typical_distance": 1.0}
    distance = np.where(np.arange(60) < 5, 2.1, 1.9)
    scores_to_store(new, named, tmp_path / "new.scores.zarr", False, facts, distance=distance)
    told = call("r.zarr", "--new", "new.scores.zarr", "--outside", 0)
    assert "none of these: 5 of 60 new samples" in told
    ids = ids_of(xr.open_zarr(tmp_path / "new.scores.zarr", consolidated=False))
    assigned = read_table(tmp_path / "new.assigned.tsv", ids).label("assigned")
    assert (assigned[:5] == NONE).all()
    assert (assigned[5:] == np.where(truth == "elm", 'wych "elm"', truth)[5:]).mean() > 0.75
    assert "held_out" not in (tmp_path / "new.assigned.tsv").read_text().split("\n")[0]
    assert "none of these: 0 of 60" in call(
        "r.zarr", "--new", "new.scores.zarr", "--outside", 0, "--far", 3, "--overwrite"
    )
    # Nothing is left over: distances are of rounding.
    facts = {"typical_distance": 0.0}
    scores_to_store(new, named, tmp_path / "new.scores.zarr", True, facts, distance=distance * 1e-9)
    assert "none of these: 0 of 60" in call("r.zarr", "--new", "new.scores.zarr", "--outside", 0, "--overwrite")
    scores_to_store(new, named, tmp_path / "else.scores.zarr", False, {"fit": "0123", "result": "else.zarr"})
    with pytest.raises(InputError, match="components of another fit, else.zarr; project"):
        call("r.zarr", "--new", "else.scores.zarr")
    scores_to_store(new, named, tmp_path / "bare.scores.zarr", False, {})
    with pytest.raises(InputError, match="bare.scores.zarr: holds no distances"):
        call("r.zarr", "--new", "bare.scores.zarr", "--far", 2)
    assert "of 60 new samples" in call("r.zarr", "--new", "bare.scores.zarr")
    scores_to_store(new[:, :2], named, tmp_path / "two.scores.zarr", False, {})
    with pytest.raises(InputError, match="scores on 2 components, the result on 3"):
        call("r.zarr", "--new", "two.scores.zarr")


def test_of_many_classes_the_worst_pairs_are_listed():
    n = MOST_SHOWN + 5
    confusion = np.diag(np.full(n, 9))
    confusion = np.column_stack([confusion, np.zeros(n, int)])
    confusion[3, 8], confusion[5, n] = 2, 1
    names = [f"c{i}" for i in range(n)]
    blank = np.zeros((1, n))
    found = Assignment("nn", names, blank, np.array(["c0"]), blank[:, 0], None, rows=names, confusion=confusion)
    assert list(confusion_lines(found)) == ["c3 taken for c8: 2 of 11", "c5 taken for none: 1 of 10"]
