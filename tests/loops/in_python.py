"""The loops in Python that `tg.scan` and its relatives replace."""

from __future__ import annotations

import tapegraph as tg
from tapegraph.pytree import leaves, mapped, replaced


def scan(f, init, xs=None, length=None, *, reverse=False, checkpoint=None):
    """The loop that `tg.scan` stands for."""
    carry = mapped(lambda x: x if x is None else tg.tensor(x) if is_plain(x) else x, init)
    rows = [x for _, x in leaves(xs) if x is not None]
    n = len(rows[0]) if rows else length
    ys = [None] * n
    for t in reversed(range(n)) if reverse else range(n):
        carry, ys[t] = f(carry, mapped(lambda x, t=t: x if x is None else x[t], xs))
    columns = zip(*([x for _, x in leaves(y)] for y in ys), strict=True)
    stacked = (None if column[0] is None else tg.stack(column) for column in columns)
    return carry, replaced(ys[0], stacked)


def is_plain(x):
    """Whether it is no tensor, dual or example."""
    return not hasattr(x, "requires_grad")


def chosen(pred, true_fn, false_fn, *operands):
    """The choice that `tg.cond` stands for."""
    return true_fn(*operands) if pred else false_fn(*operands)


def while_loop(cond, body, init, *, max_steps=None):
    """The loop that `tg.while_loop` stands for."""
    carry, count = init, 0
    while count != max_steps and cond(carry):
        carry, count = body(carry), count + 1
    return carry
