"""Checkpoints: records of sweeps, what they are worth after a stop, and what becomes of damaged or foreign ones."""

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zarr
from genotype_helpers import write_bed

from streampca.errors import InputError, Stopped
from streampca.run.config import build
from streampca.run.fit import fit_job, open_data, select_genotypes
from streampca.sweep.checkpoint import Checkpoint, Signature, active_checkpoint, read_record, write_record
from streampca.sweep.matrix import Defects
from streampca.sweep.memory import Budget
from streampca.sweep.merge_tree import Nodes, Partial, halves_of, parent_of
from streampca.sweep.statistics import Moments, Product, Scatter

PCA = {"kind": "pca", "n_components": 3}
LATENT = {"kind": "ppca", "n_components": 2}
KERNEL = {"kind": "kpca", "n_components": 3, "n_landmarks": 40}
CASES = {
    "covariance": ("tall", {}, PCA | {"solver": "covariance"}),
    "krylov, along samples": ("tall", {}, PCA | {"solver": "krylov", "tol": 1e-6, "scale": "unit"}),
    "power": ("tall", {}, PCA | {"solver": "power", "tol": 0.05}),
    "gram": ("wide", {}, PCA | {"solver": "gram"}),
    "krylov, along features": ("wide", {}, PCA | {"solver": "krylov"}),
    "genotypes": ("genotypes", {"maf": 0.05, "mind": 0.2}, PCA | {"solver": "krylov"}),
    "pruned, without outliers": ("genotypes", {"ld_prune": 0.5, "outliers": "remove"}, PCA),
    "without relatives": ("genotypes", {"unrelated": 0.01}, PCA),
    "fraction": ("tall", {}, PCA | {"n_components": 0.5}),
    "ppca": ("tall", {}, LATENT | {"method": "closed"}),
    "ppca with gaps": ("gaps", {}, LATENT),
    "ppca of genotypes": ("genotypes", {}, LATENT),
    "ppca, k chosen": ("gaps", {}, LATENT | {"n_components": "auto", "criterion": "heldout", "max_iter": 1}),
    "factor analysis": ("gaps", {}, LATENT | {"kind": "factor_analysis"}),
    "kernel": ("tall", {}, KERNEL),
    "kernel, k-means": ("tall", {}, KERNEL | {"landmarks": "kmeans", "fit_inverse_transform": True}),
    "kernel, leverage": ("tall", {}, KERNEL | {"landmarks": "leverage"}),
    "kernel, Fourier": ("tall", {}, KERNEL | {"landmarks": "fourier"}),
}

pytestmark = pytest.mark.usefixtures("several_partitions")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    tall = rng.standard_normal((2000, 6)) @ rng.standard_normal((6, 30)) + 0.5 * rng.standard_normal((2000, 30))
    gaps = tall.copy()
    gaps[rng.random(gaps.shape) < 0.1] = np.nan
    stores = {"tall": (tall, (150, 30)), "gaps": (gaps, (150, 30)), "wide": (tall.T.copy(), (30, 150))}
    for name, (values, chunks) in stores.items():
        array = zarr.create_array(folder / f"{name}.zarr", shape=values.shape, chunks=chunks, dtype="f4")
        array[:] = values
    write_bed(folder / "genotypes", rng.choice([0, 1, 2, np.nan], (90, 3000), p=[0.3, 0.4, 0.27, 0.03]))
    return {name: str(folder / f"{name}.zarr") for name in stores} | {"genotypes": str(folder / "genotypes.bed")}


def fit(case: str, data: dict[str, str], store: Path, progress=lambda _: None) -> dict[str, bytes]:
    """Fit a case into a store; returns the bytes of all arrays."""
    name, chosen, model = CASES[case]
    config = build({"data": {"path": data[name]}, "filter": chosen, "model": model, "output": {"path": "unused.zarr"}})
    store.mkdir(exist_ok=True)
    job = fit_job(open_data(config.data, config.filter), config, Budget(4 * 10**9), progress)
    select_genotypes(job, config.filter).fit(store)
    group = zarr.open_group(store, mode="r")
    return {name: np.asarray(array[...]).tobytes() for name, array in group.arrays() if array.dtype.kind in "biuf"}


def stop_after(step, steps):
    # Pruning, which is no sweep, is kept chromosome by chromosome.
    if step.sweep and next(steps, None) is None:
        raise Stopped("enough")


@pytest.mark.parametrize("case", CASES)
def test_every_model_is_the_same_when_stopped_and_gone_on_with(case, data, tmp_path, begun):
    whole = fit(case, data, tmp_path / "whole")
    needed = len(begun)
    assert {"mean", "explained_variance"} <= set(whole)
    begun.clear()
    rng = np.random.default_rng(1)
    stops = 0
    while True:
        steps = iter(range(int(rng.integers(1, max(12, needed // 5)))))
        try:
            with Checkpoint(tmp_path / "checkpoint", interval=0.0).active():
                found = fit(case, data, tmp_path / "store", lambda step, steps=steps: stop_after(step, steps))
            break
        except Stopped:
            stops += 1
            assert stops < 1000, "it does not get on"
    assert found == whole
    assert stops > 1
    # A stop costs what was being worked on, and what the records leave out as small: a few partitions.
    assert needed <= len(begun) <= needed + 8 * stops


@pytest.mark.parametrize("case", ["krylov, along samples", "genotypes", "ppca with gaps", "kernel, k-means"])
def test_a_finished_journal_answers_without_reading(case, data, tmp_path, begun):
    with Checkpoint(tmp_path / "checkpoint").active() as checkpoint:
        first = fit(case, data, tmp_path / "store")
    assert checkpoint.replayed == 0
    begun.clear()
    with Checkpoint(tmp_path / "checkpoint").active() as checkpoint:
        again = fit(case, data, tmp_path / "store")
    assert again == first
    assert begun == []
    assert checkpoint.replayed > 0


def test_rows_that_went_with_their_store_are_written_again(data, tmp_path, begun):
    with Checkpoint(tmp_path / "checkpoint").active():
        first = fit("covariance", data, tmp_path / "store")
    begun.clear()
    with Checkpoint(tmp_path / "checkpoint").active():
        again = fit("covariance", data, tmp_path / "another")
    assert again == first
    assert len(begun) == len(set(begun)) > 1, "the sweep for scores, and that alone"


def test_other_data_or_questions_are_not_answered_from_the_record(data, tmp_path):
    with Checkpoint(tmp_path / "checkpoint").active():
        fit("ppca", data, tmp_path / "a")
    for case, name in (("ppca with gaps", "gaps"), ("power", "tall")):
        expected = fit(case, data, tmp_path / f"{name}-alone")
        with Checkpoint(tmp_path / "checkpoint").active() as checkpoint:
            assert fit(case, data, tmp_path / name) == expected
        assert checkpoint.replayed == 0


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text"])
def test_a_damaged_record_is_done_again(damage, data, tmp_path):
    with Checkpoint(tmp_path / "checkpoint").active():
        first = fit("krylov, along samples", data, tmp_path / "store")
    for path in sorted((tmp_path / "checkpoint").iterdir())[1:3]:
        content = bytearray(path.read_bytes())
        if damage == "flipped":
            content[len(content) // 2] ^= 0xFF
        path.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "text": b"no"}.get(damage, content))
    with Checkpoint(tmp_path / "checkpoint").active() as checkpoint:
        assert fit("krylov, along samples", data, tmp_path / "store") == first
    assert checkpoint.replayed >= 1


def test_leftovers_of_a_killed_write_go(tmp_path):
    (tmp_path / "00001-0-4.part").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    Checkpoint(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_pieces_of_rows_are_kept_as_one_array(tmp_path):
    pieces = [np.arange(6.0).reshape(2, 3), np.empty((0, 3)), np.ones((1, 3))]
    mixed = [np.zeros(2), np.zeros(2, "f4"), None]
    write_record(tmp_path / "r.npz", {"pieces": pieces, "mixed": mixed, "none": [], "one": [np.ones(2)]})
    with np.load(tmp_path / "r.npz") as file:
        assert len(file.files) == 5
    found = read_record(tmp_path / "r.npz")
    assert [piece.tolist() for piece in found["pieces"]] == [piece.tolist() for piece in pieces]
    assert [getattr(piece, "dtype", None) for piece in found["mixed"]] == [np.float64, np.float32, None]
    assert found["none"] == []
    assert len(found["one"]) == 1


def test_records_come_back_as_they_were(tmp_path):
    partial = Partial(
        (np.asfortranarray(np.arange(6.0).reshape(2, 3)), [np.arange(3, dtype="f4")], {"a": None, "b": "x"}),
        (Moments.zero(2),), Defects(1, 0, (3, 4)), 7, np.int64(5),
    )  # fmt: skip
    write_record(tmp_path / "r.npz", {"partial": partial, "seconds": 0.1, "nan": float("nan"), "no": float("-inf")})
    found = read_record(tmp_path / "r.npz")
    value, pieces, names = found["partial"].value
    assert value.flags.f_contiguous
    assert value.tobytes() == partial.value[0].tobytes()
    assert pieces[0].dtype == np.float32
    assert names == {"a": None, "b": "x"}
    assert found["partial"].defects == partial.defects
    assert isinstance(found["partial"].missing, np.int64)
    assert found["seconds"] == 0.1
    assert np.isnan(found["nan"])
    assert found["no"] == -np.inf
    assert [path.name for path in tmp_path.iterdir()] == ["r.npz"]


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "builtins:eval",
        "streampca.sweep.checkpoint:Path",
        "streampca/../x:Y",
        "streampca.sweep.matrix:np.dtype",
    ],
)
def test_nothing_but_our_records_is_made_from_a_file(name, tmp_path):
    tree = json.dumps({"partial": {"record": name, "fields": {}}}).encode()
    np.savez(tmp_path / "r.npz", tree=np.frombuffer(tree, np.uint8))
    with pytest.raises(InputError, match="damaged"):
        read_record(tmp_path / "r.npz")


def test_pickled_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "r.npz", tree=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match="damaged"):
        read_record(tmp_path / "r.npz")


def test_what_cannot_be_kept_is_refused(tmp_path):
    with pytest.raises(TypeError, match="object cannot be saved"):
        write_record(tmp_path / "r.npz", {"a": object()})
    assert list(tmp_path.iterdir()) == []


def test_a_question_that_was_rounded_otherwise_is_the_same():
    rng = np.random.default_rng(0)
    Q = rng.standard_normal((400, 5)).astype("f4")
    asked = Signature.of({"statistic": Product(Q), "label": "krylov"})
    assert asked == Signature.of({"statistic": Product(Q.copy()), "label": "krylov"})
    rounded = Signature.of({"statistic": Product(Q * np.float32(1 + 1e-6)), "label": "krylov"})
    assert rounded.exact != asked.exact
    assert rounded.matches(asked)
    flipped = Q.copy()
    flipped[:, 2] *= -1
    for other in (flipped, Q[:, ::-1].copy(), Q[:, :4], Q * 2, Q.astype("f8")):
        assert not Signature.of({"statistic": Product(other), "label": "krylov"}).matches(asked)
    assert not Signature.of({"statistic": Product(Q), "label": "power"}).matches(asked)
    assert not Signature.of({"statistic": Scatter(), "label": "krylov"}).matches(asked)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 7, 11, 29, 64])
def test_any_part_of_the_tree_saves_the_work_below_it(count):
    def every(span):
        return [*(below for half in halves_of(span) for below in every(half)), span]

    spans = every((0, count))
    assert all(sum(b - a for a, b in halves_of(span)) in (0, span[1] - span[0]) for span in spans)
    assert Counter(spans).most_common(1)[0][1] == 1
    for span in spans:
        parent = parent_of(span, count)
        assert (parent is None) == (span == (0, count))
        if parent:
            assert span in halves_of(parent)
        nodes = Nodes(count, joined, {span: piece(*span)})
        singles = [s for s in nodes.to_do if s[1] - s[0] == 1]
        assert sorted(a for a, _ in singles) == [a for a in range(count) if not span[0] <= a < span[1]]
        for a, b in list(nodes.to_do):
            nodes.add((a, b), piece(a, b))
        assert {span: partial.value for span, partial in nodes.live.items()} == {(0, count): [*range(count)]}
        assert nodes.done == count


def piece(a, b):
    return Partial([*range(a, b)], (), Defects(), 0)


def joined(a, b):
    return Partial(a.value + b.value, (), Defects(), 0)


def test_the_tree_is_the_same_as_merging_neighbours_level_by_level():
    for count in range(1, 40):
        level = [str(i) for i in range(count)]
        while len(level) > 1:
            pairs = [f"({level[i]} {level[i + 1]})" for i in range(0, len(level) - 1, 2)]
            level = pairs + level[len(level) // 2 * 2 :]

        def paired(a, b):
            return Partial(f"({a.value} {b.value})", (), Defects(), 0)

        nodes = Nodes(count, paired, {(i, i + 1): Partial(str(i), (), Defects(), 0) for i in range(count)})
        assert [partial.value for partial in nodes.live.values()] == level


def test_nodes_brought_from_a_cluster_are_merged_here_and_no_more_than_a_few_wait():
    rng = np.random.default_rng(0)
    count, most = 300, 0
    nodes = Nodes(count, joined, {})
    future = object()
    for a in rng.permutation(count):
        span = (int(a), int(a) + 1)
        if span in nodes.to_do:
            nodes.add(span, future)
        if rng.random() < 0.1:
            nodes.bring({span: piece(*span) for span in nodes.largest() if nodes.live[span] is future})
            most = max(most, len([value for value in nodes.live.values() if value is not future]))
    nodes.bring({span: piece(*span) for span, value in nodes.live.items() if value is future})
    assert nodes.live[0, count].value == [*range(count)]
    assert len(nodes.live) == 1
    assert most < count / 2, "they came in no order at all, and still were merged"


def test_there_is_no_journal_unless_asked_for(tmp_path):
    assert active_checkpoint() is None
    with suppress(ValueError), Checkpoint(tmp_path).active() as checkpoint:
        assert active_checkpoint() is checkpoint
        raise ValueError
    assert active_checkpoint() is None
