"""Strong zeros: a zero cotangent times anything is zero, and 0 * inf and 0 / 0 are 0.

Only the second sweep uses them: the cotangent brings the products of
`tapegraph.differentiation.products`, as a `StrongZero` in sweeps over arrays and a `StrongTensor`
in recorded ones.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

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
from tapegraph.recording.op import DEFINED, OPS, Attrs
from tapegraph.recording.record import ELEMENTWISE, apply, operand
from tapegraph.tensors.array_methods import ArrayMethods


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
        """Run the operation ``name`` on the tensors, so that zeros of a cotangent absorb."""
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
        """Return the tensor as a constant without history."""
        return self.primal.detach()

    def __len__(self) -> int:
        return len(self.primal)


def as_tensor(x: object) -> Any:
    """Return the tensor itself, and anything else unchanged."""
    return x.primal if isinstance(x, StrongTensor) else x
