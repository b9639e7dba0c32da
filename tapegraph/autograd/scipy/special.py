"""`scipy.special`, differentiable."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from tapegraph.autograd.scipy import formula_of, passed_on, primitive_of
from tapegraph.ops import special as ops
from tapegraph.recording.record import tensor_like
from tapegraph.typed import DuckArray

_in_special = formula_of("special")
_primitive = partial(primitive_of, "special")

betainc = _primitive(
    "betainc",
    x2=lambda ans, a, b, x: np.exp(ops.xlogy(a - 1, x) + ops.xlog1py(b - 1, -x) - ops.betaln(a, b)),
)
erfcinv = _primitive("erfcinv", x0=lambda ans, x: -0.5 * math.sqrt(math.pi) * np.exp(ans**2))
gammainc = _primitive("gammainc", x1=lambda ans, a, x: _gamma_density(a, x))
gammaincc = _primitive("gammaincc", x1=lambda ans, a, x: -_gamma_density(a, x))
rgamma = _primitive("rgamma", x0=lambda ans, x: -ops.psi(x) * ans)

jn: Any = _primitive("jn", x1=lambda ans, n, x: 0.5 * (jn(n - 1, x) - jn(n + 1, x)))
yn: Any = _primitive("yn", x1=lambda ans, n, x: 0.5 * (yn(n - 1, x) - yn(n + 1, x)))
y0: Any = _primitive("y0", x0=lambda ans, x: -y1(x))
y1: Any = _primitive("y1", x0=lambda ans, x: 0.5 * (y0(x) - yn(2, x)))
iv: Any = _primitive("iv", x1=lambda ans, n, x: 0.5 * (iv(n - 1, x) + iv(n + 1, x)))
ive: Any = _primitive(
    "ive", x1=lambda ans, n, x: 0.5 * (ive(n - 1, x) + ive(n + 1, x)) - np.sign(x) * ans
)


def _gamma_density(a: DuckArray, x: DuckArray) -> DuckArray:
    return np.exp(-x + ops.xlogy(a - 1, x) - ops.gammaln(a))


@_in_special
def polygamma(n: int, x: DuckArray) -> DuckArray:
    return ops.polygamma(int(n), x)


@_in_special
def multigammaln(a: DuckArray, d: int) -> DuckArray:
    """Return the logarithm of the gamma function of ``d`` dimensions, a sum of ``gammaln``."""
    parts = (ops.gammaln(a - 0.5 * j) for j in range(d))
    return sum(parts, 0.25 * d * (d - 1) * math.log(math.pi))


@_in_special
def logsumexp(
    a: DuckArray, axis: Any = None, b: DuckArray = None, keepdims: bool = False
) -> DuckArray:
    a = tensor_like("logsumexp", np.stack(a) if isinstance(a, (list, tuple)) else a)
    if b is None:
        return ops.logsumexp(a, axis=axis, keepdims=keepdims)
    peak = np.max(a, axis=axis, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    total = np.log(np.sum(b * np.exp(a - peak), axis=axis, keepdims=True)) + peak
    return total if keepdims else np.squeeze(total, axis)


def __getattr__(name: str) -> Any:
    return passed_on("special", name)
