"""Compiled loops, where their machine code can be kept and where it cannot."""

import numpy as np
from numba.core import caching

from streampca.sources.compiled import compiled


def total(values):
    sum_ = 0.0
    for value in values:
        sum_ += value
    return sum_


def test_loops_are_compiled_without_a_folder_for_their_code(monkeypatch):
    # As in a read-only installation, for a user without a home.
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    assert compiled(total)(np.arange(4.0)) == 6.0
