"""NumPy's integers as functions of traced values, which give plain numbers: ``np.int64(x)``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.autograd.traced import getval


class _Integer(type):
    """The type of a subclass that is its base to `isinstance`, `issubclass` and ``==``."""

    of_numpy: type[Any]

    def __call__(cls, value: Any = 0, *args: Any) -> Any:
        return cls.of_numpy(getval(value), *args)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.of_numpy)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.of_numpy)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.of_numpy

    def __hash__(cls) -> int:
        return hash(cls.of_numpy)


INTEGERS = {
    name: _Integer(kind.__name__, (kind,), {"__module__": "numpy", "of_numpy": kind})
    for name, kind in vars(np).items()
    if name in np.__all__ and isinstance(kind, type) and issubclass(kind, np.integer)
    if not issubclass(kind, np.timedelta64)
}
