"""Batching rules: an operation on many examples at once, in recorded operations.

A batched operand has one more axis, the first, for the examples. A rule takes a `BatchedCall` and
returns the result with that axis. An operation's rule is found by its name, else by its kind:
element-wise operations align their operands behind the batch axis, others count one axis more.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegraph.ops import elementwise, index, linalg, reduce, shape, special
from tapegraph.recording.node import as_leaf
from tapegraph.recording.op import Op, OpKind
from tapegraph.recording.record import ELEMENTWISE, apply, tensor_like

BatchingRule = Callable[["BatchedCall"], Any]


@dataclass(slots=True)
class BatchedCall:
    """A call of an operation of which some operands are batched.

    :param xs: Its operands; of a batched one, all examples.
    :param attrs: The attributes for one example.
    :param size: The number of examples.
    :param tag: The level of the batched operands.
    """

    op: Op
    xs: list[Any]
    batched: list[bool]
    attrs: dict[str, Any]
    size: int
    tag: int = 0

    def run(self, *xs: object, **changed: object) -> Any:
        call = ELEMENTWISE.get(self.op.name)
        return call(*xs) if call else apply(self.op, xs, {**self.attrs, **changed})

    def ndim(self, place: int) -> int:
        return getattr(self.xs[place], "ndim", 0) - self.batched[place]

    def with_axes(self, place: int, ndim: int) -> Any:
        x, missing = self.xs[place], ndim - self.ndim(place)
        if not (self.batched[place] and missing > 0):
            return x
        return shape.reshape(x, (self.size, *(1,) * missing, *x.shape[1:]))

    def aligned(self) -> list[Any]:
        ndims = list(map(self.ndim, range(len(self.xs))))
        ndim = max(ndims)
        if min(ndims) == ndim:
            return self.xs
        return [self.with_axes(place, ndim) for place in range(len(self.xs))]

    def spread(self, place: int) -> Any:
        """Return an operand with a batch axis, along which an unbatched one repeats."""
        x = self.xs[place]
        if self.batched[place]:
            return x
        x = tensor_like(self.op.name, x)
        return shape.broadcast_to(x, (self.size, *x.shape))

    def one_by_one(self) -> Any:
        given = zip(self.xs, self.batched, strict=True)
        xs = [[x[i] for i in range(self.size)] if b else [x] * self.size for x, b in given]
        return shape.stack([self.run(*operands) for operands in zip(*xs, strict=True)])


def element_by_element(call: BatchedCall) -> Any:
    return call.run(*call.aligned())


def _along(call: BatchedCall) -> Any:
    """Shift the axes in the attributes by one."""
    axes = {name: call.attrs[name] for name in ("axis", "axes") if name in call.attrs}
    if None in axes.values():  # NumPy counts through all axes in one
        found = call.run(shape.reshape(call.xs[0], (call.size, -1)), axis=1, keepdims=False)
        ones = (1,) * call.ndim(0) if call.attrs["keepdims"] else ()
        return shape.reshape(found, (call.size, *ones))
    further = {
        name: tuple(i + 1 for i in at) if isinstance(at, tuple) else at + 1
        for name, at in axes.items()
    }
    return call.run(*call.xs, **further)


def _stacked(call: BatchedCall) -> Any:
    return call.run(*call.xs)


# Shapes


def _broadcast_to(call: BatchedCall) -> Any:
    to = call.attrs["shape"]
    return call.run(call.with_axes(0, len(to)), shape=(call.size, *to))


def _concat(call: BatchedCall) -> Any:
    parts = map(call.spread, range(len(call.xs)))
    return call.run(*parts, axis=call.attrs["axis"] + 1)


# Elements by their places


def _with_first(array: object, first: int) -> Any:
    return shape.concat([as_leaf(np.array([first])), array])


def _getitem(call: BatchedCall) -> Any:
    x, begin, end = call.xs
    plan = ((call.size, 1), *call.attrs["plan"])
    return call.run(x, _with_first(begin, 0), _with_first(end, call.size), plan=plan)


def _tensor_slice(call: BatchedCall) -> Any:
    x, begin = call.xs
    size = call.attrs["size"]
    if not call.batched[1]:
        return call.run(x, _with_first(begin, 0), size=(call.size, *size))
    axes = range(len(size))
    places = [
        shape.reshape(begin[:, i], (call.size, *(1,) * len(size)))
        + np.arange(size[i]).reshape(tuple(size[i] if j == i else 1 for j in axes))
        for i in axes
    ]
    attrs = {"plan": ("array",) * len(size)}
    batched = [call.batched[0], *[True] * len(size)]
    return _index(BatchedCall(index.INDEX, [x, *places], batched, attrs, call.size))


def _rows(size: int, ndim: int) -> Any:
    """Return the number of each example, for index arrays of ``ndim`` axes an example."""
    return as_leaf(np.arange(size).reshape(size, *(1,) * ndim))


def _gather(call: BatchedCall) -> Any:
    (x, places), axis = call.xs, call.attrs["axis"]
    if not call.batched[1]:
        return call.run(x, places, axis=axis + 1)
    if not call.batched[0]:
        return shape.moveaxis(call.run(x, places), axis, 0)
    plan = tuple("array" if i == axis else "slice" for i in range(x.ndim - 1))
    return _index(BatchedCall(index.INDEX, call.xs, call.batched, {"plan": plan}, call.size))


def _index(call: BatchedCall) -> Any:
    """Index with the example numbers as one more index array where both are batched."""
    x, plan = call.xs[0], call.attrs["plan"]
    at = [i for i, part in enumerate(plan) if part == "array"]
    together = len(at) == at[-1] - at[0] + 1
    first = at[0] if together else 0
    ndim = max(map(call.ndim, range(1, len(call.xs))))  # of the index arrays
    if not any(call.batched[1:]):
        taken = call.run(*call.xs, plan=("slice", *plan))
        return taken if together else shape.moveaxis(taken, ndim, 0)
    places = [call.with_axes(i, ndim) for i in range(1, len(call.xs))]
    if not call.batched[0]:
        return shape.moveaxis(call.run(x, *places), first, 0)
    taken = call.run(x, _rows(call.size, ndim), *places, plan=("array", *plan))
    if first == 0:
        return taken
    return shape.moveaxis(taken, range(1, ndim + 1), range(first + 1, first + ndim + 1))


def _scatter(call: BatchedCall) -> Any:
    to = call.attrs["shape"]
    places = call.spread(1)
    places = places + np.arange(call.size).reshape(-1, *(1,) * call.ndim(1)) * int(np.prod(to))
    return call.run(call.spread(0), places, shape=(call.size, *to))


# Products


def _matmul(call: BatchedCall) -> Any:
    (a, b), (a_batched, b_batched) = call.xs, call.batched
    dims = call.ndim(0), call.ndim(1)
    if dims == (1, 1):
        if a_batched and b_batched:
            return reduce.sum(a * b, axis=-1)
        return linalg.matmul(a, b) if a_batched else linalg.matmul(b, a)
    if dims == (1, 2) and not b_batched:
        return linalg.matmul(a, b)
    if dims == (2, 1) and not a_batched:
        return linalg.matmul(b, shape.transpose(a))
    if dims[0] > 1 and dims[1] == 2 and not b_batched:  # one product for the rows of all
        out = linalg.matmul(shape.reshape(a, (math.prod(a.shape[:-1]), a.shape[-1])), b)
        return shape.reshape(out, (*a.shape[:-1], b.shape[-1]))
    if dims == (2, 2) and not a_batched and b.shape[-1] == 1:
        out = linalg.matmul(shape.squeeze(b, -1), shape.transpose(a))
        return shape.reshape(out, (*out.shape, 1))
    row, column = dims[0] == 1, dims[1] == 1
    if row:
        a = shape.reshape(a, (*a.shape[:-1], 1, a.shape[-1]))
    if column:
        b = shape.reshape(b, (*b.shape, 1))
    stacked = BatchedCall(call.op, [a, b], call.batched, {}, call.size)
    out = linalg.matmul(*stacked.aligned())
    return shape.squeeze(out, -2 if row else -1) if row or column else out


def _einsum(call: BatchedCall) -> Any:
    spec = call.attrs["spec"]
    free = next(letter for letter in string.ascii_letters if letter not in spec)
    terms, out = spec.split("->")
    given = zip(terms.split(","), call.batched, strict=True)
    terms = ",".join(free + term if batched else term for term, batched in given)
    return call.run(*call.xs, spec=f"{terms}->{free}{out}")


def _convolve(call: BatchedCall) -> Any:
    """Multiply one sequence, reversed, with each window of the other."""
    first, second = sorted((0, 1), key=lambda i: call.xs[i].shape[-1])
    short, long = call.xs[first], call.xs[second]
    width, length = short.shape[-1], long.shape[-1] + short.shape[-1] - 1
    border = [(0, 0)] * (long.ndim - 1) + [(width - 1, width - 1)]
    places = np.arange(length)[:, None] + np.arange(width)
    windows = index.take(index.pad(long, border), places, axis=-1)
    turned = index.flip(short, -1)
    of_long, of_short = "z" * call.batched[second], "z" * call.batched[first]
    return linalg.einsum(f"{of_long}nw,{of_short}w->zn", windows, turned)


# Linear algebra


def _solve(call: BatchedCall) -> Any:
    (a, b), (a_batched, _) = call.xs, call.batched
    vector = call.ndim(1) == 1
    if vector and not a_batched and call.ndim(0) == 2:  # one factorisation for all
        return shape.transpose(linalg.solve(a, shape.transpose(b)))
    b = call.spread(1)
    if vector:
        b = shape.reshape(b, (*b.shape, 1))
    stacked = BatchedCall(call.op, [a, b], [a_batched, True], {}, call.size)
    out = linalg.solve(*stacked.aligned())
    return shape.squeeze(out, -1) if vector else out


def _lstsq(call: BatchedCall) -> Any:
    inverse = linalg.pinv(call.spread(0), rcond=call.attrs["rcond"])
    return linalg.matmul(inverse, call.spread(1))


# Networks


def _images(call: BatchedCall) -> Any:
    x = call.spread(0)
    one = shape.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))
    out = call.run(one, *call.xs[1:])
    return shape.reshape(out, (*x.shape[:2], *out.shape[1:]))


def _conv2d(call: BatchedCall) -> Any:
    """Multiply the windows of the images with the kernels, where those are batched."""
    if not call.batched[1]:
        return _images(call)
    x, kernels = call.spread(0), call.xs[1]
    pads, strides, steps = (call.attrs[name] for name in ("pad", "stride", "dilation"))
    x = index.pad(x, [(0, 0)] * 3 + [(pad, pad) for pad in pads])
    places = []
    for along, (stride, step) in enumerate(zip(strides, steps, strict=True)):
        taps = np.arange(kernels.shape[3 + along]) * step
        count = (x.shape[3 + along] - 1 - taps[-1]) // stride + 1
        places.append(taps[:, None] + np.arange(count) * stride)
    rows, columns = places[0][:, None, :, None], places[1][:, None, :]
    windows = x[:, :, :, rows, columns]
    return linalg.einsum("znchwij,zochw->znoij", windows, kernels)


def _layer_norm(call: BatchedCall) -> Any:
    x, gamma, beta = call.xs
    if not any(call.batched[1:]):
        return call.run(x, gamma, beta)
    x, ndim = call.spread(0), call.ndim(0)
    centred = x - reduce.mean(x, axis=-1, keepdims=True)
    variance = reduce.mean(centred * centred, axis=-1, keepdims=True)
    scaled = centred / elementwise.sqrt(variance + call.attrs["eps"])
    return scaled * call.with_axes(1, ndim) + call.with_axes(2, ndim)


def _mean_of_examples(losses: Any) -> Any:
    axes = tuple(range(1, losses.ndim))
    return reduce.mean(losses, axis=axes) if axes else losses


def _mse_loss(call: BatchedCall) -> Any:
    prediction, target = call.aligned()
    return _mean_of_examples((prediction - target) ** 2)


def _softmax_crossentropy(call: BatchedCall) -> Any:
    scores = special.log_softmax(call.spread(0), -1)
    targets, classes = call.spread(1), call.ndim(1) < call.ndim(0)
    if not classes:
        return _mean_of_examples(-reduce.sum(scores * targets, axis=-1))
    places = shape.reshape(targets, (*targets.shape, 1))
    chosen = index.take_along_axis(scores, places, -1)
    return _mean_of_examples(-shape.squeeze(chosen, -1))


RULES: dict[str, BatchingRule] = {
    "reshape": lambda call: call.run(*call.xs, shape=(call.size, *call.attrs["shape"])),
    "broadcast_to": _broadcast_to,
    "transpose": lambda call: call.run(*call.xs, axes=(0, *(i + 1 for i in call.attrs["axes"]))),
    "concat": _concat,
    "getitem": _getitem,
    "tensor_slice": _tensor_slice,
    "gather": _gather,
    "index": _index,
    "scatter": _scatter,
    "searchsorted": lambda call: call.one_by_one() if call.batched[0] else call.run(*call.xs),
    "matmul": _matmul,
    "batch_matmul": _matmul,
    "einsum": _einsum,
    "convolve": _convolve,
    **dict.fromkeys(("inv", "det", "slogdet", "cholesky", "pinv", "qr"), _stacked),
    **dict.fromkeys(("eig", "eigh", "eigvalsh", "svd", "svdvals"), _stacked),
    "solve": _solve,
    "lstsq": _lstsq,
    "conv2d": _conv2d,
    "max_pool2d": _images,
    "avg_pool2d": _images,
    "layer_norm": _layer_norm,
    "mse_loss": _mse_loss,
    "softmax_crossentropy": _softmax_crossentropy,
    "all_reduce": _stacked,
}
_OF_KIND: dict[OpKind, BatchingRule] = {
    OpKind.ELEMENTWISE: element_by_element,
    OpKind.COMPARISON: element_by_element,
    OpKind.REDUCTION: _along,
    OpKind.ALONG: _along,
}


def batching_rule(op: Op) -> BatchingRule | None:
    if op.rules is not None:
        return op.rules.batch
    return RULES.get(op.name) or _OF_KIND.get(op.kind)
