"""The configuration of `streampca run`: one YAML file, checked as a whole before anything is read."""

from streampca.run.config.blocks import Config
from streampca.run.config.describing import changed, schema, starter
from streampca.run.config.reading import load

__all__ = ["Config", "changed", "load", "schema", "starter"]
