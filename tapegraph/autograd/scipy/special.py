"""`scipy.special`, differentiable."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.autograd.scipy.of_scipy import formula_of, passed_on, primitive_of, slopes
from tapegraph.ops import special as ops
from tapegraph.recording.record import tensor_like

_in_special = formula_of("special")

betainc = primitive_of("special", "betainc")
slopes(
    betainc,
    x2=lambda ans, a, b, x: np.exp(ops.xlogy(a - 1, x) + ops.xlog1py(b - 1, -x) - ops.betaln(a, b)),
)
erfcinv = primitive_of("special", "erfcinv")
slopes(erfcinv, x0=lambda ans, x: -0.5 * math.sqrt(math.pi) * np.exp(ans**2))
gammainc = primitive_of("special", "gammainc")
slopes(gammainc, x1=lambda ans, a, x: np.exp(-x + ops.xlogy(a - 1, x) - ops.gammaln(a)))
gammaincc = primitive_of("special", "gammaincc")
slopes(gammaincc, x1=lambda ans, a, x: -np.exp(-x + ops.xlogy(a - 1, x) - ops.gammaln(a)))
rgamma = primitive_of("special", "rgamma")
slopes(rgamma, x0=lambda ans, x: -ops.psi(x) * ans)

jn = primitive_of("special", "jn")
slopes(jn, x1=lambda ans, n, x: 0.5 * (jn(n - 1, x) - jn(n + 1, x)))
yn = primitive_of("special", "yn")
slopes(yn, x1=lambda ans, n, x: 0.5 * (yn(n - 1, x) - yn(n + 1, x)))
y0, y1 = primitive_of("special", "y0"), primitive_of("special", "y1")
slopes(y0, x0=lambda ans, x: -y1(x))
slopes(y1, x0=lambda ans, x: 0.5 * (y0(x) - yn(2, x)))
iv = primitive_of("special", "iv")
slopes(iv, x1=lambda ans, n, x: 0.5 * (iv(n - 1, x) + iv(n + 1, x)))
ive = primitive_of("special", "ive")
slopes(ive, x1=lambda ans, n, x: 0.5 * (ive(n - 1, x) + ive(n + 1, x)) - np.sign(x) * ans)


@_in_special
def polygamma(n: int, x: Any) -> Any:
    """Differentiate digamma ``n`` times."""
    return ops.polygamma(int(n), x)


@_in_special
def multigammaln(a: Any, d: int) -> Any:
    """Return the logarithm of the gamma function of ``d`` dimensions, a sum of ``gammaln``."""
    parts = (ops.gammaln(a - 0.5 * j) for j in range(d))
    return sum(parts, 0.25 * d * (d - 1) * math.log(math.pi))


@_in_special
def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False) -> Any:
    """Return ``log(sum(b exp(a)))``."""
    a = tensor_like("logsumexp", np.stack(a) if isinstance(a, (list, tuple)) else a)
    if b is None:
        return ops.logsumexp(a, axis=axis, keepdims=keepdims)
    peak = np.max(a, axis=axis, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    total = np.log(np.sum(b * np.exp(a - peak), axis=axis, keepdims=True)) + peak
    return total if keepdims else np.squeeze(total, axis)


def __getattr__(name: str) -> Any:
    """Return SciPy's function of a name: ``erf``, ``gammaln``, ``expit`` and so on."""
    return passed_on("special", name)
