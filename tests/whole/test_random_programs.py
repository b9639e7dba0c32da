"""Random compositions of operations: the gradient of the whole agrees with finite differences."""

from __future__ import annotations

from functools import partial

import numpy as np
from contract import OPERATIONS
from hypothesis import HealthCheck, Phase, given, settings
from programs import programs

import tapegraph as tg
from tapegraph.recording.linearize import linearize
from tapegraph.testing import check_gradients

# No luck: the same source draws the same programs.
repeatable = partial(
    settings,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@repeatable(max_examples=40)
@given(programs())
def test_gradient_agrees_with_finite_differences(program):
    # Through 25 operations, finite differences keep fewer digits than through one.
    check_gradients(program.run, *program.inputs, rtol=1e-4, atol=1e-6, backend="native")


@repeatable(max_examples=30)
@given(programs())
def test_replay_gives_the_same_numbers(program):
    once, again = (program.run(*map(tg.param, program.inputs)) for _ in range(2))
    np.testing.assert_array_equal(once.numpy(), again.numpy())


def test_every_operation_is_drawn():
    drawn = set()

    @repeatable(max_examples=100, phases=[Phase.generate])
    @given(programs())
    def record(program):
        result = program.run(*map(tg.param, program.inputs))
        drawn.update(entry.op for entry in linearize([result]))

    record()
    assert drawn >= OPERATIONS
