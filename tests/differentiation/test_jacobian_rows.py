"""Jacobians by sweeps of many rows at once, against the sweep of one row after another."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.fallback.batching import jacobian
from tapegraph.fallback.batching.batch import Batch, Unbatched
from tapegraph.fallback.sweep import gradients
from tapegraph.recording.linearize import linearize
from tests.cases import CASES, COMPLEX_CASES, ComplexCase
from tests.quick import in_one

OPS = list(dict.fromkeys(case.op for case in (*CASES, *COMPLEX_CASES)))
X = np.array([0.3, -0.7, 1.1])


def recorded(case, dtype):
    """Return the recording of a case, or None where nothing needs a gradient."""
    complex_case = isinstance(case, ComplexCase)
    arrays = case.inputs if complex_case else case.arrays(dtype)
    with np.errstate(all="ignore"):
        y = (case.run if complex_case else case.function(dtype))(*map(tg.param, arrays))
    if not y.shape:  # so that there are several rows
        y = y * np.array([1.0, 2.0], y.dtype)
    return linearize([y]) if y.requires_grad and y.size else None


def one_after_another(recording):
    (output,) = recording.program.outputs
    y = recording.value(output)
    units = np.eye(y.size, dtype=y.dtype).reshape(-1, *y.shape)
    rows = [gradients(recording, [unit]) for unit in units]
    return [np.stack([getattr(g, "dense", lambda g=g: g)() for g in part]) for part in zip(*rows)]  # noqa: B905


@pytest.mark.parametrize("op", OPS)
def test_every_operation(op, monkeypatch, thorough):
    def compared(case):
        for dtype in (np.float64, np.float32) if thorough else (np.float64,):
            recording = recorded(case, dtype)
            if recording is None:
                continue
            found = jacobian.jacobian(recording)
            close = 1e-11 if dtype is np.float64 else 2e-4
            for got, want in zip(found, one_after_another(recording), strict=True):
                assert (got.shape, got.dtype) == (want.shape, want.dtype)
                np.testing.assert_allclose(got, want, rtol=close, atol=close, err_msg=case.id)
                yield case

    cases = [case for case in (*CASES, *COMPLEX_CASES) if case.op == op]
    assert [found for case in cases for found in compared(case)]
    if op in jacobian.ROW_BY_ROW:  # and not in vain
        monkeypatch.setattr(jacobian, "ROW_BY_ROW", jacobian.ROW_BY_ROW - {op})
        with pytest.raises((Unbatched, AttributeError, TypeError)):
            [found for case in cases for found in compared(case)]


@pytest.mark.parametrize("block", [1, 3, 8, 1 << 20])
def test_rows_by_blocks(block, monkeypatch):
    monkeypatch.setattr(jacobian, "BLOCK", block)
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
    with tg.use_backend("auto"):
        J(X)
        assert "rows of a Jacobian" in tg.last_backward().reason


def test_the_engine_that_was_asked_for_runs():
    pytest.importorskip("tensorflow")
    with tg.use_backend("tensorflow"):
        J = tg.jacobian(lambda x: tg.exp(x), mode="reverse")(X)
        assert tg.last_backward().backend == "tensorflow"
    np.testing.assert_allclose(J, np.diag(np.exp(X)), rtol=1e-12)


# ------------------------------------------------------------------ batches


@pytest.mark.parametrize(
    "call",
    [
        lambda b, x: np.asarray(b),
        lambda b, x: bool(b),
        lambda b, x: list(b),
        lambda b, x: np.add.at(x, [0, 0], b),
        lambda b, x: np.add(x, x, out=x) + np.multiply(x, b, out=x),
        lambda b, x: x.__setitem__(..., b),
        lambda b, x: np.add.reduce(b, axis=0, where=x > 0),
        lambda b, x: np.add.accumulate(b),
        lambda b, x: np.einsum("i->", b),
        lambda b, x: np.linalg.norm(b),
        lambda b, x: b[[0, 1], [1, 0]],
        lambda b, x: b[0, [1, 0]],
        lambda b, x: b[True],
        lambda b, x: np.modf(b),
    ],
)
def test_what_is_not_known_of_batches_raises(call):
    with pytest.raises((Unbatched, TypeError)):
        call(Batch(np.arange(6.0).reshape(2, 3)), np.zeros(3))


CALLS = {
    "broadcast": lambda b, x: b + np.ones((4, 1)),
    "plain first": lambda b, x: x - b,
    "in place": lambda b, x: b.copy().__imul__(x),
    "all": lambda b, x: b.sum(),
    "first": lambda b, x: np.add.reduce(b.reshape(3, 1)),
    "last kept": lambda b, x: b.reshape(1, 3).sum(axis=-1, keepdims=True),
    "several": lambda b, x: np.sum(b.reshape(3, 1, 1), axis=(0, 2)),
    "transposed": lambda b, x: b.reshape(1, 3).T @ x[None, :],
    "axes": lambda b, x: b.reshape(1, 3, 1).transpose(2, 0, 1),
    "negative axes": lambda b, x: np.transpose(b.reshape(1, 3, 1), (-1, 0, 1)),
    "moved": lambda b, x: np.moveaxis(b.reshape(1, 3), 0, -1),
    "swapped": lambda b, x: np.swapaxes(b.reshape(3, 1), 0, -1),
    "expanded": lambda b, x: np.expand_dims(b, (0, -1)),
    "squeezed": lambda b, x: np.squeeze(b.reshape(1, 3, 1), (0, 2)),
    "flipped": lambda b, x: np.flip(b, 0),
    "running": lambda b, x: np.cumsum(b.reshape(1, 3), axis=1),
    "places": lambda b, x: b[np.array([[2, 0], [1, 1]])],
    "mask": lambda b, x: b.reshape(1, 3)[:, x > -1],
    "slice": lambda b, x: b[None, ::-1][0, 1:],
    "joined": lambda b, x: np.concatenate([b, x, b]),
    "chosen": lambda b, x: np.where(x > 0, b, 1.0),
    "matrix times vector": lambda b, x: np.outer(x, x) @ b,
    "vector times matrix": lambda b, x: b @ np.outer(x, x),
    "vector times vector": lambda b, x: b @ x,
    "plain times vector": lambda b, x: x @ b,
    "product of batches": lambda b, x: b.reshape(3, 1) @ b.reshape(1, 3),
    "stack times matrix": lambda b, x: b.reshape(1, 1, 3) @ np.outer(x, x),
    "matrix times stack": lambda b, x: np.outer(x, x) @ b.reshape(1, 3, 1),
    "stack times vector": lambda b, x: b.reshape(3, 1) @ x[:1],
    "vecdot": lambda b, x: np.vecdot(b.reshape(3, 1), x[:, None], axis=0),
    "triangles": lambda b, x: np.tril(b[:, None] * x) - np.triu(b[:, None] * x, 1),
    "bits": lambda b, x: np.multiply(b.view(np.int64), x > 0).view(np.float64),
}


@in_one("call", CALLS.values(), ids=CALLS)
def test_a_batch_computes_as_each_of_its_arrays(call):
    arrays = np.random.default_rng(0).normal(size=(4, 3))
    found = call(Batch(arrays.copy()), X)
    assert type(found) is Batch
    want = np.stack([call(array.copy(), X) for array in arrays])
    assert (found.shape, found.ndim, found.size) == (want.shape[1:], want.ndim - 1, want[0].size)
    np.testing.assert_allclose(found.array, want, rtol=1e-14, atol=1e-15)


def test_writing_into_a_batch():
    arrays = np.arange(6.0).reshape(2, 3)
    out = np.zeros_like(Batch(arrays), shape=(2, 3))
    out[1] = Batch(arrays)
    out[0, :2] = 7.0
    np.testing.assert_array_equal(out.array[:, 1], arrays)
    np.testing.assert_array_equal(out.array[:, 0], [[7.0, 7.0, 0.0]] * 2)
