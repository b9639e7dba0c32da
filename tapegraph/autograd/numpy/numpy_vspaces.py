"""The vector space of arrays."""

from __future__ import annotations

from tapegraph.autograd.vspaces import ArrayVSpace

__all__ = ["ArrayVSpace"]
