"""Random programs: their second derivatives are those of PyTorch's double backward."""

from __future__ import annotations

import numpy as np
import pytest
from optional import optional
from programs import Program, each_program, programs

import tapegraph as tg

optional("torch")

pytestmark = pytest.mark.versions


def agrees_with_pytorch(program: Program) -> None:
    from torch_programs import second_derivatives, weighted  # imports PyTorch, which takes seconds

    leaves = [tg.param(x) for x in program.inputs]
    y = program.run(*leaves)
    loss = tg.sum(y * weighted(y, 0.3))
    first = tg.gradients(loss, leaves, create_graph=True, allow_unused=True)
    parts = [tg.sum(g * weighted(g, 0.7)) for g in first if g is not None]
    second = [None] * len(leaves)
    if parts:
        second = tg.gradients(sum(parts[1:], parts[0]), leaves, allow_unused=True)
    for got, want in zip((first, second), second_derivatives(program), strict=True):
        scale = max(1.0, *(float(np.abs(w).max(initial=0.0)) for w in want))
        for g, w in zip(got, want, strict=True):
            g = np.zeros_like(w) if g is None else g.data
            np.testing.assert_allclose(g, w, rtol=1e-8, atol=1e-8 * scale)


@each_program(40, 0, shrink=True)
def test_second_derivatives(program):
    with tg.use_backend("native"):
        agrees_with_pytorch(program)


@pytest.mark.thorough
@each_program(2000, 1, shrink=True)
def test_second_derivatives_of_thousands(program):
    with tg.use_backend("native"):
        agrees_with_pytorch(program)


# Where an operation has no node.
@pytest.mark.filterwarnings("ignore:backward ran in the native engine")
@pytest.mark.thorough
@each_program(300, 2, programs(most=12), shrink=True)
def test_second_derivatives_in_tensorflow(program):
    pytest.importorskip("tensorflow")
    with tg.use_backend("tensorflow"):
        agrees_with_pytorch(program)
