"""`odeint`: solutions of ordinary differential equations, with derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add
from typing import Any, Literal, NoReturn

import numpy as np

from tapegraph.custom_rules import custom_vjp
from tapegraph.errors import check_callable, message, sentence
from tapegraph.loops.body import Replay, further_arguments, loop_operand, traced_without_draws
from tapegraph.loops.scan import fori_loop, scan
from tapegraph.loops.while_loop import while_loop
from tapegraph.ops.elementwise import absolute, clip, maximum, sqrt, where
from tapegraph.ops.reduce import mean
from tapegraph.ops.reduce import sum as sum_
from tapegraph.ops.shape import concat, reshape
from tapegraph.other_names import missing_in
from tapegraph.pytree import exchanged, is_tree, leaves, mapped, matched, replaced
from tapegraph.recording.numpy_functions import under
from tapegraph.recording.record import tensor_like
from tapegraph.recording.scopes import recorder
from tapegraph.tensors.batched import Batched
from tapegraph.transforms.jacobian import jvp
from tapegraph.transforms.levels import stop_gradient
from tapegraph.transforms.reverse import vjp
from tapegraph.tree import ravel_pytree
from tapegraph.typed import Array, Fun, Pytree

__all__ = ["odeint"]

# Dormand and Prince's method of order 5 (1980): the last stage is the first of the next step.
NODES = (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0)
STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
)
WEIGHTS = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)
# Those weights less the ones of order 4.
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)

MOST_STEPS = 10_000
# Keywords of SciPy's and JAX's `odeint`.
_KEYWORDS = {
    "args": "odeint(f, y0, t, *args)",
    "mxstep": "max_steps=",
    "tfirst": "lambda y, t: f(t, y)",
}

# From a vector and a time to the derivative of the vector.
RateOfChange = Callable[[Any, Any], Any]


def odeint(
    f: Fun,
    y0: Pytree,
    t: object,
    *args: Pytree,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    method: Literal["dopri5", "rk4"] = "dopri5",
    steps: int = 1,
    adjoint: bool = False,
    max_steps: int | None = None,
    **others: NoReturn,
) -> Pytree:
    """Return the solution of ``dy/dt = f(y, t, *args)`` at some times, with derivatives.

    Derivatives of any order flow to ``y0``, ``t``, ``args`` and tensors that ``f`` closes over.

    :param f: Takes the state, in the structure of ``y0``, a time and ``args``; returns the
        derivative in that structure. It is traced, as in `compile`: it runs on tensors without
        numbers.
    :param y0: The state at the first time: real numbers, arrays, tensors, and dicts, lists and
        tuples of them. A list or tuple of numbers is a vector if ``f`` returns one for it, or takes
        nothing else.
    :param t: The times, an array of shape (n,), rising or falling; the first is that of ``y0``.
    :param *args: Further arguments of ``f``.
    :param rtol, atol: The error of a step is at most ``atol + rtol * |y|``, by root mean square.
        Where derivatives flow through the steps, so is the relative error of a derivative along a
        random direction, by ``rtol``.
    :param method: ``"dopri5"``, Dormand and Prince's adaptive method of order 5; or ``"rk4"``, the
        classical method with steps of a fixed length.
    :param steps: For ``"rk4"``: the number of steps from one time to the next.
    :param adjoint: Compute gradients by the adjoint equation, solved backwards by the same method,
        in place of a backward through the steps. It keeps only the states at ``t``, with the
        solver's error.
    :param max_steps: For ``"dopri5"``: the maximum number of steps from one time to the next,
        10,000 by default. In TensorFlow second derivatives need it, and take as many steps.
    :returns: The states at ``t``, in the structure of ``y0``, along a first axis of length n.
    :raises RuntimeError: It did not reach a time within ``max_steps``; in a compiled step and under
        `vmap` the result is NaN.
    :raises TypeError, ValueError: ``f`` is not callable or returns another structure or shape,
        ``y0`` is complex or empty, ``t`` is no array of one axis, holds NaN or, for ``"dopri5"``,
        turns back (in a compiled step that is given ``t`` the result is NaN); ``method`` is
        another.

    >>> decay = lambda k: tg.integrate.odeint(lambda y, t: -k * y, 1.0, [0.0, 1.0])[-1]
    >>> round(float(decay(2.0)), 6), round(tg.grad(decay)(2.0), 6)
    (0.135335, -0.135335)
    """
    check_callable("odeint", f)
    if others:
        name = next(iter(others))
        hint = f" Did you mean {_KEYWORDS[name]}?" if name in _KEYWORDS else ""
        raise TypeError(sentence("odeint", f"unexpected keyword argument {name!r}.{hint}"))
    if method not in ("dopri5", "rk4"):
        raise ValueError(message("odeint", f"method={method!r}", '"dopri5" or "rk4"'))
    start = mapped(lambda x: loop_operand("odeint", x, "y0"), y0)
    if any(x.dtype.kind == "c" for _, x in leaves(start)):
        fix = "Integrate real and imaginary parts."
        raise TypeError(message("odeint", "complex numbers in y0", "real ones", fix))
    start = mapped(lambda x: x if x.dtype.kind == "f" else x.astype(np.float64), start)
    vector, unravel = ravel_pytree(start)
    if not vector.shape[0]:
        raise ValueError(message("odeint", f"y0={y0!r}", "a state of one number or more"))
    times = tensor_like("odeint", t, "t").astype(vector.dtype)
    if times.ndim != 1 or not times.shape[0]:
        raise ValueError(message("odeint", f"t of shape {times.shape}", "one or more times"))
    known = _known(times)
    if known is not None:
        received, apart = f"t={np.array2string(known, threshold=6)}", np.diff(known)
        if not np.isfinite(known).all():
            raise ValueError(message("odeint", received, "finite times"))
        if method == "dopri5" and apart.min(initial=0.0) < 0.0 < apart.max(initial=0.0):
            fix = 'Solve each direction by itself, or write method="rk4".'
            raise ValueError(message("odeint", received, "times that all rise or all fall", fix))
    numbers, having = further_arguments("odeint", args)
    numbers_in_a_row = type(y0) in (list, tuple) and all(
        not is_tree(x) and x.shape == () and x.dtype == vector.dtype for x in start
    )
    form = start

    def derivative(vector: Array, time: object, *numbers: object) -> Any:
        further = having(numbers)
        try:
            return rates(f(unravel(vector), time, *further))
        except (TypeError, ValueError):
            if not numbers_in_a_row:
                raise
            return rates(f(vector, time, *further))  # as SciPy takes a list

    def rates(out: Any) -> Any:
        nonlocal form
        if numbers_in_a_row:
            form = start if is_tree(out) else vector
        found = [
            tensor_like("odeint", x, path)
            for path, x in matched("odeint", out, form, "the derivative", "y0")
        ]
        for x, (path, y) in zip(found, leaves(form, "y0"), strict=True):
            if x.shape != y.shape:
                received = f"a derivative of shape {x.shape} for {path}"
                raise ValueError(message("odeint", received, f"the shape of y0 there, {y.shape}"))
        return concat([reshape(x.astype(vector.dtype), (-1,)) for x in found])

    traced = traced_without_draws("odeint", derivative, list, [vector, times[0], *numbers])
    theta, count, body = [*traced.consts, *numbers], len(traced.consts), traced.body

    def rate(vector: object, time: object, *theta: object) -> Any:
        return Replay(body)(*theta[:count], vector, time, *theta[count:])[0]

    def solved(rate: Fun, vector: Array, times: Array, *theta: object) -> Any:
        if method == "rk4":
            return _fixed(lambda y, t: rate(y, t, *theta), vector, times, steps)
        return _adaptive(rate, vector, times, theta, rtol, atol, max_steps)

    if adjoint:
        states = _by_adjoint(rate, solved, vector, times, theta)
    else:
        states = solved(rate, vector, times, *theta)
    return _in_structure(states, form, (y0, t, args))


def _in_structure(states: Array, form: object, given: object) -> Any:
    parts: list[Any] = []
    n, begin = states.shape[0], 0
    for _, x in leaves(form):
        part = reshape(states[:, begin : begin + x.size], (n, *x.shape))
        parts.append(part if part.dtype == x.dtype else part.astype(x.dtype))
        begin += x.size
    plain = not any(hasattr(x, "requires_grad") for _, x in leaves(given))
    if plain and not any(x.requires_grad or recorder().records(x) for x in parts):
        parts = [x.numpy() for x in parts]
    return replaced(form, iter(parts))


def _rows(first: Array, later: Array) -> Any:
    return concat([reshape(first, (1, *first.shape)), later])


def _fixed(rate: RateOfChange, y: Array, times: Array, steps: int) -> Any:

    def advance(y: Array, ends: tuple[Any, Any]) -> tuple[Any, Any]:
        start, stop = ends
        h = (stop - start) / steps

        def step(i: Any, y: object) -> Any:
            t = start + h * i.astype(h.dtype)
            k1 = rate(y, t)
            k2 = rate(y + 0.5 * h * k1, t + 0.5 * h)
            k3 = rate(y + 0.5 * h * k2, t + 0.5 * h)
            k4 = rate(y + h * k3, t + h)
            return y + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)

        y = fori_loop(0, steps, step, y)
        return y, y

    _, later = scan(advance, y, (times[:-1], times[1:]), checkpoint="sqrt")
    return _rows(y, later)


def _adaptive(
    rate: Fun,
    y: Array,
    times: Array,
    theta: Sequence[Any],
    rtol: float,
    atol: float,
    max_steps: int | None,
) -> Any:
    """Return the states at some times by Dormand and Prince's method, time starting at 0.

    Where derivatives flow through the steps, a direction of state and inputs ``v`` moves along, and
    its error limits the steps too: a state at rest has no error, its derivatives do.
    """
    sign = stop_gradient(where(times[-1] >= times[0], 1.0, -1.0)).astype(y.dtype)
    origin = times[0]
    targets = (times - origin) * sign

    moving = [i for i, x in enumerate(theta) if x.dtype.kind == "f"]
    # Relative changes of the inputs.
    sizes = [where(theta[i] == 0.0, 1.0, stop_gradient(theta[i])) for i in moving]
    directions = [_random_like(x, i) * x for i, x in zip(moving, sizes, strict=True)]

    def slope(y: object, v: object, s: Any) -> Any:
        """Return the derivatives of a state, and of a direction unless it is None."""

        def at(y: object, *numbers: object) -> Any:
            return sign * rate(y, origin + sign * s, *exchanged(theta, moving, numbers))

        given = [theta[i] for i in moving]
        if v is None:
            return at(y, *given), None
        k, along = jvp(at, (y, *given), (v, *directions))
        return k, stop_gradient(along)

    def error_of(e: Any, *states: Array, atol: float = atol) -> Any:
        size = absolute(states[0])
        for state in states[1:]:
            size = maximum(size, absolute(state))
        return stop_gradient(sqrt(mean((e / (atol + rtol * size)) ** 2)))

    def step(carry: Array) -> Any:
        (y, v), s, h, (k1, along1), target, count = carry
        rest = target - s
        last = h >= stop_gradient(rest)
        length = where(last, rest, h)
        ks, alongs = [k1], [along1]
        after, v_after = y, v
        for node, weights in zip((*NODES[1:], 1.0), (*STAGES, WEIGHTS), strict=True):
            after = y + length * _combined(weights, ks)
            v_after = None if v is None else v + stop_gradient(length) * _combined(weights, alongs)
            k, along = slope(after, v_after, s + node * length)
            ks.append(k)
            alongs.append(along)
        error = error_of(length * _combined(ERROR, ks), y, after)
        if v is not None:
            of_v = error_of(length * _combined(ERROR, alongs), v, v_after, atol=rtol or atol)
            error = where(np.isfinite(of_v), maximum(error, of_v), error)
        stands = error <= 1.0
        factor = where(np.isnan(error), 0.2, clip(0.9 * maximum(error, 1e-10) ** -0.2, 0.2, 10.0))
        next_h = stop_gradient(length) * factor
        return (
            (where(stands, after, y), None if v is None else where(stands, v_after, v)),
            where(stands, where(last, target, s + length), s),
            where(stands & last, maximum(h, next_h), next_h),
            (where(stands, ks[-1], k1), None if v is None else where(stands, alongs[-1], along1)),
            target,
            count + 1,
        )

    def advance(carry: Array, target: Array) -> tuple[Any, Any]:
        state, s, h, k1, _ = carry
        count = stop_gradient(0.0 * s)
        carry = while_loop(
            lambda c: (c[1] < c[4]) & (c[5] < (max_steps or MOST_STEPS)),
            step,
            (state, s, h, k1, target, count),
            max_steps=max_steps,
        )
        state, s, h, k1, _, count = carry
        reached = s == target  # not beyond one that lies before the last
        return (state, s, h, k1, target), (state[0], reached, s, h)

    v = _random_like(y, len(theta)) if any(x.requires_grad for x in (y, *theta)) else None
    try:
        k1 = slope(y, v, targets[0])
    except NotImplementedError:  # an operation without a forward-mode rule
        v, k1 = None, slope(y, None, targets[0])
    first = _first_step(lambda y, s: slope(y, None, s)[0], error_of, y, k1[0])
    carry = ((y, v), targets[0], first, k1, targets[0])
    _, (later, reached, ends, lengths) = scan(advance, carry, targets[1:])
    missed = _known(reached)
    if missed is not None and not missed.all():
        i = int(np.argmin(missed))
        at, end = (float(_known(x)) for x in (origin + sign * ends[i], times[i + 1]))
        text = f"{max_steps or MOST_STEPS} steps reached t={at:.6g}, not the next time, t={end:.6g}"
        if np.isnan(_known(slope(later[i], None, ends[i])[0])).any():
            fix = "The derivative is NaN there."
        elif at + float(_known(lengths)[i]) * 1e-3 == at:
            fix = "The steps have shrunk to nothing: beyond, the derivative is NaN, infinite or "
            fix += "jumps."
        else:
            fix = "Give a larger max_steps, or larger rtol and atol; a stiff equation needs "
            fix += "another solver."
        raise RuntimeError(f"odeint: {text}. {fix}")
    whole = reshape(reached, (-1, 1)) if later.shape[0] else reached
    return _rows(y, where(whole, later, np.nan) if later.shape[0] else later)


def _random_like(x: Array, seed: int) -> Array:
    return np.random.default_rng(seed).uniform(0.5, 1.5, x.shape).astype(x.dtype)


def _combined(weights: Sequence[float], ks: Sequence[Array]) -> Any:
    return reduce(add, [weight * k for weight, k in zip(weights, ks, strict=True) if weight])


def _first_step(slope: RateOfChange, error_of: Fun, y: Array, k1: object) -> Any:
    """Return the first step's length by Hairer, Norsett and Wanner's rule (1993, II.4)."""
    y, k1 = stop_gradient(y), stop_gradient(k1)
    zero = 0.0 * y[0]
    d0, d1 = error_of(y, y), error_of(k1, y)
    small = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = where(small, 1e-6, 0.01 * d0 / where(d1 > 0.0, d1, 1.0)).astype(y.dtype)
    k2 = stop_gradient(slope(y + h0 * k1, zero + h0))
    most = maximum(d1, error_of(k2 - k1, y) / h0)
    h1 = where(most <= 1e-15, maximum(1e-6, h0 * 1e-3), (0.01 / where(most > 0, most, 1.0)) ** 0.2)
    found = where(100.0 * h0 < h1, 100.0 * h0, h1)
    return stop_gradient(where(np.isnan(found), 1e-6, found)).astype(y.dtype)


def _known(x: Any) -> Any:
    """Return the numbers of a tensor or of a dual's value, None if they are unknown here."""
    inner = under(x)
    unknown = isinstance(inner, Batched) or recorder().records(inner)
    return None if unknown else inner._array


def _by_adjoint(rate: Fun, solved: Fun, y: Array, times: Array, theta: Sequence[Any]) -> Any:
    """Return a solution whose gradient is that of the adjoint equation.

    For ``dy/dt = f(y, t, p)`` the state's cotangent ``a`` follows ``da/dt = -a df/dy``, and the
    gradient with respect to ``p`` is the integral of ``a df/dp`` (Pontryagin; Chen et al., 2018).
    """

    @custom_vjp
    def solution(y: object, times: object, *theta: object) -> Any:
        return solved(lambda y, t: rate(y, t, *theta), y, times)

    def forward(y: object, times: object, *theta: object) -> Any:
        states = solution(y, times, *theta)
        return states, (states, times, theta)

    def pulled_back(residuals: Any, g: Array) -> tuple[Any, ...]:
        states, times, theta = residuals
        floats = [i for i, x in enumerate(theta) if x.dtype.kind == "f"]

        def rate_of(y: Array, t: object, *moving: Array) -> Any:
            return rate(y, t, *exchanged(theta, floats, moving))

        moving = [theta[i] for i in floats]
        sums = [0.0 * x for x in moving]
        _, unravel = ravel_pytree([states[0], states[0], times[0], *sums])

        def backwards(vector: object, s: Any) -> Any:
            """Return the derivatives of state, cotangent and sums with respect to ``s = -t``."""
            y, a, *_ = unravel(vector)
            dy, pullback = vjp(rate_of, y, -s, *moving)
            return ravel_pytree([-dy, *pullback(a)])[0]

        def interval(carry: Array, row: Array) -> tuple[Any, Any]:
            a, of_start, sums = carry
            y, t, before, g, g_before = row
            of_time = sum_(g * rate_of(y, t, *moving))
            first, _ = ravel_pytree([y, a, of_start - of_time, *sums])
            ends = concat([reshape(-t, (1,)), reshape(-before, (1,))])
            _, a, of_start, *sums = unravel(solved(backwards, first, ends)[1])
            return (a + g_before, of_start, sums), of_time

        rows = (states[1:], times[1:], times[:-1], g[1:], g[:-1])
        start = (g[-1], 0.0 * times[0], sums)
        (a, of_start, sums), of_times = scan(interval, start, rows, reverse=True)
        by_theta = exchanged([None] * len(theta), floats, sums)
        return a, _rows(of_start, of_times), *by_theta

    solution.defvjp(forward, pulled_back)
    return solution(y, times, *theta)


def __getattr__(name: str) -> NoReturn:
    raise missing_in("integrate", name)
