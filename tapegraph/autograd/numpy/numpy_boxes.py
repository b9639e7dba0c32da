"""`ArrayBox`: autograd's name for a traced array."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.autograd.traced import isbox
from tapegraph.errors import message


class _Traced(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isbox(instance)


class ArrayBox(metaclass=_Traced):
    """Stands for tensors that a gradient flows through, and duals, in `isinstance`.

    Their plain value is ``x._value``.
    """

    @classmethod
    def register(cls, value_type: type) -> None:
        """Declare that values of a type are traced, as numbers and all kinds of arrays are.

        :raises TypeError: The type is no number and no array.
        """
        if not issubclass(value_type, (float, int, np.number, np.ndarray)):
            received = f"the class {value_type.__name__}"
            fix = "Trace arrays, or lists, tuples and dicts of them."
            raise TypeError(message("Box.register", received, "a class of real arrays", fix))
