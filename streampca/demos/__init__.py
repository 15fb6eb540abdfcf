"""Demonstrations: small stories that run anywhere, each with pictures and a page to look through at the end."""

from streampca.demos.stories import STORIES
from streampca.demos.telling import Teller

__all__ = ["STORIES", "Teller"]
