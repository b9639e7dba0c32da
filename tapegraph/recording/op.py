"""Operations: a name, a forward on NumPy arrays, and the registry by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum, auto
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

Attrs = Mapping[str, Any]

NO_ATTRS: dict[str, Any] = {}
# A gradient reads the result and all inputs.
ALL = -1
KEEPS_ALL = (True, True, True)


class Rules(NamedTuple):
    """The rules of an operation registered by `tapegraph.defop`, as the rows of our tables."""

    vjp: Callable[..., Any]
    jvp: Callable[..., Any] | None
    lowering: Callable[..., Any] | None
    recorded: Callable[..., Any] | None = None
    batch: Callable[[Any], Any] | None = None


class OpKind(Enum):
    """How the elements of an operation's result depend on those of its operands."""

    ELEMENTWISE = auto()  # each on those at the same index, after broadcasting
    COMPARISON = auto()  # compares operands in their common dtype; the result is of another dtype
    REDUCTION = auto()  # on all along some axes, which are removed or become length 1
    ALONG = auto()  # on all along some axes, which stay: a running sum, an order, a transform
    INDEX = auto()  # on those at some indices of the first operand, which further operands may hold
    CONTRACTION = auto()  # sums of products of two or more operands
    SHAPE = auto()  # the same elements in another order or shape
    OPAQUE = auto()  # in another way


def _no_forward(*arrays: object, **attrs: object) -> Any:
    raise NotImplementedError("a leaf has no forward")


@dataclass(slots=True, eq=False, repr=False)
class Op:
    """An operation: its name in the table, and its forward on NumPy arrays.

    :param name, forward: The name, by which rules are found; arrays positional, attributes by name.
    :param kind: How the elements of its result depend on those of its operands.
    :param saves: The forward returns ``(result, saved)``; the backward rule receives ``saved``.
    :param several: The forward returns a tuple: the result is `Outputs`, each read by a `PART`.
    :param differentiable: Which of the leading inputs can carry a gradient; all by default.
    :param promotes: It computes in the dtype of its result: see `Op.converts`.
    :param takes_complex: It supports complex numbers.
    :param reads: What each input's gradient reads, as bits: 1 for the result, 2, 4, 8 ... for the
        inputs; the last one counts for all further inputs. All by default.
    :param plain: Of a product with strong zeros: the function without them, which gives the same
        or NaN.
    :param rules: Its own rules, for an operation that is not in the library's tables.
    """

    name: str
    forward: Callable[..., Any] = _no_forward
    _: KW_ONLY
    kind: OpKind = OpKind.OPAQUE
    saves: bool = False
    several: bool = False
    differentiable: tuple[bool, ...] | None = None
    promotes: bool = True
    takes_complex: bool = False
    reads: tuple[int, ...] = (ALL,)
    plain: Callable[..., Any] | None = None
    rules: Rules | None = None
    # By that: whether entries keep the result, the first and the second input where gradients
    # flow to the first, to the second, and to both.
    keeps: Sequence[tuple[bool, bool, bool]] = (KEEPS_ALL,) * 3

    def __post_init__(self) -> None:
        self.set_reads(self.reads)
        if self.forward is _no_forward:
            return
        if self.name in OPS or self.name in DEFINED:
            raise ValueError(f"Op: the name {self.name!r} is taken; expected a new one")
        table = OPS if self.rules is None else DEFINED
        table[self.name] = self

    def set_reads(self, reads: tuple[int, ...]) -> None:
        self.reads = reads
        first, second = reads[0], reads[-1]
        self.keeps = tuple(
            (bool(bits & 1), bool(bits & 2), bool(bits & 4))
            for bits in (first, second, first | second)
        )

    def converts(
        self, operands: Sequence[Any], result: np.dtype[Any]
    ) -> tuple[np.dtype[Any] | None, ...]:
        """Return the dtype to which NumPy converts each operand, None if it does not."""
        if self.kind is OpKind.COMPARISON:
            return (np.result_type(*operands),) * len(operands)
        if not self.promotes or self.several:
            return (None,) * len(operands)
        kinds = [np.result_type(x).kind for x in operands]
        if self.rules is not None:  # NumPy has promoted its inexact operands among each other
            if result.kind == "c" and "c" not in kinds:
                result = np.empty(0, result).real.dtype
            inexact = {"f": "f", "c": "fc"}.get(result.kind, "")
            return tuple(
                result if kind in inexact or not isinstance(x, np.dtype) else None
                for x, kind in zip(operands, kinds, strict=True)
            )
        carry = iter(repeat(True) if self.differentiable is None else self.differentiable)
        return tuple(
            result
            if next(carry, False) and x != result and (kind != "c" or result.kind == "c")
            else None
            for x, kind in zip(operands, kinds, strict=True)
        )

    def __repr__(self) -> str:
        return f"Op({self.name!r})"


# The library's operations, and those that users have registered.
OPS: dict[str, Op] = {}
DEFINED: dict[str, Op] = {}

INPUT = Op("input")
PARAM = Op("param")
CONSTANT = Op("constant")
SCALAR = Op("scalar")
CLEARED = Op("cleared")


class Outputs(tuple[np.ndarray[Any, Any], ...]):
    """The value of an entry with several outputs; its type is a record of theirs."""

    __slots__ = ()
    shape = ()
    base = None

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype([("", x.dtype) for x in self])


# Reads one of several outputs. The cotangent of an entry that has them is a list of those of its
# outputs, with None for one that nothing has reached.
PART = Op("part", promotes=False, reads=(0,))
PART.forward = lambda outputs, *, output: outputs[output]
# What a backward gives inside a capture: of its first input with respect to its second,
# for the cotangent that is the third, or ones. Engines differentiate; it has no forward of its own.
GRADIENT = Op("gradient")
# An average over the ranks of a job, by an exchange that is an attribute. No engine runs it: a step
# is cut there (`tapegraph.compiling.programs`).
ALL_REDUCE = Op("all_reduce", differentiable=())
ALL_REDUCE.forward = lambda *arrays, exchange, **attrs: exchange(*arrays, **attrs)
