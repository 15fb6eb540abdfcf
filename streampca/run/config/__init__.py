"""The configuration of a fit: one YAML file, or the options of a command, checked before any data is read."""

from streampca.run.config.blocks import Config, differences
from streampca.run.config.describing import schema, starter, upgrade
from streampca.run.config.reading import build, load

__all__ = ["Config", "build", "differences", "load", "schema", "starter", "upgrade"]
