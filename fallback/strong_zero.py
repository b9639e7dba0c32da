"""Strong zeros: a zero cotangent absorbs what it meets, and 0 * inf and 0 / 0 are 0.

Used for the second sweep only: the rules stay as they are, and the cotangent brings this
arithmetic along, as a `StrongZero` in sweeps over arrays and a `StrongTensor` in recorded ones.
There each choice by numbers is an ``np.where``, so that it is differentiated and, in a capture,
made anew in every run.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any

import numpy as np

from tapegraph.arrays.strong_zeros import strong_product
from tapegraph.differentiation.jvps import by_elements
from tapegraph.recording.op import DEFINED, OPS, Attrs
from tapegraph.recording.record import ELEMENTWISE, apply, operand
from tapegraph.recording.scopes import recorder
from tapegraph.tensors.array_methods import ArrayMethods
from tapegraph.typed import Array


class StrongZero(np.ndarray[Any, Any]):
    """An array whose zeros stay zero under multiplication, division and matrix products."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        arrays = [to_ndarray(x) for x in inputs]
        out = kwargs.get("out")
        if out is not None:
            kwargs["out"] = tuple(to_ndarray(x) for x in out)
        if ufunc is np.vecdot:
            result = np.sum(to_ndarray(inputs[0] * inputs[1]), axis=kwargs.get("axis", -1))
        elif method == "__call__" and ufunc is np.matmul:
            result = _matmul(arrays[0], arrays[1], [isinstance(x, StrongZero) for x in inputs])
        else:
            scales = method == "__call__" and ufunc in (np.multiply, np.divide)
            # Before anything is written: an operand may be where the result goes.
            zero = _zeros(ufunc, inputs) if scales else None
            result = getattr(ufunc, method)(*arrays, **kwargs)
            if zero is not None and np.any(zero):
                result = np.where(zero, np.zeros((), dtype=result.dtype), result)
            if scales and result.dtype.kind == "c" and not np.isfinite(result).all():
                if ufunc is np.multiply:
                    strong = [isinstance(x, StrongZero) for x in inputs]
                    result = _by_parts(arrays, lambda a, b: _times(a, b, strong))
            if out is not None and zero is not None:
                kwargs["out"][0][...] = result
        return result if result is None else strong_zeros(result)


def strong_zeros(array: Any) -> Any:
    """View an array with strong zeros."""
    return np.asarray(array).view(StrongZero)


def to_ndarray(array: Any) -> Any:
    """View an array as an ordinary one again."""
    return array.view(np.ndarray) if isinstance(array, StrongZero) else array


def _zeros(ufunc: Any, inputs: tuple[Any, ...]) -> Any:
    """Return where a cotangent among the factors (or the dividend) is zero."""
    zero = None
    for position, x in enumerate(inputs):
        if isinstance(x, StrongZero) and not (ufunc is np.divide and position == 1):
            here = to_ndarray(x) == 0
            zero = here if zero is None else zero | here
    return zero


def _by_parts(arrays: list[Any], product: Any) -> Any:
    """Return the product of complex arrays from those of their parts."""
    (a, b), (c, d) = (
        (x.real, x.imag if np.iscomplexobj(x) else None) for x in map(np.asarray, arrays)
    )
    real = product(a, c)
    if b is not None and d is not None:
        real = real - product(b, d)
    out = np.zeros(real.shape, np.result_type(real.dtype, np.complex64))
    out.real = real
    for left, right in ((a, d), (b, c)):
        if left is not None and right is not None:
            out.imag += product(left, right)
    return out


def _times(a: Array, b: Array, strong: list[bool]) -> Any:
    """Multiply parts so that a zero of a cotangent's absorbs."""
    zero = (strong[0] & (a == 0)) | (strong[1] & (b == 0))
    return np.where(zero, 0.0, a * b)


def _matmul(a: Array, b: Array, is_cotangent: list[bool]) -> Array:
    """Multiply matrices so that a zero of a cotangent adds nothing."""
    result: Array = np.matmul(a, b)
    if np.isfinite(result).all():
        return result
    if result.dtype.kind == "c":
        return _by_parts([a, b], lambda a, b: _matmul(a, b, is_cotangent))  # type: ignore[no-any-return]
    if a.ndim == 1 or b.ndim == 1:
        left = a if a.ndim > 1 else a[None, :]
        right = b if b.ndim > 1 else b[:, None]
        return _matmul(left, right, is_cotangent).reshape(result.shape)

    def product(x: Array, y: Array) -> Array:
        found: Array = np.matmul(x, y, dtype=result.dtype, casting="unsafe")
        return found

    found: Array = strong_product(a, b, cotangent_first=is_cotangent[0], product=product)
    return found


class StrongTensor(ArrayMethods):
    """A tensor whose zeros stay zero under multiplication, division and matrix products.

    A product of matrices that is captured is an ordinary one: there nobody can look whether
    its factors are finite, and a NaN stays one.
    """

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    @staticmethod
    def __tapegraph_apply__(name: str, inputs: tuple[Any, ...], attrs: Attrs) -> StrongTensor:
        """Run the operation ``name`` on the tensors, so that zeros of a cotangent absorb."""
        strong = [isinstance(x, StrongTensor) for x in inputs]
        tensors = tuple(operand(name, as_tensor(x), "operand") for x in inputs)
        if name == "mul":
            a, b = tensors
            out = _product(a, b, *strong)
        elif name == "div" and strong[0]:
            a, b = tensors
            out = a / _divisor(a, b)
        else:
            call = ELEMENTWISE.get(name)
            op = OPS.get(name) or DEFINED[name]
            out = call(*tensors) if call else apply(op, tensors, dict(attrs))
            products = name in ("matmul", "batch_matmul", "einsum") and not recorder().records(out)
            if products and not np.isfinite(out._array).all():
                spec = attrs["spec"] if name == "einsum" else _spec(*tensors)
                out = _contracted(spec, tensors, strong).reshape(out.shape)
        return StrongTensor(out)

    shape, dtype, ndim, size, requires_grad = (
        property(attrgetter(f"tensor.{name}"))
        for name in ("shape", "dtype", "ndim", "size", "requires_grad")
    )

    def detach(self) -> Any:
        """Return the tensor as a constant with no history."""
        return self.tensor.detach()

    def __len__(self) -> int:
        return len(self.tensor)


def as_tensor(x: Any) -> Any:
    """Return the tensor itself, and anything else as it is."""
    return x.tensor if isinstance(x, StrongTensor) else x


def _product(a: Any, b: Any, a_absorbs: bool, b_absorbs: bool) -> Any:
    first = _factor(b, a) if b_absorbs else a
    return first * (_factor(a, b) if a_absorbs else b)


def _spec(a: Any, b: Any) -> str:
    """Return a product of matrices as a contraction, of which axes of length 1 broadcast."""
    stacked = "pqrstuvwxyz"[: max(a.ndim, b.ndim, 2) - 2]
    left = (stacked[len(stacked) + 2 - a.ndim :] + "i" if a.ndim > 1 else "") + "j"
    right = (stacked[len(stacked) + 2 - b.ndim :] if b.ndim > 1 else "") + "j"
    right += "k" if b.ndim > 1 else ""
    rows, columns = "i" * (a.ndim > 1), "k" * (b.ndim > 1)
    return f"{left},{right}->{stacked}{rows}{columns}"


def _contracted(spec: str, tensors: tuple[Any, ...], strong: list[bool]) -> Any:
    """Contract element by element, the cotangent first."""

    def product(factors: list[Any]) -> Any:
        order = sorted(zip(factors, strong, strict=True), key=lambda factor: not factor[1])
        total, absorbs = order[0]
        for factor, also in order[1:]:
            total = _product(total, factor, absorbs, also)
        return total

    return by_elements(spec, tensors, product)


def _factor(g: Any, x: Any) -> Any:
    """Return a factor as it is, but 0 where it is not finite and the cotangent is 0."""
    if not recorder().records(x) and np.isfinite(getattr(x, "_array", x)).all():
        return x
    return _kept(np.logical_or(g != 0, np.isfinite(x)), x, 0.0)


def _divisor(g: Any, x: Any) -> Any:
    """Return a divisor as it is, but infinite where it is 0 or NaN and the cotangent is 0."""
    if not recorder().records(x) and np.all(abs(getattr(x, "_array", x)) > 0):
        return x
    return _kept(np.logical_or(g != 0, abs(x) > 0), x, math.inf)  # no NaN is greater


def _kept(where: Any, x: Any, number: float) -> Any:
    # In a capture the places are a Tensor: another run may have others.
    if isinstance(where, (np.ndarray, np.generic)) and where.all():
        return x
    return np.where(where, x, number)
