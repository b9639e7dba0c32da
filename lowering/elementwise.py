"""Element-wise operations as TensorFlow nodes."""

from __future__ import annotations

from typing import Any

from tapegraph.lowering.rules import Rule, number, raw
from tapegraph.lowering.runtime import tensorflow
from tapegraph.ops.elementwise import GELU_CUBIC, GELU_SCALE


def _gelu(out: Any, x: Any) -> Any:
    tf = tensorflow()

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def lowered(x: Any) -> Any:
        scaled = raw.Mul(x=raw.Mul(x=x, y=x), y=number(GELU_SCALE * GELU_CUBIC, x))
        bend = raw.Tanh(x=raw.Mul(x=raw.AddV2(x=scaled, y=number(GELU_SCALE, x)), y=x))
        gate = raw.AddV2(x=bend, y=number(1.0, x))

        def gradient(g: Any) -> Any:
            # As the native engine's, with products in which a zero absorbs an infinite x^3.
            steep = (scaled * 1.5 + 0.5 * GELU_SCALE) * x
            return g * raw.MulNoNan(x=raw.MulNoNan(x=steep, y=1.0 - bend) + 0.5, y=gate)

        return raw.Mul(x=raw.Mul(x=gate, y=number(0.5, x)), y=x), gradient

    return lowered(x)


LOWERINGS: dict[str, Rule] = {
    "add": lambda out, a, b: raw.AddV2(x=a, y=b),
    "sub": lambda out, a, b: raw.Sub(x=a, y=b),
    "mul": lambda out, a, b: raw.Mul(x=a, y=b),
    "div": lambda out, a, b: raw.RealDiv(x=a, y=b),
    "pow": lambda out, a, b: raw.Pow(x=a, y=b),
    "neg": lambda out, x: raw.Neg(x=x),
    "sin": lambda out, x: raw.Sin(x=x),
    "cos": lambda out, x: raw.Cos(x=x),
    "tan": lambda out, x: raw.Tan(x=x),
    "exp": lambda out, x: raw.Exp(x=x),
    "log": lambda out, x: raw.Log(x=x),
    "sqrt": lambda out, x: raw.Sqrt(x=x),
    "tanh": lambda out, x: raw.Tanh(x=x),
    "sigmoid": lambda out, x: raw.Sigmoid(x=x),
    "relu": lambda out, x: raw.Relu(features=x),
    "abs": lambda out, x: raw.Abs(x=x),
    "gelu": _gelu,
    "silu": lambda out, x: raw.Mul(x=x, y=raw.Sigmoid(x=x)),
}
