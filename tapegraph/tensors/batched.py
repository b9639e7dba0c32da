"""`Batched`: one example of many that compute together.

Inside `tg.vmap` the function sees the shapes of one example. An operation belongs to the highest
level among its operands; the examples of that level share all other operands.
"""

from __future__ import annotations

import math
from typing import Any, NoReturn

from tapegraph.batching.rules import BatchedCall, batching_rule
from tapegraph.errors import ConcretizationError, message, sentence, warn
from tapegraph.recording.op import DEFINED, OPS, Attrs
from tapegraph.recording.record import operand
from tapegraph.tensors.array_methods import AS_INDEX, ArrayMethods
from tapegraph.typed import DType


class SlowBatchingWarning(RuntimeWarning):
    """An operation without a batching rule runs one example at a time."""


class Batched(ArrayMethods):
    """All examples of a value, in the shape of one; ``inner`` has them along the first axis."""

    __slots__ = ("inner", "tag")
    __tapegraph_batched__ = True

    inner: Any
    tag: int

    def __init__(self, inner: object, tag: int) -> None:
        self.inner = inner
        self.tag = tag

    @staticmethod
    def __tapegraph_apply__(name: str, inputs: tuple[object, ...], attrs: Attrs) -> Any:
        """Run the operation ``name`` on all examples at once."""
        op = OPS.get(name) or DEFINED[name]
        operands = [x if type(x) is Batched else operand(name, x, "operand") for x in inputs]
        tag = max([x.tag for x in operands if type(x) is Batched])
        xs, batched, size = [], [], 0
        for x in operands:
            inside = type(x) is Batched and x.tag == tag
            if inside:
                x = x.inner
                size = x.shape[0]
            xs.append(x)
            batched.append(inside)
        call = BatchedCall(op, xs, batched, dict(attrs), size, tag)
        rule = batching_rule(op)
        if rule is None:
            text = (
                "the operation has no batching rule and runs one example at a time. Pass batch= "
                "to tg.defop."
            )
            warn(sentence(f"vmap: {name}", text), SlowBatchingWarning)
            rule = BatchedCall.one_by_one
        out = rule(call)
        return tuple(Batched(x, tag) for x in out) if op.several else Batched(out, tag)

    # Value and kind: those of one example

    @property
    def shape(self) -> tuple[int, ...]:
        """Length along each axis."""
        return self.inner.shape[1:]

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.inner.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.inner.ndim - 1

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient flows through the examples."""
        return self.inner.requires_grad

    def detach(self) -> Batched:
        """Return the examples as constants, without derivative."""
        return Batched(self.inner.detach(), self.tag)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(message("len", "a 0-d example", "at least one axis"))
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<one of {self.inner.shape[0]} examples, of shape {self.shape} and {self.dtype}>"

    # Not possible for one example

    def _one_number(self, *args: object, **options: object) -> NoReturn:
        text = (
            f"the value differs between {self.inner.shape[0]} examples, so it has no plain number. "
            "Write tg.where(condition, a, b) for a choice, or return the tensor."
        )
        if self.dtype.kind in "iub":
            text += f" {AS_INDEX}"
        raise ConcretizationError(sentence("vmap", text))

    __bool__ = __float__ = __int__ = __complex__ = __index__ = __array__ = _one_number
    __format__ = _one_number
    item = numpy = tolist = _one_number
    data = property(_one_number)

    def backward(self, seed: object = None) -> NoReturn:
        """Raise: the gradient of one example is not a parameter's."""
        text = (
            "vmap does not support backward() of one example. Write tg.grad(f) inside vmap, or "
            "call backward() on the result of vmap."
        )
        raise RuntimeError(sentence("backward", text))

    def __setitem__(self, key: object, value: object) -> NoReturn:
        text = "elements of a tensor cannot be assigned. Use np.where or np.concatenate."
        raise TypeError(sentence("setitem", text))
