"""One peer on one Zarr array: fit, then components and scores to disk. `dense_peers.py TOOL DATA OUT K`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import zarr


def incremental(model, data: zarr.Array) -> tuple[np.ndarray, np.ndarray]:
    """Feed an IncrementalPCA chunk by chunk, then project chunk by chunk; by quarters if a chunk has all samples."""
    n = data.shape[0]
    step = data.chunks[0] if data.chunks[0] < n else n // 4
    for i in range(0, data.shape[0], step):
        model.partial_fit(data[i : i + step])
    scores = [model.transform(data[i : i + step]) for i in range(0, data.shape[0], step)]
    return model.components_, np.concatenate(scores)


def in_memory(model, data: zarr.Array) -> tuple[np.ndarray, np.ndarray]:
    """Fit and project the whole array, which is the model's to overwrite."""
    scores = model.fit_transform(data[:])
    return model.components_, scores


def sklearn(data: zarr.Array, k: int) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.decomposition import IncrementalPCA

    return incremental(IncrementalPCA(n_components=k), data)


def sklearn_pca(data: zarr.Array, k: int, solver: str = "auto") -> tuple[np.ndarray, np.ndarray]:
    from sklearn.decomposition import PCA

    return in_memory(PCA(k, svd_solver=solver, copy=False, random_state=0), data)


def sklearnex(data: zarr.Array, k: int) -> tuple[np.ndarray, np.ndarray]:
    from sklearnex.preview.decomposition import IncrementalPCA

    return incremental(IncrementalPCA(n_components=k), data)


def sklearnex_pca(data: zarr.Array, k: int) -> tuple[np.ndarray, np.ndarray]:
    from sklearnex.decomposition import PCA

    return in_memory(PCA(k, svd_solver="covariance_eigh", copy=False), data)


def dask_ml(data: zarr.Array, k: int, power: int = 0) -> tuple[np.ndarray, np.ndarray]:
    import dask.array as da
    from dask_ml.decomposition import PCA

    x = da.from_zarr(data)
    model = PCA(n_components=k, svd_solver="randomized", iterated_power=power, random_state=0).fit(x)
    # Its transform does not run with current scikit-learn, so the scores are written out.
    return model.components_, ((x - model.mean_) @ model.components_.T).compute()


def dask_ml_incremental(data: zarr.Array, k: int) -> tuple[np.ndarray, np.ndarray]:
    import dask.array as da
    from dask_ml.decomposition import IncrementalPCA

    x = da.from_zarr(data)
    model = IncrementalPCA(n_components=k, batch_size=data.chunks[0]).fit(x)
    components, mean = np.asarray(model.components_), np.asarray(model.mean_)
    return components, ((x - mean) @ components.T).compute()


def scanpy(data: zarr.Array, k: int) -> tuple[np.ndarray, np.ndarray]:
    import anndata
    import dask.array as da
    from scanpy.pp import pca

    table = anndata.AnnData(da.from_zarr(data))
    pca(table, n_comps=k, svd_solver="covariance_eigh")
    return table.varm["PCs"].T, table.obsm["X_pca"].compute()


def svd_compressed(data: zarr.Array, k: int, compute: bool = False) -> tuple[np.ndarray, np.ndarray]:
    import dask
    import dask.array as da

    x = da.from_zarr(data)
    u, s, v = da.linalg.svd_compressed(x - x.mean(axis=0), k, n_power_iter=4, seed=0, compute=compute)
    u, s, v = dask.compute(u, s, v)
    return v, u * s


def tsqr(data: zarr.Array, k: int) -> tuple[np.ndarray, np.ndarray]:
    import dask
    import dask.array as da

    x = da.from_zarr(data)
    u, s, v = da.linalg.svd(x - x.mean(axis=0))
    u, s, v = dask.compute(u[:, :k], s[:k], v[:k])
    return v, u * s


def xeofs(data: zarr.Array, k: int) -> tuple[np.ndarray, np.ndarray]:
    import dask.array as da
    import xarray
    from xeofs.single import EOF

    # It asks for coordinates, and calls its own stacked dimensions sample and feature.
    x = xarray.DataArray(da.from_zarr(data), dims=("row", "column"))
    x = x.assign_coords(row=np.arange(x.shape[0]), column=np.arange(x.shape[1]))
    model = EOF(n_modes=k, random_state=0)
    model.fit(x, dim="row")
    components, scores = model.components(), model.scores()
    return components.transpose("mode", "column").values, scores.transpose("row", "mode").values


def floor(data: zarr.Array, name: str, threads: int) -> dict[str, float]:
    """Time one plain read, chunk by chunk on as many threads, and one sweep's products on tiles that are ready."""
    n, d = data.shape
    along = 0 if name == "tall" else 1
    step = data.chunks[along]
    pieces = [slice(i, i + step) for i in range(0, data.shape[along], step)]
    with ThreadPoolExecutor(threads) as pool:
        started = time.perf_counter()
        list(pool.map(lambda p: (data[p] if along == 0 else data[:, p]).shape, pieces))
        read = time.perf_counter() - started
        rng = np.random.default_rng(0)
        length = 2048 if along == 0 else 128
        tile = rng.standard_normal((length, d) if along == 0 else (n, length), dtype="f4")
        block = rng.standard_normal((n, 25), dtype="f4")
        product = (lambda _: tile.T @ tile) if along == 0 else (lambda _: tile @ (tile.T @ block))
        started = time.perf_counter()
        list(pool.map(product, range(-(-data.shape[along] // length))))
        return {"read": read, "products": time.perf_counter() - started}


TOOLS: dict[str, Callable[[zarr.Array, int], tuple[np.ndarray, np.ndarray]]] = {
    "sklearn": sklearn,
    "sklearn-pca": sklearn_pca,
    "sklearn-randomized": partial(sklearn_pca, solver="randomized"),
    "sklearnex": sklearnex,
    "sklearnex-pca": sklearnex_pca,
    "dask-ml": dask_ml,
    "dask-ml-power": partial(dask_ml, power=4),
    "dask-ml-incremental": dask_ml_incremental,
    "scanpy": scanpy,
    "svd_compressed": svd_compressed,
    "svd_compressed-compute": partial(svd_compressed, compute=True),
    "tsqr": tsqr,
    "xeofs": xeofs,
}


def main() -> None:
    tool, path, out, k = sys.argv[1:]
    data = zarr.open_array(path, mode="r")
    if tool == "floor":
        print(json.dumps(floor(data, out, int(k))))
        return
    components, scores = TOOLS[tool](data, int(k))
    np.save(f"{out}.components.npy", np.asarray(components))
    np.save(f"{out}.scores.npy", np.asarray(scores))


if __name__ == "__main__":
    main()
