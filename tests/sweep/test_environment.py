"""Workers with other software, or that round differently, are rejected before they compute anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from streampca.errors import InputError
from streampca.sweep.environment import check_environment, environment


def test_the_same_software_is_accepted():
    check_environment(environment())
    check_environment(environment() | {"kernel": "another name of the same"})


@pytest.mark.parametrize("name", ["streampca", "Python", "numpy", "BLAS", "scipy"])
def test_another_version_is_named(name):
    with pytest.raises(InputError, match=rf"on host .* has {name} .* \(the driver has 0\.1\); install the same"):
        check_environment(environment() | {name: "0.1"})


@pytest.mark.skipif("openblas" not in environment()["BLAS"], reason="only OpenBLAS lets us choose its kernel")
def test_a_processor_that_rounds_differently_is_rejected():
    code = "import json; from streampca.sweep.environment import environment; print(json.dumps(environment()))"
    found = [
        json.loads(
            subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"OPENBLAS_CORETYPE": kernel})
        )
        for kernel in ("Nehalem", "Haswell", "Haswell")
    ]
    assert found[1] == found[2]
    assert found[0]["rounding"] != found[1]["rounding"]
    other = next(one for one in found if one["rounding"] != environment()["rounding"])
    with pytest.raises(InputError, match=rf"rounds differently from the driver .*the driver's {other['kernel']}"):
        check_environment(other)
