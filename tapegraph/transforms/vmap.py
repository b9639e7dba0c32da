"""`vmap`: a function of one example, over a batch of them, without a loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NoReturn

import numpy as np

from tapegraph.draws import no_foreign_draws
from tapegraph.errors import check_callable, message, sentence
from tapegraph.ops import shape
from tapegraph.other_names import unexpected
from tapegraph.pytree import described, differ_here, is_tree, leaves, pairs, replaced
from tapegraph.recording.record import tensor_like
from tapegraph.recording.scopes import recorder
from tapegraph.tensors.batched import Batched, Level, entered
from tapegraph.tensors.dual import Dual
from tapegraph.tensors.tensor import Tensor
from tapegraph.transforms.levels import derivative_of, leaves_of_result, like_input, next_tag
from tapegraph.typed import Fun, Pytree

Randomness = Literal["error", "different", "same"]


def vmap(
    f: Fun,
    in_axes: Pytree = 0,
    out_axes: Pytree = 0,
    *,
    randomness: Randomness = "error",
    chunk_size: int | None = None,
    **others: NoReturn,
) -> Fun:
    """Return a function that runs ``f`` on many examples at once, and stacks the results.

    Examples share values that ``f`` closes over, and gradients flow to them. Shapes inside are
    those of one example. A number of one example cannot leave: for ``if x > 0`` use `tg.where`.

    :param f: Takes and returns numbers and tensors, and dicts, lists and tuples of them.
    :param in_axes: The axis of each argument along which the examples lie, None for an argument
        that all examples share: one axis for all arguments, or a tuple with one for each, or a tree
        of axes in place of an argument's. Keyword arguments have the examples along axis 0.
    :param out_axes: The axis of the examples in the results, in the same form.
    :param randomness: The effect of drawing random numbers inside: ``"error"``, ``"different"``
        numbers for each example, or the ``"same"`` for all.
    :param chunk_size: The number of examples that run at a time; all if not given.
    :returns: Callable with ``f``'s arguments, each with one more axis. Returns plain arrays for
        plain arrays, and Tensors if an argument is a Tensor or a result depends on a parameter.
    :raises TypeError: ``f`` is not callable.
    :raises ValueError: In a call: an axis does not exist, numbers of examples differ, the structure
        of the axes differs from the arguments', or no argument has examples.

    >>> tg.vmap(lambda x, y: x @ y)(np.ones((3, 2)), np.ones((3, 2)))
    array([2., 2., 2.])
    >>> loss = lambda w, x: tg.sum((w * x) ** 2)
    >>> tg.vmap(tg.grad(loss), in_axes=(None, 0))(np.array([1.0, 2.0]), np.eye(2))
    array([[2., 0.],
           [0., 4.]])
    """
    if others:
        raise unexpected("vmap", others)
    check_callable("vmap", f)
    if randomness not in ("error", "different", "same"):
        expected = '"error", "different" or "same"'
        raise ValueError(message("vmap", f"randomness={randomness!r}", expected))
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(message("vmap", f"chunk_size={chunk_size}", "1 or more"))

    def batched(*args: object, **kwargs: object) -> Any:
        given = _Arguments(args, kwargs, in_axes)
        step = given.size if chunk_size is None else chunk_size
        starts = range(0, given.size, max(step, 1)) or [0]
        parts = [_run(f, given, start, step, randomness) for start in starts]
        return _together(parts, out_axes, given.like)

    return derivative_of(f, batched, "Return {name} of many examples at once.")


class _Arguments:
    def __init__(
        self, args: tuple[object, ...], kwargs: dict[str, object], in_axes: object
    ) -> None:
        self.form = (args, kwargs)
        axes = [*_axes(in_axes, args, "in_axes", "args"), *_axes(0, kwargs, "in_axes", "kwargs")]
        self.values: list[Any] = []
        self.along = [axis is not None for axis, _, _ in axes]
        self.like: Any = np.empty(1)
        sizes: dict[str, int] = {}
        for axis, path, value in axes:
            if isinstance(value, (Tensor, Dual, Batched)):
                self.like = value
            if axis is None:
                self.values.append(value)
                continue
            x = tensor_like("vmap", value, path)
            place = _place(axis, x.ndim, path, x.shape)
            sizes[path] = x.shape[place]
            self.values.append(shape.moveaxis(x, place, 0) if place else x)
        if not sizes:
            received, fix = "no argument with examples", "Give in_axes an axis for one of them."
            raise ValueError(message("vmap", received, "one argument to batch over", fix))
        (first, self.size), *others = sizes.items()
        for path, size in others:
            if size != self.size:
                received = f"{self.size} examples in {first} and {size} in {path}"
                fix = "Write None in in_axes for an argument that is the same for all."
                raise ValueError(message("vmap", received, "the same number in each", fix))

    def inside(self, start: int, step: int, level: Level) -> tuple[Any, Any]:
        whole = start == 0 and step >= self.size
        return replaced(
            self.form,
            (
                x if not along else Batched(x if whole else x[start : start + step], level.tag)
                for x, along in zip(self.values, self.along, strict=True)
            ),
        )


def _axes(
    axes: object, value: object, name: str, path: str
) -> Iterator[tuple[int | None, str, Any]]:
    """Yield the axis, path and value of each leaf; ``axes`` is a tree or a single axis."""
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        for place, leaf in leaves(value, path):
            yield axes, place, leaf
        return
    if is_tree(value) and not differ_here(axes, value):
        places = (path for *_, path in pairs(value, value, path))
        for (axis, part, of), place in zip(pairs(axes, value, name), places, strict=True):
            yield from _axes(axis, part, of, place)
    else:
        received = f"{name}={described(axes)} for {path} of structure {described(value)}"
        expected = "an axis, None, or a tree of them in the structure of the value"
        fix = f"Write {name}=0, or a tuple with an axis or None for each part."
        raise ValueError(message("vmap", received, expected, fix))


def _place(axis: int, ndim: int, path: str, lengths: tuple[int, ...]) -> int:
    if not -ndim <= axis < ndim:
        received = f"axis {axis} for {path} of shape {lengths}"
        raise ValueError(message("vmap", received, "one of its axes", "Write None for no axis."))
    return axis % ndim


def _run(f: Fun, given: _Arguments, start: int, step: int, randomness: str) -> tuple[Any, Any]:
    """Return the result's form, and its leaves: value, number of examples, whether all share it."""
    size = min(step, given.size - start)
    level = Level(next_tag(), size, randomness)
    args, kwargs = given.inside(start, step, level)
    with entered(level), no_foreign_draws("vmap", f):
        out = f(*args, **kwargs)
    results = []
    for x in leaves_of_result("vmap", out):
        alike = not (type(x) is Batched and x.tag == level.tag)
        value = tensor_like("vmap", x, "the function's result") if alike else x.inner
        if type(value) is Batched and all(value.tag != outer.tag for outer in recorder().levels):
            text = "f returned a value of another call of vmap, which has ended."
            raise ValueError(sentence("vmap", text))
        results.append((value, size, alike))
    return out, results


def _together(parts: list[Any], out_axes: object, like: object) -> Any:
    forms, chunks = zip(*parts, strict=True)
    axes = _axes(out_axes, forms[0], "out_axes", "the result")
    found = []
    for (axis, path, _), results in zip(axes, zip(*chunks, strict=True), strict=True):
        if axis is None and not all(alike for _, _, alike in results):
            received = f"out_axes=None for {path}, which differs from example to example"
            fix = "Use out_axes=0, or return a value that is the same for all."
            raise ValueError(message("vmap", received, "an axis", fix))
        if axis is None:
            x = results[0][0]
        else:
            whole = [
                shape.broadcast_to(x, (size, *x.shape)) if alike else x
                for x, size, alike in results
            ]
            x = whole[0] if len(whole) == 1 else shape.concat(whole)
            x = shape.moveaxis(x, 0, _place(axis, x.ndim, path, x.shape)) if axis else x
        found.append(like_input(x, like))
    return replaced(forms[0], iter(found))
