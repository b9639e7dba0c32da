"""`vjp`: a function's value, and its gradients for cotangents that come later."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import compress
from typing import Any

from tapegraph.errors import check_callable
from tapegraph.ops import shape
from tapegraph.pytree import leaves, matched, replaced
from tapegraph.tensors.dual import direction
from tapegraph.transforms.levels import (
    Lifted,
    as_given,
    flowing,
    next_tag,
    result,
    stays,
)
from tapegraph.transforms.reverse import Pullback, recording, summed
from tapegraph.typed import Pytree


def vjp(f: Callable[..., Any], *primals: Pytree) -> tuple[Pytree, Callable[[Pytree], Pytree]]:
    """Return a function's value and its pullback, which takes cotangents back to the arguments.

    The pullback gives vector-Jacobian products ``sum_i g_i (df_i/dx)``, one reverse pass each.

    :param f: Takes one argument per primal; returns a number or tensor of any shape, or dicts,
        lists and tuples of them.
    :param *primals: Where to differentiate: numbers, arrays, tensors, duals, and dicts, lists and
        tuples of them.
    :returns: Value of the function; kinds of results are as for `grad`.
    :returns: Pullback : callable. Takes a cotangent in the structure and of the shapes of the value
        (dicts are paired by key, lists and tuples by place); returns the gradient in the structure
        of the primal, a tuple of them where there are several.
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
    lifted = [Lifted("vjp", x, f"primals[{i}]") for i, x in enumerate(primals)]
    targets = [x for argument in lifted for x in argument.targets]
    given = [x for argument in lifted for x in argument.given]
    level = next_tag()
    with recording():
        out = f(*(argument.inside for argument in lifted))
    outs = [result("vjp", part, level) for _, part in leaves(out)]
    pulls = [Pullback(x, targets) for x in outs]
    values = [flowing(pull.value) for pull in pulls]
    needed = [x.requires_grad for x in outs]
    pull = next(compress(pulls, needed), None)
    if pull is not None and sum(needed) > 1:
        with recording():
            pull = Pullback(_joined(compress(outs, needed)), targets)
    if pull is not None:
        pull.keep()
    kept = any(hasattr(x, "requires_grad") for x in given) or any(map(stays, values))
    like = next((x for x in given if hasattr(x, "shape")), 0.0)
    value = replaced(out, iter(values if kept else [as_given(x, like) for x in values]))

    def pullback(cotangent: Pytree) -> Pytree:
        """Return the gradients for one cotangent."""
        seeds = matched("vjp", cotangent, value, "the cotangent", "the function's result")
        cotangents = [
            direction("vjp", seed, path, x) for x, (path, seed) in zip(values, seeds, strict=True)
        ]
        found = [] if pull is None else [pull.found(_joined(compress(cotangents, needed)))]
        grads = iter(summed(found, targets))
        parts = tuple(argument.regrouped(grads) for argument in lifted)
        return parts[0] if len(parts) == 1 else parts

    return value, pullback


def _joined(parts: Iterable[Any]) -> Any:
    """Return several results, or their cotangents, as one, which takes one reverse pass."""
    several = list(parts)
    if len(several) == 1:
        return several[0]
    return shape.concat([shape.reshape(x, (-1,)) for x in several])
