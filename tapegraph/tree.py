"""Trees: dicts, lists, tuples and dataclasses, nested, of arrays and numbers; ``tg.tree``.

None has no leaves, as in JAX. Dicts keep their order, and two dicts are paired by key.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np

from tapegraph import pytree
from tapegraph.errors import check_callable, message
from tapegraph.ops import elementwise, shape
from tapegraph.other_names import missing_in
from tapegraph.typed import Fun, Pytree

__all__ = ["Structure", "all", "flatten", "leaves", "map", "reduce", "structure", "unflatten"]

IsLeaf = Callable[[Any], bool]


class Structure:
    """The structure of a tree without its leaves; it compares by structure."""

    def __init__(self, form: object, num_leaves: int) -> None:
        self._form = form
        self.num_leaves = num_leaves

    def unflatten(self, content: Iterable[object]) -> Any:
        """Return the tree of this structure with the leaves ``content``; see `unflatten`."""
        return unflatten(self, content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and _alike(self._form, other._form)

    def __hash__(self) -> int:
        return hash(self.num_leaves)

    def __repr__(self) -> str:
        return f"Structure({pytree.spelled(self._form)})"


def flatten(tree: object, is_leaf: IsLeaf | None = None) -> tuple[list[Any], Structure]:
    """Return a tree's leaves as a list, and its structure.

    :param tree: Dicts, lists, tuples, named tuples and dataclasses, nested; anything else is a
        leaf.
    :param is_leaf: Called with every part; where it returns True the whole part is a leaf.
    :returns: The leaves in order, and the `Structure`.

    >>> tg.tree.flatten({"w": (1.0, 2.0), "b": None})
    ([1.0, 2.0], Structure({'w': (*, *), 'b': None}))
    """
    found = []

    def put(x: object) -> Any:
        found.append(x)
        return pytree.HOLE

    form = pytree.mapped(put, tree, is_leaf=is_leaf)
    return found, Structure(form, len(found))


def leaves(tree: object, is_leaf: IsLeaf | None = None) -> list[Any]:
    """Return a tree's leaves as a list.

    :param tree, is_leaf: As for `flatten`.

    >>> tg.tree.leaves({"w": [1.0, 2.0], "b": 3.0})
    [1.0, 2.0, 3.0]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: object, is_leaf: IsLeaf | None = None) -> Structure:
    """Return the structure of a tree, which can be compared with another.

    :param tree, is_leaf: As for `flatten`.

    >>> tg.tree.structure([1.0, (2.0,)]) == tg.tree.structure([0.0, (0.0,)])
    True
    """
    return flatten(tree, is_leaf)[1]


def unflatten(structure: Structure, content: Iterable[object]) -> Any:
    """Return the tree of a structure with the leaves ``content``.

    :param structure: A result of `structure` or `flatten`.
    :param content: As many leaves, in order.
    :raises ValueError: There are more leaves, or fewer.

    >>> parts, form = tg.tree.flatten({"w": [1.0, 2.0]})
    >>> tg.tree.unflatten(form, [x + 1 for x in parts])
    {'w': [2.0, 3.0]}
    """
    given = list(content)
    if len(given) != structure.num_leaves:
        expected = f"{structure.num_leaves}, as many as {structure!r} has"
        raise ValueError(message("tree.unflatten", f"{len(given)} leaves", expected))
    return pytree.replaced(structure._form, iter(given))


def map(f: Fun, tree: object, *rest: object, is_leaf: IsLeaf | None = None) -> Any:
    """Return a tree of the same structure with ``f`` of each leaf.

    :param f: Takes a leaf of ``tree``, and the part of each of ``rest`` at its place.
    :param tree: The tree that decides the structure.
    :param *rest: Trees of the same structure; in place of a leaf of ``tree`` they may have a tree,
        which ``f`` takes whole.
    :param is_leaf: As for `flatten`.
    :raises TypeError: ``f`` is not callable.
    :raises ValueError: The structures differ; the message names the place.

    >>> tg.tree.map(lambda w, g: w - 0.1 * g, {"w": 1.0, "b": [2.0]}, {"b": [10.0], "w": 0.0})
    {'w': 1.0, 'b': [1.0]}
    """
    check_callable("tree.map", f)
    columns = (list(_along(tree, x, is_leaf, f"rest[{i}]")) for i, x in enumerate(rest))
    results = iter([f(*row) for row in zip(leaves(tree, is_leaf), *columns, strict=True)])
    return pytree.mapped(lambda _: next(results), tree, is_leaf=is_leaf)


def reduce(f: Callable[[Any, Any], Any], tree: object, *initial: object) -> Any:
    """Return a tree's leaves joined by a function of two, from the first to the last.

    :param f: Takes the result so far, and a leaf.
    :param tree: As for `flatten`.
    :param *initial: The start; by default the first leaf.
    :raises TypeError: The tree has no leaves, and there is no ``initial``.

    >>> tg.tree.reduce(lambda total, x: total + x, {"w": [1.0, 2.0], "b": 3.0}, 0.0)
    6.0
    """
    return functools.reduce(f, leaves(tree), *initial)


def all(tree: object) -> bool:
    """Return whether every leaf of a tree is true.

    >>> tg.tree.all({"w": True, "b": [True, False]})
    False
    """
    return builtins.all(leaves(tree))


def ravel_pytree(tree: Pytree) -> tuple[Any, Callable[[Any], Pytree]]:
    """Return the numbers of a tree as one vector, and the function from a vector to a tree.

    :param tree: Dicts, lists and tuples of arrays, tensors and numbers.
    :returns: The vector, of the dtype that all of them promote to, in the order of `flatten`; a
        `Tensor` if the tree has one. And ``unravel``, from such a vector to the tree, each part of
        its shape and dtype; gradients flow through both.
    :raises ValueError: In ``unravel``: the vector has another shape.

    >>> vector, unravel = tg.ravel_pytree({"w": np.ones((2, 2)), "b": 3.0})
    >>> vector
    array([1., 1., 1., 1., 3.])
    >>> unravel(2 * vector)
    {'w': array([[2., 2.],
           [2., 2.]]), 'b': 6.0}
    """
    parts, form = flatten(tree)
    recorded = any(hasattr(x, "requires_grad") for x in parts)
    kinds = [getattr(x, "dtype", None) or np.result_type(x) for x in parts]
    dtype = np.result_type(*kinds) if parts else np.dtype(np.float64)
    if recorded:
        flat = [shape.reshape(elementwise.astype(x, dtype), (-1,)) for x in parts]
        vector = shape.concat(flat)
    else:
        vector = np.concatenate([np.ravel(x) for x in parts] or [np.zeros(0)], dtype=dtype)
    shapes = [np.shape(x) for x in parts]

    def unravel(vector: Any) -> Any:
        if np.shape(vector) != (size,):
            received = f"a vector of shape {np.shape(vector)}"
            raise ValueError(message("ravel_pytree", received, f"shape {(size,)}"))
        return unflatten(form, builtins.map(_as_before, pytree.cut(vector, shapes), parts, kinds))

    size = vector.shape[0]
    return vector, unravel


def _as_before(part: Any, before: object, dtype: Any) -> Any:
    if part.dtype.kind == "c" and dtype.kind != "c":
        part = np.real(part)
    if part.dtype != dtype:
        part = part.astype(dtype)
    if isinstance(part, np.ndarray):
        return part.item() if isinstance(before, (int, float, complex)) else np.array(part)
    return part


def _along(form: object, given: object, is_leaf: IsLeaf | None, path: str) -> Iterable[Any]:
    if is_leaf is not None and is_leaf(form):
        yield given
        return
    if pytree.is_tree(form) or form is None:
        if pytree.differ_here(given, form):
            received = f"a tree of structure {pytree.described(given)} at {path}"
            expected = f"the structure of the first tree, {pytree.described(form)}"
            raise ValueError(message("tree.map", received, expected))
        for other, part, place in pytree.pairs(given, form, path):
            yield from _along(part, other, is_leaf, place)
    else:
        yield given


def _alike(form: object, other: object) -> bool:
    if pytree.differ_here(other, form):
        return False
    if pytree.is_tree(form):
        if type(form) is not type(other):
            return False
        return builtins.all(_alike(*parts[:2]) for parts in pytree.pairs(form, other, ""))
    return (form is None) == (other is None)


def __getattr__(name: str) -> NoReturn:
    raise missing_in("tree", name)
