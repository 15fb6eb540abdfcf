"""What all estimators have in common: parameters, and errors for names of version 0.7."""

from __future__ import annotations

import inspect

import pytest

import streampca
from streampca import InputError
from streampca.models.dual.options import DualPPCAOptions
from streampca.models.kernel_pca.options import KernelPCAOptions
from streampca.models.mixture.options import MixtureOptions
from streampca.models.pca.options import PCAOptions
from streampca.models.pcr.options import PCROptions
from streampca.models.ppca.options import FactorAnalysisOptions, PPCAOptions

OPTIONS = {
    "PCA": PCAOptions,
    "PPCA": PPCAOptions,
    "FactorAnalysis": FactorAnalysisOptions,
    "KernelPCA": KernelPCAOptions,
    "PCR": PCROptions,
    "MixtureOfPPCA": MixtureOptions,
    "DualPPCA": DualPPCAOptions,
}
# Parameters of estimators that are no options of the model.
OWN = {"memory_limit": None, "progress": None, "whiten": False}


@pytest.mark.parametrize("name", OPTIONS)
def test_parameters_and_defaults_are_those_of_the_options_record(name):
    parameters = inspect.signature(getattr(streampca, name).__init__).parameters
    defaults = {p.name: p.default for p in parameters.values() if p.name != "self"}
    own = {key: default for key, default in OWN.items() if key in defaults}
    assert own.keys() >= {"memory_limit", "progress"}
    assert defaults == {key: field.default for key, field in OPTIONS[name].fields.items()} | own


@pytest.mark.parametrize("name", OPTIONS)
def test_parameters_of_version_07_raise_an_error_with_the_new_name(name):
    with pytest.raises(TypeError, match=rf"{name}\(memory=...\) is now {name}\(memory_limit=...\)"):
        getattr(streampca, name)(memory="1GB")


def test_target_is_now_target_trace():
    with pytest.raises(TypeError, match=r"is now KernelPCA\(target_trace=...\)"):
        streampca.KernelPCA(2, target=0.9)
    # Not so of estimators that never had it.
    with pytest.raises(TypeError, match="unexpected keyword argument 'target'"):
        streampca.PCA(2, target=0.9)


@pytest.mark.parametrize("name", OPTIONS)
def test_parameters_are_checked_by_the_options_record(name):
    model = getattr(streampca, name)(n_components="some")
    with pytest.raises(InputError, match="n_components must be .*, got 'some'"):
        model.fit([[1.0, 2.0], [3.0, 5.0], [4.0, 2.0]], *([[1.0, 2.0, 3.0]] if name == "PCR" else []))
