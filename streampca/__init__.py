"""Principal components of matrices too big for memory, with a bound on memory and a bound on error."""

import lazy_loader

__version__ = "0.7.0"
# The public names are in __init__.pyi alone; each is imported when it is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
