"""The table of operation cases: one row per way to call an operation.

Whatever holds for every operation is tested over these rows: forward, gradients, dtypes, memory
layouts, agreement of the engines. A new operation adds its rows here and is covered.
"""

from __future__ import annotations

from tests.cases import (
    elementwise,
    index,
    linalg,
    nn,
    reduce,
    shape,
    special,
    without_gradient,
)
from tests.cases.case import Case
from tests.cases.complex_numbers import COMPLEX_CASES, ComplexCase

_FAMILIES = (elementwise, reduce, linalg, shape, index, special, nn)
CASES: tuple[Case, ...] = tuple(case for family in _FAMILIES for case in family.cases())
# Those of the operations without a gradient.
WITHOUT_GRADIENT: tuple[Case, ...] = tuple(without_gradient.cases())
# What is recorded of complex numbers alone, or gives nothing else.
OF_COMPLEX = {case.op for case in COMPLEX_CASES} - {case.op for case in CASES}

__all__ = ["CASES", "COMPLEX_CASES", "OF_COMPLEX", "WITHOUT_GRADIENT", "Case", "ComplexCase"]
