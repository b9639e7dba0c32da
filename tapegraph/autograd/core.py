"""Rules of primitives, and `make_vjp` and `make_jvp` of functions of one argument.

Complex cotangents follow autograd, ``dL/dx - i dL/dy``: the conjugates of tapegraph's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from tapegraph.autograd import tracer
from tapegraph.autograd.boxes import (
    CONTAINERS,
    INDEPENDENT,
    box_class,
    getval,
    gradient_of,
    holds_box,
    isbox,
    maker_of,
    marked,
    number,
    opened,
    tensor_of,
    unboxed,
)
from tapegraph.autograd.boxes import JVPNode as JVPNode
from tapegraph.autograd.boxes import VJPNode as VJPNode
from tapegraph.autograd.boxes import backward_pass as backward_pass
from tapegraph.autograd.numpy.numpy_vspaces import VSpace as VSpace
from tapegraph.autograd.numpy.numpy_vspaces import vspace as vspace
from tapegraph.autograd.tracer import Box as Box
from tapegraph.autograd.tracer import Node as Node
from tapegraph.autograd.tracer import Rule, name_of, undefined
from tapegraph.autograd.tracer import SparseObject as SparseObject
from tapegraph.autograd.tracer import primitive_jvps as primitive_jvps
from tapegraph.autograd.tracer import primitive_vjps as primitive_vjps
from tapegraph.autograd.tracer import trace as trace
from tapegraph.autograd.util import func as func
from tapegraph.autograd.util import subval as subval
from tapegraph.errors import kind_of, message, warn
from tapegraph.ops.shape import alias
from tapegraph.pytree import leaves, mapped, matched, replaced
from tapegraph.tensors.dual import direction
from tapegraph.transforms.jacobian import jacobian as in_rows
from tapegraph.transforms.jacobian import jvp as forward
from tapegraph.transforms.levels import (
    NUMBER_TYPES,
    TracedArgument,
    flowing,
    like_input,
    next_tag,
    recording,
    result,
)
from tapegraph.transforms.reverse import JointPullback, arrays_or_pullback
from tapegraph.typed import Cotangent, Fun, Pytree

F = TypeVar("F", bound=Fun)

VSpace.register(SparseObject, lambda x: x.vs)


# Rules


def defvjp(fun: Fun, *vjpmakers: Rule | None, argnums: object = None) -> None:
    """Define the vector-Jacobian products of a primitive, argument by argument.

    :param fun: Made by `primitive`, or of `tapegraph.autograd.numpy`. The last definition wins.
    :param *vjpmakers: ``maker(ans, *args, **kwargs)`` returns the function from the result's
        cotangent to the argument's, written in `tapegraph.autograd.numpy`; None is zero.
    :param argnums: The positions of the makers; 0, 1, 2, ... by default.
    """
    makers = _by_argnum("defvjp", fun, vjpmakers, argnums)

    def one(argnum: int, ans: Pytree, args: Pytree, kwargs: Any) -> Pytree:
        maker = _of(makers, argnum, "VJP", fun)
        return None if maker is None else maker(ans, *args, **kwargs)

    defvjp_argnum(fun, one)


def defvjp_argnum(fun: Fun, vjpmaker: Rule) -> None:
    """Define the products by one ``maker(argnum, ans, args, kwargs)`` for every argument."""

    def rule(wanted: Sequence[int], ans: Pytree, args: Pytree, kwargs: object) -> Rule:
        vjps = [vjpmaker(argnum, ans, args, kwargs) for argnum in wanted]
        return lambda g: [None if vjp is None else vjp(g) for vjp in vjps]

    primitive_vjps[fun] = rule


def defvjp_argnums(fun: Fun, vjpmaker: Rule) -> None:
    """Define the products by ``maker(argnums, ans, args, kwargs)``, for several arguments."""
    primitive_vjps[fun] = vjpmaker


def defjvp(fun: Fun, *jvpfuns: Rule | str | None, argnums: object = None) -> None:
    """Define the Jacobian-vector products of a primitive, argument by argument, as `defvjp`.

    :param *jvpfuns: ``jvp(g, ans, *args, **kwargs)`` returns the result's tangent for the
        argument's tangent ``g``; ``"same"`` if the function is linear in it, None for zero.
    """
    rules = _by_argnum("defjvp", fun, jvpfuns, argnums)

    def one(argnum: int, g: Cotangent, ans: Pytree, args: Pytree, kwargs: Any) -> Pytree:
        jvp = _of(rules, argnum, "JVP", fun)
        if jvp == "same":
            return fun(*subval(args, argnum, g), **kwargs)
        return None if jvp is None else jvp(g, ans, *args, **kwargs)

    defjvp_argnum(fun, one)


def defjvp_argnum(fun: Fun, jvpmaker: Rule) -> None:
    """Define the products by one ``jvp(argnum, g, ans, args, kwargs)`` for every argument."""

    def rule(
        wanted: Sequence[int], gs: Sequence[Pytree], ans: Pytree, args: Pytree, kwargs: object
    ) -> Pytree:
        found = [jvpmaker(i, g, ans, args, kwargs) for i, g in zip(wanted, gs, strict=True)]
        found = [part for part in found if part is not None]
        return functools.reduce(vspace(ans).add, found) if found else None

    primitive_jvps[fun] = rule


def defjvp_argnums(fun: Fun, jvpmaker: Rule) -> None:
    """Define the products by ``jvp(argnums, gs, ans, args, kwargs)``, for all arguments at once."""
    primitive_jvps[fun] = jvpmaker


def def_linear(fun: Fun) -> None:
    """Declare that a function is linear in each of its arguments."""
    defjvp_argnum(fun, lambda i, g, ans, args, kwargs: fun(*subval(args, i, g), **kwargs))


def _by_argnum(op: str, fun: Fun, rules: Sequence[Pytree], argnums: Any) -> dict[int, Any]:
    for rule in rules:
        if not (rule is None or callable(rule) or (op == "defjvp" and rule == "same")):
            received = f"{kind_of(rule)} for {name_of(fun)}"
            raise TypeError(message(op, received, "a function, or None for a zero derivative"))
    return dict(zip(range(len(rules)) if argnums is None else argnums, rules))  # noqa: B905


def _of(rules: dict[int, Any], argnum: int, kind: str, fun: Fun) -> Any:
    if argnum not in rules:
        raise undefined(kind, fun, f"argument {argnum}")
    return rules[argnum]


def primitive(f_raw: F) -> F:
    """Make a function one operation, with autograd's old methods, which warn."""
    fun: Any = tracer.primitive(f_raw)
    makers: dict[int, Rule | None] = {}

    def define(name: str, found: dict[int, Rule | None]) -> None:
        warn(f"{name}: deprecated, as in autograd; write defvjp(fun, maker, ...)", UserWarning)
        makers.update(found)
        defvjp(fun, *makers.values(), argnums=list(makers))

    def defgrad(gradfun: Rule, argnum: int = 0) -> None:
        define("defgrad", {argnum: gradfun})

    def old_defvjp(vjpmaker: Rule, argnum: int = 0) -> None:
        def maker(ans: Pytree, *args: Pytree, **kwargs: object) -> Rule:
            return lambda g: vjpmaker(g, ans, vspace(args[argnum]), vspace(g), *args, **kwargs)

        define("defvjp", {argnum: maker})

    def defvjp_is_zero(argnums: Sequence[int] = (0,)) -> None:
        define("defvjp_is_zero", dict.fromkeys(argnums))

    fun.defgrad, fun.defvjp, fun.defvjp_is_zero = defgrad, old_defvjp, defvjp_is_zero
    return fun


# Of values of classes of one's own: the sums and products of arrays have rules already.
for _sum in (func(VSpace.add), func(VSpace.mut_add)):
    defvjp(_sum, *[lambda ans, vs, x, y: lambda g: g] * 2, argnums=(1, 2))
defvjp(
    func(VSpace.scalar_mul),
    lambda ans, vs, x, a: lambda g: vs.covector(vs.scalar_mul(vs.covector(g), a)),
    lambda ans, vs, x, a: lambda g: vs.inner_prod(g, vs.covector(x)),
    argnums=(1, 2),
)
defvjp(
    func(VSpace.inner_prod),
    lambda ans, vs, x, y: lambda g: vs.covector(vs.scalar_mul(y, g)),
    lambda ans, vs, x, y: lambda g: vs.covector(vs.scalar_mul(x, g)),
    argnums=(1, 2),
)
defvjp(func(VSpace.covector), lambda ans, vs, x: vs.covector, argnums=(1,))


# Derivatives of functions of one argument


def make_vjp(fun: Fun, x: Pytree) -> tuple[Fun, Pytree]:
    """Return the pullback of a function at a point, and the function's value.

    For a value that does not depend on the point it gives zeros, with a UserWarning.

    :param fun: Takes one argument.
    :param x: Numbers and arrays, values of classes registered with a subclass of `Box`, and dicts,
        lists and tuples of them.
    :returns: The function from a cotangent in the structure of the value to one in the structure of
        ``x``; and the value. A cotangent may be None for zero, an array for a list of its length.
    """
    argument = _lifted(_point("make_vjp", x))
    level = next_tag()
    with recording():
        out = fun(argument.inside)
    _warn_of_constant("make_vjp", out)
    several = isinstance(out, CONTAINERS)
    form = mapped(isbox, out) if several else True  # whether each part of it is traced
    pairs = zip(leaves(out), leaves(form), strict=True)
    pull = JointPullback(
        [result("vjp", part, level) for (_, part), (_, is_traced) in pairs if is_traced],
        argument.targets,
    )
    found = list(map(unboxed, pull.values))
    rows = iter(found)
    value = mapped(lambda part: next(rows) if isbox(part) or not several else getval(part), out)

    def vjp(g: Cotangent) -> Pytree:
        parts = [("the direction", g)]
        if several:
            parts = marked("make_vjp", g, form, "the direction", "the function's result")
        seeds = [
            np.zeros_like(x)
            if part is None
            else _conjugated(_shaped("make_vjp", path, part, np.shape(x)))
            for (path, part), x in zip(parts, found, strict=True)
        ]
        triples = zip(seeds, parts, pull.values, strict=True)
        grads = pull([direction("vjp", seed, path, x) for seed, (path, _), x in triples])
        return mapped(lambda x: unboxed(_conjugated(x)), argument.regrouped(iter(grads)))

    return vjp, value


class _OwnArgument:
    """An argument that holds values of user classes; `TracedArgument` holds arrays alone."""

    def __init__(self, value: Pytree) -> None:
        self.value = value
        self.targets: list[Pytree] = []
        self.inside = replaced(value, (self._begun(x) for _, x in leaves(value)))

    def _begun(self, x: Pytree) -> Pytree:
        if not box_class(x):
            part = TracedArgument("vjp", x, "primals[0]")
            self.targets += part.targets
            return part.inside
        self.targets.append(alias(tensor_of(x)))
        return opened(self.targets[-1])

    def regrouped(self, results: Pytree) -> Pytree:
        pairs = zip(results, self.targets, leaves(self.value), strict=True)
        found = (
            gradient_of(x, target) if box_class(given) else like_input(x, given)
            for x, target, (_, given) in pairs
        )
        return replaced(self.value, found)


def _lifted(x: Pytree) -> Pytree:
    if type(x) is not np.ndarray and any(box_class(leaf) for _, leaf in leaves(x)):
        return _OwnArgument(x)
    return TracedArgument("vjp", x, "primals[0]")


def value_and_gradient(op: str, fun: Fun, x: Pytree) -> tuple[Pytree, Pytree]:
    """Return a function's value and gradient at a point; raise unless it is one real number."""
    point = _point("make_vjp", x)
    lifted = _lifted(point)
    level = next_tag()
    with recording():
        out = fun(lifted.inside)
    flows = getattr(out, "_requires_grad", False)  # as most do: of a Tensor
    if not flows and not holds_box(out):
        _warn_of_constant("make_vjp", out)
        vspace(out)  # which raises unless it is a number
    y = None if isinstance(out, CONTAINERS) else result("vjp", out, level)
    numbers: Any = getattr(y, "_array", y)
    if y is None or numbers.size != 1 or numbers.dtype.kind == "c":
        received = f"a function returning {kind_of(mapped(unboxed, out))}"
        fix = "Sum it, or use jacobian or elementwise_grad."
        if y is not None and y.dtype.kind == "c":
            fix = "Use holomorphic_grad, or take np.real or np.abs of it."
        raise TypeError(message(op, received, "one that returns one real number", fix))
    grads, pullback = arrays_or_pullback(y, lifted.targets)
    if grads is None:
        value, grads = unboxed(flowing(pullback.value)), pullback()
    else:
        value = number(np.array(numbers))
        if type(lifted.value) is np.ndarray:  # as most are
            return value, number(_conjugated(grads[0]))
    return value, mapped(unboxed, lifted.regrouped(map(_conjugated, grads)))


def make_jacobian(fun: Fun, x: Pytree) -> Pytree:
    """Return the Jacobian at a point: one reverse pass, or rows for an outer derivative."""

    def finished(block: Pytree) -> Pytree:
        block = unboxed(_conjugated(block))
        return np.asarray(block) if isinstance(block, np.generic) else block

    return mapped(finished, in_rows(_watched("jacobian", fun), 0, "reverse")(_point("jacobian", x)))


def make_jvp(fun: Fun, x: Pytree) -> Callable[[Any], tuple[Pytree, Pytree]]:
    """Return the function that maps a direction to the value and its derivative along it."""
    x = _point("make_jvp", x)
    watched = _watched("make_jvp", fun)

    def jvp(g: Cotangent) -> tuple[Pytree, Pytree]:
        given = matched("make_jvp", g, x, "the direction", "the argument")
        pairs = zip(given, leaves(x), strict=True)
        parts = (_shaped("make_jvp", path, a, np.shape(b)) for (path, a), (_, b) in pairs)
        value, slope = forward(watched, (x,), (replaced(x, parts),))
        return mapped(unboxed, value), mapped(unboxed, slope)

    return jvp


def _watched(op: str, fun: Fun) -> Fun:
    def run(x: Pytree) -> Pytree:
        out = fun(x)
        _warn_of_constant(op, out)
        return out

    return run


def _warn_of_constant(op: str, out: Pytree) -> None:
    if not holds_box(out):
        warn(f"{INDEPENDENT}: {op} gives zeros", UserWarning)


def with_shapes(x: Pytree) -> Pytree:
    """Return a structure with arrays for numbers, so that results are NumPy's, of their dtypes."""
    return x if type(x) is np.ndarray else mapped(_of_floats, x)


def _of_floats(leaf: Pytree) -> Pytree:
    x = np.asarray(leaf) if isinstance(leaf, NUMBER_TYPES) else leaf
    kind = getattr(getattr(x, "dtype", None), "kind", "")
    return x.astype(np.float64) if kind in ("b", "i", "u") else x


def _point(op: str, x: Pytree) -> Pytree:
    """Return the point of differentiation, with arrays for numbers; raise for other types."""
    if type(x) is np.ndarray and x.dtype.char in "fdFD":  # as most are
        return x
    for path, leaf in leaves(x, "the argument"):
        if isinstance(leaf, (float, int, complex)) or maker_of(leaf) is not None:
            continue
        dtype = getattr(leaf, "dtype", np.dtype(object))
        if dtype.kind in "iub" or dtype.char in "fdFD":
            continue
        fix = "Convert other floats first: x.astype(np.float64)." if dtype.kind in "fc" else ""
        expected = "numbers (bool, integer, float32, float64, complex64 or complex128)"
        raise TypeError(message(op, f"{kind_of(leaf)} for {path}", expected, fix))

    def made(x: Pytree) -> Pytree:
        """Return a leaf, converted by the function in ``type_mappings``, if any."""
        maker = maker_of(x)
        return x if maker is None or box_class(x) else getval(maker(x, -1, VJPNode.new_root()))

    return with_shapes(mapped(made, x))


def _conjugated(x: Pytree) -> Pytree:
    if type(x) is np.ndarray and x.dtype.kind != "c" or not np.iscomplexobj(x):
        return x
    return np.asarray(np.conj(x)) if isinstance(x, np.ndarray) else np.conj(x)


def _shaped(op: str, path: str, x: Pytree, shape: tuple[int, ...]) -> Pytree:
    given = np.shape(x)
    if given == shape:
        return x
    if np.prod(given) == np.prod(shape):
        return np.reshape(x, shape)
    try:
        return np.broadcast_to(x, shape)
    except ValueError:
        raise ValueError(message(op, f"shape {given} for {path}", f"shape {shape}")) from None
