"""The vector spaces of arrays."""

from __future__ import annotations

from tapegraph.autograd.vspaces import ArrayVSpace, ComplexArrayVSpace

__all__ = ["ArrayVSpace", "ComplexArrayVSpace"]
