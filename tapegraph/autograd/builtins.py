"""Python's `isinstance`, `type` and containers, as code that is differentiated may call them.

A traced dict, list or tuple is one of Python's own here, of traced values; so the three are
Python's. Of a traced array `type` is ndarray or a NumPy number.
"""

from __future__ import annotations

import builtins
from typing import Any

from tapegraph.autograd.primitives import notrace_primitive
from tapegraph.autograd.traced import holds_box

dict, list, tuple = builtins.dict, builtins.list, builtins.tuple
_isinstance = isinstance


class _Holding(builtins.type):
    """The type of a class whose instances are those of its ``kinds`` that hold a traced value."""

    kinds: builtins.tuple[builtins.type, ...]

    def __instancecheck__(cls, instance: Any) -> bool:
        return _isinstance(instance, cls.kinds) and holds_box(instance)


class DictBox(metaclass=_Holding):
    """Stands for dicts that hold traced values, in `isinstance` and annotations."""

    kinds = (dict,)


class SequenceBox(metaclass=_Holding):
    """Stands for lists and tuples that hold traced values, in `isinstance` and annotations."""

    kinds = (list, tuple)


isinstance = notrace_primitive(isinstance)
type = notrace_primitive(type)

__all__ = ["DictBox", "SequenceBox", "dict", "isinstance", "list", "tuple", "type"]
