"""Jacobians by rows of many cotangents at once, against one sweep after another."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.fallback.sweep import gradients
from tapegraph.recording.linearize import linearize
from tapegraph.transforms import reverse
from tests.cases import CASES, COMPLEX_CASES, ComplexCase

OPS = list(dict.fromkeys(case.op for case in (*CASES, *COMPLEX_CASES)))
X = np.array([0.3, -0.7, 1.1])


def result_of(case, dtype):
    """Return the result of a case on parameters; None where nothing needs a gradient."""
    complex_case = isinstance(case, ComplexCase)
    arrays = case.inputs if complex_case else case.arrays(dtype)
    with np.errstate(all="ignore"):
        y = (case.run if complex_case else case.function(dtype))(*map(tg.param, arrays))
    if not y.shape:  # so that there are several rows
        y = y * np.array([1.0, 2.0], y.dtype)
    return y if y.requires_grad and y.size else None


def one_after_another(y, recording):
    units = np.eye(y.size, dtype=y.dtype).reshape(-1, *y.shape)
    rows = [gradients(recording, [unit]) for unit in units]
    return [np.stack([getattr(g, "dense", lambda g=g: g)() for g in part]) for part in zip(*rows)]  # noqa: B905


@pytest.mark.parametrize("op", OPS)
@pytest.mark.one_in(6)
def test_every_operation(op, thorough):
    compared = 0
    for case in (*CASES, *COMPLEX_CASES):
        for dtype in (np.float64, np.float32) if thorough else (np.float64,):
            y = result_of(case, dtype) if case.op == op else None
            if y is None:
                continue
            recording = linearize([y])
            leaves = [recording.nodes[slot] for slot in recording.program.wanted]
            with tg.no_grad():
                jacobians = reverse.Pullback(y, leaves).jacobian()
            close = 1e-11 if dtype is np.float64 else 2e-4
            for got, want in zip(jacobians, one_after_another(y, recording), strict=True):
                want = want.reshape(got.shape)
                assert got.dtype == want.dtype
                np.testing.assert_allclose(
                    got.numpy(), want, rtol=close, atol=close, err_msg=case.id
                )
                compared += 1
    assert compared


@pytest.mark.parametrize("block", [1, 3, 8, 1 << 20])
def test_rows_by_blocks(block, monkeypatch):
    monkeypatch.setattr(reverse, "BLOCK", block)
    A = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
    with tg.use_backend("native"):
        got = tg.jacobian(lambda x: tg.tanh(A @ x), mode="reverse")(X)
    np.testing.assert_allclose(got, (1 - np.tanh(A @ X) ** 2)[:, None] * A, rtol=1e-12)


def test_zeros_absorb_infinities_in_rows_too():
    with tg.use_backend("native"), np.errstate(invalid="ignore"):
        J = tg.jacobian(lambda x: tg.where(x > 0, tg.sqrt(x), 0.0), mode="reverse")
        np.testing.assert_array_equal(J(np.array([-1.0, 0.0, 4.0])), np.diag([0.0, 0.0, 0.25]))
        H = tg.hessian(lambda x: tg.sum(tg.where(x > 0, x**1.5, 0.0)))
        np.testing.assert_array_equal(H(np.array([-1.0, 4.0])), np.diag([0.0, 0.375]))


def test_a_users_rule_is_given_arrays():
    seen = []

    def vjp(g, y, x):
        seen.append(type(g))
        return g * 3.0 * x**2

    cube = tg.defop(lambda x: x**3, vjp=vjp, name="rows_cube")
    with tg.use_backend("native"):
        got = tg.jacobian(lambda x: tg.sin(cube(x)), mode="reverse")(X)
    np.testing.assert_allclose(got, np.diag(np.cos(X**3) * 3 * X**2), rtol=1e-12)
    assert seen == 3 * [np.ndarray]


def test_an_error_of_a_rule_is_raised():
    def vjp(g, y, x):
        raise OSError("no gradient today")

    failing = tg.defop(lambda x: x * 1.0, vjp=vjp, name="rows_failing")
    with tg.use_backend("native"), pytest.raises(OSError, match="no gradient today"):
        tg.jacobian(failing, mode="reverse")(X)


def test_what_is_reported():
    J = tg.jacobian(lambda x: tg.exp(x), mode="reverse")
    with tg.use_backend("native"):
        J(X)
        report = tg.last_backward()
    assert (report.backend, report.entries) == ("native", 2)
    assert "rows of a Jacobian" in report.reason
