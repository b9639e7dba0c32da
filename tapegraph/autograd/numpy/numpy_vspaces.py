"""The vector spaces of arrays."""

from __future__ import annotations

from typing import Any

from tapegraph.autograd.vspaces import ArrayVSpace
from tapegraph.errors import explain, kind_of


class ComplexArrayVSpace(ArrayVSpace):
    """What complex arrays belong to in autograd: no array does here, they are not differentiated.

    - Raises TypeError: When called.
    """

    iscomplex = True

    def __init__(self, value: Any) -> None:
        fix = "Differentiate by the real and the imaginary part."
        raise TypeError(explain("ComplexArrayVSpace", kind_of(value), "real arrays", fix))


__all__ = ["ArrayVSpace", "ComplexArrayVSpace"]
