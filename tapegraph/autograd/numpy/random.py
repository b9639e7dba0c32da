"""`numpy.random`: NumPy's own; a traced parameter of a distribution is an error."""

from typing import TYPE_CHECKING

import numpy as _np
from numpy.random import *
from numpy.random import __all__ as __all__

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        return getattr(_np.random, name)
