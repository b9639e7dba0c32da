"""The types of public functions: ``x: Kind | ArrayLike`` in, and ``Kind`` out.

`Kind` is a `Tensor`, or a `Dual` for a `Dual`; `AnyKind` a `Value` too. To NumPy's own stubs
``np.exp(x)`` is an array, so a type-checked program calls ``tg.exp``. An operation returns a class
that has the operation as a method: of this one circle of types, this module is the upward half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from tapegraph.typed import ArrayLike

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from tapegraph.tensors.array_methods import ArrayMethods
    from tapegraph.tensors.dual import Dual as Dual
    from tapegraph.tensors.tensor import Tensor as Tensor
    from tapegraph.tensors.value import Value as Value

    # Inferred from an argument that is of the kind itself; of what is `ArrayLike` the default.
    Kind = TypeVar("Kind", bound="ArrayMethods", default="Tensor")
    AnyKind = TypeVar("AnyKind", bound="ArrayMethods | Value", default="Tensor")
else:  # of types that nothing is checked by when the program runs
    Kind = AnyKind = Tensor = Dual = Value = Any

Operand: TypeAlias = "ArrayLike | ArrayMethods"
