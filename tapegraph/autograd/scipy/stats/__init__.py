"""`scipy.stats`: densities of the distributions that autograd differentiates."""

from __future__ import annotations

from typing import NoReturn

from tapegraph.autograd.scipy.stats import (
    beta,
    chi2,
    dirichlet,
    gamma,
    multivariate_normal,
    norm,
    poisson,
    t,
)
from tapegraph.errors import message

__all__ = ["beta", "chi2", "dirichlet", "gamma", "multivariate_normal", "norm", "poisson", "t"]


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(name)
    fix = "Write its density by tapegraph.autograd.numpy."
    raise AttributeError(message("scipy.stats", repr(name), f"one of {', '.join(__all__)}", fix))
