"""`grad`, `value_and_grad` and `elementwise_grad`: gradients as functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Literal, overload

import numpy as np

from tapegraph.compiling.compiled import derivative_function
from tapegraph.errors import check_callable, message
from tapegraph.pytree import mapped
from tapegraph.tensors.dual import Dual
from tapegraph.tensors.tensor import Tensor
from tapegraph.transforms.levels import (
    Lifted,
    as_given,
    check_positions,
    next_tag,
    positions,
    result,
)
from tapegraph.transforms.reverse import Pullback, recording
from tapegraph.typed import Derivative, P


@overload
def grad(f: Callable[Concatenate[Any, P], Any], argnums: Literal[0] = 0) -> Derivative[P]: ...
@overload
def grad(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    argnum: int | Sequence[int] | None = None,
    holomorphic: bool = False,
) -> Callable[..., Any]: ...
def grad(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    argnum: int | Sequence[int] | None = None,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """Return the gradient of a scalar-valued function, itself a function of the same arguments.

    Each call is one run of ``f`` and one reverse pass. Derivatives of any order are made by
    repetition, ``tg.grad(tg.grad(f))``, and levels of `grad` and `jvp` nest in every way.

    :param f: Returns one number: a Python number or a 0-d tensor.
    :param argnums: The positions of the arguments to differentiate with respect to. The others are
        constants, and are passed on as they are.
    :param has_aux: ``f`` returns a pair, of which the second is not differentiated.
    :param argnum: Another name for ``argnums``.
    :param holomorphic: ``f`` takes and returns complex numbers and is differentiable as such: the
        result is ``f'(z)``, of which the gradient of a real function is no special case.
    :returns: Callable. Takes ``f``'s arguments; gives the gradient, in the structure of the
        argument: numbers, arrays, and dicts, lists and tuples of them. It is a float for a number
        and an array for an array; a `Tensor` or `Dual` where that came in, or where it depends on a
        parameter or an outer level. A list or tuple of gradients where ``argnums`` is one; with
        ``has_aux``, a pair of gradient and the function's second result. By what the result does
        not depend on the gradient is zero.
    :raises TypeError: ``f`` is not callable, ``argnums`` are no integers; when called, ``f``
        returns something other than a number, or something in the argument is not numeric.
    :raises ValueError: ``argnums`` are negative; when called, one is not the position of an
        argument, or ``f`` returns something that is not 0-d.
    :raises NotImplementedError: When called inside another level: an operation has no derivative of
        that order.

    >>> cube = lambda x: x**3
    >>> tg.grad(cube)(2.0), tg.grad(tg.grad(cube))(2.0)
    (12.0, 12.0)
    >>> tg.grad(lambda p, x: p["w"] * x + p["b"])({"w": 2.0, "b": 1.0}, 3.0)
    {'w': 3.0, 'b': 1.0}
    """
    found = Gradient(
        "grad",
        f,
        argnums if argnum is None else argnum,
        has_aux=has_aux,
        holomorphic=holomorphic,
    )

    @functools.wraps(f)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        (_, aux), gradient = found(args, kwargs)
        return (gradient, aux) if has_aux else gradient

    derivative.__doc__ = f"Return the derivative of {found.title} by {found.by}."
    return derivative_function(derivative)


def value_and_grad(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    argnum: int | Sequence[int] | None = None,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """Return a function that gives the value of a scalar-valued function and its gradient.

    :param f, argnums, has_aux, argnum, holomorphic: As for `grad`.
    :returns: Callable. Takes ``f``'s arguments; gives a pair of value and gradient, or of ``(value,
        aux)`` and gradient with ``has_aux``. The value is a float, or a `Tensor` or `Dual` as in
        `grad`.
    :raises TypeError, ValueError, NotImplementedError: As for `grad`.

    >>> tg.value_and_grad(lambda x: tg.sum(x * x))(np.array([1.0, 2.0]))
    (5.0, array([2., 4.]))
    """
    chosen = argnums if argnum is None else argnum
    found = Gradient("value_and_grad", f, chosen, has_aux=has_aux, holomorphic=holomorphic)

    @functools.wraps(f)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        (value, aux), gradient = found(args, kwargs)
        return ((value, aux) if has_aux else value), gradient

    derivative.__doc__ = f"Return {found.title} and its derivative by {found.by}."
    return derivative_function(derivative)


def elementwise_grad(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    argnum: int | Sequence[int] | None = None,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """Return the gradient of the sum of a function's results.

    Where ``f`` works element by element that is its derivative at each.

    :param f: Returns a number or tensor of any shape.
    :param argnums, argnum, holomorphic: As for `grad`.
    :returns: Callable. Takes ``f``'s arguments; gives the gradient as `grad` does.
    :raises TypeError, ValueError, NotImplementedError: As for `grad`, but for results of any shape.

    >>> tg.elementwise_grad(lambda x: x**2)(np.array([1.0, 2.0, 3.0]))
    array([2., 4., 6.])
    """
    chosen = argnums if argnum is None else argnum
    found = Gradient("elementwise_grad", f, chosen, of_sum=True, holomorphic=holomorphic)

    @functools.wraps(f)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        return found(args, kwargs)[1]

    derivative.__doc__ = f"Return the derivative of the sum of {found.title} by {found.by}."
    return derivative_function(derivative)


class Gradient:
    """A function's value and gradient by some of its arguments, one call after another.

    :param op: Who asks, for messages.
    :param f, argnums, has_aux: As for `grad`.
    :param of_sum: Of the sum of the results, in place of one number.
    :param holomorphic: The derivative of a function from complex numbers to complex numbers.
    """

    def __init__(
        self,
        op: str,
        f: Callable[..., Any],
        argnums: Any,
        *,
        has_aux: bool = False,
        of_sum: bool = False,
        holomorphic: bool = False,
    ) -> None:
        check_callable(op, f)
        self._holomorphic = holomorphic
        self._op, self._f, self._has_aux, self._of_sum = op, f, has_aux, of_sum
        self._wanted = positions(op, argnums)
        # A list or tuple of gradients for a list or tuple of positions.
        self._several = type(argnums) if isinstance(argnums, (tuple, list)) else None
        self.title = getattr(f, "__name__", repr(f))
        places = ", ".join(map(str, self._wanted))
        self.by = f"its argument{'s' if len(self._wanted) > 1 else ''} {places}"

    def __call__(self, args: Any, kwargs: Any) -> tuple[tuple[Any, Any], Any]:
        """Return the value with the auxiliary result, and the gradient."""
        op = self._op
        check_positions(op, self._wanted, args)
        inputs = list(args)
        targets: list[Any] = []
        lifted: dict[int, Lifted] = {}
        for i in self._wanted:
            if i not in lifted:
                lifted[i] = argument = Lifted(op, args[i], f"argument {i}")
                inputs[i] = argument.inside
                targets += argument.targets
        level = next_tag()
        with recording():
            out = self._f(*inputs, **kwargs)
        aux = None
        if self._has_aux:
            if not isinstance(out, (tuple, list)) or len(out) != 2:
                received = f"has_aux=True and a function returning {type(out).__name__}"
                raise TypeError(message(op, received, "a pair: a number, and anything"))
            out, aux = out
        out = result(op, out, level)
        if out.shape != () and not self._of_sum:
            fix = "Sum it, or use tg.jacobian, tg.elementwise_grad or tg.jvp."
            received = f"a function returning shape {out.shape}"
            raise ValueError(message(op, received, "one that returns one number", fix))
        pullback = Pullback(out, targets)
        like = self._like(lifted)
        if self._holomorphic:
            arrays, grads = None, iter(pullback.derivatives(op))
        else:
            arrays = pullback.arrays()
            grads = iter(pullback() if arrays is None else arrays)
        by_position = {i: argument.regrouped(grads) for i, argument in lifted.items()}
        value: Any = None
        if op != "grad":
            value = as_given(pullback.value if arrays is None else np.array(out._array), like)
        if aux is not None:
            aux = mapped(lambda x: _ended(x, targets, like), aux)
        if self._several is None:
            return (value, aux), by_position[self._wanted[0]]
        return (value, aux), self._several(by_position[i] for i in self._wanted)

    @staticmethod
    def _like(lifted: dict[int, Lifted]) -> Any:
        """Return what decides on the kind of the value: a tensor that came in, or a number."""
        for argument in lifted.values():
            for x in argument.given:
                if isinstance(x, (Tensor, Dual)):
                    return x
        return 0.0


def _ended(x: Any, targets: Sequence[Any], like: Any) -> Any:
    """Return part of an auxiliary result without the level that has ended."""
    if not isinstance(x, (Tensor, Dual)):
        return x
    return as_given(Pullback(x, targets).value, like)
