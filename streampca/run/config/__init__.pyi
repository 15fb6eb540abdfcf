from .blocks import Config as Config
from .blocks import differences as differences
from .build import build as build
from .describing import schema as schema
from .describing import starter as starter
from .describing import upgrade as upgrade
from .reading import load as load
