"""Demonstrations: small stories that run anywhere, each with pictures and a page to look through at the end."""

from streampca.demos.base import Teller
from streampca.demos.registry import STORIES

__all__ = ["STORIES", "Teller"]
