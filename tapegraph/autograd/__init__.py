"""A drop-in for HIPS autograd: code that is written for it runs here unchanged.

>>> import tapegraph.autograd.numpy as np
>>> from tapegraph.autograd import grad
>>> grad(lambda x: np.sum(np.tanh(x) ** 2))(np.array([0.0, 1.0])).round(4)
array([0.    , 0.6397])
"""

import sys as _sys

from tapegraph.autograd import boxes as _boxes
from tapegraph.autograd import core as core
from tapegraph.autograd import extend as extend
from tapegraph.autograd import misc as misc
from tapegraph.autograd import numpy as numpy
from tapegraph.autograd import test_util as test_util
from tapegraph.autograd import tracer as tracer
from tapegraph.autograd import util as util
from tapegraph.autograd import wrap_util as wrap_util
from tapegraph.autograd.builtins import dict as dict
from tapegraph.autograd.builtins import isinstance as isinstance
from tapegraph.autograd.builtins import list as list
from tapegraph.autograd.builtins import tuple as tuple
from tapegraph.autograd.builtins import type as type
from tapegraph.autograd.core import primitive as primitive
from tapegraph.autograd.differential_operators import *

# Names that autograd has in files of their own.
for _parent, _name, _module in (
    (numpy, "numpy_boxes", _boxes),
    (numpy, "numpy_jvps", numpy.numpy_vjps),
    (misc, "tracers", misc),
):
    setattr(_parent, _name, _module)
    _sys.modules[f"{_parent.__name__}.{_name}"] = _module
