"""Strong zeros for recorded sweeps: what `tapegraph.fallback.strong_zero` is for arrays.

The rules stay as they are, and the cotangent brings this arithmetic along. Each choice by numbers
is an ``np.where``, so that it is differentiated and, in a capture, made anew in every run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.ops import reduce
from tapegraph.ops.linalg import aligned, terms_of
from tapegraph.recording import capture_mode
from tapegraph.recording.op import DEFINED, OPS, Attrs
from tapegraph.recording.record import ELEMENTWISE, apply, operand
from tapegraph.tensors.array_methods import ArrayMethods


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
            if name in ("matmul", "batch_matmul", "einsum") and _is_singular(out):
                spec = attrs["spec"] if name == "einsum" else _spec(*tensors)
                out = _contracted(spec, tensors, strong).reshape(out.shape)
        return StrongTensor(out)

    @property
    def shape(self) -> tuple[int, ...]:
        """Length along each axis."""
        return self.tensor.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.tensor.dtype  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.tensor.ndim  # type: ignore[no-any-return]

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.tensor.size  # type: ignore[no-any-return]

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient flows through it."""
        return self.tensor.requires_grad  # type: ignore[no-any-return]

    def detach(self) -> Any:
        """Return the tensor as a constant with no history."""
        return self.tensor.detach()

    def __len__(self) -> int:
        return len(self.tensor)


def as_tensor(x: Any) -> Any:
    """Return the tensor itself, and anything else as it is."""
    return x.tensor if isinstance(x, StrongTensor) else x


def _is_singular(x: Any) -> bool:
    """Return whether numbers that can be looked at are not all finite."""
    return _is_fixed(x) and not np.isfinite(x._array).all()


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
    terms, output = terms_of(spec)
    labels = output + "".join(sorted(set("".join(terms)) - set(output)))
    factors = [
        (aligned(x, term, labels), absorbs)
        for x, term, absorbs in zip(tensors, terms, strong, strict=True)
    ]
    factors.sort(key=lambda factor: not factor[1])
    total, absorbs = factors[0]
    for factor, also in factors[1:]:
        total = _product(total, factor, absorbs, also)
    return reduce.sum(total, axis=tuple(range(len(output), len(labels))))


def _factor(g: Any, x: Any) -> Any:
    """Return a factor as it is, but 0 where it is not finite and the cotangent is 0."""
    if _is_fixed(x) and np.isfinite(_numbers(x)).all():
        return x
    return _kept(np.logical_or(g != 0, np.isfinite(x)), x, 0.0)


def _divisor(g: Any, x: Any) -> Any:
    """Return a divisor as it is, but infinite where it is 0 or NaN and the cotangent is 0."""
    if _is_fixed(x) and np.all(abs(_numbers(x)) > 0):
        return x
    return _kept(np.logical_or(g != 0, abs(x) > 0), x, math.inf)  # no NaN is greater


def _is_fixed(x: Any) -> bool:
    """Return whether its numbers are those of every run, and a weak number stays one."""
    return not capture_mode.is_captured(x)


def _numbers(x: Any) -> Any:
    return getattr(x, "_array", x)


def _kept(where: Any, x: Any, number: float) -> Any:
    # In a capture the places are a Tensor: another run may have others.
    if isinstance(where, (np.ndarray, np.generic)) and where.all():
        return x
    return np.where(where, x, number)
