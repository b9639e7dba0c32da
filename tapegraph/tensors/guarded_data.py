"""The array ``tensor.data``, whose writes the tape notices.

A write to a leaf marks it as changed, so that a graph recorded before raises instead of using the
new numbers. A write to a result is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.errors import sentence
from tapegraph.recording.node import Node, is_leaf
from tapegraph.recording.scopes import recorder
from tapegraph.typed import Array


class GuardedArray(np.ndarray[Any, Any]):
    """A read-only view of a tensor's array; operations on it return ordinary ndarrays."""

    _owner: Node | None

    def __array_finalize__(self, source: object) -> None:
        # Views of the view refer to the tensor; copies own their memory and are not guarded.
        view = self.base is not None and not self.flags.writeable
        self._owner = getattr(source, "_owner", None) if view else None

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        at = method == "at"
        written = inputs[:1] if at else kwargs.get("out", ())
        computed = [np.array(x) if isinstance(x, GuardedArray) else x for x in written]
        if at:
            inputs = (computed[0], *inputs[1:])
        elif written:
            kwargs["out"] = tuple(computed)
        plain = [x.view(np.ndarray) if isinstance(x, GuardedArray) else x for x in inputs]
        result = getattr(ufunc, method)(*plain, **kwargs)
        for target, numbers in zip(written, computed, strict=True):
            if isinstance(target, GuardedArray):
                target[...] = numbers
        return written[0] if len(written) == 1 and not at else result

    def __setitem__(self, key: Any, value: Any) -> None:
        owner = self._owner
        if owner is None:
            super().__setitem__(key, value)
            return
        label = f"{owner.name!r}" if owner.name else f"of shape {owner._array.shape}"
        if not is_leaf(owner):
            text = (
                f"the result {label} of {(owner._entry or owner)._op.name} is read-only; only "
                "parameters and constants can be written. Change a copy: tensor.data.copy()."
            )
            raise ValueError(sentence("data", text))
        if _base(self) is not owner._array:
            text = (
                f"the array is no longer that of {owner._op.name} {label}. Read tensor.data again "
                "after assign() or an optimizer's step."
            )
            raise ValueError(sentence("data", text))
        here = recorder()
        here.before_write(owner)
        self.flags.writeable = True
        try:
            super().__setitem__(key, value)
        finally:
            self.flags.writeable = False
            here.written(owner)

    def fill(self, value: object) -> None:
        self[...] = value

    def sort(self, *args: Any, **kwargs: Any) -> None:
        ordered = np.array(self)
        ordered.sort(*args, **kwargs)
        self[...] = ordered

    def copy(self, order: Any = "C") -> Any:
        """Return an ordinary array with its own memory."""
        return np.array(self, order=order)

    def __dlpack__(self, **options: object) -> Any:
        """Export a copy: the consumer could write to the memory itself unnoticed."""
        return self.copy().__dlpack__(**options)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: object) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        return self.copy().__reduce__()

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __str__(self) -> str:
        return str(self.view(np.ndarray))


def guarded(node: Node) -> Array:
    view = node._array.view(GuardedArray)
    view.flags.writeable = False
    view._owner = node
    return view


def is_whole(node: Node, value: object) -> bool:
    """Return whether an array is ``node.data`` itself, as ``node.data += 1`` stores it back."""
    array = node._array
    return (
        isinstance(value, GuardedArray)
        and value._owner is node
        and _base(value) is array
        and value.shape == array.shape
        and value.strides == array.strides
        and value.dtype == array.dtype
        and value.ctypes.data == array.ctypes.data
    )


def _base(view: Array) -> Any:
    base = view
    while isinstance(base, GuardedArray) and base.base is not None:
        base = base.base
    return base
