"""Results for tests of pages, and a parser of pages."""

from __future__ import annotations

import base64
import gzip
import json
from html.parser import HTMLParser

import numpy as np
import xarray as xr

from streampca.sources.tables import Table

HOSTILE = "<script>alert('&\"x')</script>"


def made_result(n=60, k=4, *, d=12, deviations=False, ids=None, seed=0, **attributes):
    """Return a result with scores in three labelled groups: kind ppca with deviations, else pca."""
    rng = np.random.default_rng(seed)
    group = np.arange(n) % 3
    centres = 6 * rng.standard_normal((3, k))
    scores = (centres[group] + rng.standard_normal((n, k))).astype(np.float32)
    share = 0.5 ** np.arange(1, k + 1)
    variables = {
        "scores": (("sample", "component"), scores),
        "components": (("component", "feature"), np.linalg.qr(rng.standard_normal((d, k)))[0].T),
        "mean": ("feature", rng.standard_normal(d)),
        "scale": ("feature", np.ones(d)),
        "missing": ("feature", np.zeros(d, int)),
        "explained_variance": ("component", 10 * share),
        "explained_variance_ratio": ("component", share),
    }
    if deviations:
        spread = np.exp(0.1 * rng.standard_normal((n, k)))
        spread[: n // 10] *= 4
        variables["score_deviation"] = (("sample", "component"), 0.2 * spread)
        variables["log_likelihood"] = ("iteration", -100.0 / np.arange(1, 6))
    else:
        variables["certificate"] = ("component", 10.0 ** -np.arange(6, 6 - k, -1))
    coords = {
        "component": np.arange(1, k + 1),
        "iid": ("sample", np.array([f"id{i:04d}" for i in range(n)] if ids is None else ids, object)),
        "label": ("sample", np.array(["north", "south", "west"], object)[group]),
        "age": ("sample", 20.0 + np.arange(n)),
    }
    facts = {
        "kind": "ppca" if deviations else "pca", "source": "study.npy", "source_fingerprint": "abc", "n_samples": n,
        "n_features": d, "n_missing": 0, "parameters": json.dumps({"n_components": k, "tol": 1e-3}),
        "versions": json.dumps({"streampca": "0.6.0"}), "converged": 1, "advice": "", "notes": "[]", "genotypes": 0,
        "n_sweeps": 5, "bytes_read": 10**6, "seconds": 1.5, "peak_memory_bytes": 10**8, "solver": "krylov",
        "tile_dtype": "float32", "created": "2026-01-02T03:04:05+00:00", "total_variance": 10.0,
        "method": "em", "n_iterations": 4, "total_log_likelihood": -20.0, "noise_variance": 0.5,
    }  # fmt: skip
    return xr.Dataset(variables, coords, facts | attributes)


def made_table(path, **columns):
    """Return a table with these columns for all samples."""
    cells = {name: np.array(values, object) for name, values in columns.items()}
    return Table(path, cells, np.ones(len(next(iter(cells.values()))), bool))


class Page(HTMLParser):
    """The elements of a page with their attributes and texts, and its decoded payloads."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))
        self.open.append(self.elements[-1])
        if tag in ("meta", "link", "input", "img"):
            self.open.pop()

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        for _, _, texts in self.open:
            texts.append(data)

    def all(self, tag, **wanted):
        """Return attributes and text of the elements that have these attributes."""
        wanted = {name.rstrip("_"): value for name, value in wanted.items()}
        return [(a, "".join(t)) for name, a, t in self.elements if name == tag and wanted.items() <= a.items()]

    def one(self, tag, **wanted):
        (found,) = self.all(tag, **wanted)
        return found

    def text(self, tag, **wanted):
        return self.one(tag, **wanted)[1]

    def payload(self, name):
        attributes, text = self.one("script", id=name)
        content = base64.b64decode(text)
        return gzip.decompress(content) if attributes["type"] == "application/gzip" else content

    @property
    def facts(self):
        return json.loads(self.text("script", id="facts"))
