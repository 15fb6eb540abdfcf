"""The configuration of a fit: one YAML file, or the flags of a command, checked before any data is read."""

import lazy_loader

# Flags need no YAML parser: modules are imported when a name is used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
