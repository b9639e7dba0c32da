"""Activations of networks, composed of recorded operations."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING

from tapegraph.ops.elementwise import expm1, where
from tapegraph.recording.record import tensor_like
from tapegraph.typed import ArrayLike

if TYPE_CHECKING:
    from tapegraph.typed import Kind

__all__ = ["elu", "leaky_relu"]


def leaky_relu(x: Kind | ArrayLike, negative_slope: float = 0.01) -> Kind:
    """``x`` above 0 and ``negative_slope * x`` elsewhere; the derivative at 0 is the slope.

    :param x: Any shape, float32 or float64.
    :param negative_slope: The factor of what is not above 0.
    :returns: Tensor of ``x``'s shape and dtype.

    >>> tg.leaky_relu([-2.0, 3.0], 0.5).numpy()
    array([-1.,  3.])
    """
    array = tensor_like("leaky_relu", x)
    return where(array > 0, array, array * negative_slope)


def elu(x: Kind | ArrayLike, alpha: float = 1.0) -> Kind:
    """``x`` above 0 and ``alpha * (exp(x) - 1)`` elsewhere; the derivative at 0 is ``alpha``.

    :param x: Any shape, float32 or float64.
    :param alpha: What is approached far below 0, negated.
    :returns: Tensor of ``x``'s shape and dtype.

    >>> tg.elu([-1000.0, 3.0]).numpy()
    array([-1.,  3.])
    """
    array = tensor_like("elu", x)
    above = array > 0
    # The branch not taken would overflow.
    return where(above, array, expm1(where(above, 0.0, array)) * alpha)
