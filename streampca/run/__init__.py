"""Tasks from configuration to result: the driver, engines, job queues, and the cost of a run.

The names that commands use are in __init__.pyi. Each is imported when it is first used: `--help` and invalid flags do
not wait for NumPy, Dask and Zarr.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
