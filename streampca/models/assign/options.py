"""Options of an assignment."""

from __future__ import annotations

from typing import Annotated, Literal

from streampca.validation import Convert, Count, Limits, Options, Positive, Seed, option, plain_number


class AssignOptions(Options):
    """Assignment of samples to classes by their scores."""

    method: Literal["nn", "nb", "kde", "gmm"] = option(
        default="nb",
        description="nn: nearest neighbours; nb: naive Bayes; kde: kernel densities; gmm: groups without labels.",
    )
    outside: Annotated[float, Limits(ge=0, lt=1), Convert(plain_number)] = option(
        default=0.01, description="Share of labelled samples as unlikely as a sample of no class; 0 assigns all."
    )
    neighbours: Count = option(default=1, description="Number of neighbours that vote, for nn.")
    bandwidth: Positive | None = option(default=None, description="Width of the kernels; by cross-validation if none.")
    groups: Count | None = option(default=None, description="Number of groups, for gmm; by BIC if none.")
    max_groups: Count = option(default=12, description="Largest number of groups that is tried.")
    seed: Seed = option(default=0, description="Seed of folds, of samples that have kernels, and of mixtures.")
