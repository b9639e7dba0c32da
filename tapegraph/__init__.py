"""A graph-compiling autograd: NumPy forward, native or TensorFlow backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as _numpy

from tapegraph.environment import find_siblings as _find_siblings

_find_siblings()

from tapegraph import data, integrate, optim, random, tree
from tapegraph.compiling import compiled as _compiled
from tapegraph.compiling.compiled import compile, compile_disabled
from tapegraph.compiling.scan import each
from tapegraph.compiling.trace import TraceMismatchError
from tapegraph.custom_rules import custom_jvp, custom_vjp
from tapegraph.differentiation.gradients import backward, gradients
from tapegraph.engines.backend import (
    get_backend,
    get_forward,
    last_backward,
    set_backend,
    set_forward,
    use_backend,
    use_forward,
)
from tapegraph.errors import ConcretizationError, LostGradientWarning
from tapegraph.loops.branches import cond, switch
from tapegraph.loops.scan import fori_loop, scan
from tapegraph.loops.while_loop import while_loop
from tapegraph.ops import elementwise as _elementwise
from tapegraph.ops import fft, special
from tapegraph.ops import index as _index
from tapegraph.ops import layers as _layers
from tapegraph.ops import linalg as linalg
from tapegraph.ops import losses as _losses
from tapegraph.ops import nn as _nn
from tapegraph.ops import reduce as _reduce
from tapegraph.ops import samples as _samples
from tapegraph.ops import shape as _shape
from tapegraph.ops.elementwise import *
from tapegraph.ops.index import *
from tapegraph.ops.layers import *
from tapegraph.ops.linalg import *
from tapegraph.ops.losses import *
from tapegraph.ops.nn import *
from tapegraph.ops.reduce import *
from tapegraph.ops.samples import *
from tapegraph.ops.shape import *
from tapegraph.ops.special import log_softmax, softplus
from tapegraph.optim import (
    SGD,
    Adagrad,
    Adam,
    AdamW,
    Lion,
    Optimizer,
    RMSprop,
    clip_grad_norm,
    clip_grad_value,
)
from tapegraph.other_names import missing as _missing
from tapegraph.recording.node import get_default_dtype, set_default_dtype
from tapegraph.recording.numpy_functions import is_known as _is_known
from tapegraph.recording.scopes import no_grad
from tapegraph.recording.tape import tape, tape_reset
from tapegraph.tensors.batched import SlowBatchingWarning
from tapegraph.tensors.defop import defop
from tapegraph.tensors.dual import Dual
from tapegraph.tensors.parameters import parameters, zero_grad
from tapegraph.tensors.tensor import Tensor, param, tensor
from tapegraph.tensors.value import Value, vsum
from tapegraph.transforms.checkpoint import checkpoint
from tapegraph.transforms.jacobian import hessian, hvp, jacfwd, jacobian, jacrev, jvp
from tapegraph.transforms.levels import stop_gradient
from tapegraph.transforms.reverse import elementwise_grad, grad, linearize, value_and_grad, vjp
from tapegraph.transforms.vmap import vmap
from tapegraph.tree import ravel_pytree

amax, amin = _reduce.max, _reduce.min  # NumPy's second names

if TYPE_CHECKING:
    from tapegraph import array_api as array_api
    from tapegraph import distributed as distributed
    from tapegraph import fallback as fallback
    from tapegraph import lowering as lowering
    from tapegraph import testing as testing
    from tapegraph.drawing import Drawing, draw
    from tapegraph.exporting import export, function
    from tapegraph.numpy_names import argsort as argsort
    from tapegraph.numpy_names import array as array
    from tapegraph.numpy_names import complex as complex
    from tapegraph.numpy_names import eye as eye
    from tapegraph.numpy_names import to_numpy as to_numpy
    from tapegraph.saving import load, save
    from tapegraph.seeing.anomaly import anomaly
    from tapegraph.seeing.explain import explain
    from tapegraph.seeing.profile import profile

__version__ = "0.1.0"

__all__ = [
    "Adagrad", "Adam", "AdamW", "ConcretizationError", "Drawing", "Dual", "Lion",
    "LostGradientWarning", "Optimizer", "RMSprop", "SGD", "SlowBatchingWarning", "Tensor",
    "TraceMismatchError", "Value", "amax", "amin", "anomaly", "array_api", "backward", "checkpoint",
    "clip_grad_norm", "clip_grad_value", "compile", "compile_disabled", "cond", "custom_jvp",
    "custom_vjp", "data", "defop", "distributed", "draw", "each", "elementwise_grad", "explain",
    "export", "fft", "fori_loop", "function", "get_backend", "get_default_dtype", "get_forward",
    "grad", "gradients", "hessian", "hvp", "integrate", "jacfwd", "jacobian", "jacrev", "jvp",
    "last_backward", "linearize", "load", "log_softmax", "no_grad", "optim", "param", "parameters",
    "profile", "random", "ravel_pytree", "save", "scan", "set_backend", "set_default_dtype",
    "set_forward", "softplus", "special", "stop_gradient", "switch", "tape", "tape_reset", "tensor",
    "testing", "tree", "use_backend", "use_forward", "value_and_grad", "vjp", "vmap", "vsum",
    "while_loop", "zero_grad",
]  # fmt: skip
__all__ += _elementwise.__all__
__all__ += _samples.__all__
__all__ += _index.__all__
__all__ += _layers.__all__
__all__ += linalg.__all__
__all__ += _losses.__all__
__all__ += _nn.__all__
__all__ += _reduce.__all__
__all__ += _shape.__all__


# Names that not every program needs, and their modules.
_LATER = {
    **dict.fromkeys(("Drawing", "draw"), "drawing"),
    **dict.fromkeys(("argsort", "array", "complex", "eye", "to_numpy"), "numpy_names"),
    **dict.fromkeys(("export", "function"), "exporting"),
    **dict.fromkeys(("load", "save"), "saving"),
    **{name: f"seeing.{name}" for name in ("anomaly", "explain", "profile")},
}


def __getattr__(name: str) -> object:
    import importlib

    if name in ("array_api", "distributed", "fallback", "lowering", "testing"):
        return importlib.import_module(f"tapegraph.{name}")
    if name in _LATER:
        module = importlib.import_module(f"tapegraph.{_LATER[name]}")
        return globals().setdefault(name, getattr(module, name))
    function = getattr(_numpy, name, None)
    numpys = f"np.{name}, which takes tensors" if _is_known(function) else ""
    raise _missing(name, numpys)


def _under_strategy(step: _compiled.Compiled, strategy: object) -> _compiled.Compiled:
    from tapegraph.distributed import under_strategy  # 10 ms, which few programs need

    return under_strategy(step, strategy)


_compiled.on_workers = _under_strategy


def __dir__() -> list[str]:
    return sorted([*__all__, "lowering"])
