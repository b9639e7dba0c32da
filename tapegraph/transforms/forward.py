"""Forward mode: `jvp` and `grad`, on dual numbers.

Every call is a level of its own, told from all others by a tag.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, Literal, overload

import numpy as np

from tapegraph.errors import explain, kind_of
from tapegraph.ops import shape
from tapegraph.recording.node import constant
from tapegraph.recording.record import tensor_like
from tapegraph.tensors.dual import Dual, direction, dual_of, lifted, parts
from tapegraph.tensors.tensor import Tensor
from tapegraph.tensors.value import Value
from tapegraph.typed import Derivative, Operand, P

# Tag 0 is the level of all duals made by hand.
_next_tag = itertools.count(1).__next__
_NUMBERS = (bool, int, float, np.number, np.bool_)


def jvp(
    f: Callable[..., Any], primals: Sequence[Operand], tangents: Sequence[Operand]
) -> tuple[Any, Any]:
    """Return a function's value and its derivative along a direction, in one forward pass.

    The derivative is the Jacobian-vector product ``sum_i (df/dx_i) t_i``.

    Parameters
    ----------
    f : callable
        Takes one argument per primal; returns a number or tensor of any shape, or a tuple of them.
    primals : tuple
        Where to differentiate: numbers, arrays, tensors, or duals of an outer level.
    tangents : tuple
        The direction: as many, each of its primal's shape.

    Returns
    -------
    value, tangent
        Of the same shape; tuples where ``f`` returns one. Floats where every primal and tangent
        is a number and the result is 0-d, ndarrays where they are arrays. They stay `Tensor` or
        `Dual` where a primal or tangent is one, or where the result depends on a parameter or an
        outer level: so levels nest, and ``backward()`` of a tangent is a Hessian-vector product.

    Raises
    ------
    TypeError
        ``f`` is not callable or returns something other than numbers; primals or tangents are no
        tuple, are not numeric, or hold a `Value`.
    ValueError
        The numbers of primals and tangents differ, or a tangent's shape is not its primal's.
    NotImplementedError
        An operation has no forward-mode rule.

    Notes
    -----
    Kinks are as in reverse mode: relu'(0) = abs'(0) = 0, ``d(a**b)/db = 0`` where ``a <= 0``, and
    the first maximum of a pooling window counts. A zero derivative times inf or NaN is zero, so
    masked singular points stay out of the result.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, 0.0))
    (6.0, 3.0)
    >>> w = tg.param([1.0, 2.0])
    >>> _, slope = tg.jvp(lambda w: tg.sum(w**3), (w,), ([1.0, 0.0],))
    >>> slope.backward()
    >>> w.grad
    array([6., 0.])
    """
    _check_callable("jvp", f)
    for given, argument in ((primals, "primals"), (tangents, "tangents")):
        if not isinstance(given, (tuple, list)):
            fix = "Write tg.jvp(f, (x,), (t,)) for one argument."
            raise TypeError(explain("jvp", f"{kind_of(given)} for {argument!r}", "a tuple", fix))
    if len(primals) != len(tangents):
        received = f"{len(primals)} primals and {len(tangents)} tangents"
        raise ValueError(explain("jvp", received, "one tangent per primal"))
    points = [lifted("jvp", x, f"primals[{i}]") for i, x in enumerate(primals)]
    directions = [
        direction("jvp", t, f"tangents[{i}]", p)
        for i, (t, p) in enumerate(zip(tangents, points, strict=True))
    ]
    tag = _next_tag()
    out = f(*(dual_of(p, d, tag) for p, d in zip(points, directions, strict=True)))
    several = isinstance(out, (tuple, list))
    given = (*primals, *tangents)
    pairs = [_as_given(_split("jvp", o, tag), given) for o in (out if several else (out,))]
    if not several:
        return pairs[0][0], pairs[0][1]
    return tuple(value for value, _ in pairs), tuple(tangent for _, tangent in pairs)


@overload
def grad(f: Callable[Concatenate[Any, P], Any], argnum: Literal[0] = 0) -> Derivative[P]: ...
@overload
def grad(f: Callable[P, Any], argnum: int) -> Callable[P, Any]: ...
def grad(f: Callable[..., Any], argnum: int = 0) -> Callable[..., Any]:
    """Return the derivative of a scalar-valued function, itself a function.

    Derivatives of any order are made by repetition: ``tg.grad(tg.grad(f))``.

    Parameters
    ----------
    f : callable
        Returns one number: a Python number or a 0-d tensor.
    argnum : int
        The position of the argument to differentiate with respect to. The others are constants,
        and are passed on as they are.

    Returns
    -------
    callable
        Takes ``f``'s arguments; gives a float for a number, an array of the argument's shape for
        an array, and a `Tensor` or `Dual` as `jvp` does. An array takes one pass of ``f`` per
        element: for large ones `backward` is the cheaper way.

    Raises
    ------
    TypeError
        ``f`` is not callable, ``argnum`` is not an integer; when called, ``f`` returns something
        other than a number, or the argument is not numeric or a `Value`.
    ValueError
        ``argnum`` is negative; when called, it is not the position of an argument, or ``f``
        returns something that is not 0-d.

    Examples
    --------
    >>> import tapegraph as tg
    >>> cube = lambda x: x**3
    >>> tg.grad(cube)(2.0), tg.grad(tg.grad(cube))(2.0)
    (12.0, 12.0)
    """
    _check_callable("grad", f)
    try:
        position = operator.index(argnum)
    except TypeError:
        raise TypeError(
            explain("grad", f"{kind_of(argnum)} for 'argnum'", "the position of an argument")
        ) from None
    if position < 0:
        raise ValueError(explain("grad", f"argnum {position}", "a position, 0 or more"))

    @functools.wraps(f)
    def derivative(*args: Any, **kwargs: Any) -> Any:
        if position >= len(args):
            received = f"argnum {position} and {len(args)} positional arguments"
            raise ValueError(explain("grad", received, "an argument at that position"))
        point = lifted("grad", args[position], f"argument {position}")

        def along(direction: Any) -> Any:
            tag = _next_tag()
            inputs = (*args[:position], dual_of(point, direction, tag), *args[position + 1 :])
            value, tangent = _split("grad", f(*inputs, **kwargs), tag)
            if value.shape != ():
                fix = "Sum it, or use tg.jvp for derivatives of arrays."
                received = f"a function returning shape {value.shape}"
                raise ValueError(explain("grad", received, "one that returns one number", fix))
            return tangent

        slopes = [along(direction) for direction in _basis(point.shape, point.dtype)]
        if point.shape == ():
            result = slopes[0]
        elif slopes:
            result = shape.reshape(shape.concat([s.reshape(1) for s in slopes]), point.shape)
        else:
            result = constant(np.zeros(point.shape, point.dtype))
        return _as_given((result,), (args[position],))[0]

    name = getattr(f, "__name__", repr(f))
    derivative.__doc__ = f"Return the derivative of {name} by its argument {position}."
    return derivative


def _basis(lengths: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[Any]:
    """Yield a one at each place in turn among zeros."""
    for place in np.ndindex(lengths):
        unit = np.zeros(lengths, dtype)
        unit[place] = 1.0
        yield constant(unit)


def _split(op: str, out: Any, tag: int) -> tuple[Any, Any]:
    """Return value and tangent of what a function gave, zero where it is a constant."""
    if isinstance(out, (Value, tuple, list)):
        received = f"a function returning a {type(out).__name__}"
        raise TypeError(explain(op, received, "one that returns a number or a tensor"))
    out = tensor_like(op, out, "the function's result")
    if type(out) is Dual and out.tag > tag:
        received = f"a function returning a Dual of the finished level {out.tag}"
        raise ValueError(explain(op, received, "a result of its own arguments"))
    value, tangent = parts(out, tag)
    if tangent is None:
        dtype = value.dtype if value.dtype.kind == "f" else np.float64
        tangent = constant(np.zeros(value.shape, dtype))
    return value, tangent


def _as_given(results: tuple[Any, ...], given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return results as floats or ndarrays where that is what came in and no history is lost."""
    if any(isinstance(x, (Tensor, Dual)) for x in given) or any(r.requires_grad for r in results):
        return results
    arrays = [np.array(r._array) for r in results]
    if all(isinstance(x, _NUMBERS) for x in given):
        return tuple(float(a) if a.ndim == 0 else a for a in arrays)
    return tuple(arrays)


def _check_callable(op: str, f: Any) -> None:
    if not callable(f):
        raise TypeError(explain(op, kind_of(f), "a function"))
