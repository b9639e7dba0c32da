"""What NumPy and Python may try on a tensor that would lose its gradient, and what to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tapegraph.environment import STRICT, switched
from tapegraph.errors import (
    LostGradientError,
    LostGradientWarning,
    kind_of,
    message,
    user_line,
    warn,
)
from tapegraph.recording.capture_mode import ConcretizationError
from tapegraph.recording.scopes import Setting

# Inside a function that a transform differentiates, as `tapegraph.grad` does.
DIFFERENTIATING = Setting("tapegraph_differentiating", default=False)


def strict() -> bool:
    """Return whether what is otherwise warned of shall be an error."""
    return bool(switched(STRICT))


def to_number(kind: str, conversion: str, read: str = "") -> None:
    """Warn, once per line of the user's, that numbers carry no gradient."""
    read = read or ("value.data" if kind == "Value" else "tensor.item()")
    if kind == "Value":
        itself = "tapegraph's function on the Value itself (tg.sin(x) for math.sin(x))"
    else:
        itself = (
            f"tapegraph's or NumPy's function on the {kind} itself (tg.sin(x) for math.sin(x), "
            "np.stack for an array of results)"
        )
    message = (
        f"{conversion}: received a {kind} that needs a gradient, which the number does not carry; "
        f"write {read} to read the value, or {itself} to keep the gradient."
    )
    if strict():
        raise TypeError(f"{message} ({STRICT} is set, at {user_line()})")
    if DIFFERENTIATING.value():
        raise not_a_number(kind, conversion, read)
    warn(message, LostGradientWarning)


def not_a_number(kind: str, conversion: str, read: str) -> LostGradientError:
    """Return the error of a conversion inside a derivative, where none is harmless."""
    fix = (
        "Use tapegraph's or NumPy's function in place of math's (tg.sin for math.sin); in place of "
        "an assignment to elements of an array (z[0] = x) write np.where, or put the results into "
        f"a list and join them by np.stack; or write {read} where the value alone is meant."
    )
    received = f"a {kind}, whose derivative the number would lose"
    return LostGradientError(message(conversion, received, "a plain number", fix))


def raise_cause(error: ValueError) -> None:
    """Raise what a conversion raised, where NumPy has put an error of its own before it.

    It does at ``z[0] = x``, and says that an array element was set with a sequence.
    """
    cause = error.__cause__
    if isinstance(cause, (LostGradientError, ConcretizationError)):
        raise cause.with_traceback(error.__traceback__) from None


def to_array(kind: str) -> TypeError:
    """Return the error of a conversion to an array that would lose a gradient."""
    received = f"a {kind} that needs a gradient, which an array would lose"
    fix = (
        "Join results by np.stack, write np.where for an assignment to elements of an array "
        "(z[:2] = x), call NumPy's or tapegraph's functions on them (tg.special.polygamma for "
        "SciPy's, tapegraph.autograd.scipy.stats.norm for its densities), or write "
        "x.detach().numpy() to go on without a gradient."
    )
    return TypeError(message("numpy.asarray", received, "plain numbers", fix))


def not_joined(op: str, argument: str, value: Any) -> TypeError:
    """Return the error of a list that holds tensors, where an array was expected."""
    received = f"{argument!r}, a {type(value).__name__} of tensors that need a gradient"
    fix = "Join them first: np.stack(tensors)."
    return TypeError(message(op, received, "one array or tensor", fix))


def not_detached(op: str, argument: str, value: Any) -> TypeError:
    """Return the error of a tensor that needs a gradient where only its numbers can be kept."""
    received = f"{kind_of(value)} that needs a gradient for {argument!r}"
    fix = "Write tensor.detach() to go on without its gradient."
    return TypeError(message(op, received, "plain numbers", fix))


def refused(name: str, fix: str) -> Callable[..., NoReturn]:
    """Make the method that stands for ndarray's in-place method of a name."""

    def method(self: Any, *args: Any, **options: Any) -> NoReturn:
        kind = type(self).__name__
        received = f"a {kind}, whose elements cannot be written"
        expected = "an operation that gives a new one"
        raise TypeError(message(f"{kind}.{name}", received, expected, fix))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Refuse ndarray's in-place {name}. {fix}"
    return method
