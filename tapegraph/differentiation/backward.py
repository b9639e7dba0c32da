"""`backward`: from a result to the ``.grad`` of its leaves, by the chosen engine."""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

from tapegraph.differentiation import reads as reads  # declares the operations' reads
from tapegraph.differentiation.seeds import cotangent_of
from tapegraph.engines.dispatch import differentiate
from tapegraph.errors import kind_of, line_number, message, place, sentence
from tapegraph.kinds import Tensor, Value
from tapegraph.other_names import unexpected
from tapegraph.recording.linearize import History
from tapegraph.recording.node import Node
from tapegraph.recording.scopes import recorder
from tapegraph.typed import ArrayLike


def backward(y: Tensor | Value, seed: ArrayLike | None = None, **others: NoReturn) -> None:
    """Add the gradient of a result to the ``.grad`` of every leaf it was computed from.

    :param y: The output to differentiate, of any shape.
    :param seed: Array_like of y's shape. The cotangent of ``y``; ones if not given.
    :raises RuntimeError: ``y`` does not require a gradient, its entries were cleared, or a leaf was
        changed after it was recorded.
    :raises ValueError: The seed's shape differs from ``y``'s.
    :raises TypeError: ``y`` is no tensor, the seed is not numeric, or a complex ``y`` has none.

    Nothing is written unless everything was computed. Each call adds to ``.grad``.

    The gradient of a real ``L`` with respect to a complex ``z = x + iy`` is ``dL/dx + i dL/dy``,
    the direction
    in which ``L`` rises fastest, as in PyTorch and TensorFlow: ``z - lr * z.grad`` descends.

    >>> x = tg.param([1.0, 2.0])
    >>> tg.backward(tg.sum(x * x))
    >>> x.grad
    array([2., 4.])
    """
    if others:
        raise unexpected("backward", others)
    if not isinstance(y, Node):
        if hasattr(type(y), "__tapegraph_apply__") and hasattr(y, "backward"):
            if seed is not None:
                raise TypeError(
                    sentence("backward", "the seed of a Value is always 1. Leave it out.")
                )
            y.backward()
            return
        raise TypeError(message("backward", kind_of(y), "a Tensor"))
    if not y._requires_grad:
        text = (
            f"the result, {kind_of(y)}, does not require a gradient. Compute it from a tg.param, "
            "outside tg.no_grad(). Results of a compiled step are constants: call backward() "
            "inside the step."
        )
        raise RuntimeError(sentence("backward", text))
    here = recorder()
    cotangent = cotangent_of(y, seed, borrow=True)
    history = here.graph([y])
    _warn_of_float64(history)
    grads = differentiate(history, [cotangent])
    given = seed if seed is None or isinstance(seed, Node) else cotangent
    here.add_gradients(history, grads, given)


# Where Python notes which lines have been warned of; the text names file and line.
_warned: dict[Any, Any] = {}


def _warn_of_float64(history: History) -> None:
    """Warn, once a line, of operations that widen float32 parameters' results."""
    (y,) = history.ys
    if (y if y._array is None else y._array).dtype.char != "d":
        return
    for x in history.wanted:
        if (x if x._array is None else x._array).dtype.char == "f":
            break
    else:
        return
    for node in reversed(history.entries):
        given = [x for x in node._inputs if isinstance(x, Node)]
        wide = [x for x in given if x.dtype.char == "d"]
        narrow = [x for x in given if x.dtype.char == "f" and x._requires_grad]
        if not (wide and narrow and node.dtype.char == "d"):
            continue
        file, line = node._code.co_filename, line_number(node._code, node._lasti)
        name = f" {narrow[0].name!r}" if narrow[0].name else ""
        fix = 'Write array.astype("float32")'
        if not wide[0].shape:
            fix = "Write a Python number, float(number), which takes the other's dtype"
        warnings.warn_explicit(
            f"{node._op.name}: received float64 of shape {wide[0].shape} beside float32"
            f"{name} of shape {narrow[0].shape}, so that the result and later ones are "
            f"float64; expected one dtype. {fix}, or make the parameters float64: "
            f'tg.param(data, dtype="float64"). (at {place(file, line)})',
            UserWarning,
            file,
            line or 0,
            registry=_warned,
        )
