"""Reverse mode: `vjp`, `linearize`, `grad`, `value_and_grad` and `elementwise_grad`.

If a result carries outer levels of forward mode, so do its gradients: the tangent of a gradient is
the gradient of the tangent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
from typing import Any, Concatenate, Literal, NoReturn, Protocol, overload

import numpy as np
import numpy.typing as npt

from tapegraph.differentiation.gradients import Region
from tapegraph.differentiation.jvps import added
from tapegraph.errors import check_callable, message, sentence, user_place
from tapegraph.ops import elementwise, shape
from tapegraph.other_names import unexpected
from tapegraph.pytree import leaves, mapped, matched, replaced
from tapegraph.recording.node import as_leaf
from tapegraph.recording.scopes import recorder
from tapegraph.tensors.batched import (
    Batched,
    Level,
    at_level,
    entered,
    inside_levels,
    levels_of,
    of_each_example,
    up_to,
)
from tapegraph.tensors.dual import Dual, direction, dual_of, parts
from tapegraph.tensors.tensor import Tensor
from tapegraph.tensors.value import Number
from tapegraph.transforms.levels import (
    TracedArgument,
    and_aux,
    derivative_of,
    flowing,
    leaves_of_result,
    like_input,
    next_tag,
    no_argument,
    plain_number,
    positions,
    recording,
    result,
    stays,
)
from tapegraph.typed import ArrayLike, Fun, P, Pytree

# How many numbers the largest cotangents of a block of rows may hold: two megabytes, of float64.
BLOCK = 1 << 18


def arrays_or_pullback(out: Any, targets: Sequence[Any]) -> tuple[Any, Any]:
    """Return the gradient for each leaf as an array; or the pullback if it is recorded."""
    here, region = recorder(), None
    if type(out) is Tensor and not here.capture:
        region = Region([out], targets, apart=True)
        if not (here.flows and region.varies):
            return region.arrays(), None
    return None, Pullback(out, targets, region)


class Pullback:
    """Maps the cotangent of a result ``out`` to those of a level's leaves, the ``targets``."""

    def __init__(self, out: Any, targets: Sequence[Any], region: Region | None = None) -> None:
        self._targets = targets
        self._out = out
        if type(out) is Tensor:
            # The leaves of a level are not computed from each other.
            self._region = region or Region([out], targets, apart=True)
        elif type(out) is Batched:
            self._primal = Pullback(out.inner, targets)
        else:
            self._primal, self._tangent = (
                Pullback(part, targets) for part in (out.primal, out.tangent)
            )

    @property
    def value(self) -> Any:
        out = self._out
        if type(out) is Batched:
            return Batched(self._primal.value, out.tag)
        if type(out) is Dual:
            return dual_of(self._primal.value, self._tangent.value, out.tag)
        return out.detach() if out._requires_grad and not self._records() else out

    def keep(self) -> Pullback:
        """Snapshot the numbers for later cotangents, and return the pullback."""
        if type(self._out) is Batched:
            self._primal.keep()
        elif type(self._out) is Dual:
            self._primal.keep()
            self._tangent.keep()
        else:
            self._region.keep()
        return self

    def _records(self) -> bool:
        return self._region.varies and recorder().flows

    def __call__(self, seed: object = None) -> list[Any]:
        return or_zeros(self.found(seed), self._targets)

    def jacobian(self) -> list[Any]:
        """Return the Jacobian for each leaf, by `vmap` of the pullback over blocks of a basis."""
        out = self._out
        dtype = out.dtype if out.dtype.kind in "fc" else np.dtype(np.float64)
        step = out.size
        if type(out) is Tensor and not self._records() and not recorder().capture:
            step = BLOCK // self._region.widest or 1
        blocks = []
        for start in range(0, max(out.size, 1), max(step, 1)):
            size = min(step, out.size - start)
            level = Level(next_tag(), size, "same")
            units = np.eye(size, out.size, start, dtype).reshape(size, *out.shape)
            with entered(level):
                blocks.append(self._rows(as_leaf(units), level))
        found = (
            rows[0] if len(rows) == 1 else shape.concat(rows) for rows in zip(*blocks, strict=True)
        )
        return [shape.reshape(x, (*out.shape, *x.shape[1:])) for x in found]

    def _rows(self, seeds: Any, level: Level) -> list[Any]:
        """Return the cotangents of each leaf for many cotangents along a first axis."""
        out = self._out
        if type(out) is Tensor:
            record = recorder().flows and (self._region.varies or seeds.requires_grad)
            grads = self._region.of_examples(Batched(seeds, level.tag), record=record)
            return [at_level(grad, level).inner for grad in or_zeros(grads, self._targets)]
        if type(out) is Dual:
            primal_seeds, tangent_seeds = parts(seeds, out.tag)
            primal = self._primal._rows(primal_seeds, level)
            tangent = self._tangent._rows(primal_seeds, level)
            if tangent_seeds is not None:
                tangent = list(map(added, tangent, self._primal._rows(tangent_seeds, level)))
            return [dual_of(p, t, out.tag) for p, t in zip(primal, tangent, strict=True)]
        (outer,) = levels_of(out)[-1:]
        of_all = shape.moveaxis(at_level(seeds, outer).inner, 0, 1)
        levels = recorder().levels
        with inside_levels([x for x in levels if not outer.tag <= x.tag < level.tag]):
            grads = self._primal._rows(of_all, level)
        return [Batched(shape.moveaxis(x, 0, 1), out.tag) for x in grads]

    def found(self, seed: Any = None) -> list[Any]:
        """Return the cotangent of each leaf, None if the result does not depend on it."""
        out = self._out
        tag = max((x.tag for x in (out, seed) if type(x) in (Dual, Batched)), default=None)
        if type(seed) is Batched and seed.tag == tag and getattr(out, "tag", -1) != tag:
            (level,) = levels_of(seed)[-1:]
            return [Batched(grad, tag) for grad in self._rows(seed.inner, level)]
        if type(out) is Batched and out.tag == tag:
            (level,) = levels_of(out)[-1:]
            of_all = None if seed is None else at_level(seed, level).inner
            with up_to(tag - 1):
                found = self._primal.found(of_all)
            return [Batched(grad, tag) for grad in or_zeros(found, self._targets)]
        if tag is None:
            record = self._records() or (
                recorder().flows and seed is not None and seed._requires_grad
            )
            return self._region.gradients([seed], record=record)
        seed_primal, seed_tangent = (None, None) if seed is None else parts(seed, tag)
        if type(out) is Dual and out.tag == tag:
            primal = self._primal.found(seed_primal)
            tangent = self._tangent.found(seed_primal)
            if seed_tangent is not None:
                tangent = list(map(added, tangent, self._primal.found(seed_tangent)))
        else:
            primal, tangent = self.found(seed_primal), self.found(seed_tangent)
        return [
            self._dual(p, t, x, tag) for p, t, x in zip(primal, tangent, self._targets, strict=True)
        ]

    @staticmethod
    def _dual(primal: Any, tangent: object, target: Any, tag: int) -> Any:
        if tangent is None:
            return primal
        if primal is None:
            primal = as_leaf(np.zeros(target.shape, target.dtype))
        return dual_of(primal, tangent, tag)


class JointPullback:
    """Maps cotangents of several results to those of a level's leaves, in one reverse pass."""

    def __init__(self, outs: Sequence[Any], targets: Sequence[Any]) -> None:
        pulls = [Pullback(x, targets) for x in outs]
        self.values = [flowing(pull.value) for pull in pulls]
        self._needed = [x.requires_grad for x in outs]
        self._pull: Any = next(compress(pulls, self._needed), None)
        if self._pull is None:  # a constant has the zeros of each leaf
            self._pull = Pullback(of_each_example(as_leaf(np.zeros(()))), targets)
        elif sum(self._needed) > 1:
            with recording():
                self._pull = Pullback(self._in_one(outs), targets)
        self._pull.keep()

    def __call__(self, cotangents: Sequence[object]) -> list[Any]:
        return self._pull(self._in_one(cotangents) if any(self._needed) else None)

    def _in_one(self, parts: Sequence[object]) -> Any:
        needed = list(compress(parts, self._needed))
        return needed[0] if len(needed) == 1 else shape.in_one(needed)


def check_holomorphic(op: str, out: Any, targets: Sequence[Any]) -> None:
    """Raise if a function declared holomorphic has real arguments or results."""
    for x, what in ((out, "a result"), *((x, "an argument") for x in targets)):
        if x.dtype.kind != "c":
            received = f"holomorphic=True and {what} of dtype {x.dtype}"
            raise TypeError(message(op, received, "complex numbers", "Leave out holomorphic=."))


def or_zeros(grads: Sequence[Any], targets: Sequence[Any]) -> list[Any]:
    return [
        as_leaf(np.zeros(x.shape, x.dtype)) if grad is None else grad
        for x, grad in zip(targets, grads, strict=True)
    ]


def vjp(f: Fun, *primals: Pytree, has_aux: bool = False) -> tuple[Any, ...]:
    """Return a function's value and its pullback, which maps cotangents back to the arguments.

    The pullback gives vector-Jacobian products ``sum_i g_i (df_i/dx)``, one reverse pass each.

    :param f: Takes one argument per primal; returns a number or tensor of any shape, or dicts,
        lists and tuples of them.
    :param *primals: The point: numbers, arrays, tensors, duals, and dicts, lists and tuples of
        them.
    :param has_aux: ``f`` returns ``(result, aux)``, and ``aux`` comes last, not differentiated.
    :returns: The function's value, and the pullback: from a cotangent in the structure and shapes
        of the value to the gradient in the structure of the primal, a tuple for several primals.
        Kinds are as for `grad`.
    :raises TypeError: ``f`` is not callable or returns something other than numbers, or a primal is
        not numeric.
    :raises ValueError: In the pullback: the cotangent's structure or a shape differs from the
        value's.

    >>> value, pullback = tg.vjp(lambda x, y: x * y, np.array([1.0, 2.0]), 3.0)
    >>> value
    array([3., 6.])
    >>> pullback(np.array([1.0, 0.0]))
    (array([3., 0.]), 1.0)
    """
    check_callable("vjp", f)
    lifted = [TracedArgument("vjp", x, f"primals[{i}]") for i, x in enumerate(primals)]
    targets = [x for argument in lifted for x in argument.targets]
    given = [x for argument in lifted for x in argument.given]
    level = next_tag()
    with recording():
        out = f(*(argument.inside for argument in lifted))
    out, aux = and_aux("vjp", out) if has_aux else (out, None)
    outs = [of_each_example(result("vjp", part, level)) for part in leaves_of_result("vjp", out)]
    pull = JointPullback(outs, targets)
    values = pull.values
    kept = any(hasattr(x, "requires_grad") for x in given) or any(map(stays, values))
    like = next((x for x in given if hasattr(x, "shape")), 0.0)
    value = replaced(out, iter(values if kept else [like_input(x, like) for x in values]))

    def pullback(cotangent: Pytree) -> Pytree:
        seeds = matched("vjp", cotangent, value, "the cotangent", "the function's result")
        cotangents = [
            direction("vjp", seed, path, x) for x, (path, seed) in zip(values, seeds, strict=True)
        ]
        grads = iter(pull(cotangents))
        parts = tuple(argument.regrouped(grads) for argument in lifted)
        return parts[0] if len(parts) == 1 else parts

    if has_aux:
        return value, pullback, ended(aux, lifted, level)
    return value, pullback


def linearize(f: Fun, *primals: Pytree, has_aux: bool = False) -> tuple[Any, ...]:
    """Return a function's value, and the linear map that takes a direction to its derivative.

    ``f`` runs once; each direction then costs one pass over the recording. The map is the transpose
    of the pullback of `vjp`.

    :param f, *primals, has_aux: As for `vjp`.
    :returns: The function's value, and the map: from a tangent per primal, in its structure and
        shapes, to the Jacobian-vector product ``sum_i (df/dx_i) t_i`` in the structure of the
        value.
    :raises TypeError, ValueError: As for `vjp`.

    >>> value, derivative = tg.linearize(lambda x: tg.sin(x) * x, np.array([0.0, 1.0]))
    >>> derivative(np.array([1.0, 0.0]))
    array([0., 0.])
    """
    check_callable("linearize", f)
    value, pullback, *aux = vjp(f, *primals, has_aux=has_aux)
    # The pullback is linear, so any cotangent will do. Zeros would absorb infinities.
    anywhere = mapped(ones_along, value)
    _, transposed = vjp(pullback, anywhere)

    def derivative(*tangents: Pytree) -> Pytree:
        found = transposed(tangents[0] if len(primals) == 1 else tangents)
        if any(getattr(x, "requires_grad", False) for _, x in leaves((value, tangents))):
            return found
        # Nothing outside is differentiated: the result's other dependencies ended with `vjp`.
        plain = (
            like_input(x.detach(), v) if hasattr(x, "detach") else x
            for (_, v), (_, x) in zip(leaves(value), leaves(found), strict=True)
        )
        return replaced(value, plain)

    return value, derivative, *aux


def ones_along(x: Any) -> Any:
    """Return ones as a tangent of a number, array or tensor."""
    dtype = np.result_type(getattr(x, "dtype", x))
    return np.ones(np.shape(x), dtype if dtype.kind in "fc" else np.float64)


class Derivative(Protocol[P]):
    """The result of `grad`: differentiates with respect to the first argument, of its kind."""

    __name__: str

    @overload
    def __call__(self, x: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> Tensor: ...
    @overload
    def __call__(self, x: Dual, /, *args: P.args, **kwargs: P.kwargs) -> Tensor | Dual: ...
    @overload
    def __call__(self, x: Number, /, *args: P.args, **kwargs: P.kwargs) -> float: ...
    @overload
    def __call__(self, x: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> npt.NDArray[Any]: ...


@overload
def grad(f: Callable[Concatenate[Any, P], Any], argnums: Literal[0] = 0) -> Derivative[P]: ...
@overload
def grad(
    f: Fun,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    argnum: int | Sequence[int] | None = None,
    holomorphic: bool = False,
) -> Fun: ...
def grad(
    f: Fun,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    argnum: int | Sequence[int] | None = None,
    holomorphic: bool = False,
    **others: NoReturn,
) -> Fun:
    """Return the gradient of a scalar-valued function, as a function of the same arguments.

    Each call is one run of ``f`` and one reverse pass. Derivatives of any order are made by
    repetition, ``tg.grad(tg.grad(f))``, and levels of `grad` and `jvp` nest in every way.

    :param f: Returns one number: a Python number or a 0-d tensor.
    :param argnums: The positions of the arguments to differentiate with respect to, negative ones
        from the end; others are constants.
    :param has_aux: ``f`` returns ``(scalar, aux)``, and only the scalar is differentiated.
    :param argnum: Another name for ``argnums``.
    :param holomorphic: ``f`` maps complex numbers to complex numbers and is holomorphic: the result
        is ``f'(z)``, which differs from the gradient of a real function.
    :returns: Callable with ``f``'s arguments. Returns the gradient in the structure of the
        argument: a float for a number and an array for an array; a `Tensor` or `Dual` for one of
        those, or if it depends on a parameter or an outer level. A list or tuple of gradients if
        ``argnums`` is one; with ``has_aux``, a pair ``(gradient, aux)``. The gradient is zero for
        an argument that the result does not depend on.
    :raises TypeError: ``f`` is not callable, ``argnums`` are no integers; in a call, ``f`` does not
        return a number, or a part of the argument is not numeric or a whole number.
    :raises ValueError: There are no ``argnums``; in a call, one is not the position of an argument,
        or the result of ``f`` is not 0-d.
    :raises NotImplementedError: In a call inside another level: an operation has no derivative of
        that order.

    >>> cube = lambda x: x**3
    >>> tg.grad(cube)(2.0), tg.grad(tg.grad(cube))(2.0)
    (12.0, 12.0)
    >>> tg.grad(lambda p, x: p["w"] * x + p["b"])({"w": 2.0, "b": 1.0}, 3.0)
    {'w': 3.0, 'b': 1.0}
    """
    if others:
        raise unexpected("grad", others)
    chosen = argnums if argnum is None else argnum
    found = Gradient("grad", f, chosen, has_aux=has_aux, holomorphic=holomorphic)

    def derivative(*args: object, **kwargs: object) -> Any:
        (_, aux), gradient = found(args, kwargs)
        return (gradient, aux) if has_aux else gradient

    return derivative_of(f, derivative, "Return the derivative of {name} {by}.", found.by)


def value_and_grad(
    f: Fun,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    *,
    argnum: int | Sequence[int] | None = None,
    holomorphic: bool = False,
    **others: NoReturn,
) -> Fun:
    """Return a function that returns a scalar-valued function's value and gradient.

    :param f, argnums, has_aux, argnum, holomorphic: As for `grad`.
    :returns: Callable with ``f``'s arguments. Returns a pair of value and gradient, or of ``(value,
        aux)`` and gradient with ``has_aux``. The value is a float, or a `Tensor` or `Dual` as in
        `grad`.
    :raises TypeError, ValueError, NotImplementedError: As for `grad`.

    >>> tg.value_and_grad(lambda x: tg.sum(x * x))(np.array([1.0, 2.0]))
    (5.0, array([2., 4.]))
    """
    if others:
        raise unexpected("value_and_grad", others)
    chosen = argnums if argnum is None else argnum
    found = Gradient("value_and_grad", f, chosen, has_aux=has_aux, holomorphic=holomorphic)

    def derivative(*args: object, **kwargs: object) -> Any:
        (value, aux), gradient = found(args, kwargs)
        return ((value, aux) if has_aux else value), gradient

    return derivative_of(f, derivative, "Return {name} and its derivative {by}.", found.by)


def elementwise_grad(
    f: Fun,
    argnums: int | Sequence[int] = 0,
    *,
    argnum: int | Sequence[int] | None = None,
    holomorphic: bool = False,
) -> Fun:
    """Return the gradient of the sum of a function's results.

    If ``f`` is element-wise, that is its derivative at each element.

    :param f: Returns a number or tensor of any shape.
    :param argnums, argnum, holomorphic: As for `grad`.
    :returns: Callable with ``f``'s arguments. Returns the gradient as `grad` does.
    :raises TypeError, ValueError, NotImplementedError: As for `grad`, but for results of any shape.

    >>> tg.elementwise_grad(lambda x: x**2)(np.array([1.0, 2.0, 3.0]))
    array([2., 4., 6.])
    """
    chosen = argnums if argnum is None else argnum
    found = Gradient("elementwise_grad", f, chosen, of_sum=True, holomorphic=holomorphic)

    doc = "Return the derivative of the sum of {name} {by}."
    return derivative_of(f, lambda *args, **kwargs: found(args, kwargs)[1], doc, found.by)


class Gradient:
    """A function's value and gradient with respect to some arguments, one call after another."""

    def __init__(
        self,
        op: str,
        f: Fun,
        argnums: Any,
        *,
        has_aux: bool = False,
        of_sum: bool = False,
        holomorphic: bool = False,
    ) -> None:
        check_callable(op, f)
        self._at = user_place()
        self._holomorphic = holomorphic
        self._op, self._f, self._has_aux, self._of_sum = op, f, has_aux, of_sum
        self._wanted = positions(op, argnums)
        self._names = {i: f"argument {i}" for i in self._wanted}
        # A list or tuple of gradients for a list or tuple of positions.
        self._several = type(argnums) if isinstance(argnums, (tuple, list)) else None
        places = ", ".join(map(str, self._wanted))
        self.by = f"with respect to argument{'s' if len(self._wanted) > 1 else ''} {places}"

    def __call__(self, args: Any, kwargs: Any) -> tuple[tuple[Any, Any], Any]:
        op, inputs = self._op, list(args)
        targets = []
        lifted: dict[int, TracedArgument] = {}
        n = len(args)
        for i, name in self._names.items():
            if not -n <= i < n:
                raise no_argument(op, i, args)
            if i % n not in lifted:
                lifted[i % n] = argument = TracedArgument(op, args[i], name, self._at)
                inputs[i] = argument.inside
                targets += argument.targets
        level = next_tag()
        with recording():
            out = self._f(*inputs, **kwargs)
        aux = None
        if self._has_aux:
            out, aux = and_aux(op, out)
        if type(out) is not Tensor:
            out = result(op, out, level)
        if recorder().levels:
            out = of_each_example(out)
        if out.shape != () and not self._of_sum:
            fix = "Sum it, or use tg.jacobian, tg.elementwise_grad or tg.jvp."
            text = f"f must return a scalar, not shape {out.shape}. {fix}"
            raise ValueError(sentence(op, text))
        if self._holomorphic:
            arrays, pullback = None, Pullback(out, targets)
            check_holomorphic(op, out, targets)
            ones = as_leaf(np.ones(out.shape, out.dtype))
            grads = map(elementwise.conj, pullback(ones))
        else:
            arrays, pullback = arrays_or_pullback(out, targets)
            grads = iter(pullback() if arrays is None else arrays)
        if self._several is None:
            gradient = argument.regrouped(grads)
        else:
            by_position = {i: argument.regrouped(grads) for i, argument in lifted.items()}
            gradient = self._several(by_position[i % n] for i in self._wanted)
        value: Any = None
        if op == "value_and_grad":
            like = _like(lifted.values())
            if arrays is None:
                value = like_input(pullback.value, like)
            elif type(like) is float:
                value = plain_number(out._array)
            else:
                value = as_leaf(np.array(out._array))
        if aux is not None:
            aux = ended(aux, [*lifted.values()], level)
        return (value, aux), gradient


def _like(arguments: Iterable[TracedArgument]) -> Any:
    """Return the input that decides the kind of the value: a tensor if there is one."""
    for argument in arguments:
        for x in argument.given:
            if type(x) is not np.ndarray and isinstance(x, (Tensor, Dual)):
                return x
    return 0.0


def ended(aux: object, arguments: Sequence[TracedArgument], level: int) -> Any:
    """Return an auxiliary result without this level, and without those of later tags."""
    targets, like = [x for argument in arguments for x in argument.targets], _like(arguments)

    def part(x: Any) -> Any:
        while type(x) is Dual and x.tag > level:
            x = x.primal
        if not isinstance(x, (Tensor, Dual, Batched)):
            return x
        return like_input(Pullback(x, targets).value, like)

    return mapped(part, aux)
