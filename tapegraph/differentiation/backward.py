"""`backward`: from a result to the ``.grad`` of its leaves, by the chosen engine."""

from __future__ import annotations

from typing import NoReturn

from tapegraph.differentiation import reads as reads  # declares the operations' reads
from tapegraph.differentiation.seeds import cotangent_of
from tapegraph.engines.dispatch import differentiate
from tapegraph.errors import kind_of, message, sentence
from tapegraph.other_names import unexpected
from tapegraph.recording.node import Node
from tapegraph.recording.precision import warn_of_float64
from tapegraph.recording.scopes import recorder
from tapegraph.typed import ArrayLike, Tensor, Value


def backward(y: Tensor | Value, seed: ArrayLike | None = None, **others: NoReturn) -> None:
    """Add the gradient of ``y`` to the ``.grad`` of every leaf it was computed from.

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
    warn_of_float64(history)
    grads = differentiate(history, [cotangent])
    given = seed if seed is None or isinstance(seed, Node) else cotangent
    here.add_gradients(history, grads, given)
