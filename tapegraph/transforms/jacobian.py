"""`jvp`, on dual numbers; `jacobian`, `hessian` and `hvp`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tapegraph.errors import check_callable, kind_of, message, sentence
from tapegraph.ops import elementwise, shape
from tapegraph.pytree import is_tree, leaves, mapped, matched, replaced
from tapegraph.random import Repeated
from tapegraph.recording.node import as_leaf
from tapegraph.tensors.batched import Batched, Level, at_level, entered, of_each_example
from tapegraph.tensors.dual import Dual, direction, dual_of, parts
from tapegraph.tensors.tensor import Tensor
from tapegraph.transforms.levels import (
    NUMBER_TYPES,
    TracedArgument,
    and_aux,
    derivative_of,
    flowing,
    leaves_of_result,
    like_input,
    next_tag,
    no_argument,
    points_of,
    positions,
    recording,
    result,
    stays,
)
from tapegraph.transforms.reverse import Gradient, Pullback, check_holomorphic, ended
from tapegraph.typed import Fun, Pytree


def jvp(
    f: Fun, primals: Sequence[Pytree], tangents: Sequence[Pytree], has_aux: bool = False
) -> tuple[Any, ...]:
    """Return a function's value and its derivative along a direction, in one forward pass.

    The derivative is the Jacobian-vector product ``sum_i (df/dx_i) t_i``.

    :param f: Takes one argument per primal; returns a number or tensor of any shape, or dicts,
        lists and tuples of them.
    :param primals: The point: numbers, arrays, tensors, duals of an outer level, and dicts, lists
        and tuples of them.
    :param tangents: The direction: one per primal, of its structure and shapes.
    :param has_aux: ``f`` returns ``(result, aux)``, and ``aux`` comes last, not differentiated.
    :returns: Value and tangent, both in the structure that ``f`` returns. Kinds are as for `grad`,
        so that levels nest, and ``backward()`` of a tangent is a Hessian-vector product.
    :raises TypeError: ``f`` is not callable or returns something other than numbers; primals or
        tangents are no tuple, are not numeric, or hold a `Value`.
    :raises ValueError: The numbers of primals and tangents differ, or a tangent's structure or
        shape is not its primal's.
    :raises NotImplementedError: An operation has no forward-mode rule.

    Kinks are as in reverse mode: relu'(0) = abs'(0) = 0, ``d(a**b)/db = 0`` where ``a <= 0``, and
    the first maximum of a pooling window counts. A zero derivative times inf or NaN is zero, so
    masked singular points stay out of the result.

    >>> tg.jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, 0.0))
    (6.0, 3.0)
    >>> w = tg.param([1.0, 2.0])
    >>> _, slope = tg.jvp(lambda w: tg.sum(w**3), (w,), ([1.0, 0.0],))
    >>> slope.backward()
    >>> w.grad
    array([6., 0.])
    """
    check_callable("jvp", f)
    check_pairs("jvp", primals, tangents)
    tag = next_tag()
    given, inputs = [], []
    for i, (primal, tangent) in enumerate(zip(primals, tangents, strict=True)):
        points = points_of("jvp", primal, f"primals[{i}]")
        inputs.append(along_tangent("jvp", i, primal, points, tangent, tag))
        given += [x for _, x in leaves((primal, tangent))]
    with recording():
        out = f(*inputs)
    out, aux = and_aux("jvp", out) if has_aux else (out, None)
    pairs = [value_and_tangent("jvp", x, tag) for x in leaves_of_result("jvp", out)]
    pairs = [_as_given(pair, given) for pair in pairs]
    value, tangent = (replaced(out, (pair[i] for pair in pairs)) for i in (0, 1))
    if not has_aux:
        return value, tangent
    kinds = (Tensor, Dual, Batched)
    ended = lambda x: _as_given(parts(x, tag)[:1], given)[0] if isinstance(x, kinds) else x  # noqa: E731
    return value, tangent, mapped(ended, aux)


def along_tangent(
    op: str, i: int, primal: object, points: Sequence[object], tangent: object, tag: int
) -> Any:
    """Return argument ``i`` with duals for its leaves, of these points and the tangent's leaves."""
    path = f"tangents[{i}]"
    along: Any = [(path, tangent)]  # of an array a list will do
    if is_tree(primal):
        along = matched(op, tangent, primal, path, f"primals[{i}]")
    duals = (
        dual_of(point, direction(op, t, path, point), tag)
        for point, (path, t) in zip(points, along, strict=True)
    )
    return replaced(primal, duals)


def check_pairs(op: str, primals: Any, tangents: Any) -> None:
    for given, argument in ((primals, "primals"), (tangents, "tangents")):
        if not isinstance(given, (tuple, list)):
            fix = f"Write tg.{op}(f, (x,), (t,)) for one argument."
            raise TypeError(message(op, f"{kind_of(given)} for {argument!r}", "a tuple", fix))
    if len(primals) != len(tangents):
        received = f"{len(primals)} primals and {len(tangents)} tangents"
        raise ValueError(message(op, received, "one tangent per primal"))


def value_and_tangent(op: str, out: object, tag: int) -> tuple[Any, Any]:
    """Return value and tangent of a function's result, zero if it is a constant."""
    value, tangent = parts(result(op, out, tag), tag)
    if tangent is None:
        dtype = value.dtype if value.dtype.kind in "fc" else np.float64
        tangent = as_leaf(np.zeros(value.shape, dtype))
    return value, tangent


def _as_given(results: tuple[object, ...], given: Sequence[object]) -> tuple[Any, ...]:
    results = tuple(map(flowing, results))
    if any(isinstance(x, (Tensor, Dual)) for x in given) or any(map(stays, results)):
        return results
    kind = 0.0 if all(isinstance(x, NUMBER_TYPES) for x in given) else None
    return tuple(like_input(x, kind) for x in results)


Mode = Literal["forward", "reverse"]


def jacobian(
    f: Fun,
    argnums: int | Sequence[int] = 0,
    mode: Mode | None = None,
    *,
    holomorphic: bool = False,
    has_aux: bool = False,
) -> Fun:
    """Return the Jacobian of a function, itself a function of the same arguments.

    :param f: Returns a number or tensor of any shape, or dicts, lists and tuples of them.
    :param argnums: The positions of the arguments to differentiate with respect to.
    :param mode: ``"forward"``: a tangent per element of the arguments, all in one run of ``f``.
        ``"reverse"``: a cotangent per element of the result. By default the fewer; for real results
        of complex arguments reverse, for complex results of real arguments forward.
    :param holomorphic, has_aux: As for `grad`.
    :returns: Callable with ``f``'s arguments. Returns an array of the result's shape followed by
        the argument's, for each result and each argument in their structures; with ``has_aux``, a
        pair ``(jacobian, aux)``. Kinds and dtypes are as for `grad`.
    :raises TypeError, ValueError: As for `grad`, but for results of any shape; ``mode`` is unknown;
        or ``f`` maps complex numbers to complex numbers without ``holomorphic``.

    >>> tg.jacobian(lambda x: x * x)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    if mode not in (None, "forward", "reverse"):
        received = f"{kind_of(mode)} for 'mode'"
        raise ValueError(message("jacobian", received, '"forward", "reverse" or None'))
    check_callable("jacobian", f)
    derivative = _jacobian("jacobian", f, argnums, mode, holomorphic, has_aux)
    return derivative_of(f, derivative, "Return the Jacobian of {name}.")


def jacfwd(f: Fun, argnums: int | Sequence[int] = 0, *, has_aux: bool = False) -> Fun:
    """Return `jacobian` by forward mode, a tangent per element of the arguments; JAX's name.

    :param f, argnums, has_aux: As for `jacobian`.
    :returns: Callable, as from `jacobian`.

    >>> tg.jacfwd(lambda x: tg.stack([x, x**2, x**3]))(2.0)
    array([ 1.,  4., 12.])
    """
    return jacobian(f, argnums, "forward", has_aux=has_aux)


def jacrev(f: Fun, argnums: int | Sequence[int] = 0, *, has_aux: bool = False) -> Fun:
    """Return `jacobian` by reverse mode, a cotangent per element of the result; JAX's name.

    :param f, argnums, has_aux: As for `jacobian`.
    :returns: Callable, as from `jacobian`.

    >>> tg.jacrev(lambda x: tg.sum(x**2))(np.array([1.0, 2.0]))
    array([2., 4.])
    """
    return jacobian(f, argnums, "reverse", has_aux=has_aux)


def _jacobian(
    op: str,
    f: Fun,
    argnums: int | Sequence[int],
    mode: Mode | None,
    holomorphic: bool = False,
    has_aux: bool = False,
) -> Fun:
    wanted = positions(op, argnums)
    several = type(argnums) if isinstance(argnums, (tuple, list)) else None

    def derivative(*args: object, **kwargs: object) -> Any:
        n = len(args)
        for i in wanted:
            if not -n <= i < n:
                raise no_argument(op, i, args)
        places = [i % n for i in wanted]
        lifted = {i: TracedArgument(op, args[i], f"argument {i}") for i in dict.fromkeys(places)}
        arguments = list(lifted.values())
        level = next_tag()
        draws = Repeated()  # the second run repeats the draws of the first
        aux: Any = None

        def run(inputs: dict[int, Any]) -> Any:
            nonlocal aux
            with recording(), draws.run():
                out = f(*(inputs.get(i, x) for i, x in enumerate(args)), **kwargs)
            out, aux = and_aux(op, out) if has_aux else (out, None)
            return out

        targets = [x for argument in arguments for x in argument.targets]
        elements = sum(x.size for x in targets)
        is_complex = any(x.dtype.kind == "c" for x in targets)
        if mode == "forward" and elements and not is_complex:
            form, rows = _forward(run, lifted)
        else:
            form = run({i: argument.inside for i, argument in lifted.items()})
            outs = [of_each_example(result(op, part, level)) for part in leaves_of_result(op, form)]
            for out in outs:
                _check_complex(op, out, targets, mode, holomorphic)
            fewer = elements < sum(out.size for out in outs) and (holomorphic or not is_complex)
            of_reals = not is_complex and any(out.dtype.kind == "c" for out in outs)
            if elements and (mode == "forward" or of_reals or (mode is None and fewer)):
                form, rows = _forward(run, lifted)
            else:
                rows = [Pullback(out, targets).jacobian() for out in outs]
                if holomorphic:
                    rows = [list(map(elementwise.conj, row)) for row in rows]
        found = []
        for row in rows:
            blocks = iter(row)
            by_position = {i: argument.regrouped(blocks) for i, argument in lifted.items()}
            chosen = [by_position[i] for i in places]
            found.append(chosen[0] if several is None else several(chosen))
        jac = replaced(form, iter(found))
        return (jac, ended(aux, arguments, level)) if has_aux else jac

    return derivative


def _check_complex(
    op: str, out: Any, targets: Sequence[Any], mode: Mode | None, holomorphic: bool
) -> None:
    """Raise if one number cannot describe how a complex result depends on a complex argument."""
    if holomorphic:
        check_holomorphic(op, out, targets)
        return
    by_complex = any(x.dtype.kind == "c" for x in targets)
    if out.dtype.kind == "c" and by_complex:
        received = f"a function from complex numbers to {out.dtype}"
        fix = (
            "Write tg.jacobian(f, holomorphic=True) if it is, or differentiate its real and "
            "imaginary parts."
        )
        if op == "hessian":
            received = "complex arguments"
            fix = "Write tg.hessian(lambda x, y: f(x + 1j * y), (0, 1))(z.real, z.imag)."
        raise TypeError(message(op, received, "real results, or real arguments", fix))
    wrong = "forward" if by_complex else "reverse" if out.dtype.kind == "c" else None
    if mode == wrong and mode is not None:
        kinds = ", ".join(sorted({str(x.dtype) for x in targets}))
        received = f'mode="{mode}" for {out.dtype} by {kinds}'
        raise ValueError(message(op, received, "the other mode", "tg.jacobian(f) chooses it."))


def _forward(run: Fun, lifted: dict[int, TracedArgument]) -> tuple[Any, list[list[Any]]]:
    """Return the results' structure, and their Jacobians for each leaf, from one batched run."""
    points = [leaf for argument in lifted.values() for _, leaf in leaves(argument.inside)]
    points = [_without_level(x) for x in points]
    sizes = [point.size for point in points]
    level = Level(next_tag(), sum(sizes), "same")
    starts = [*itertools.accumulate(sizes, initial=0)]
    units = [
        np.eye(level.size, size, -start, point.dtype).reshape(level.size, *point.shape)
        for point, size, start in zip(points, sizes, starts, strict=False)
    ]
    tag = next_tag()
    moved = iter(
        dual_of(point, Batched(as_leaf(unit), level.tag), tag)
        for point, unit in zip(points, units, strict=True)
    )
    with entered(level):
        form = run({i: replaced(x.inside, moved) for i, x in lifted.items()})
        pairs = [
            value_and_tangent("jacobian", part, tag) for part in leaves_of_result("jacobian", form)
        ]
    tangents = [at_level(tangent, level).inner for _, tangent in pairs]
    return form, [
        [
            _columns(tangent[start : start + point.size], out, point)
            for point, start in zip(points, starts, strict=False)
        ]
        for (out, _), tangent in zip(pairs, tangents, strict=True)
    ]


def _without_level(x: Any) -> Any:
    if type(x) is Batched:
        return Batched(_without_level(x.inner), x.tag)
    if hasattr(x, "tangent"):
        return dual_of(_without_level(x.primal), x.tangent, x.tag)
    return x.inputs[0]


def _columns(tangents: Any, out: Any, point: Any) -> Any:
    dtype = np.result_type(point.dtype, out.dtype) if out.dtype.kind == "c" else point.dtype
    block = shape.reshape(shape.moveaxis(tangents, 0, -1), (*out.shape, *point.shape))
    return block if block.dtype == dtype else block.astype(dtype)


def hessian(f: Fun, argnums: int | Sequence[int] = 0, *, has_aux: bool = False) -> Fun:
    """Return the Hessian of a scalar-valued function, itself a function of the same arguments.

    The gradient is recorded once, and differentiated by a reverse pass per element; the native
    engine makes many at a time.

    :param f: Returns one number.
    :param argnums, has_aux: As for `grad`.
    :returns: Callable with ``f``'s arguments. Returns an array of the argument's shape twice,
        exactly symmetric; for several arguments, and for dicts, lists and tuples, blocks in their
        structure, twice nested; with ``has_aux``, a pair ``(hessian, aux)``. Kinds are as for
        `grad`.
    :raises TypeError, ValueError: As for `grad`.
    :raises NotImplementedError: In a call: an operation has no second derivative.

    >>> tg.hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0]))
    array([[4., 2.],
           [2., 0.]])
    """
    check_callable("hessian", f)
    gradient = Gradient("hessian", f, argnums, has_aux=has_aux)

    def and_its_aux(*args: object, **kwargs: object) -> Any:
        (_, aux), slopes = gradient(args, kwargs)
        return slopes, aux

    found = _jacobian("hessian", and_its_aux, argnums, "reverse", has_aux=True)

    def derivative(*args: object, **kwargs: object) -> Any:
        blocks, aux = found(*args, **kwargs)
        wanted = positions("hessian", argnums)
        chosen = [args[i] for i in wanted]
        form = type(argnums)(chosen) if isinstance(argnums, (tuple, list)) else chosen[0]
        ndims = [len(x.shape) if hasattr(x, "shape") else np.ndim(x) for _, x in leaves(form)]
        flat = [block for _, block in leaves(blocks)]
        n = len(ndims)
        halves = [
            _mean(flat[i * n + j], flat[j * n + i], ndims[i], ndims[j])
            for i in range(n)
            for j in range(n)
        ]
        symmetric = replaced(blocks, iter(halves))
        return (symmetric, aux) if has_aux else symmetric

    return derivative_of(f, derivative, "Return the Hessian of {name}.")


def _mean(block: Any, other: Any, rows: int, columns: int) -> Any:
    """Return the mean of a block and its mirror image, which differ only by rounding."""
    if rows + columns == 0:
        return (block + other) / 2
    axes = (*range(columns, columns + rows), *range(columns))
    return (block + other.transpose(axes)) / 2


def hvp(f: Fun, primals: Sequence[Pytree], tangents: Sequence[Pytree]) -> Pytree:
    """Return the Hessian of a scalar-valued function times a vector.

    It costs one run of ``f`` on dual numbers and one reverse pass of their tangent: about three
    gradients, whatever the size.

    :param f: Takes one argument per primal, returns one number.
    :param primals, tangents: The point and the vector, as for `jvp`.
    :returns: The product in the structure of the primal, a tuple for several primals. Kinds are as
        for `grad`.
    :raises TypeError, ValueError: As for `jvp` and `grad`.

    >>> x, v = np.array([1.0, 2.0]), np.array([1.0, 0.0])
    >>> tg.hvp(lambda x: tg.sum(x**3), (x,), (v,))
    array([6., 0.])
    """
    check_callable("hvp", f)
    check_pairs("hvp", primals, tangents)
    tag = next_tag()
    lifted = [TracedArgument("hvp", x, f"primals[{i}]") for i, x in enumerate(primals)]
    inputs = []
    for i, (argument, tangent) in enumerate(zip(lifted, tangents, strict=True)):
        points = [point for _, point in leaves(argument.inside)]
        inputs.append(along_tangent("hvp", i, argument.value, points, tangent, tag))
    with recording():
        value, tangent = value_and_tangent("hvp", f(*inputs), tag)
    if value.shape != ():
        text = f"f must return a scalar, not shape {value.shape}. Sum it."
        raise ValueError(sentence("hvp", text))
    tangent = of_each_example(tangent)
    products = iter(Pullback(tangent, [x for argument in lifted for x in argument.targets])())
    parts = tuple(argument.regrouped(products) for argument in lifted)
    return parts[0] if len(parts) == 1 else parts
