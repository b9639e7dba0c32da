"""`minimize`: SciPy's minimisers, with derivatives from the tape."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from tapegraph.errors import (
    ConcretizationError,
    LostGradientError,
    check_callable,
    kind_of,
    message,
    scipy_module,
    sentence,
)
from tapegraph.loops.body import Replay
from tapegraph.optim.implicit import Given, stationary
from tapegraph.pytree import leaves, replaced
from tapegraph.recording.lost_gradients import DIFFERENTIATING
from tapegraph.recording.record import tensor_like
from tapegraph.recording.scopes import no_grad
from tapegraph.tensors.dual import lifted
from tapegraph.transforms.jacobian import hessian, hvp
from tapegraph.transforms.levels import NUMBER_TYPES, stop_gradient
from tapegraph.transforms.reverse import value_and_grad
from tapegraph.tree import ravel_pytree
from tapegraph.typed import Array, Fun, Pytree

# SciPy's methods by their further inputs; the others take value and gradient.
_VALUE_ALONE = {"nelder-mead", "powell", "cobyla", "cobyqa"}
_PRODUCTS = {"newton-cg", "trust-ncg", "trust-krylov", "trust-constr"}
_HESSIAN = {"dogleg", "trust-exact"}
# The methods that would ignore a restriction, by the restriction.
_WITHOUT_BOUNDS = {"bfgs", "cg", "dogleg", "newton-cg", "trust-exact", "trust-krylov", "trust-ncg"}
_UNRESTRICTED = {
    "constraints": _WITHOUT_BOUNDS | {"l-bfgs-b", "nelder-mead", "powell", "tnc"},
    "bounds": _WITHOUT_BOUNDS,
}


def minimize(
    f: Fun,
    x0: Pytree,
    method: str | Fun | None = "L-BFGS-B",
    *,
    args: tuple[object, ...] = (),
    hess: bool = False,
    bounds: object = None,
    constraints: object = (),
    tol: float | None = None,
    callback: Fun | None = None,
    options: Mapping[str, Any] | None = None,
    implicit: bool = False,
    **more_options: object,
) -> Any:
    """Minimise a scalar-valued function by `scipy.optimize.minimize`.

    Newton-CG, trust-ncg, trust-krylov and trust-constr get Hessian-vector products by
    `tapegraph.hvp`, dogleg and trust-exact the Hessian by `tapegraph.hessian`.

    :param f: Takes a structure like ``x0``, then ``args``; returns one number.
    :param x0: The start. SciPy, and so ``f``, sees float64 numbers.
    :param method: SciPy's name of a method, or a method as SciPy takes it; None lets SciPy choose.
    :param args: Further arguments of ``f``.
    :param hess: Pass Hessians in place of products to methods that take either.
    :param bounds, constraints, tol: SciPy's arguments, about the vector of all numbers in ``x0`` in
        the order of the structure. Constraints are for SLSQP, trust-constr, COBYLA and COBYQA.
    :param callback: SciPy's callback, with ``x`` in the structure of ``x0``.
    :param options: Options of the method, such as ``maxiter``; they may also be given by name.
    :param implicit: Let derivatives of ``x`` flow to ``args`` and to tensors that ``f`` closes
        over, by the implicit function theorem: the gradient of ``f`` is zero there (`root`). ``f``
        is then traced, and bounds and constraints are errors.
    :returns: SciPy's `OptimizeResult`, in which ``x`` has the structure of ``x0``: floats for
        numbers, float64 arrays for arrays. Its other fields are about the vector.
    :raises ImportError: If SciPy is missing.
    :raises TypeError: ``f`` is not callable or returns no number; ``x0`` holds an object that is
        not numeric, or needs a gradient; or ``jac`` or ``hessp`` is given.
    :raises ValueError: ``x0`` is empty, ``f`` returns an array, the method ignores given bounds or
        constraints, or SciPy refuses an argument.
    :raises RuntimeError: With ``implicit``: the minimiser did not converge.
    :raises ConcretizationError: The call is inside `vmap`, a loop or a compiled step: write `root`
        of the gradient.

    >>> def f(p):
    ...     return tg.sum((p["w"] - 3.0) ** 2) + p["b"] ** 2
    >>> found = tg.optim.minimize(f, {"w": np.zeros(2), "b": 1.0})
    >>> found.x["w"].round(6), found.success
    (array([3., 3.]), True)
    """
    check_callable("minimize", f)
    if not (method is None or isinstance(method, str) or callable(method)):
        fix = f"Write args=({method!r},) for the arguments of f after x."
        raise TypeError(message("minimize", f"{kind_of(method)} for 'method'", "a name", fix))
    options = {**(options or {}), **more_options}
    if implicit:
        more = {"method": method, "hess": hess, "tol": tol, "callback": callback}
        return _differentiable(f, x0, args, bounds, constraints, options=options, **more)
    _check_derivatives(hess, options)
    name = method.lower() if isinstance(method, str) else ""
    _check_used(name, bounds=bounds, constraints=constraints)
    scipy = scipy_module("optimize", "minimize", '"scipy>=1.13"')
    with _by_numbers():
        start = replaced(x0, (_start(leaf, path) for path, leaf in leaves(x0, "x0")))
    vector, unravel = ravel_pytree(start)
    if not vector.size:
        raise ValueError(message("minimize", f"x0={x0!r}", "one number or more to vary"))
    objective = _Objective(f, unravel, args if isinstance(args, tuple) else (args,))
    derivatives: dict[str, Any] = {}
    if name not in _VALUE_ALONE:
        derivatives["jac"] = True
    if name in _HESSIAN or (hess and name in _PRODUCTS):
        derivatives["hess"] = objective.hessian
    elif name in _PRODUCTS:
        derivatives["hessp"] = objective.product
    with _by_numbers():
        found = scipy.minimize(
            objective.value_and_gradient if derivatives else objective.value,
            vector,
            method=method,
            bounds=bounds,
            constraints=constraints,
            tol=tol,
            callback=None if callback is None else _with_structure(callback, unravel),
            options=options,
            **derivatives,
        )
    found.x = unravel(found.x)
    return found


def _differentiable(
    f: Fun, x0: Any, args: object, bounds: object, constraints: object, **options: Any
) -> Any:
    if bounds is not None or constraints:
        received = "implicit=True with bounds or constraints"
        fix = "Write them into f, by a change of variables or a penalty."
        raise ValueError(message("minimize", received, "neither", fix))
    given = Given("minimize", f, x0, args if isinstance(args, tuple) else (args,))
    shapes = [shape for shape, _ in given.body.types(given.body.outputs)]
    if shapes != [()]:
        received = f"a function returning {', '.join(f'shape {shape}' for shape in shapes)}"
        raise ValueError(message("minimize", received, "one that returns one number", "Sum it."))
    first = [stop_gradient(x) for x in given.consts]
    last = [stop_gradient(x) for x in given.numbers]

    def objective(x: object) -> Any:
        unknowns = (tensor_like("minimize", part) for _, part in leaves(x))
        return Replay(given.body)(*first, *unknowns, *last)[0]

    found = minimize(objective, x0, **options)
    if not found.success:
        size = np.max(np.abs(found.jac)) if "jac" in found else np.nan
        raise RuntimeError(
            f"minimize: the minimiser did not converge: {found.message.rstrip('.')}. The largest "
            f"element of the gradient is {size:.3g}. Give another method, tol= or maxiter=."
        )
    found.x = stationary(given, [np.asarray(x) for _, x in leaves(found.x)])
    return found


def _check_derivatives(hess: object, options: Mapping[str, object]) -> None:
    fix = "Leave it out; with derivatives by hand call scipy.optimize.minimize."
    for argument in ("jac", "hessp"):
        if argument in options:
            received = f"{kind_of(options[argument])} for {argument!r}"
            expected = "none: the derivatives are those of f, from the tape"
            raise TypeError(message("minimize", received, expected, fix))
    if not isinstance(hess, (bool, np.bool_)):
        expected = "True, for Hessians from the tape, or False"
        raise TypeError(message("minimize", f"{kind_of(hess)} for 'hess'", expected, fix))


def _check_used(method: str, **restrictions: object) -> None:
    for argument, given in restrictions.items():
        empty = isinstance(given, (tuple, list)) and not given
        if given is not None and not empty and method in _UNRESTRICTED[argument]:
            fix = 'Write method="SLSQP" or "trust-constr".'
            received = f"{argument} for {method.upper()}, which ignores them"
            raise ValueError(message("minimize", received, "a method that obeys them", fix))


@contextmanager
def _by_numbers() -> Iterator[None]:
    try:
        yield
    except ConcretizationError as error:
        text = (
            "the minimiser decides by numbers, which differ between the examples of vmap, and "
            "between the runs of a compiled step or a loop. For a stationary point write "
            "tg.optim.root(tg.grad(f), x0)."
        )
        raise ConcretizationError(sentence("minimize", text)) from error


class _Objective:
    """A function of a structure, and its derivatives, as functions of a vector."""

    def __init__(self, f: Fun, unravel: Fun, args: tuple[object, ...]) -> None:
        self._f: Callable[[Any], Any] = lambda structure: f(structure, *args)
        self._unravel = unravel

    def value(self, x: Array) -> float:
        with _ending():
            value = np.asarray(_without_derivative(self._f(self._unravel(x))))
        if value.shape != ():
            text = f"f must return a scalar, not shape {value.shape}. Sum it."
            raise ValueError(sentence("minimize", text))
        return float(value)

    def value_and_gradient(self, x: Array) -> tuple[float, Array]:
        with _ending():
            value, gradient = value_and_grad(self._f)(self._unravel(x))
        return float(_without_derivative(value)), ravel_pytree(gradient)[0]

    def product(self, x: Array, direction: Array) -> Array:
        point, tangent = self._unravel(x), self._unravel(direction)
        with _ending():
            return ravel_pytree(hvp(self._f, (point,), (tangent,)))[0]

    def hessian(self, x: Array) -> Array:
        point = self._unravel(x)
        with _ending():
            blocks = iter([block for _, block in leaves(hessian(self._f)(point))])
        sizes = [np.size(leaf) for _, leaf in leaves(point)]
        return np.block([[np.reshape(next(blocks), (m, n)) for n in sizes] for m in sizes])


def _ending() -> AbstractContextManager[Any]:
    """Let no gradient of parameters flow into SciPy; raise for an outer derivative."""
    return nullcontext() if DIFFERENTIATING.value() else no_grad()


def _without_derivative(value: object) -> Any:
    """Return a value that SciPy takes; raise if it depends on what is differentiated outside."""
    if DIFFERENTIATING.value() and getattr(value, "requires_grad", False):
        text = "the result would lose its derivative for tensors that f reads. Write implicit=True."
        raise LostGradientError(sentence("minimize", text))
    return value


def _start(leaf: object, path: str) -> Any:
    x = lifted("minimize", leaf, path)
    if x.dtype.kind == "c":
        fix = "Minimise over real and imaginary parts, x[0] + 1j * x[1]."
        raise TypeError(message("minimize", f"complex numbers in {path}", "real ones", fix))
    array = np.asarray(x, np.float64)
    return float(array) if isinstance(leaf, NUMBER_TYPES) else array


def _with_structure(callback: Fun, unravel: Fun) -> Fun:
    """Return a callback of vectors with the signature that SciPy inspects."""

    def of_result(intermediate_result: Any) -> Any:
        x = unravel(intermediate_result.x)
        return callback(intermediate_result=type(intermediate_result)(intermediate_result, x=x))

    def of_vector(x: Array, *state: object) -> Any:
        return callback(unravel(x), *state)

    try:
        named = set(inspect.signature(callback).parameters) == {"intermediate_result"}
    except (TypeError, ValueError):  # of a built-in
        named = False
    return of_result if named else of_vector
