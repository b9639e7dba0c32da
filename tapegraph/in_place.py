"""What would write into a tensor, or write one into an array, says what to write instead."""

from __future__ import annotations

import opcode
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from tapegraph.errors import explain

_STORE = opcode.opmap["STORE_SUBSCR"]


def refused(name: str, fix: str) -> Callable[..., NoReturn]:
    """Make the method that stands for ndarray's in-place method of a name."""

    def method(self: Any, *args: Any, **options: Any) -> NoReturn:
        kind = type(self).__name__
        received = f"a {kind}, whose elements cannot be written"
        raise TypeError(
            explain(f"{kind}.{name}", received, "an operation that gives a new one", fix)
        )

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Refuse ndarray's in-place {name}. {fix}"
    return method


fill = refused("fill", "Write x = np.full_like(x, value).")
partition = refused("partition", "Write x = np.partition(x, kth).")
put = refused("put", "Write x = np.where(mask, value, x).")
resize = refused("resize", "Write x = np.reshape(x, shape).")
sort = refused("sort", "Write x = np.sort(x).")


def check_not_stored(x: Any) -> None:
    """Refuse to be converted to a number by ``array[i] = x``, which would lose a gradient.

    NumPy stores an element by ``float(x)``. The caller's instruction tells that from a conversion
    that the user has written.

    Raises
    ------
    TypeError
        The caller's caller is storing an element.
    """
    frame = sys._getframe(2)
    if x.requires_grad and frame.f_code.co_code[frame.f_lasti] == _STORE:
        kind = type(x).__name__
        raise TypeError(
            explain(
                "array[i] = x",
                f"a {kind} with a gradient, which an array would lose",
                "plain numbers",
                "Collect results in a list and join them by np.stack, or store x.item().",
            )
        )
