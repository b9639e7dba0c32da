"""Whether both engines give the same gradients here: each NumPy function on a few numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tapegraph.commands import styled
from tapegraph.commands.functions import names_of_functions
from tapegraph.recording.node import Node
from tapegraph.tensors.tensor import param
from tapegraph.testing import check_parity
from tapegraph.typed import Array

_HEADER = ("function", "engine", "largest difference", "verdict")
OK, DIFFERS = "ok", "DIFFERS"
# Symmetric and positive definite, for what takes a matrix; and above 1, for arccosh.
_BELOW_ONE = np.array([[0.9, 0.2, 0.1], [0.2, 0.8, 0.3], [0.1, 0.3, 0.7]])
_OTHER = np.array([[0.6, 0.1, 0.4], [0.3, 0.5, 0.2], [0.7, 0.4, 0.8]])


class Compared(NamedTuple):
    """What came of one function."""

    function: str
    engine: str
    difference: float
    agrees: bool
    message: str = ""

    def row(self) -> tuple[str, ...]:
        """Return it as a row of a table."""
        verdict = styled(OK, "good") if self.agrees else styled(DIFFERS, "bad")
        return self.function, self.engine, f"{self.difference:.1e}", verdict


def compare(wanted: list[str]) -> tuple[list[Compared], list[str]]:
    """Compare functions, those whose names are given or all, and name those that take others."""
    known = names_of_functions()
    unknown = set(wanted) - {name for names in known.values() for name in names}
    if unknown:
        raise ValueError(f"no NumPy function on tensors is called {', '.join(sorted(unknown))}")
    found, left_out = [], []
    for function, names in known.items():
        if wanted and not set(wanted) & set(names):
            continue
        inputs = _inputs(function)
        if inputs is None:
            left_out.append(names[0])
        else:
            found.append(_compared(names[0], function, inputs))
    return sorted(found), sorted(left_out)


def _inputs(function: Callable[..., Any]) -> list[Array] | None:
    """Return one or two arrays on which a function has a gradient, None where there are none."""
    for sample in (_BELOW_ONE, _BELOW_ONE + 1.0):
        for inputs in ([sample], [sample, _OTHER]):
            try:
                with np.errstate(all="ignore"):
                    result = function(*map(param, inputs))
            except Exception:  # whatever it says of arguments that it does not take
                continue
            recorded = isinstance(result, Node) and result._requires_grad
            if recorded and np.isfinite(result._array).all():
                return inputs
    return None


def _compared(name: str, function: Callable[..., Any], inputs: list[Array]) -> Compared:
    try:
        report = check_parity(function, *inputs)
    except AssertionError as error:
        return Compared(name, "both", float("nan"), False, str(error))
    return Compared(name, report.backend, report.max_abs_difference, True)
