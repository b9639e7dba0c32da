"""`anomaly`: raise where the first NaN or infinity arises, forward or backward."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np

from tapegraph.errors import message
from tapegraph.recording.program import Recording
from tapegraph.recording.tape import current
from tapegraph.recording.watchers import AskReal, AskStrong, Watched, Watcher
from tapegraph.row_sparse import RowSparse, is_finite
from tapegraph.tensors.value import Value
from tapegraph.typed import Array, Cotangent, DuckArray

# So many elements on either side of the first that is not finite are shown.
_AROUND = 2
_LOG = (
    "Keep x above 0, as in tg.log(tg.maximum(x, 1e-12)); of a softmax or a sum of exponentials, "
    "take tg.log_softmax or tg.logsumexp."
)
_ADVICE = {
    "cumprod": "Add up logarithms instead.",
    "div": "Keep the divisor from 0: x / tg.where(d == 0, 1.0, d).",
    "exp": "Subtract the maximum first, or take tg.softmax or tg.logsumexp.",
    "log": _LOG,
    "log10": _LOG,
    "log1p": "Keep x above -1.",
    "log2": _LOG,
    "pow": "Keep the base above 0 for powers that are no whole numbers or are negative.",
    "prod": "Add up logarithms instead.",
    "sqrt": "Keep x above 0, as in tg.sqrt(x + 1e-12).",
}


class anomaly(Watched):
    """Context manager: the first NaN or infinity raises, with its operation, values and line.

    It looks at the results of operations, at the gradients that each passes on in a backward, and
    at new parameters before an optimizer writes them. A compiled step runs its native plan line by
    line; a real call then finds the operation. After TensorFlow's backward as a whole the native
    engine finds it.

    An infinity from outside is intended, as in a mask of ``-inf``: results of it may be infinite,
    and only a NaN is an error. A NaN from outside is an error of the first operation whose result
    has one, and the message names the input.

    It applies to its thread or asyncio task as `no_grad` does, and takes up to three times as long.

    :raises FloatingPointError: Inside the block. The failing operation, backward, optimizer step or
        compiled call has changed neither parameters nor gradients.

    >>> x = tg.param([4.0, 0.0], name="x")
    >>> with tg.anomaly():
    ...     tg.sum(tg.sqrt(x)).backward()
    Traceback (most recent call last):
        ...
    FloatingPointError: backward of sqrt: received a gradient for x of inf at [1] ...
    """

    def __init__(self) -> None:
        super().__init__(_Anomaly())


class _Anomaly(Watcher):
    looks = True

    def result(self, what: str, operands: Sequence[DuckArray], result: DuckArray) -> None:
        for part in _parts(result):
            if part.dtype.kind in "fc" and not is_finite(part):
                _look(what, [_parts(x)[0] for x in operands], part)

    def swept(self, cotangents: Sequence[tuple[Any, float]]) -> None:
        reached = {id(node): cotangent for node, cotangent in cotangents}
        for node, cotangent in cotangents:
            bad = [x for x in node.args if not isfinite(reached[id(x)])]
            if bad and isfinite(cotangent):
                received = f"a gradient of {cotangent}, where its operands are {node.args}"
                expected = f"finite gradients, not {reached[id(bad[0])]} by {bad[0]}"
                raise _error(f"backward of {node.op}", received, expected, _ADVICE.get(node.op, ""))

    def updated(self, optimizer: str, name: str, grad: Cotangent, new: DuckArray) -> None:
        new, grad = np.asarray(new), np.asarray(grad)
        if new.dtype.kind in "fc" and not is_finite(new):
            at = _first(new)
            received = f"a gradient of {_value(grad, at, new.shape)}{_place(at)} of {name!r}"
            expected = f"finite new numbers, not {new[at]} there{_share(new)}"
            fix = "Take a smaller learning rate, or limit gradients with tg.clip_grad_norm."
            raise _error(f"{optimizer}.step", received, expected, fix)

    def passed(self, *_: object, results: Sequence[DuckArray] = (), **times: object) -> None:
        for result in results:
            kind = getattr(getattr(result, "dtype", None), "kind", "")
            if kind in "fc" and not is_finite(result):
                raise AskReal

    def added(
        self,
        recording: Recording,
        by: int | None,
        slot: int,
        part: Cotangent,
        grad: Cotangent,
        strong: bool,
    ) -> None:
        if is_finite(grad):
            return
        if not strong:
            raise AskStrong
        if by is None:
            raise _error("backward", f"a seed with {_kinds(grad)}", "finite numbers")
        program = recording.program
        op = program.ops[by].name
        slots = program.inputs[by]
        operands = [np.asarray(recording.value(i)) for i in slots]
        pairs = zip(slots, _names(operands), strict=True)
        names = [recording.name(i) or name for i, name in pairs]
        array = _dense(grad)
        at = _first(array)
        shape = program.shapes[by]
        what = f"a gradient for {names[slots.index(slot)]} of {_shown(array, at)}"
        if is_finite(part):
            what += ", as the sum of finite ones"
        given = _operands(names, operands, at if shape == array.shape else None, shape)
        fix = f"{_ADVICE.get(op, '')} The operation was recorded at {recording.where(by)}.".strip()
        raise _error(f"backward of {op}", f"{what}, where {given}", "finite gradients", fix)


def _look(what: str, operands: list[Array], result: Array) -> None:
    """Raise, unless the result is infinite because an operand is."""
    floats = [x for x in operands if x.dtype.kind in "fc"]
    is_nan = np.isnan(result)
    if not is_nan.any() and any(np.isinf(x).any() for x in floats):
        return  # which is meant
    at = _first(result, is_nan)
    names = _names(operands)
    advice = _ADVICE.get(what.removeprefix("tangent of "), "")
    for name, x in zip(names, operands, strict=True):
        if x.dtype.kind in "fc" and not np.isfinite(x).all():
            came_in = f"{name}{_origin(x)} came in with {_kinds(x)}"
            advice = f"{came_in}: look for the code that wrote it, or choose with np.isfinite."
            break
    received = _operands(names, operands, at, result.shape)
    fix = f"{advice} {_around(names, operands, at, result)}".strip()
    raise _error(what, received, f"a finite result, not {_shown(result, at)}", fix)


def _error(op: str, received: str, expected: str, fix: str = "") -> FloatingPointError:
    return FloatingPointError(message(op, received, expected, fix))


# Texts about arrays


def _parts(x: DuckArray) -> list[Array]:
    """Return the arrays of a tensor or `Value`, and of a dual, its value's first."""
    if x is None:
        return []
    if isinstance(x, Value):
        x = x.data
    if hasattr(x, "primal"):
        return [*_parts(x.primal), *_parts(x.tangent)]
    if isinstance(x, tuple):
        return [array for part in x for array in _parts(part)]
    return [np.asarray(getattr(x, "_array", x))]


def _dense(grad: Cotangent) -> Array:
    return grad.dense() if isinstance(grad, RowSparse) else np.asarray(grad)


def _first(array: Array, wanted: Array | None = None) -> tuple[int, ...]:
    if wanted is None or not wanted.any():
        wanted = ~np.isfinite(array)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(wanted)), array.shape))


def _place(at: tuple[int, ...]) -> str:
    return f" at [{', '.join(map(str, at))}]" if at else ""


def _share(array: Array) -> str:
    return f" ({np.count_nonzero(~np.isfinite(array))} of {array.size})" if array.ndim else ""


def _kinds(array: DuckArray) -> str:
    array = _dense(array)
    kinds = {"nan": np.isnan(array).any(), "inf": np.isinf(array).any()}
    return " and ".join(kind for kind, is_there in kinds.items() if is_there) + _share(array)


def _shown(array: Array, at: tuple[int, ...]) -> str:
    return f"{array[at]}{_place(at)}{_share(array)}"


def _names(operands: Sequence[DuckArray]) -> list[str]:
    return ["x"] if len(operands) == 1 else [f"x{i}" for i in range(1, len(operands) + 1)]


def _origin(array: Array) -> str:
    tape = current()
    nodes = (*tape.params, *tape.live())
    for node in nodes:
        if node._array is array:
            return f" ({node._op.name} {node.name!r})" if node.name else f" (a {node._op.name})"
    return ""


def _value(array: Array, at: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    try:
        return np.broadcast_to(array, shape)[at]
    except ValueError:
        return "other shape"


def _operands(
    names: Sequence[str], operands: Sequence[Array], at: tuple[int, ...] | None, shape: Any
) -> str:
    """Return the operands as text: at a place, if they have it, or else their limits."""
    texts = []
    for name, x in zip(names, operands, strict=True):
        if at is not None and (x.shape == shape or (x.ndim == 0 and x.size)):
            texts.append(f"{name}{_origin(x)} = {_value(x, at, shape)}")
            continue
        finite = x[np.isfinite(x)] if x.dtype.kind in "fiu" else x[:0]
        limits = f" from {finite.min()} to {finite.max()}" if finite.size else ""
        texts.append(f"{name}{_origin(x)} of shape {x.shape}{limits}")
    return ", ".join(texts)


def _around(
    names: Sequence[str], operands: Sequence[Array], at: tuple[int, ...], result: Array
) -> str:
    if not at or result.shape[-1] == 1:
        return ""
    start, stop = max(0, at[-1] - _AROUND), at[-1] + _AROUND + 1
    shown = [*zip(names, operands, strict=True), ("result", result)]
    here: tuple[Any, ...] = (*at[:-1], slice(start, stop))
    texts = [
        f"{name} {np.array2string(x[here], precision=4, separator=', ')}"
        for name, x in shown
        if x.shape == result.shape
    ]
    place = ", ".join([*map(str, at[:-1]), f"{start}:{min(stop, result.shape[-1])}"])
    return f"Around it, at [{place}]: {', '.join(texts)}."
