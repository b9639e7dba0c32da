"""`numpy.random`: NumPy's own; a traced parameter of a distribution is an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as _np

_NAMES = {name: getattr(_np.random, name) for name in _np.random.__all__}

if TYPE_CHECKING:
    from numpy.random import *
else:
    __all__ = sorted(_NAMES)
    globals().update(_NAMES)

    def __getattr__(name: str) -> Any:
        """Return what else NumPy has by a name, as it is."""
        return getattr(_np.random, name)
