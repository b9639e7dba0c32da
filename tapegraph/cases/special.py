"""Cases of ``tapegraph/ops/special.py``; those of SciPy's functions where it is installed."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.cases.case import Case, Input, anywhere, exactly, inf, positive
from tapegraph.cases.pairs import pairs
from tapegraph.ir import Array
from tapegraph.ops import special as ops

HAS_SCIPY = importlib.util.find_spec("scipy") is not None


def cases() -> Iterator[Case]:
    """Yield the family's cases."""
    if HAS_SCIPY:
        yield from _of_scipy()
    yield from _logistic()
    yield from _log_softmaxes()


def probability(*lengths: int) -> Input:
    """Sample from [0.1, 0.9)."""
    return lambda rng: rng.uniform(0.1, 0.9, lengths)


def _each(function: Callable[[float], float]) -> Callable[..., Any]:
    """Run one of `math`'s functions on every element."""
    return lambda x: np.vectorize(function, otypes=[np.float64])(x)


def _trigamma(x: Array) -> Any:
    """Sum the series of the trigamma function, and its tail by Euler and Maclaurin."""
    k = np.arange(1000.0).reshape(-1, *([1] * x.ndim))
    end = x + 1000.0
    tail = 1.0 / end + 0.5 / end**2 + 1.0 / (6.0 * end**3)
    return np.sum(1.0 / (x + k) ** 2, axis=0) + tail


def _digamma(x: Array) -> Any:
    """Climb to large arguments, and take the asymptotic series there."""
    k = np.arange(50.0).reshape(-1, *([1] * x.ndim))
    end = x + 50.0
    series = 1 / (12 * end**2) - 1 / (120 * end**4) + 1 / (252 * end**6)
    return np.log(end) - 0.5 / end - series - np.sum(1.0 / (x + k), axis=0)


def _of_scipy() -> Iterator[Case]:
    for op, function, reference, domain in (
        ("erf", ops.erf, _each(math.erf), anywhere),
        ("erfc", ops.erfc, _each(math.erfc), anywhere),
        ("erfc", ops.ndtr, _each(lambda x: 0.5 + 0.5 * math.erf(x / math.sqrt(2.0))), anywhere),
        ("gamma", ops.gamma, _each(math.gamma), positive),
        ("gammaln", ops.gammaln, _each(math.lgamma), positive),
        ("polygamma", ops.digamma, _digamma, positive),
        ("polygamma", partial(ops.polygamma, 1), _trigamma, positive),
        ("erf", lambda x: ops.erf(ops.erfinv(x)), lambda x: x, probability),
        ("erfinv", lambda x: ops.erfinv(ops.erf(x)), lambda x: x, probability),
    ):
        name = getattr(function, "__name__", "trigamma").strip("<>")
        for label, lengths in (("0d", ()), ("3d", (2, 1, 3)), ("empty", (0, 3))):
            yield Case(op, f"{name}-{label}", function, (domain(*lengths),), reference=reference)
    yield from pairs("betaln", ops.betaln, lambda a, b: np.log(_beta(a, b)), positive, positive)
    yield from pairs("exp", ops.beta, _beta, positive, positive, "beta-")
    below = exactly([-0.5, -1.5, -2.25, 170.0])
    yield Case("gammaln", "below-zero", ops.gammaln, (below,), reference=_each(math.lgamma))
    few = exactly([-0.5, -1.5, -2.25, 8.0])
    yield Case("gamma", "below-zero", ops.gamma, (few,), reference=_each(math.gamma))
    yield Case(
        "mul",
        "beta-below-zero",
        ops.beta,
        (exactly([-0.5, -1.3]), exactly([0.25, 2.5])),
        reference=_beta,
    )
    yield Case("erfinv", "ends", ops.erfinv, (exactly([-1.0, 1.0]),), expected=([inf, inf],))
    yield Case("erf", "far", ops.erf, (exactly([-100.0, 100.0]),), expected=([0.0, 0.0],))


def _beta(a: Array, b: Array) -> Any:
    gamma = _each(math.gamma)
    return gamma(a) * gamma(b) / gamma(a + b)


def _logistic() -> Iterator[Case]:
    for op, function, reference, domain in (
        ("sigmoid", ops.expit, lambda x: 1 / (1 + np.exp(-x)), anywhere),
        ("log1p", ops.logit, lambda x: np.log(x / (1 - x)), probability),
        ("logaddexp", ops.softplus, lambda x: np.log(1 + np.exp(x)), anywhere),
    ):
        for label, lengths in (("0d", ()), ("3d", (2, 1, 3)), ("empty", (0, 3))):
            label = f"{function.__name__}-{label}"
            yield Case(op, label, function, (domain(*lengths),), reference=reference)
    yield Case("log", "logit-ends", ops.logit, (exactly([0.0, 1.0]),), expected=([inf, inf],))
    yield Case(
        "logaddexp",
        "softplus-far",
        ops.softplus,
        (exactly([-1000.0, 0.0, 1000.0]),),
        expected=([0.0, 0.5, 1.0],),
    )


def _log_softmaxes() -> Iterator[Case]:
    for label, lengths, axis in (
        ("all", (2, 3), None),
        ("0d", (), None),
        ("first", (2, 3), 0),
        ("last", (2, 3, 2), -1),
        ("two", (2, 3, 2), (0, 2)),
        ("no-rows", (0, 3), -1),
    ):
        yield Case(
            "exp",
            f"log_softmax-{label}",
            partial(ops.log_softmax, axis=axis),
            (anywhere(*lengths),),
            reference=partial(_log_softmax, axis=axis),
        )
    yield Case(
        "exp",
        "log_softmax-far",
        lambda x: ops.log_softmax(x)[1:],
        (exactly([-inf, 1000.0, 1000.0]),),
        expected=([0.0, 0.0, 0.0],),
    )


def _log_softmax(x: Array, axis: Any) -> Any:
    return x - np.log(np.sum(np.exp(x), axis=axis, keepdims=True))
