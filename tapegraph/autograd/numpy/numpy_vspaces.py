"""Vector spaces: the zeros, bases and inner products of arrays and structures."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from operator import methodcaller
from typing import Any, ClassVar

import numpy as np

from tapegraph.autograd.boxes import TENSORS, ValueBox, box_class, isbox
from tapegraph.autograd.tracer import called, entry_of
from tapegraph.errors import kind_of, message
from tapegraph.pytree import LEAVES, leaves, mapped, matched, replaced
from tapegraph.typed import Fun, Pytree


def _of_own(f: Fun) -> Fun:
    """Record a method of a space as one operation where values of a user class are traced."""
    entry = entry_of(f.__name__)

    @functools.wraps(f)
    def run(space: object, *elements: Pytree) -> Pytree:
        if any(box_class(x) for x in elements) and any(map(isbox, elements)):
            return called(run, f, entry, (space, *elements), {})
        return f(space, *elements)

    return run


def _undefined(name: str) -> Fun:
    def method(space: object, *elements: Pytree) -> Pytree:
        raise NotImplementedError(f"{type(space).__name__}: {name} is not defined")

    return method


class VSpace:
    """The vector space of a value; subclass it for a type of your own."""

    mappings: ClassVar[dict[type, Fun]] = LEAVES
    iscomplex = False

    def __init__(self, value: Pytree) -> None:
        pass

    @classmethod
    def register(cls, value_type: type, vspace_maker: Fun | None = None) -> None:
        """Register a type: its values belong to this space, or to one that a function returns."""
        VSpace.mappings[value_type] = cls if vspace_maker is None else vspace_maker

    # The zero, the element of ones, the unit vectors, and one of normally distributed coordinates.
    zeros, ones = _undefined("zeros"), _undefined("ones")
    standard_basis, randn = _undefined("standard_basis"), _undefined("randn")
    _inner_prod = _undefined("inner_prod")

    @_of_own
    def add(self, x_prev: Pytree, x_new: Pytree) -> Pytree:
        return self._add(x_prev, x_new)

    @_of_own
    def mut_add(self, x_prev: Pytree, x_new: Pytree) -> Pytree:
        """Return the sum of two elements, of which the first may be None for zero."""
        return x_new if x_prev is None else self._add(x_prev, x_new)

    @_of_own
    def scalar_mul(self, x: Pytree, a: Pytree) -> Pytree:
        return self._scalar_mul(x, a)

    @_of_own
    def inner_prod(self, x: Pytree, y: Pytree) -> Pytree:
        return self._inner_prod(x, y)

    @_of_own
    def covector(self, x: Pytree) -> Pytree:
        """Return the covector of an element: for real numbers, the element."""
        return self._covector(x)

    def _add(self, x: Pytree, y: Pytree) -> Pytree:
        return x + y

    def _scalar_mul(self, x: Pytree, a: Pytree) -> Pytree:
        return x * a

    def _covector(self, x: Pytree) -> Pytree:
        return x

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__dict__})"


class ArrayVSpace(VSpace):
    """Arrays of one shape and dtype; numbers are those of shape ()."""

    def __init__(self, value: Pytree) -> None:
        array = value if isinstance(value, TENSORS) else np.asarray(value)
        self.shape: Any = array.shape
        self.dtype = array.dtype

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def zeros(self) -> Pytree:
        return np.zeros(self.shape, self.dtype)

    def ones(self) -> Pytree:
        return np.ones(self.shape, self.dtype)

    def standard_basis(self) -> Iterator[Pytree]:
        for place in np.ndindex(*self.shape):
            unit = self.zeros()
            unit[place] = 1
            yield unit

    def randn(self) -> Pytree:
        """Return normally distributed numbers from NumPy's global generator."""
        return np.asarray(np.random.randn(*self.shape)).astype(self.dtype)  # noqa: NPY002

    def _inner_prod(self, x: Pytree, y: Pytree) -> Pytree:
        return np.dot(np.ravel(x), np.ravel(y))


class ComplexArrayVSpace(ArrayVSpace):
    """Complex arrays of one shape and dtype, a space over the real numbers."""

    iscomplex = True

    @property
    def size(self) -> int:
        return 2 * super().size

    def ones(self) -> Pytree:
        return super().ones() * (1 + 1j)

    def standard_basis(self) -> Iterator[Pytree]:
        """Yield the arrays with a single one, or a single imaginary unit."""
        for unit in super().standard_basis():
            yield unit
            yield unit * 1j

    def randn(self) -> Pytree:
        return (super().randn() + 1j * super().randn()).astype(self.dtype)

    def _inner_prod(self, x: Pytree, y: Pytree) -> Pytree:
        return np.real(np.dot(np.conj(np.ravel(x)), np.ravel(y)))

    def _covector(self, x: Pytree) -> Pytree:
        return np.conj(x)


def _of_each_part(name: str) -> Fun:
    return lambda space: mapped(methodcaller(name), space.shape)


class ContainerVSpace(VSpace):
    """Dicts, lists and tuples of elements of other spaces; its ``shape`` is one of spaces."""

    def __init__(self, value: Pytree) -> None:
        self.shape = mapped(vspace, value)

    @property
    def size(self) -> int:
        return sum(part.size for part in self._parts())

    zeros, ones, randn = map(_of_each_part, ("zeros", "ones", "randn"))

    def standard_basis(self) -> Iterator[Pytree]:
        for place, part in enumerate(self._parts()):
            for unit in part.standard_basis():
                found = [other.zeros() for other in self._parts()]
                found[place] = unit
                yield replaced(self.shape, iter(found))

    def _parts(self) -> list[Pytree]:
        return [part for _, part in leaves(self.shape)]

    def _of_parts(self, function: Fun, *elements: Pytree) -> Iterator[Pytree]:
        rows = (matched("vspace", x, self.shape, "the element", "the space") for x in elements)
        return map(function, self._parts(), *([part for _, part in row] for row in rows))

    def _add(self, x: Pytree, y: Pytree) -> Pytree:
        return replaced(self.shape, self._of_parts(lambda part, a, b: part.add(a, b), x, y))

    def _scalar_mul(self, x: Pytree, a: Pytree) -> Pytree:
        return replaced(self.shape, self._of_parts(lambda part, b: part.scalar_mul(b, a), x))

    def _covector(self, x: Pytree) -> Pytree:
        return replaced(self.shape, self._of_parts(lambda part, a: part.covector(a), x))

    def _inner_prod(self, x: Pytree, y: Pytree) -> Pytree:
        return sum(self._of_parts(lambda part, a, b: part.inner_prod(a, b), x, y))


def vspace(value: Pytree) -> Pytree:
    """Return the vector space that a value belongs to.

    :raises TypeError: It is no number or array, plain or traced, no structure of them, and of no
        type that is registered with `VSpace.register`.

    >>> vspace({"w": [1.0, 2.0], "b": 3.0}).size
    3
    """
    maker = VSpace.mappings.get(type(value))
    if maker is not None:
        return maker(value)
    if isinstance(value, ValueBox):
        return vspace(value._value)
    if isinstance(value, (dict, list, tuple)):
        return ContainerVSpace(value)
    if isinstance(value, (*TENSORS, np.ndarray, np.number, float, complex)):
        return ComplexArrayVSpace(value) if np.iscomplexobj(value) else ArrayVSpace(value)
    raise TypeError(message("vspace", kind_of(value), "numbers, and structures of them"))
