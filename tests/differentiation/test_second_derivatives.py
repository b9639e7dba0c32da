"""Gradients of gradients, over every case of every operation, against three other ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from promises import named

import tapegraph as tg
from tapegraph.recording.op import OPS
from tests.cases import CASES, OF_COMPLEX
from tests.quick import a_few_each, check_each, each_operation

# They read one triangle, and their gradients are spread over both.
SYMMETRIC = ("cholesky", "eigh", "eigvalsh")
# Kinks are apart from the points, but derivatives are 0 or have jumps.
PIECEWISE = frozenset(
    "abs relu sign floor ceil rint trunc round mod max min maximum minimum fmax fmin where "
    "max_pool2d norm".split()
)
SMOOTH = [case for case in CASES if case.smooth]
SINGULAR = [case for case in CASES if not case.smooth]


@pytest.fixture(autouse=True)
def native_engine():
    tg.set_backend("native")
    with np.errstate(all="ignore"):
        yield


def waves(points: list[np.ndarray], start: float, symmetric: bool) -> list[np.ndarray]:
    """Directions of both signs; of what is read as symmetric, symmetric ones."""
    found = []
    for i, p in enumerate(points):
        wave = np.cos(start + i + 1.7 * np.arange(p.size)).reshape(p.shape)
        square = wave.ndim > 1 and wave.shape[-1] == wave.shape[-2]
        found.append((wave + wave.swapaxes(-1, -2)) / 2 if symmetric and square else wave)
    return found


class Subject:
    """A case as a scalar function, with a direction."""

    def __init__(self, case: Any) -> None:
        self.f, self.points = case.function(), case.arrays()
        self.along = waves(self.points, 0.5, case.op in SYMMETRIC)
        out = self.f(*map(tg.tensor, self.points))
        self.weights = np.sin(1.0 + np.arange(out.size)).reshape(out.shape)

    def loss(self, *xs: Any) -> Any:
        return tg.sum(self.f(*xs) * self.weights)

    def derivative(self, points: list[np.ndarray], order: int, *, create_graph: bool) -> Any:
        """The leaves, and the gradient of the (order - 1)-th derivative along the direction."""
        leaves = [tg.param(p) for p in points]
        y = self.loss(*leaves)
        for left in range(order, 0, -1):
            found = tg.gradients(
                y, leaves, create_graph=left > 1 or create_graph, allow_unused=True
            )
            if left > 1:
                parts = [
                    tg.sum(g * v) for g, v in zip(found, self.along, strict=True) if g is not None
                ]
                y = sum(parts[1:], parts[0]) if parts else tg.tensor(0.0)
        return [
            np.zeros_like(p) if g is None else g.data for p, g in zip(points, found, strict=True)
        ]

    def difference(self, order: int) -> list[np.ndarray]:
        """The same by finite differences of the derivative of one order less."""
        h = 6e-6
        ends = [
            self.derivative(
                [p + sign * h * v for p, v in zip(self.points, self.along, strict=True)],
                order - 1,
                create_graph=False,
            )
            for sign in (1.0, -1.0)
        ]
        return [(a - b) / (2 * h) for a, b in zip(*ends, strict=True)]


def compare(got: list[np.ndarray], want: list[np.ndarray], close: float) -> None:
    scale = max(1.0, *(float(np.abs(w).max(initial=0.0)) for w in want))
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=close, atol=close * scale)


def a_recorded_gradient_is_the_gradient(subject: Subject) -> None:
    want = subject.derivative(subject.points, 1, create_graph=False)
    got = subject.derivative(subject.points, 1, create_graph=True)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-9)


@each_operation(SINGULAR)
def test_first_derivatives_at_kinks_ties_and_singular_points(op, thorough):
    def check(case):
        a_recorded_gradient_is_the_gradient(Subject(case))

    check_each(op, SINGULAR if thorough else a_few_each(SINGULAR), check)


@each_operation(SMOOTH)
@pytest.mark.one_in(4)
def test_second_derivatives(op, thorough):
    """By finite differences of the first, and by reverse over forward mode."""
    check_each(op, SMOOTH if thorough else a_few_each(SMOOTH), second_derivatives_agree)


def second_derivatives_agree(case):
    subject = Subject(case)
    with named("first"):
        a_recorded_gradient_is_the_gradient(subject)
    got = subject.derivative(subject.points, 2, create_graph=False)
    with named("finite differences"):
        compare(got, subject.difference(2), 2e-6)
    with named("tangent rules"):
        other = tg.hvp(subject.loss, tuple(subject.points), tuple(subject.along))
        compare(got, list(other) if len(got) > 1 else [other], 1e-9)


# Where an operation has no node.
@pytest.mark.filterwarnings("ignore:backward ran in the native engine")
@pytest.mark.thorough
@each_operation(SMOOTH)
def test_second_derivatives_in_tensorflow(op):
    pytest.importorskip("tensorflow")
    check_each(op, SMOOTH, second_derivatives_are_alike_in_tensorflow)


def second_derivatives_are_alike_in_tensorflow(case):
    subject = Subject(case)
    want = subject.derivative(subject.points, 2, create_graph=False)
    with tg.use_backend("tensorflow"):
        got = subject.derivative(subject.points, 2, create_graph=False)
    compare(got, want, 1e-9)


ONE_OF_EACH = list({case.op: case for case in SMOOTH if case.op not in PIECEWISE}.values())


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.id, marks=[pytest.mark.thorough] if i % 4 else [])
        for i, case in enumerate(ONE_OF_EACH)
    ],
)
def test_third_derivatives(case):
    third_derivatives_agree(case)


def third_derivatives_agree(case):
    subject = Subject(case)
    got = subject.derivative(subject.points, 3, create_graph=False)
    compare(got, subject.difference(3), 2e-5)


@pytest.mark.thorough
@each_operation(SMOOTH)
def test_third_derivatives_of_every_case(op):
    check_each(op, SMOOTH, third_derivatives_agree)


def test_every_operation_is_differentiated_twice():
    differentiable = {name for name, op in OPS.items() if op.differentiable != ()}
    steps = {"round_to"}  # no difference quotient is its slope; test_slopes.py has its derivatives
    assert {case.op for case in SMOOTH} | OF_COMPLEX | steps >= differentiable
