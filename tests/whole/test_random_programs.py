"""Random compositions of operations: the gradient of the whole agrees with finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from contract import OPERATIONS
from programs import each_program

import tapegraph as tg
from tapegraph.recording.linearize import linearize
from tapegraph.testing import check_gradients


@each_program(40, 0, shrink=True)
def test_gradient_agrees_with_finite_differences(program):
    # Through 25 operations, finite differences keep fewer digits than through one.
    check_gradients(program.run, *program.inputs, rtol=1e-4, atol=1e-6, backend="native")


@each_program(30, 1, shrink=True)
def test_replay_gives_the_same_numbers(program):
    once, again = (program.run(*map(tg.param, program.inputs)) for _ in range(2))
    np.testing.assert_array_equal(once.numpy(), again.numpy())


@pytest.mark.thorough
def test_every_operation_is_drawn():
    drawn = set()

    @each_program(100, 0)
    def record(program):
        result = program.run(*map(tg.param, program.inputs))
        drawn.update(entry.op for entry in linearize([result]))

    record()
    assert drawn >= OPERATIONS
