"""`ArrayBox`: autograd's name for a traced array."""

from __future__ import annotations

from typing import Any

from tapegraph.autograd.traced import isbox


class _Traced(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isbox(instance)


class ArrayBox(metaclass=_Traced):
    """Stands for tensors that a gradient flows through, and duals, in `isinstance`.

    Their plain value is ``x._value``.
    """
