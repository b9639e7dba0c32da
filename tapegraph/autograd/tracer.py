"""What tells traced values from plain ones, and what traces by hand."""

from __future__ import annotations

from tapegraph.autograd.nodes import Node, TraceStack, new_box, trace, trace_stack
from tapegraph.autograd.numpy.numpy_boxes import ArrayBox as Box
from tapegraph.autograd.primitives import notrace_primitive, primitive, register_notrace
from tapegraph.autograd.traced import getval, isbox
from tapegraph.autograd.util import subvals, toposort

__all__ = [
    "Box",
    "Node",
    "TraceStack",
    "getval",
    "isbox",
    "new_box",
    "notrace_primitive",
    "primitive",
    "register_notrace",
    "subvals",
    "toposort",
    "trace",
    "trace_stack",
]
