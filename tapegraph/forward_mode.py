"""Forward mode: `Dual` numbers, which carry a derivative along with a value.

Every call of `jvp` or `grad` is a level of its own, told from all others by a tag. An operation
on duals belongs to the highest tag among its inputs; everything else is a constant to that
level, so nested derivatives never mix.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, NoReturn, overload

import numpy as np

from tapegraph import conversions
from tapegraph._tensor import Tensor
from tapegraph._value import Value
from tapegraph.errors import explain, kind_of
from tapegraph.ir import DEFINED, OPS, Array, Attrs, Op
from tapegraph.jvps import JVPS
from tapegraph.jvps import comparison as comparison_jvps
from tapegraph.jvps import elementwise as elementwise_jvps
from tapegraph.jvps import transcendental as transcendental_jvps
from tapegraph.jvps.rules import value as array_of
from tapegraph.methods import ArrayMethods
from tapegraph.node import constant
from tapegraph.ops import comparison, elementwise, shape, transcendental
from tapegraph.record import apply, operand, tensor_like
from tapegraph.typed import Derivative, Operand, P

# Tag 0 is the level of all duals made by hand.
_next_tag = itertools.count(1).__next__
_NUMBERS = (bool, int, float, np.number, np.bool_)
# Element-wise operations are called by their public functions, which explain shape errors.
_ELEMENTWISE = {
    name: getattr(family, name)
    for family, rules in (
        (elementwise, elementwise_jvps),
        (transcendental, transcendental_jvps),
        (comparison, comparison_jvps),
    )
    for name in rules.JVPS
}


class Dual(ArrayMethods):
    """A value and its directional derivative: ``primal + tangent * e`` with ``e * e = 0``.

    It computes as a `Tensor` does, and every operation carries the derivative along:
    ``f(Dual(x, t))`` is ``Dual(f(x), f'(x) t)``. Comparisons and ``bool`` are by value.
    `jvp` and `grad` make duals themselves, one level per call; those made by hand share one level.

    Parameters
    ----------
    primal : Tensor, array_like or number
        The value; numbers, integers and lists become float64.
    tangent : Tensor, array_like or number
        The derivative, of the primal's shape.
    tag : int
        The level it belongs to.

    Attributes
    ----------
    primal, tangent : Tensor or Dual
        The two parts; duals where levels are nested.
    tag : int
        The level.
    data : ndarray
        The value under all levels.
    shape, dtype, ndim, size
        As of the value.

    Raises
    ------
    TypeError
        A part is not numeric, or is a `Value`.
    ValueError
        The shapes of the parts differ, or a part belongs to the same or a higher level.

    Examples
    --------
    >>> import tapegraph as tg
    >>> x = tg.Dual(3.0, 1.0)
    >>> x**2 + 2.0 * x
    Dual(15., tangent=8.)
    """

    __slots__ = ("primal", "tag", "tangent")

    primal: Tensor | Dual
    tangent: Tensor | Dual
    tag: int

    def __init__(self, primal: Operand, tangent: Operand, tag: int = 0) -> None:
        self.primal = _lifted("Dual", primal, "primal")
        self.tangent = _direction("Dual", tangent, "tangent", self.primal)
        self.tag = tag
        for part in (self.primal, self.tangent):
            if type(part) is Dual and part.tag >= tag:
                raise ValueError(
                    explain(
                        "Dual",
                        f"a part of level {part.tag} in a dual of level {tag}",
                        "parts of lower levels",
                        "Nest derivatives with tg.jvp or tg.grad.",
                    )
                )

    @staticmethod
    def __tapegraph_apply__(name: str, inputs: tuple[Any, ...], attrs: Attrs) -> Any:
        """Run the operation ``name`` on the values, and its tangent rule beside it."""
        op, rule = _rule(name)
        operands = [_operand(name, x) for x in inputs]
        tag = max(x.tag for x in operands if type(x) is Dual)
        split = [_parts(x, tag) for x in operands]
        primals = tuple(primal for primal, _ in split)
        call = _ELEMENTWISE.get(name)
        out = call(*primals) if call else apply(op, primals, dict(attrs))
        with np.errstate(all="ignore"):
            tangent = rule(tuple(t for _, t in split), out, *primals, **attrs)
            return out if tangent is None else _dual(out, _spread(tangent, out), tag)

    # Value and kind

    @property
    def data(self) -> Array:
        """The value under all levels, read-only."""
        view: Array = array_of(self).view()
        view.flags.writeable = False
        return view

    @property
    def shape(self) -> tuple[int, ...]:
        """Length along each axis."""
        return self.primal.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.primal.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.primal.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.primal.size

    @property
    def requires_grad(self) -> bool:
        """True: a derivative flows through every dual."""
        return True

    def item(self) -> float:
        """Return the only element of the value as a Python number."""
        return self.detach().item()

    def numpy(self) -> Array:
        """Return the value as an ordinary array of its own memory."""
        return np.array(array_of(self))

    def detach(self) -> Tensor:
        """Return the value as a constant, without derivative."""
        return constant(self.numpy())  # type: ignore[no-any-return]

    # Conversions

    def __bool__(self) -> bool:
        return bool(self.detach())

    def __len__(self) -> int:
        return len(self.detach())

    def __repr__(self) -> str:
        return f"Dual({_text(self.primal)}, tangent={_text(self.tangent)})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.size == 1 else format(str(self), spec)

    if not TYPE_CHECKING:  # type checkers are to refuse these too

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
            raise conversions.to_array("Dual")

        def __float__(self) -> NoReturn:
            raise _not_a_number("float")

        def __int__(self) -> NoReturn:
            raise _not_a_number("int")

        def __setitem__(self, key: Any, value: Any) -> NoReturn:
            fix = "Use np.where or np.concatenate."
            raise TypeError(
                explain("setitem", "an assignment to elements of a Dual", "a new dual", fix)
            )


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
    points = [_lifted("jvp", x, f"primals[{i}]") for i, x in enumerate(primals)]
    directions = [
        _direction("jvp", t, f"tangents[{i}]", p)
        for i, (t, p) in enumerate(zip(tangents, points, strict=True))
    ]
    tag = _next_tag()
    out = f(*(_dual(p, d, tag) for p, d in zip(points, directions, strict=True)))
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
        point = _lifted("grad", args[position], f"argument {position}")

        def along(direction: Any) -> Any:
            tag = _next_tag()
            inputs = (*args[:position], _dual(point, direction, tag), *args[position + 1 :])
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


def _not_a_number(conversion: str) -> TypeError:
    """Return the error of a conversion to a number: inside a derivative none is harmless."""
    fix = (
        "Use tapegraph's or NumPy's function in place of math's (tg.sin for math.sin), or write "
        "dual.item() where the value alone is meant."
    )
    received = "a Dual, whose derivative the number would lose"
    return TypeError(explain(conversion, received, "a plain number", fix))


def _dual(primal: Any, tangent: Any, tag: int) -> Dual:
    """Make a dual of parts that are known to fit."""
    out = object.__new__(Dual)
    out.primal = primal
    out.tangent = tangent
    out.tag = tag
    return out


def _rule(name: str) -> tuple[Op, Callable[..., Any]]:
    """Return an operation and its tangent rule: ours from the table, a user's own."""
    op = OPS.get(name) or DEFINED[name]
    rule = JVPS.get(name) if op.rules is None else op.rules.jvp
    if rule is None:
        where = "a row to tapegraph/jvps" if op.rules is None else "jvp= to tg.defop"
        fix = f"Add {where}, or use tg.backward."
        raise NotImplementedError(
            explain(name, "a Dual", "an operation with a forward-mode rule", fix)
        )
    return op, rule


def _operand(op: str, x: Any) -> Any:
    if isinstance(x, Value):
        fix = "A Value is differentiated by its own backward()."
        raise TypeError(explain(op, "a Value next to a Dual", "numbers or arrays", fix))
    return operand(op, x, "operand")


def _parts(x: Any, tag: int) -> tuple[Any, Any]:
    """Return value and tangent of an operand at a level; the tangent of a constant is None."""
    return (x.primal, x.tangent) if type(x) is Dual and x.tag == tag else (x, None)


def _spread(tangent: Any, out: Any) -> Any:
    """Give a tangent the shape and dtype of its value, where an operand was broadcast."""
    if tangent.shape == out.shape and tangent.dtype == out.dtype:
        return tangent
    return tangent + constant(np.zeros(out.shape, out.dtype))


def _lifted(op: str, x: Any, argument: str) -> Any:
    """Return what a user passed as a Tensor or Dual of floats."""
    if isinstance(x, Value):
        fix = "A Value is differentiated by its own backward()."
        raise TypeError(explain(op, f"a Value for {argument!r}", "a number or an array", fix))
    x = tensor_like(op, x, argument)
    return x if x.dtype.kind == "f" else x * 1.0


def _direction(op: str, x: Any, argument: str, primal: Any) -> Any:
    t = _lifted(op, x, argument)
    if t.shape != primal.shape:
        received = f"{argument} of shape {t.shape} for a primal of shape {primal.shape}"
        raise ValueError(explain(op, received, "equal shapes"))
    if t.dtype != primal.dtype and type(t) is Tensor and not t._requires_grad:
        return constant(t._array.astype(primal.dtype))
    return t


def _basis(lengths: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[Any]:
    """Yield a one at each place in turn among zeros."""
    for place in np.ndindex(lengths):
        direction = np.zeros(lengths, dtype)
        direction[place] = 1.0
        yield constant(direction)


def _split(op: str, out: Any, tag: int) -> tuple[Any, Any]:
    """Return value and tangent of what a function gave, zero where it is a constant."""
    if isinstance(out, (Value, tuple, list)):
        received = f"a function returning a {type(out).__name__}"
        raise TypeError(explain(op, received, "one that returns a number or a tensor"))
    out = tensor_like(op, out, "the function's result")
    if type(out) is Dual and out.tag > tag:
        received = f"a function returning a Dual of the finished level {out.tag}"
        raise ValueError(explain(op, received, "a result of its own arguments"))
    value, tangent = _parts(out, tag)
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


def _text(part: Any) -> str:
    if type(part) is Dual:
        return repr(part)
    array = array_of(part)
    extras = "" if array.dtype == np.float64 else f", dtype={array.dtype}"
    return np.array2string(array, separator=", ", prefix="Dual(") + extras
