"""The derivative of every element-wise operation, stated once: one slope per input.

From it come the VJP row of the native engine, the JVP row, both at any order, and the gradient of
the TensorFlow graph, where TensorFlow's own is not the one agreed and where zeros must absorb.
The same file name holds an operation's forward in ``tapegraph/ops/``.
"""

from __future__ import annotations

from tapegraph.differentiation.slopes import elementwise, special
from tapegraph.differentiation.slopes.rules import Divisor, Linear, Slope, Slopes

SLOPES: Slopes = elementwise.SLOPES | special.SLOPES

__all__ = ["SLOPES", "Divisor", "Linear", "Slope", "Slopes"]
