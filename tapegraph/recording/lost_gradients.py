"""Errors and warnings for conversions that would lose a gradient, with what to write instead."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType
from typing import Any, NoReturn

from tapegraph.environment import STRICT, switched
from tapegraph.errors import (
    LIBRARY,
    ORIGINS,
    USER,
    ConcretizationError,
    LostGradientError,
    LostGradientWarning,
    line_of,
    place,
    sentence,
    user_frame,
    user_line,
    warn,
)
from tapegraph.recording.node import next_seq
from tapegraph.recording.scopes import Setting

_POLYNOMIAL = (
    "Write np.polyval(c[::-1], x) for numbers c of a Polynomial, and legvander(x, degree) @ c for "
    "legval(x, c), as in the other families."
)
# The alternative to a function that needs an array or a number, by the longest known part of its
# name.
_FIXES = {
    "": "Leave np.asarray out: NumPy's functions take tensors. For NumPy's generators write "
    "m + s * draws. Join results with np.stack; write np.where for an assignment to elements of an "
    "array (z[:2] = x), or x.numpy() for numbers without a gradient.",
    "jax": "Give JAX plain numbers, x.numpy(); its functions differentiate only JAX's arrays.",
    "keras": "tg.function(f) makes a function of TensorFlow's; for plain numbers write x.numpy().",
    "matplotlib": "Plot plain numbers: x.numpy(), and in a list of losses loss.item().",
    "numpy": "Join tensors first, {op}(np.stack(tensors)); or give it numbers, loss.item() or "
    "x.numpy().",
    "numpy.fill_diagonal": "Write np.where(np.eye(n, dtype=bool), values, z).",
    "numpy.full": "Write np.broadcast_to(x, shape), or x.numpy() for numbers without a gradient.",
    "numpy.lib": "Write np.concatenate((x, [1.0])) for np.r_[x, 1.0], np.column_stack((x, y)) for "
    "np.c_[x, y], and np.arange for the coordinates of np.mgrid.",
    "numpy.polynomial": _POLYNOMIAL,
    "numpy.polyval": _POLYNOMIAL,
    "numpy.testing": "Compare plain numbers: x.numpy().",
    "numpy.vectorize": "Write the function with NumPy's functions, which take whole tensors, or "
    "tg.vmap(f)(x).",
    "scipy": "Register it with tg.defop, or give it plain numbers: x.numpy().",
    "scipy.fft": "Call np.fft's functions, or SciPy's in the block with "
    "scipy.fft.set_backend(tg.fft); for plain numbers write x.numpy().",
    "scipy.integrate": "Call tg.integrate.odeint, or write the method's steps in NumPy, which "
    "records them; for plain numbers write x.numpy().",
    "scipy.integrate.cumulative_trapezoid": "Write np.cumsum(np.diff(x) * (y[1:] + y[:-1]) / 2).",
    "scipy.integrate.quad": "Write w @ f(x), where x, w = np.polynomial.legendre.leggauss(n) for "
    "the limits -1 and 1.",
    "scipy.integrate.simpson": "Call np.trapezoid, which takes tensors, or use that the rule is "
    "linear in y: simpson(np.eye(n), x=x) @ y.",
    "scipy.integrate.trapezoid": "Call np.trapezoid, which takes tensors.",
    "scipy.interpolate": "Write np.interp, or use that a spline is linear in its values, "
    "CubicSpline(knots, np.eye(n))(x) @ values; for plain numbers write x.numpy().",
    "scipy.linalg": "Call np.linalg.solve, cholesky, eigh and the like, which record, or those of "
    "tapegraph.autograd.scipy.linalg (expm, sqrtm, solve_triangular); for plain numbers write "
    "x.numpy().",
    "scipy.linalg.cho_solve": "Write np.linalg.solve(a, b), or for a lower factor c "
    "np.linalg.solve(c.T, np.linalg.solve(c, b)).",
    "scipy.optimize": "Call tg.optim.minimize, or for an equation tg.optim.root; or give SciPy "
    "numbers: lambda p: f(p).item(), with tg.grad(f) for its jac=.",
    "scipy.signal": "Call np.convolve, tg.fft.fftconvolve or np.fft's functions, which record; for "
    "plain numbers write x.numpy().",
    "scipy.sparse": "Register the product or solution with tg.defop, as docs/implicit.md does "
    "under 'A sparse matrix', or write a dense array; for plain numbers write x.numpy().",
    "scipy.special": "Call tg.special's functions (tg.special.logsumexp, tg.special.polygamma); "
    "for plain numbers write x.numpy().",
    "scipy.special.softmax": "Call tg.softmax(x, axis).",
    "scipy.stats": "tapegraph.autograd.scipy.stats has densities that record; for plain numbers "
    "write x.numpy().",
    "tensorflow": "tg.function(f) makes a function of TensorFlow's; for plain numbers write "
    "x.numpy().",
}
# The alternatives to an array that is made of tensors, element by element.
FILLED = (
    "in place of np.array([x, y]), and of an assignment to elements of an array (z[0] = x), write "
    "np.stack([x, y]) or np.where"
)
# Set inside a function that a transform such as `tapegraph.grad` differentiates.
DIFFERENTIATING = Setting("tapegraph_differentiating", default=False)
# When such a function last read numbers by `item` or `numpy`, and how and where.
_READ: ContextVar[tuple[int, str, Any, int]] = ContextVar(
    "tapegraph_read", default=(0, "", None, 0)
)
# The last error under a function of SciPy's, which may put its own in its place.
_UNDER_SCIPY: ContextVar[str] = ContextVar("tapegraph_under_scipy", default="")


def strict() -> bool:
    return bool(switched(STRICT))


def to_number(kind: str, conversion: str, read: str = "") -> None:
    """Warn, once per user line, that a plain number carries no gradient."""
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
    message += _in_place_of_scipys()
    if strict():
        raise TypeError(f"{message} ({STRICT} is set, at {user_line()})")
    if DIFFERENTIATING.value():
        raise not_a_number(kind, conversion, read)
    warn(message, LostGradientWarning)


def numbers_read(conversion: str) -> None:
    """Note that a function which may be differentiated reads a tensor's numbers."""
    if DIFFERENTIATING.value():
        frame = user_frame(sys._getframe(1))
        _READ.set((next_seq(), conversion, frame.f_code, frame.f_lasti))


def to_constant(op: str, since: int) -> None:
    """Warn that a differentiated function gave plain numbers, if it has read some since then."""
    seq, conversion, code, lasti = _READ.get()
    if seq > since:
        text = (
            f"f returned plain numbers after {conversion} at {line_of(code, lasti)}, which carry "
            "no gradient, so that its derivative is zero. Return the tensor."
        )
        _lost(op, text)


def to_result(op: str) -> None:
    """Warn that a gradient was assigned to a result, which keeps none."""
    text = (
        f"the assignment has no effect: a result of {op} keeps no gradient. A parameter has one: "
        "update it with tg.no_grad(): w -= step, as w = w - step makes a result. Or call "
        "retain_grad() on the result first."
    )
    _lost("grad", text)


def _lost(op: str, text: str) -> None:
    if strict():
        raise LostGradientError(sentence(op, text))
    warn(sentence(op, text), LostGradientWarning)


def not_a_number(kind: str, conversion: str, read: str) -> LostGradientError:
    text = (
        f"the number would lose the derivative of a {kind}. "
        "Use tapegraph's or NumPy's function in place of math's (tg.sin for math.sin); "
        f"{FILLED}; or write {read} for the value alone."
    )
    return LostGradientError(_noted(sentence(conversion, text + _in_place_of_scipys())))


def _noted(text: str) -> str:
    if caller_of(sys._getframe(1)).startswith("scipy."):
        _UNDER_SCIPY.set(text)
    return text


def _in_place_of_scipys() -> str:
    """Return a sentence on what to write for SciPy's function that reads numbers, or ``""``."""
    caller = caller_of(sys._getframe(1))
    return f" In place of {caller}: {_fix(caller)}" if caller.startswith("scipy.") else ""


def _fix(caller: str) -> str:
    parts = caller.split(".")
    prefixes = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    known = (fix for prefix in prefixes if (fix := _FIXES.get(prefix)))
    return next(known, f"Give {parts[0]} plain numbers: x.numpy().")


def as_index() -> str:
    if not DIFFERENTIATING.value():
        return "Use .astype(int)."
    text = "Only floats are differentiated. Close over an index, tg.vjp(lambda x: f(x, i), x)"
    return f"{text}, and write .astype(int) for one that is computed."


def raise_cause(error: BaseException) -> None:
    """Raise the cause of a conversion error that NumPy replaced, as at ``z[0] = x``, or SciPy."""
    text = _UNDER_SCIPY.get()
    if text and str(error) != text:
        steps = traceback.walk_tb(error.__traceback__)
        if any(text.endswith(f"(at {place(x.f_code.co_filename, n)})") for x, n in steps):
            _UNDER_SCIPY.set("")
            raise LostGradientError(text).with_traceback(error.__traceback__) from None
    cause = error.__cause__ if isinstance(error, ValueError) else None
    if isinstance(cause, (LostGradientError, ConcretizationError)):
        raise cause.with_traceback(error.__traceback__) from None


def to_array(kind: str) -> TypeError:
    caller = caller_of(sys._getframe(1))
    op = caller or "numpy.asarray"
    text = f"an array would lose the gradient of a {kind}. {_fix(caller).format(op=op)}"
    return TypeError(_noted(sentence(op, text)))


def is_compared() -> bool:
    """Return whether a function of `numpy.testing` asks for an array, which goes nowhere else."""
    return caller_of(sys._getframe(1)).startswith("numpy.testing.")


def caller_of(frame: FrameType | None) -> str:
    """Return the public name of the library function that the user called, or ``""``."""
    package = name = ""
    while frame is not None and (origin := ORIGINS[frame.f_code.co_filename]) != USER:
        parts = str(frame.f_globals.get("__name__", "")).split(".")
        if parts[0] == "numpy" or origin == LIBRARY:
            code = frame.f_code
            function = getattr(code, "co_qualname", "").partition(".")[0]
            if not function:  # Python 3.10
                of_method = code.co_varnames[: code.co_argcount][:1] == ("self",)
                function = type(frame.f_locals["self"]).__name__ if of_method else code.co_name
            called: Any = frame.f_locals.get("f") if parts[:2] == ["scipy", "_lib"] else None
            if str(getattr(called, "__module__", "")).startswith("scipy."):
                # The wrapper of SciPy's functions of matrices, for batches of them.
                parts, function = called.__module__.split("."), called.__name__
            # Up to private modules, and the inner ones of TensorFlow and Keras.
            inner = (n for n, p in enumerate(parts) if p[:1] == "_" or p in ("python", "src"))
            public = parts[: next(inner, len(parts))]
            modules = [".".join(public[: n + 1]) for n in range(len(public))]
            homes = (m for m in modules if callable(getattr(sys.modules.get(m), function, None)))
            home = next(homes, "")
            if home or parts[0] != package:
                package, name = parts[0], f"{home}.{function}" if home else modules[-1]
        frame = frame.f_back
    return name


def refused(name: str, fix: str) -> Callable[..., NoReturn]:
    """Return a method that raises in place of one of ndarray's in-place methods."""

    def method(self: object, *args: object, **options: object) -> NoReturn:
        kind = type(self).__name__
        text = f"elements of a {kind} cannot be assigned. {fix}"
        raise TypeError(sentence(f"{kind}.{name}", text))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Refuse ndarray's in-place {name}. {fix}"
    return method
