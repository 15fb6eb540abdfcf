"""One peer on one Zarr array: fit, then components and scores to disk. `dense_peers.py TOOL DATA OUT K`."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import zarr


def incremental(model, data: zarr.Array) -> tuple[np.ndarray, np.ndarray]:
    """Feed an IncrementalPCA chunk by chunk, then project chunk by chunk."""
    step = data.chunks[0]
    for i in range(0, data.shape[0], step):
        model.partial_fit(data[i : i + step])
    scores = [model.transform(data[i : i + step]) for i in range(0, data.shape[0], step)]
    return model.components_, np.concatenate(scores)


def sklearn(data: zarr.Array, k: int) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.decomposition import IncrementalPCA

    return incremental(IncrementalPCA(n_components=k), data)


def sklearnex(data: zarr.Array, k: int) -> tuple[np.ndarray, np.ndarray]:
    from sklearnex.preview.decomposition import IncrementalPCA

    return incremental(IncrementalPCA(n_components=k), data)


def dask_ml(data: zarr.Array, k: int) -> tuple[np.ndarray, np.ndarray]:
    import dask.array as da
    from dask_ml.decomposition import PCA

    x = da.from_zarr(data)
    model = PCA(n_components=k, svd_solver="randomized", random_state=0).fit(x)
    # Its transform does not run with current scikit-learn, so the scores are written out.
    return model.components_, ((x - model.mean_) @ model.components_.T).compute()


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


def main() -> None:
    tool, path, out, k = sys.argv[1:]
    data = zarr.open_array(path, mode="r")
    if tool == "floor":
        print(json.dumps(floor(data, out, int(k))))
        return
    name, _, option = tool.partition("-compute")
    function = {
        "sklearn": sklearn,
        "sklearnex": sklearnex,
        "dask-ml": dask_ml,
        "scanpy": scanpy,
        "svd_compressed": svd_compressed,
    }[name]
    options = {"compute": True} if tool.endswith("-compute") else {}
    components, scores = function(data, int(k), **options)
    np.save(f"{out}.components.npy", np.asarray(components))
    np.save(f"{out}.scores.npy", np.asarray(scores))


if __name__ == "__main__":
    main()
