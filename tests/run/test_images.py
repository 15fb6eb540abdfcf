"""Folders of images: what becomes of every kind of file, and eigenfaces from them."""

from __future__ import annotations

import os
import re
import weakref

import numpy as np
import pytest
import xarray
import zarr
from helpers import one_line
from PIL import Image
from sklearn import decomposition
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

import streampca.run.images
from streampca import PCA, InputError, load
from streampca.demos import Demo
from streampca.demos.faces import Faces, demo_faces, evaluate, not_faces
from streampca.demos.simulate_faces import Cast, simulate_faces
from streampca.models.pca.fit import fit_pca, project
from streampca.models.pca.options import PCAOptions
from streampca.models.pca.record import distances
from streampca.report import draw_figure
from streampca.report.images import reconstructions
from streampca.run.convert import convert
from streampca.run.images import parse_size
from streampca.sources import open_source

H, W = 4, 6
GREY = np.random.default_rng(0).integers(0, 256, (H, W)).astype(np.uint8)
COLOUR = np.random.default_rng(1).integers(0, 256, (H, W, 3)).astype(np.uint8)
ALPHA = np.random.default_rng(2).integers(0, 256, (H, W)).astype(np.uint8)


def on_white(pixels, alpha):
    share = alpha / 255
    return pixels * share + 255 * (1 - share)


def save(folder, name, pixels, mode=None, **options):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    (image if mode is None else image.convert(mode)).save(path, **options)
    return path


def stored(path):
    group = zarr.open_group(path, mode="r")
    return {name: array[...] for name, array in group.arrays()}


def turned(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def write_kinds(folder):
    """Write a file of each kind; returns what the pixels are, grey or RGB, by name."""
    two = np.where(GREY > 127, 255, 0).astype(np.uint8)
    palette = Image.fromarray((GREY // 64).astype(np.uint8), "P")
    palette.putpalette([10, 20, 30, 200, 100, 0, 0, 0, 255, 255, 255, 255])
    colours = np.array([[10, 20, 30], [200, 100, 0], [0, 0, 255], [255, 255, 255]])[GREY // 64]
    ink = np.dstack([COLOUR, ALPHA])
    black = {"save_all": True, "append_images": [Image.new("L", (W, H))]}
    kinds = {
        "a-grey.png": (GREY, None, {}, GREY),
        "b-colour.png": (COLOUR, None, {}, COLOUR),
        "c-bits.png": (two, "1", {}, two),
        "d-sixteen.png": (GREY.astype(np.uint16) * 257, None, {}, GREY),
        "e-palette.png": (palette, None, {}, colours),
        "f-clear-grey.png": (Image.merge("LA", [Image.fromarray(GREY), Image.fromarray(ALPHA)]), None, {}, None),
        "g-clear.png": (np.dstack([COLOUR, ALPHA]), None, {}, on_white(COLOUR, ALPHA[..., None])),
        "h-clear-palette.gif": (palette, None, {"transparency": 3}, colours),
        "i-ink.tif": (Image.fromarray(ink, "CMYK"), None, {}, (255 - ink[..., :3]) * (1 - ink[..., 3:] / 255.0)),
        "j-damaged-exif.png": (GREY, None, {"exif": b"damaged"}, GREY),
        "k-moving.gif": (Image.fromarray(GREY), None, black, GREY),
        "l-named-otherwise.dat": (GREY, None, {"format": "BMP"}, GREY),
        "m-no-suffix": (GREY, None, {"format": "TIFF"}, GREY),
    }  # fmt: skip
    expected = {}
    for name, (pixels, mode, options, wanted) in kinds.items():
        save(folder, name, pixels, mode, **options)
        expected[name] = on_white(GREY, ALPHA) if wanted is None else wanted
    return expected


@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated")
def test_every_kind_of_image_is_read(tmp_path):
    expected = write_kinds(tmp_path / "all")
    done = convert(tmp_path / "all", tmp_path / "all.zarr")
    found = stored(tmp_path / "all.zarr")
    assert (done.n_images, done.shape, done.n_resized, done.skipped) == (len(expected), (H, W, 3), 0, ())
    assert found["sample"].tolist() == sorted(expected)
    assert found["channel"].tolist() == ["red", "green", "blue"]
    assert "label" not in found
    for name, image in zip(sorted(expected), found["image"].astype(float), strict=True):
        wanted = expected[name]
        wanted = wanted if wanted.ndim == 3 else np.repeat(wanted[..., None], 3, axis=2)
        # Blending in whole numbers may be one off.
        np.testing.assert_allclose(image, wanted, atol=1 if "clear" in name or "ink" in name else 0, err_msg=name)
    # The grey of a colour, by the weights of television.
    convert(tmp_path / "all", tmp_path / "grey.zarr", grey=True)
    weighted = COLOUR @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(stored(tmp_path / "grey.zarr")["image"][1], weighted, atol=1)


def test_cameras_are_turned_back(tmp_path):
    # By where EXIF has the first row and the first column of what was seen.
    held = {
        1: GREY, 2: GREY[:, ::-1], 3: GREY[::-1, ::-1], 4: GREY[::-1], 5: GREY.T, 6: np.rot90(GREY),
        7: GREY[::-1, ::-1].T, 8: np.rot90(GREY, -1),
    }  # fmt: skip
    for orientation, pixels in held.items():
        save(tmp_path / "in", f"{orientation}.png", np.ascontiguousarray(pixels), exif=turned(orientation))
    done = convert(tmp_path / "in", tmp_path / "out.zarr")
    assert done.n_resized == 0
    np.testing.assert_array_equal(stored(tmp_path / "out.zarr")["image"], [GREY] * 8)
    # The first one lies: its shape is that of what was seen.
    for name in "12345":
        (tmp_path / "in" / f"{name}.png").unlink()
    assert convert(tmp_path / "in", tmp_path / "lying.zarr").shape == (H, W)


def test_grey_is_kept_if_all_are(tmp_path):
    save(tmp_path / "in", "a.png", GREY)
    grey_palette = Image.fromarray(GREY).convert("P")
    save(tmp_path / "in", "b.png", grey_palette)
    assert convert(tmp_path / "in", tmp_path / "grey.zarr").shape == (H, W)
    np.testing.assert_array_equal(stored(tmp_path / "grey.zarr")["image"], [GREY, GREY])
    done = convert(tmp_path / "in", tmp_path / "rgb.zarr", grey=False)
    assert "RGB" in done.lines()[0]
    assert stored(tmp_path / "rgb.zarr")["image"].shape == (2, H, W, 3)


def test_files_that_are_no_images_are_listed_and_leave_no_gap(tmp_path, monkeypatch):
    folder = tmp_path / "in"
    pictures = np.random.default_rng(3).integers(0, 256, (7, H, W)).astype(np.uint8)
    for number, picture in enumerate(pictures):
        save(folder, f"{number}.png", picture)
    whole = (folder / "3.png").read_bytes()
    # The header is whole, the pixels are not: found when the rest has been planned for.
    (folder / "2x-cut.png").write_bytes(whole[: whole.index(b"IDAT") + 10])
    (folder / "empty.png").write_bytes(b"")
    (folder / "notes.txt").write_text("no image")
    (folder / "script.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 4\nshowpage\n")
    # A SPIDER image of a stack; Pillow raises an AttributeError.
    header = np.zeros(27, ">f4")
    header[[1, 4, 11, 12, 21, 22, 26]] = 4, 1, 4, 1, 108, 108, 1
    (folder / "micrograph.spi").write_bytes(header.tobytes() + bytes(64))
    save(folder, "floats.tif", Image.fromarray(np.ones((H, W), np.float32)))
    save(folder, "vast.png", np.zeros((30, 40), np.uint8))
    save(folder, ".hidden.png", GREY)
    save(folder, ".hidden/inside.png", GREY)
    save(tmp_path / "elsewhere", "a.png", GREY)
    os.mkfifo(folder / "pipe.png")
    (folder / "broken.png").symlink_to("nowhere.png")
    (folder / "loop").symlink_to(folder)
    (folder / "other").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    monkeypatch.setattr(streampca.run.images, "CHUNK_BYTES", 2 * H * W)
    done = convert(folder, folder / "out.zarr")
    found = stored(folder / "out.zarr")
    np.testing.assert_array_equal(found["image"], pictures)
    assert zarr.open_array(folder / "out.zarr/image").chunks == (2, H, W)
    assert found["sample"].tolist() == [f"{number}.png" for number in range(7)]
    reasons = dict(done.skipped)
    assert reasons.keys() == {
        "2x-cut.png", "broken.png", "empty.png", "floats.tif", "micrograph.spi", "notes.txt", "pipe.png", "script.eps",
        "vast.png",
    }  # fmt: skip
    assert {reasons[name] for name in ("notes.txt", "script.eps", "micrograph.spi")} == {
        "not an image of a known format"
    }
    assert "1000 allowed" in reasons["vast.png"]
    lines = (folder / "out.zarr.skipped.txt").read_text().splitlines()
    assert dict(line.split("\t") for line in lines) == reasons
    assert "9 files skipped" in "\n".join(done.lines())
    # Anew, with the store of before in the folder; a list that is not true any more goes.
    for name in reasons:
        (folder / name).unlink()
    again = convert(folder, folder / "out.zarr", overwrite=True)
    assert (again.n_images, again.skipped) == (7, ())
    assert not (folder / "out.zarr.skipped.txt").exists()


@pytest.mark.parametrize("crop", [False, True])
def test_shapes_are_made_one(tmp_path, crop):
    middle = np.zeros((20, 40), np.uint8)
    middle[:, 10:30] = 255
    save(tmp_path / "in", "a.png", np.full((20, 20), 255, np.uint8))
    save(tmp_path / "in", "b.png", middle)
    save(tmp_path / "in", "c.jpg", np.full((640, 320, 3), (250, 10, 10), np.uint8))
    done = convert(tmp_path / "in", tmp_path / "out.zarr", crop=crop)
    assert (done.shape, done.n_resized) == ((20, 20, 3), 2)
    image = stored(tmp_path / "out.zarr")["image"][..., 0]
    # What is cut off at both sides was black.
    assert bool((image[1] == 255).all()) is crop
    assert image[1, :, 0].max() == (255 if crop else 0)
    assert image[1, :, 9:11].min() == 255
    assert abs(image[2].astype(int) - 250).max() <= 3
    sized = convert(tmp_path / "in", tmp_path / "sized.zarr", size=(8, 5), crop=crop)
    assert (sized.shape, sized.n_resized) == ((8, 5, 3), 3)


def test_labels_of_folders_and_tables(tmp_path):
    folder = tmp_path / "in"
    for name in ("x/1.png", "x/deep/2.png", "y/3.png", "0.png"):
        save(folder, name, GREY)
    done = convert(folder, tmp_path / "a.zarr")
    assert stored(tmp_path / "a.zarr")["label"].tolist() == ["", "x", "x/deep", "y"]
    assert (done.n_labels, done.n_unlabelled) == (3, 1)
    table = folder / "who.tsv"
    table.write_text("path\tage\tperson\n3.png\t4\tEva\n0.png\t5\tAda\n1.png\t6\tAda\n")
    done = convert(folder, tmp_path / "b.zarr", labels=table)
    assert stored(tmp_path / "b.zarr")["label"].tolist() == ["Ada", "Ada", "", "Eva"]
    assert (done.n_labels, done.n_unlabelled, done.skipped) == (2, 1, ())
    convert(folder, tmp_path / "c.zarr", labels=f"{table}:age")
    assert stored(tmp_path / "c.zarr")["label"].tolist() == ["5", "6", "", "4"]
    # By path, for names that are there twice; numbers are labels as well.
    save(folder, "y/1.png", GREY)
    (folder / "0.png").unlink()
    with pytest.raises(InputError, match="has no sample id like"):
        convert(folder, tmp_path / "d.zarr", labels=table)
    assert not (tmp_path / "d.zarr").exists()
    table.write_text("".join(f"{name}\t{i}.5\n" for i, name in enumerate(("x/1.png", "y/1.png", "y/3.png"))))
    convert(folder, tmp_path / "d.zarr", labels=table)
    assert stored(tmp_path / "d.zarr")["label"].tolist() == ["0.5", "", "1.5", "2.5"]


def test_few_images_are_held_at_a_time(tmp_path, monkeypatch):
    for number in range(120):
        save(tmp_path / "in", f"{number:03d}.png", np.full((H, W), number, np.uint8))
    monkeypatch.setattr(streampca.run.images, "CHUNK_BYTES", 8 * H * W)
    alive, most = weakref.WeakValueDictionary(), []
    read = streampca.run.images._Reader._read

    def watched(self, path):
        image, resized = read(self, path)
        alive[path] = image
        most.append(len(alive))
        return image, resized

    monkeypatch.setattr(streampca.run.images._Reader, "_read", watched)
    steps = []
    convert(tmp_path / "in", tmp_path / "out.zarr", progress=steps.append)
    assert stored(tmp_path / "out.zarr")["image"][:, 0, 0].tolist() == list(range(120))
    assert len(most) == 120
    assert max(most) <= 2 * max(8, streampca.run.images.thread_count())
    assert steps[-1].label == "converting"
    assert steps[-1].done == steps[-1].total > 1


@pytest.mark.parametrize(("text", "size"), [("64x48", (64, 48)), ("32", (32, 32)), ("0x4", None), ("64x", None)])
def test_size_of_text(text, size):
    if size:
        assert parse_size(text) == size
    else:
        with pytest.raises(InputError, match="64x48") as error:
            parse_size(text)
        one_line(error)


def test_what_cannot_be_converted(tmp_path):
    (tmp_path / "in").mkdir()
    with pytest.raises(InputError, match="none of 0 files is an image"):
        convert(tmp_path / "in", tmp_path / "out.zarr")
    (tmp_path / "in/a.png").write_text("none")
    with pytest.raises(InputError, match="none of 1 files is an image"):
        convert(tmp_path / "in", tmp_path / "out.zarr")
    with pytest.raises(InputError, match="size, grey is for folders of images"):
        convert(tmp_path / "study.bed", tmp_path / "out.vcz", size=(4, 4), crop=False, grey=False, labels=None)
    with pytest.raises(InputError, match="height and width"):
        convert(tmp_path / "in", tmp_path / "out.zarr", size=(4, 0))
    with pytest.raises(InputError, match="labels must be one column, got person, age"):
        convert(tmp_path / "in", tmp_path / "out.zarr", labels="people.tsv:person,age")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_images_that_memory_does_not_hold_are_refused(tmp_path):
    simulate_faces(tmp_path / "people", 1, 2, size=16)
    with pytest.raises(InputError, match="conversion needs at least .* MB of memory"):
        convert(tmp_path / "people", tmp_path / "out.zarr", size=(999_999, 999_999))
    assert [path.name for path in tmp_path.iterdir()] == ["people"]


def test_few_faces_and_copies_are_evaluated(tmp_path):
    images, who = Cast.of(2, 6, size=16).draw(0, 12), np.repeat(["a", "b"], 6)
    lines = []
    evaluate(Faces(images, who), 11, tmp_path / "x.png", lines.append)
    assert "recognition of 2 people by 4 scores" in "\n".join(lines)
    evaluate(Faces(np.repeat(images[[0, 6]], 6, axis=0), who), 11, tmp_path / "x.png", lines.append)
    assert lines[-1].endswith("AUC against faces 1.000")


def test_demos_reject_options_of_others(here):
    code, _, err = here("demo", "digits", "--images", "people")
    assert (code, err.count("\n")) == (2, 1)
    assert "--images is for `demo faces`, not for `demo digits`" in err


def test_a_folder_becomes_components_that_know_their_labels_and_what_is_far(here, tmp_path):
    simulate_faces(tmp_path / "people", 4, 5, size=16)
    code, out, err = here("convert", "people", "faces.zarr", "--size", "12x10", "--crop", "--quiet")
    assert code == 0, err
    assert "20 grey images of 12 x 10, 20 of them resized\n4 labels\nstore: faces.zarr" in out
    assert here("pca", "faces.zarr", "-k", "5", "--out", "faces.pca.zarr", "--quiet")[0] == 0
    result = load(tmp_path / "faces.pca.zarr")
    assert result["components"].dims == ("component", "y", "x")
    assert result["label"].values.tolist() == [f"person-{1 + i // 5:03d}" for i in range(20)]
    assert result["sample"].values[0] == "person-001/01.png"
    # Faces as they were, and noise.
    faces = stored(tmp_path / "faces.zarr")["image"]
    noise = np.random.default_rng(0).integers(0, 256, (3, 12, 10)).astype(np.uint8)
    np.save(tmp_path / "new.npy", np.concatenate([faces, noise]))
    code, out, err = here("project", "faces.pca.zarr", "new.npy", "--out", "new.scores.zarr", "--quiet")
    assert code == 0, err
    scores = xarray.open_zarr(tmp_path / "new.scores.zarr", consolidated=False)
    X = faces.reshape(20, -1).astype(float)
    model = decomposition.PCA(5).fit(X)
    rows = np.concatenate([faces, noise]).reshape(23, -1)
    left = rows - model.inverse_transform(model.transform(rows))
    wanted = np.linalg.norm(left, axis=1)
    np.testing.assert_allclose(scores["distance"].values, wanted, rtol=1e-3)
    assert scores.attrs["typical_distance"] == pytest.approx(np.sqrt(np.mean(wanted[:20] ** 2)), rel=1e-5)
    assert scores.attrs["n_far"] == int((wanted > 2 * scores.attrs["typical_distance"]).sum()) >= 3


@pytest.mark.parametrize("shape", [(60, 8), (9, 40)])
def test_distances_are_those_of_residuals(rng, shape):
    X = rng.standard_normal(shape) * rng.uniform(1, 5, shape[1]) + 100
    X[rng.random(shape) < 0.05] = np.nan
    found, _ = fit_pca(open_source(X), PCAOptions(n_components=4, scale="unit", missing="mean"))
    new = rng.standard_normal((30, shape[1])) * 9 + 100
    # In the space itself: nothing is left.
    new[0] = found.mean + found.scale * (np.array([1.0, -2.0, 3.0, 0.5]) @ found.components)
    new[1, 2] = np.nan
    A = np.nan_to_num((new - found.mean) / found.scale)
    wanted = np.linalg.norm(A - A @ found.components.T @ found.components, axis=1)
    ours = distances(*project(open_source(new), found, "mean"))
    np.testing.assert_allclose(ours[1:], wanted[1:], rtol=1e-9)
    assert ours[0] <= 1e-6 * np.linalg.norm(A[0])
    fitted = distances(*project(open_source(X), found, "mean"))
    assert found.typical_distance == pytest.approx(np.sqrt(np.mean(fitted**2)))
    assert fit_pca(open_source(X), PCAOptions(n_components="all", missing="mean"))[0].typical_distance <= 1e-5


def test_drawn_faces_depend_on_the_seed_alone(tmp_path):
    cast = Cast.of(5, 6, size=32)
    faces = cast.draw(0, 30)
    np.testing.assert_array_equal(np.concatenate([cast.draw(0, 7), cast.draw(7, 30)]), faces)
    assert (Cast.of(5, 6, size=32, seed=1).draw(0, 30) != faces).mean() > 0.5
    assert simulate_faces(tmp_path / "in", 5, 6, size=32) == 30
    convert(tmp_path / "in", tmp_path / "out.zarr")
    np.testing.assert_array_equal(stored(tmp_path / "out.zarr")["image"], faces)
    # People look like themselves, more than like each other.
    X = faces.reshape(30, -1).astype(float)
    apart = np.linalg.norm(X[:, None] - X[None], axis=2) + np.where(np.eye(30), np.inf, 0)
    assert np.mean(cast.person[apart.argmin(axis=1)] == cast.person) >= 0.9


def field(lat, turned=False):
    """Components of a field whose north, and whose west, goes up and down."""
    lon = np.linspace(0, 30, 7)
    t = np.arange(12.0)[:, None, None]
    values = np.sin(t) * np.sign(lat)[:, None] * np.ones(7) + 0.03 * np.cos(2.3 * t) * (lon - 12)
    array = xarray.DataArray(values, dims=("time", "lat", "lon"), coords={"lat": lat, "lon": lon})
    result = PCA(2).fit(array.transpose("time", "lon", "lat") if turned else array).result_.copy(deep=True)
    result["mean"].loc[{"lat": lat.min(), "lon": 0}] = np.nan
    return result


def test_fields_are_drawn_with_north_up_and_missing_cells_blank(tmp_path):
    lat = np.linspace(-50, 50, 6)
    drawn = []
    for number, result in enumerate((field(lat), field(lat[::-1]), field(lat, turned=True))):
        path = tmp_path / f"{number}.png"
        draw_figure(result, "components", path)
        with Image.open(path) as picture:
            drawn.append(np.asarray(picture.convert("RGB")).astype(int))
    np.testing.assert_array_equal(drawn[1], drawn[0])
    np.testing.assert_array_equal(drawn[2], drawn[0])
    # PC1 is north against south: red where it is above 0, which is the upper half, or blue.
    third = drawn[0].shape[1] // 3
    part = drawn[0][:, third : 2 * third]
    rows = [np.flatnonzero((sign * (part[..., 0] - part[..., 2]) > 80).any(axis=1)) for sign in (1, -1)]
    red_above = field(lat)["components"].sel(component=1, lat=50).values.mean() > 0
    upper, lower = rows if red_above else rows[::-1]
    assert upper.max() < lower.min()
    # South-west has no data.
    assert (part[int(lower.max()) - 5, : third // 3] == 255).all(axis=-1).any()


def test_reconstructions_and_what_cannot_be_drawn(rng, tmp_path):
    X = rng.integers(0, 256, (15, 5, 4, 3)).astype(np.uint8)
    fitted = PCA(6, scale="unit").fit(xarray.DataArray(X, dims=("sample", "y", "x", "channel"))).result_
    few = X[:3].astype(float)
    flat = X.reshape(15, -1).astype(float)
    mean, scale = flat.mean(axis=0), flat.std(axis=0, ddof=1)
    V = np.linalg.svd((flat - mean) / scale, full_matrices=False)[2]
    ours = reconstructions(fitted, few, (2, 6, 50))
    assert list(ours) == [2, 6]
    for k, images in ours.items():
        wanted = ((flat[:3] - mean) / scale) @ V[:k].T @ V[:k] * scale + mean
        np.testing.assert_allclose(images.reshape(3, -1), wanted, atol=0.01)
    draw_figure(fitted, "components", tmp_path / "gallery.png")
    with Image.open(tmp_path / "gallery.png") as picture:
        assert min(picture.size) > 100
    with pytest.raises(InputError, match="the samples have 20 features"):
        reconstructions(fitted, X[:3, ..., 0], (2, 6))
    with pytest.raises(InputError, match="the features are feature; a picture needs two dimensions") as error:
        draw_figure(PCA(2).fit(flat).result_, "components", tmp_path / "none.png")
    one_line(error)


def test_no_faces_are_as_bright_as_faces(rng):
    rows = rng.uniform(0, 255, (6, 8 * 9 * 3)).astype(np.float32)
    for name, others in not_faces(rows, (8, 9, 3), rng).items():
        assert others.shape == rows.shape
        np.testing.assert_allclose(others.mean(axis=1), rows.mean(axis=1), rtol=1e-4, err_msg=name)
        np.testing.assert_allclose(others.std(axis=1), rows.std(axis=1), rtol=1e-4, err_msg=name)
        assert np.abs(others - rows).mean() > 10


def test_the_faces_demo_reports_correct_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("streampca.demos.faces.PEOPLE", 8)
    monkeypatch.setattr("streampca.demos.faces.N_COMPONENTS", 9)
    monkeypatch.setattr("streampca.demos.faces.PICTURES", 6)
    lines = []
    pictures = demo_faces(Demo(tmp_path, lines.append, memory="4GB"))
    assert [path.name for path in pictures] == [
        "faces-gallery.png", "faces-reconstructions.png", "faces-denoising.png", "faces.html",
    ]  # fmt: skip
    assert all(path.stat().st_size > 10_000 for path in pictures)
    text = "\n".join(lines)
    # Recognition again, by scikit-learn alone.
    found = stored(tmp_path / "faces.zarr")
    X, y = found["image"].reshape(48, -1).astype(float), np.array(found["label"].tolist())
    right = np.zeros((48, 2))
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        model = decomposition.PCA(9).fit(X[train])
        for i, judge in enumerate((KNeighborsClassifier(1), GaussianNB())):
            right[test, i] = judge.fit(model.transform(X[train]), y[train]).predict(model.transform(X[test])) == y[test]
    wanted = [f"{share:.1%}" for share in right.mean(axis=0)]
    assert re.findall(r"nearest neighbour (\S+), naive Bayes (\S+)", text) == [tuple(wanted)]
    before, after = map(float, re.findall(r"PSNR (\S+) dB, (\S+) dB", text)[0])
    assert before == pytest.approx(20 * np.log10(255 / 40), abs=0.1)
    assert after > before + 3
    areas = dict(re.findall(r"  (.+): .*AUC against faces (\S+)", text))
    assert areas.keys() == {"noise", "stripes", "patches", "shuffled pixels"}
    assert min(map(float, areas.values())) > 0.9
    # Something else of that name is left alone.
    (tmp_path / "faces/mine.txt").write_text("mine")
    with pytest.raises(InputError, match="were not simulated here"):
        demo_faces(Demo(tmp_path, lines.append, memory="4GB"))
