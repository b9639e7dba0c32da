"""Python's `isinstance`, `type` and containers, for differentiated code."""

from __future__ import annotations

import builtins

from tapegraph.autograd.boxes import Box
from tapegraph.autograd.tracer import notrace_primitive

dict, list, tuple = builtins.dict, builtins.list, builtins.tuple
isinstance = notrace_primitive(isinstance)
type = notrace_primitive(type)


class DictBox(Box):
    """Stands for dicts that hold traced values, in `isinstance` and annotations."""

    kinds = (dict,)


class SequenceBox(Box):
    """Stands for lists and tuples that hold traced values, in `isinstance` and annotations."""

    kinds = (list, tuple)


DictBox.register(dict)
SequenceBox.register(list)
SequenceBox.register(tuple)


__all__ = ["DictBox", "SequenceBox", "dict", "isinstance", "list", "tuple", "type"]
