"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.autograd.boxes import getval, isbox
from tapegraph.autograd.scipy import array_of, checked, exp_of, formula_of, passed_on
from tapegraph.errors import message
from tapegraph.pytree import mapped
from tapegraph.recording.numpy_functions import peek
from tapegraph.recording.record import tensor_like

_of_stats = formula_of("stats.multivariate_normal")


@_of_stats
def logpdf(x: Any, mean: Any = None, cov: Any = 1.0, allow_singular: bool = False) -> Any:
    """Return the logarithm of the density, of vectors along the last axis."""
    shape = np.shape(_checked("logpdf", x, mean, cov, allow_singular=allow_singular))
    x, mean, cov = _arguments(x, mean, cov)
    z = x - mean
    n = cov.shape[-1]
    if allow_singular:
        squares, n, logdet = _on_the_support(z, cov)
    else:
        solved = np.linalg.solve(cov, np.reshape(z, (-1, n)).T).T
        squares = np.sum(z * np.reshape(solved, z.shape), axis=-1)
        logdet = np.linalg.slogdet(cov)[1]
    return np.reshape(-0.5 * (squares + n * math.log(2 * math.pi) + logdet), shape)


pdf = _of_stats(exp_of(logpdf))


@_of_stats
def entropy(mean: Any = None, cov: Any = 1.0) -> Any:
    """Return the differential entropy, of a covariance that is not singular."""
    _checked("logpdf", mean, mean, cov)  # SciPy's own takes singular ones
    _, _, cov = _arguments(mean, mean, cov)
    n = cov.shape[-1]
    return 0.5 * (n * (1.0 + math.log(2 * math.pi)) + np.linalg.slogdet(cov)[1])


def _on_the_support(z: Any, cov: Any) -> tuple[Any, int, Any]:
    """Return the squares, the rank and the logarithm of the determinant where the density lives.

    As SciPy has it: eigenvalues below a million roundings of the largest are zero, and
    outside of the space of the others the density is zero.
    """
    if isbox(cov):
        fix = "Leave allow_singular= away, or differentiate by x and mean."
        received = "a traced cov with allow_singular=True"
        raise NotImplementedError(message("multivariate_normal", received, "a plain one", fix))
    values, vectors = np.linalg.eigh(getval(cov))
    small = 1e6 * np.finfo(values.dtype).eps * np.abs(values).max(initial=0.0)
    kept = values > small
    squares = np.sum((z @ (vectors[:, kept] / np.sqrt(values[kept]))) ** 2, axis=-1)
    if not kept.all():
        off = np.linalg.norm(getval(z) @ vectors[:, ~kept], axis=-1)
        squares = squares + np.where(off < 1e3 * small, 0.0, np.inf)
    return squares, int(kept.sum()), np.log(values[kept]).sum()


def _checked(name: str, x: Any, mean: Any, cov: Any, **options: Any) -> Any:
    """Return SciPy's value, and refuse what it refuses, and what is not symmetric besides."""
    place = 0.0 if x is None else x
    value = checked("stats.multivariate_normal", name, place, mean, cov, **options)
    plain = np.asarray(mapped(peek, cov))
    if plain.ndim == 2 and abs(plain - plain.T).max() > 1e-5 * abs(plain).max():
        fix = "Write 0.5 * (cov + cov.T), or give both triangles."
        received = "a cov that is not symmetric"
        raise ValueError(message(f"multivariate_normal.{name}", received, "a symmetric one", fix))
    return value


def _arguments(x: Any, mean: Any, cov: Any) -> tuple[Any, Any, Any]:
    """Return the arguments as tensors: vectors along a last axis, and a matrix."""
    x, mean, cov = (
        tensor_like("multivariate_normal", array_of(0.0 if part is None else part))
        for part in (x, mean, cov)
    )
    n = max(cov.shape[-1] if cov.ndim else 1, mean.shape[-1] if mean.ndim else 1)
    if cov.ndim < 2:
        cov = np.eye(n) * cov
    if n == 1 and (x.ndim == 0 or x.shape[-1] != 1):
        x = np.expand_dims(x, -1)
    return x, mean, cov


def __getattr__(name: str) -> Any:
    return passed_on("stats.multivariate_normal", name)
