"""Principal component analysis of matrices that do not fit in memory, with a memory limit and a measured error."""

import lazy_loader

__version__ = "0.8.0"
# The public names are in __init__.pyi; each is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
