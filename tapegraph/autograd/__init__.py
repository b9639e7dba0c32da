"""A drop-in for HIPS autograd: code that is written for it runs here unchanged.

>>> import tapegraph.autograd.numpy as np
>>> from tapegraph.autograd import grad
>>> grad(lambda x: np.sum(np.tanh(x) ** 2))(np.array([0.0, 1.0])).round(4)
array([0.    , 0.6397])
"""

from __future__ import annotations

from tapegraph.autograd import core, extend, misc, numpy, test_util, tracer, util, wrap_util
from tapegraph.autograd.builtins import dict, isinstance, list, tuple, type
from tapegraph.autograd.deprecated import primitive
from tapegraph.autograd.differential_operators import (
    checkpoint,
    deriv,
    elementwise_grad,
    grad,
    grad_and_aux,
    grad_named,
    hessian,
    hessian_tensor_product,
    hessian_vector_product,
    holomorphic_grad,
    jacobian,
    make_ggnvp,
    make_hvp,
    make_jvp,
    make_vjp,
    multigrad_dict,
    tensor_jacobian_product,
    value_and_grad,
    vector_jacobian_product,
)

__all__ = [
    "wrap_util",
    "util",
    "tracer",
    "test_util",
    "numpy",
    "misc",
    "extend",
    "core",
    "checkpoint",
    "deriv",
    "dict",
    "elementwise_grad",
    "grad",
    "grad_and_aux",
    "grad_named",
    "hessian",
    "hessian_tensor_product",
    "hessian_vector_product",
    "holomorphic_grad",
    "isinstance",
    "jacobian",
    "list",
    "make_ggnvp",
    "make_hvp",
    "make_jvp",
    "make_vjp",
    "multigrad_dict",
    "primitive",
    "tensor_jacobian_product",
    "tuple",
    "type",
    "value_and_grad",
    "vector_jacobian_product",
]
