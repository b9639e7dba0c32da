"""The table of operation cases: one row per way to call an operation.

Whatever holds for every operation is tested over these rows: forward, gradients, dtypes, memory
layouts, agreement of the engines. A new operation adds its rows here and is covered.
"""

from __future__ import annotations

import importlib
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tapegraph.ops import FAMILIES
from tapegraph.typed import Array

Input = Callable[[np.random.Generator], Array]
Shape = tuple[int, ...]

inf = math.inf


@dataclass(frozen=True, eq=False)
class Case:
    """One way to call one operation.

    :ivar op: The operation's name in `tapegraph.recording.op.OPS`; the call records it.
    :ivar label: What is special about this row; unique within the operation.
    :ivar run: Takes one tensor per input, then the constants; returns a tensor.
    :ivar inputs: How each differentiable input is sampled, in float64.
    :ivar constants: What carries no gradient: indices, masks, targets. Floating ones take the
        inputs' dtype.
    :ivar reference: The same in NumPy, written independently: arrays in, array out.
    :ivar expected: At kinks, ties and singular points: the gradients of the sum of the result, one
        per input, None for an input that gets none. Finite differences are wrong there.
    """

    op: str
    label: str
    run: Callable[..., Any]
    inputs: tuple[Input, ...]
    constants: tuple[Any, ...] = ()
    reference: Callable[..., Any] | None = None
    expected: tuple[Any, ...] | None = None

    @property
    def id(self) -> str:
        """The row's name, unique in the table."""
        return f"{self.op}-{self.label}"

    @property
    def smooth(self) -> bool:
        """Whether finite differences find the gradient."""
        return self.expected is None

    def arrays(self, dtype: npt.DTypeLike = np.float64) -> list[Array]:
        """Sample the inputs; every call returns the same numbers in fresh arrays."""
        rng = np.random.default_rng(zlib.crc32(self.id.encode()))
        return [np.asarray(sample(rng), dtype=dtype) for sample in self.inputs]

    def fixed(self, dtype: npt.DTypeLike = np.float64) -> list[Any]:
        """Return the constants, floating ones converted to ``dtype``."""
        return [_floats_as(dtype, c) for c in self.constants]

    def function(self, dtype: npt.DTypeLike = np.float64) -> Callable[..., Any]:
        """Return the call as a function of its differentiable inputs alone."""
        fixed = self.fixed(dtype)
        return lambda *tensors: self.run(*tensors, *fixed)


def _floats_as(dtype: npt.DTypeLike, constant: Any) -> Any:
    floating = isinstance(constant, (np.ndarray, np.generic)) and constant.dtype.kind == "f"
    return constant.astype(dtype) if floating else constant


# Where inputs are sampled


def anywhere(*lengths: int) -> Input:
    """Sample from [-2, 2)."""
    return lambda rng: rng.uniform(-2.0, 2.0, lengths)


def small(*lengths: int) -> Input:
    """Sample from [-1, 1), inside the poles of tan."""
    return lambda rng: rng.uniform(-1.0, 1.0, lengths)


def positive(*lengths: int) -> Input:
    """Sample from [0.5, 2), away from the singularities of log, sqrt and pow."""
    return lambda rng: rng.uniform(0.5, 2.0, lengths)


def nonzero(*lengths: int) -> Input:
    """Sample from (-2, -0.3] and [0.3, 2), away from kinks and poles at zero."""
    return lambda rng: rng.choice([-1.0, 1.0], lengths) * rng.uniform(0.3, 2.0, lengths)


def distinct(*lengths: int) -> Input:
    """Sample numbers at least 0.1 apart, so that a maximum stays where it is."""
    size = math.prod(lengths)
    return lambda rng: (rng.permutation(size) * 0.1 - size * 0.05).reshape(lengths)


def exactly(data: Any) -> Input:
    """Give these numbers."""
    return lambda rng: np.array(data, dtype=np.float64)


def operation(name: str) -> Callable[..., Any]:
    """Return the library's function of a name, whichever family has it."""
    families = (importlib.import_module(f"tapegraph.ops.{family}") for family in FAMILIES)
    found: Callable[..., Any] = next(vars(f)[name] for f in families if name in vars(f))
    return found
