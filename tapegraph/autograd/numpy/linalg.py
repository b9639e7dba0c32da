"""`numpy.linalg`: NumPy's own functions on plain arguments, recorded on traced ones."""

from typing import TYPE_CHECKING

import numpy as _np

from tapegraph.autograd.numpy.numpy_wrapper import publish as _publish

if TYPE_CHECKING:
    from numpy.linalg import *
else:
    _publish(_np.linalg, globals())
