"""The configuration of `streampca run`: one YAML file, checked as a whole before anything is read."""

from streampca.config.blocks import Config
from streampca.config.describing import changed, schema, starter
from streampca.config.reading import load

__all__ = ["Config", "changed", "load", "schema", "starter"]
