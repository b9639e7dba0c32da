"""What defines functions with derivatives of their own, and vector spaces."""

from __future__ import annotations

from tapegraph.autograd.nodes import JVPNode, VJPNode
from tapegraph.autograd.numpy.numpy_boxes import ArrayBox as Box
from tapegraph.autograd.primitives import (
    SparseObject,
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    notrace_primitive,
    primitive,
    register_notrace,
)
from tapegraph.autograd.vspaces import VSpace, vspace

__all__ = [
    "Box",
    "JVPNode",
    "SparseObject",
    "VJPNode",
    "VSpace",
    "def_linear",
    "defjvp",
    "defjvp_argnum",
    "defjvp_argnums",
    "defvjp",
    "defvjp_argnum",
    "defvjp_argnums",
    "notrace_primitive",
    "primitive",
    "register_notrace",
    "vspace",
]
