"""`root` and `fixed_point`: solutions of equations, with derivatives.

SciPy's solver finds ``x`` with ``f(x, a) = 0`` as one entry. Its derivative, of any order, is a
linear equation in recorded operations, ``dx/da = -(df/dx)^-1 df/da``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from tapegraph.batching import BatchedCall
from tapegraph.custom_rules import custom_vjp
from tapegraph.engines import registry
from tapegraph.errors import check_callable, message, scipy_module, sentence
from tapegraph.loops.body import (
    Replay,
    further_arguments,
    loop_operand,
    traced,
    traced_without_draws,
)
from tapegraph.ops.linalg import solve
from tapegraph.ops.shape import in_one, matrix_transpose
from tapegraph.pytree import cut, exchanged, leaves, replaced
from tapegraph.recording.node import as_leaf
from tapegraph.recording.op import Op, Rules
from tapegraph.recording.program import SubProgram
from tapegraph.recording.record import apply
from tapegraph.tensors.tensor import Tensor
from tapegraph.transforms.jacobian import jacobian
from tapegraph.transforms.levels import like_input, stop_gradient
from tapegraph.transforms.reverse import vjp
from tapegraph.typed import Array, Fun, Pytree

# Up to so many unknowns the linear equation of the derivative is solved with its matrix.
DENSE = 500
GMRES = "gmres"
FIXED_POINT = "fixed_point"


def root(
    f: Fun,
    x0: Pytree,
    *args: Pytree,
    method: str = "hybr",
    tol: float | None = None,
    **options: object,
) -> Pytree:
    """Return the solution of ``f(x, *args) = 0`` by `scipy.optimize.root`, with derivatives.

    By the implicit function theorem, ``dx = -(df/dx)^-1 df``, derivatives of any order flow to
    ``args`` and to tensors that ``f`` closes over; they do not depend on the solver's path. Up to
    500 unknowns the matrix is computed; beyond, SciPy's GMRES solves the equation by products.

    :param f: Takes the unknowns, in the structure of ``x0``, and ``args``; returns as many numbers,
        in any structure. It is traced, as in `compile`: it runs on tensors without numbers.
    :param x0: The start: real numbers, arrays, tensors, and dicts, lists and tuples of them.
    :param *args: Further arguments of ``f``.
    :param method: SciPy's name of a method. "hybr" and "lm" get the Jacobian of ``f``.
    :param tol: SciPy's tolerance.
    :param **options: Options of the method, such as ``maxiter``.
    :returns: The solution in the structure of ``x0``, of float64 numbers or the dtype of the array.
    :raises ImportError: SciPy is missing.
    :raises RuntimeError: The solver did not converge; the message has its residual.
    :raises numpy.linalg.LinAlgError: In a derivative: ``df/dx`` is singular at the solution.
    :raises TypeError, ValueError: ``f`` is not callable, or returns too few or many numbers; ``x0``
        holds a complex number.

    >>> def square_root(a):
    ...     return tg.optim.root(lambda x: x * x - a, 1.0)
    >>> round(tg.grad(square_root)(4.0), 6), round(tg.grad(tg.grad(square_root))(4.0), 6)
    (0.25, -0.03125)
    """
    return _solution("root", f, x0, args, {"solver": method, "tol": tol, **options})


def fixed_point(f: Fun, x0: Pytree, *args: Pytree, tol: float = 1e-10, **options: object) -> Pytree:
    """Return the ``x`` with ``x = f(x, *args)`` by `scipy.optimize.fixed_point`, with derivatives.

    Derivatives are those of `root` for ``x - f(x, *args)``.

    :param f: Takes ``x`` and ``args``; returns the next ``x``, in the structure of ``x0``.
    :param x0, *args: As for `root`.
    :param tol: The final distance of two steps, relative to ``x``.
    :param **options: ``maxiter``; ``method="iteration"`` for steps without acceleration.
    :returns: The fixed point, in the structure of ``x0``.
    :raises ImportError, RuntimeError, numpy.linalg.LinAlgError, TypeError, ValueError: As for
        `root`.

    >>> golden = tg.optim.fixed_point(lambda x, a: 1.0 + a / x, 1.5, 1.0)
    >>> round(golden, 6)
    1.618034
    """
    check_callable("fixed_point", f)

    def difference(x: object, *args: object) -> list[Any]:
        pairs = zip(leaves(x), leaves(f(x, *args)), strict=True)
        return [a - b for (_, a), (_, b) in pairs]

    given = {"solver": FIXED_POINT, "tol": tol, **options}
    return _solution("fixed_point", difference, x0, args, given)


def _solution(op: str, f: Fun, x0: object, args: object, options: dict[str, object]) -> Any:
    scipy_module("optimize", op, '"scipy>=1.13"')
    if "args" in options:
        text = f"unexpected keyword argument 'args'. Did you mean {op}(f, x0, *args)?"
        raise TypeError(sentence(op, text))
    given = Given(op, f, x0, args)
    sizes = [int(np.prod(s)) for s, _ in given.body.types(given.body.outputs)]
    count = sum(x.size for x in given.start)
    if sum(sizes) != count:
        received = f"a function of {count} numbers that returns {sum(sizes)}"
        raise ValueError(message(op, received, "as many equations as unknowns"))
    theta = (*given.consts, *given.numbers)
    return given.like_input(_solved(op, given.body, len(given.consts), given.start, options, theta))


class Given:
    """A function of unknowns and further ``numbers``, as an inner program."""

    def __init__(self, op: str, f: Fun, x0: object, args: Any) -> None:
        check_callable(op, f)
        self._x0 = x0
        self.start = [_unknown(op, x, path) for path, x in leaves(x0, "x0")]
        if not sum(x.size for x in self.start):
            raise ValueError(message(op, f"x0={x0!r}", "one number or more to vary"))
        self._args = args
        self.numbers, having = further_arguments(op, args)
        count = len(self.start)

        def called(inputs: Sequence[object]) -> tuple[Any, ...]:
            return replaced(x0, iter(inputs[:count])), *having(inputs[count:])

        found = traced_without_draws(op, f, called, [*self.start, *self.numbers])
        self.body, self.consts = found.body, found.consts

    def like_input(self, solved: Sequence[object]) -> Any:
        """Return the solution in the structure and kind of the initial unknowns."""
        held = [x for _, x in leaves(self._x0)]
        if not any(hasattr(x, "requires_grad") for _, x in leaves((held, self._args))):
            if not any(type(x) is not Tensor or x.requires_grad for x in solved):
                solved = [like_input(x, before) for x, before in zip(solved, held, strict=True)]
        return replaced(self._x0, iter(solved))


def stationary(given: Given, x: Sequence[Any]) -> Any:
    """Return a point ``x`` where the gradient of a function is zero, with its derivatives."""
    body, first, count = given.body, len(given.consts), len(given.start)

    def gradient(*inputs: object) -> Any:
        _, pullback = vjp(
            lambda *x: Replay(body)(*inputs[:first], *x, *inputs[first + count :])[0],
            *inputs[first : first + count],
        )
        return pullback(np.ones((), body.types(body.outputs)[0][1]))

    shown = [*given.consts, *given.start, *given.numbers]
    found = traced("minimize", gradient, list, shown)
    consts = [*found.consts, *given.consts]
    start, theta = list(map(as_leaf, x)), (*consts, *given.numbers)
    solved = _solved("minimize", found.body, len(consts), start, {"solver": None}, theta)
    return given.like_input(solved)


def _unknown(op: str, x: object, path: str) -> Any:
    found = stop_gradient(loop_operand(op, x, path))
    if found.dtype.kind == "c":
        fix = "Solve for real and imaginary parts, x[0] + 1j * x[1]."
        raise TypeError(message(op, f"complex numbers in {path}", "real ones", fix))
    return found if found.dtype.kind == "f" else found.astype(np.float64)


def _solved(
    op: str,
    body: SubProgram,
    consts: int,
    start: Sequence[Any],
    options: dict[str, object],
    theta: Sequence[Any],
) -> Any:
    """Return the unknowns of an equation for its other inputs ``theta``, with derivatives.

    The body's inputs are the first ``consts`` of theta, the unknowns, and the rest of theta.
    """
    attrs: dict[str, Any] = {"body": body, "consts": consts, "unknowns": len(start)}
    attrs |= {"options": tuple(sorted(options.items())), "batched": ()}
    shapes = [x.shape for x in start]

    def residual(vector: object, theta: Sequence[object]) -> Any:
        x = cut(vector, shapes)
        return in_one(Replay(body)(*theta[:consts], *x, *theta[consts:]))

    def transposed(u: object, x: object, g: object, *theta: object) -> Any:
        _, pullback = vjp(lambda x: residual(x, theta), x)
        return pullback(u) - g

    def pulled_back(residuals: Any, cotangent: Any) -> tuple[Any, ...]:
        """Return the gradients of the equation's inputs: a linear equation, and one pullback."""
        unknowns, theta = residuals
        x, g = in_one(unknowns), in_one(cotangent)
        if x.size <= DENSE:
            matrix = jacobian(lambda x: residual(x, theta))(x)
            u = solve(matrix_transpose(matrix), g)
        else:  # u with J^T u = g is itself the root of an equation
            u = _solution(op, transposed, 0.0 * g, (x, g, *theta), {"solver": GMRES})
        floats = [i for i, part in enumerate(theta) if part.dtype.kind == "f"]
        found: tuple[Any, ...] = ()
        if floats:
            _, pullback = vjp(
                lambda *parts: residual(x, exchanged(theta, floats, parts)),
                *(theta[i] for i in floats),
            )
            found = pullback(-u) if len(floats) > 1 else (pullback(-u),)
        return tuple(exchanged([None] * len(theta), floats, found))

    @custom_vjp
    def solved(*theta: object) -> Any:
        return tuple(apply(SOLVER, (*start, *map(stop_gradient, theta)), attrs))

    solved.defvjp(lambda *theta: ((x := solved(*theta)), (x, theta)), pulled_back)
    return solved(*theta)


# The entry that runs the solver. Its inputs are the initial unknowns, and the other values that the
# equation reads; `batched` says, for each level of `vmap`, which of them are of many examples.


def _forward(*inputs: Array, **attrs: Any) -> tuple[Any, ...]:
    if attrs["batched"]:
        flags, *inner = attrs["batched"]
        size = next(len(x) for x, b in zip(inputs, flags, strict=True) if b)
        each = {**attrs, "batched": tuple(inner)}
        rows = [
            _forward(*(x[i] if b else x for x, b in zip(inputs, flags, strict=True)), **each)
            for i in range(size)
        ]
        return tuple(map(np.stack, zip(*rows, strict=True)))
    body, consts, unknowns = attrs["body"], attrs["consts"], attrs["unknowns"]
    options = dict(attrs["options"])
    start, theta = inputs[:unknowns], inputs[unknowns:]
    shapes, dtypes = [x.shape for x in start], [x.dtype for x in start]

    def parts_of(vector: Array) -> tuple[Any, ...]:
        parts = zip(cut(vector, shapes), dtypes, strict=True)
        return tuple(x.astype(dtype) for x, dtype in parts)

    def given(vector: Array) -> list[Any]:
        return [*theta[:consts], *parts_of(vector), *theta[consts:]]

    def run(program: SubProgram, *arrays: object) -> list[Array]:
        with registry.engine(registry.NATIVE).inner(program).forward(arrays) as step:
            return [np.array(x, np.float64) for x in step(arrays)]

    def residual(vector: Array) -> Array:
        return np.concatenate([x.ravel() for x in run(body, *given(vector))])

    def jacobian_of(*inputs: object) -> Any:
        stop = consts + unknowns

        def of_vector(vector: object) -> Any:
            x = cut(vector, shapes)
            return in_one(Replay(body)(*inputs[:consts], *x, *inputs[stop:]))

        return jacobian(of_vector)(in_one(inputs[consts:stop]))

    vector = np.concatenate([np.ravel(x) for x in start]).astype(np.float64)
    matrix = None
    if options["solver"] in ("hybr", "lm"):
        of = body.make("jacobian", traced, "root", jacobian_of, list, given(vector), repeat(False))
        constants = [x._array for x in of.consts]  # that differentiation made
        matrix = lambda vector: run(of.body, *constants, *given(vector))[0]  # noqa: E731
    found = _solver(options, residual, matrix, vector)
    if not np.isfinite(found).all():
        _failed(residual(found), "it came to numbers that are not finite")
    return parts_of(found)


def _solver(
    options: dict[str, object],
    residual: Callable[[Array], Array],
    matrix: Callable[[Array], Array] | None,
    start: Array,
) -> Array:
    scipy = scipy_module("optimize", "root", '"scipy>=1.13"')
    name, tol = options.pop("solver"), options.pop("tol", None)
    if name is None:  # it has run
        return start
    if name == GMRES:
        linear = scipy_module("sparse.linalg", "root", '"scipy>=1.13"')
        constant = residual(np.zeros_like(start))
        size = (start.size, start.size)
        operator = linear.LinearOperator(size, lambda u: residual(u) - constant, dtype=start.dtype)
        found, info = linear.gmres(operator, -constant, rtol=1e-12, atol=0.0, maxiter=start.size)
        if info:
            _failed(residual(found), "GMRES, for a derivative, stopped before its tolerance")
        return found
    if name == FIXED_POINT:
        try:
            return np.asarray(
                scipy.fixed_point(lambda x: x - residual(x), start, xtol=tol, **options)
            )
        except RuntimeError as error:
            _failed(residual(start), str(error).partition(" Value is")[0].rstrip("."))
    found = scipy.root(residual, start, method=name, jac=matrix, tol=tol, options=options or None)
    if not found.success:
        _failed(found.fun, found.message)
    return found.x


def _failed(residual: Array, why: str) -> None:
    size = float(np.max(np.abs(residual))) if residual.size else 0.0
    raise RuntimeError(
        f"root: the solver did not converge: {' '.join(why.split()).rstrip('.')}. The largest "
        f"residual is {size:.3g}. Start closer to the solution, or give another method or maxiter."
    )


def _batch(call: BatchedCall) -> tuple[Any, ...]:
    flags = (tuple(call.batched), *call.attrs["batched"])
    return tuple(apply(SOLVER, tuple(call.xs), {**call.attrs, "batched": flags}))


SOLVER = Op(
    "root",
    _forward,
    several=True,
    differentiable=(),
    rules=Rules(lambda needs, *args, **attrs: [None] * len(needs), None, None, None, _batch),
)
