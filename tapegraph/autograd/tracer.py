"""What tells traced values from plain ones."""

from __future__ import annotations

from tapegraph.autograd.numpy.numpy_boxes import ArrayBox as Box
from tapegraph.autograd.primitives import notrace_primitive, primitive
from tapegraph.autograd.traced import getval, isbox

__all__ = ["Box", "getval", "isbox", "notrace_primitive", "primitive"]
