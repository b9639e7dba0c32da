"""`numpy.random`: NumPy's own; a traced parameter of a distribution is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as _np

_NAMES = {name: getattr(_np.random, name) for name in _np.random.__all__}
globals().update(_NAMES)

__all__ = sorted(_NAMES)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
