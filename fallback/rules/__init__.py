"""The table of vector-Jacobian products, the two forms of its rows, and strong zeros.

A row is a tuple with one VJP rule per input, ``rule(g, y, *inputs, **attrs)``, where ``g`` is the
cotangent of the result ``y``; or one `JointVJP` rule, ``rule(needs, g, y, *inputs, **attrs)``, that
returns one gradient per input. Values that an operation saved arrive as ``saved=``. A rule returns
the full-shape gradient; the sweep undoes broadcasting.

If ``g`` is zero the gradient must be zero even if the local derivative is not finite: rules
multiply and divide the cotangent itself. Its zeros may be strong: zero times anything is zero, and
0 * inf and 0 / 0 are 0.

On Tensors a rule is recorded and can be differentiated again. If the fast form for arrays cannot
be, a row in `RECORDED` computes from the inputs and ``y``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np

from tapegraph.differentiation.jvps import looks_finite
from tapegraph.differentiation.products import (
    DIV_STRONG,
    MUL_STRONG,
    over,
    strong_contract,
    strong_matmul,
    times,
)
from tapegraph.differentiation.slopes import Divisor, Linear, Slope, Slopes, rule_of
from tapegraph.kinds import Tensor
from tapegraph.ops import rules_of_families
from tapegraph.recording.op import DEFINED, OPS, Attrs, Op
from tapegraph.recording.record import ELEMENTWISE, apply, operand
from tapegraph.tensors.array_methods import ArrayMethods
from tapegraph.typed import Array, Fun

Rule = Fun
# One for each input, None where none is needed.
Gradients = Sequence[Array | Tensor | None]


class JointVJP:
    """One rule for all inputs, for operations whose gradients share their work."""

    __slots__ = ("rule",)

    def __init__(self, rule: Rule) -> None:
        self.rule = rule


Row: TypeAlias = "tuple[Rule | None, ...] | JointVJP"

VJPS: dict[str, Row] = {}
# The rows that run on Tensors, where those for arrays do not.
RECORDED: dict[str, Row] = {}


def recorded_row(op: Op) -> Row:
    if op.rules is not None and op.rules.recorded is not None:
        return JointVJP(op.rules.recorded)
    row = RECORDED.get(op.name, VJPS.get(op.name))
    if row is None:
        reason = "no gradient rule, so there is nothing to differentiate"
        if op.rules is not None:
            reason = (
                "only a gradient rule for arrays, which cannot be differentiated again; pass "
                "jvp= to tg.defop, which then makes a rule that can"
            )
        raise NotImplementedError(f"{op.name}: it has {reason}")
    return row


def rows_of(slopes: Slopes) -> dict[str, tuple[Rule | None, ...]]:
    return {
        name: tuple(None if slope is None else _rule(slope, len(row)) for slope in row)
        for name, row in slopes.items()
    }


# The code of the slopes of a product.
_FIRST, _SECOND = (f.__code__.co_code for f in (lambda y, a, b: a, lambda y, a, b: b))


def _rule(slope: Slope, inputs: int) -> Rule:
    if isinstance(slope, Linear):
        return slope.of
    divides = isinstance(slope, Divisor)
    of: Any = slope.of if isinstance(slope, Divisor) else slope
    attributes = any(p.kind is p.KEYWORD_ONLY for p in inspect.signature(of).parameters.values())
    if inputs == 1 and not attributes:
        return (lambda g, y, x: g / of(y, x)) if divides else (lambda g, y, x: g * of(y, x))
    if inputs == 2 and not attributes:
        if divides:
            return lambda g, y, a, b: g / of(y, a, b)
        if of.__code__.co_code == _FIRST:  # of a product: one call less
            return lambda g, y, a, b: g * a
        if of.__code__.co_code == _SECOND:
            return lambda g, y, a, b: g * b
        return lambda g, y, a, b: g * of(y, a, b)
    return rule_of(slope)


# Strong zeros


class StrongZero(np.ndarray[Any, Any]):
    """An array whose zeros stay zero under multiplication, division and matrix products."""

    def __array_ufunc__(self, ufunc: object, method: str, *inputs: Any, **kwargs: Any) -> Any:
        absorbs = tuple(isinstance(x, StrongZero) for x in inputs)
        arrays = [to_ndarray(x) for x in inputs]
        out = kwargs.pop("out", (None,))[0]
        if ufunc is np.vecdot:
            result = np.sum(to_ndarray(inputs[0] * inputs[1]), axis=kwargs.get("axis", -1))
        else:
            result = getattr(ufunc, method)(*arrays, **kwargs)
        product = _PRODUCTS.get(ufunc) if method == "__call__" else None
        if product is not None and not np.isfinite(result).all():
            # A number that overflows in the precision of the result is infinite.
            arrays = [x if hasattr(x, "dtype") else np.asarray(x, result.dtype) for x in arrays]
            result = product(*arrays, absorbs=absorbs)
        if out is not None:
            out[...] = result
            return out
        return result if result is None else strong_zeros(result)


_STRONG = {"mul": MUL_STRONG, "div": DIV_STRONG}
_PRODUCTS: dict[Any, Any] = {np.multiply: times, np.divide: over, np.matmul: strong_matmul}


def strong_zeros(array: object) -> Any:
    return np.asarray(array).view(StrongZero)


def to_ndarray(array: object) -> Any:
    return array.view(np.ndarray) if isinstance(array, StrongZero) else array


class StrongTensor(ArrayMethods):
    """A tensor whose zeros stay zero under multiplication, division and matrix products."""

    __slots__ = ("primal",)

    tag = math.inf  # its arithmetic comes before that of any level

    def __init__(self, tensor: Any) -> None:
        self.primal = tensor  # as a Dual's value: comparisons look there

    @staticmethod
    def __tapegraph_apply__(name: str, inputs: tuple[object, ...], attrs: Attrs) -> StrongTensor:
        absorbs: Any = [isinstance(x, StrongTensor) for x in inputs]
        tensors: Any = tuple(operand(name, as_tensor(x), "operand") for x in inputs)
        strong = _STRONG.get(name)
        if strong is not None:
            out = apply(strong, tensors, {"absorbs": tuple(absorbs)})
        else:
            call = ELEMENTWISE.get(name)
            op = OPS.get(name) or DEFINED[name]
            out = call(*tensors) if call else apply(op, tensors, dict(attrs))
            if not looks_finite(out):
                if name in ("matmul", "batch_matmul"):
                    out = strong_matmul(tensors[0], tensors[1], absorbs=absorbs)
                elif name == "einsum":
                    place = absorbs.index(True)
                    others = any(absorbs[:place] + absorbs[place + 1 :])
                    out = strong_contract(attrs["spec"], tensors, place, (True, others))
        return StrongTensor(out)

    shape, dtype, ndim, size, requires_grad = (
        property(attrgetter(f"primal.{name}"))
        for name in ("shape", "dtype", "ndim", "size", "requires_grad")
    )

    def detach(self) -> Any:
        return self.primal.detach()

    def __len__(self) -> int:
        return len(self.primal)


def as_tensor(x: object) -> Any:
    """Return the tensor itself, and anything else unchanged."""
    return x.primal if isinstance(x, StrongTensor) else x


VJPS.update(rules_of_families(__name__, "VJPS"))
RECORDED.update(rules_of_families(__name__, "RECORDED"))
