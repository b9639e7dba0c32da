"""Entries with several outputs: each is a tensor, and one rule takes the cotangents of all."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.fallback.rules import VJPS
from tapegraph.recording.linearize import linearize
from tapegraph.recording.op import OPS, Op
from tapegraph.recording.record import apply
from tapegraph.testing import check_gradients

A = np.array([[3.0, 1.0, 0.5], [1.0, 2.0, -1.0], [0.5, -1.0, 4.0], [0.0, 1.0, 1.0]])


@pytest.fixture(autouse=True)
def native_engine():
    tg.set_backend("native")


@pytest.fixture
def split():
    """An operation with three outputs: the whole part, which is an integer, the rest, and both."""

    def vjp(g, y, x):
        given.append([part is not None for part in g])
        return sum(part for part in g[1:] if part is not None)

    def forward(x):
        return np.floor(x).astype(np.int64), x - np.floor(x), x

    given: list[list[bool]] = []
    op = Op("split", forward, several=True)
    VJPS["split"] = (vjp,)
    yield (lambda x: apply(op, (x,))), given
    del OPS["split"], VJPS["split"]


def test_each_output_is_a_tensor_of_the_operation():
    x = tg.param(A)
    q, r = tg.qr(x)
    assert (q.shape, r.shape) == ((4, 3), (3, 3))
    for part in (q, r):
        assert (part.op, part.inputs, part.attrs) == ("qr", (x,), {})
    np.testing.assert_allclose(q.data @ r.data, A, atol=1e-14)


def test_a_tape_shows_the_entry_and_the_outputs_that_are_read():
    tg.tape_reset()
    s = tg.svd(tg.param(A, name="a"), full_matrices=False).S
    assert s.shape == (3,)
    rows = [line.split() for line in str(tg.tape()).splitlines()]
    assert rows[2][:6] == ["%1", "svd", "%0", "float64,", "float64,", "float64"]
    assert rows[3][:6] == ["%2", "part", "%1", "output=1", "(3,)", "float64"]


def test_a_rule_is_told_which_outputs_no_cotangent_has_reached(split):
    call, given = split
    x = tg.param([1.5, 2.25])
    _, rest, both = call(x)
    tg.sum(rest * 2.0).backward()
    assert x.grad.tolist() == [2.0, 2.0]
    tg.sum(rest + both * 3.0).backward()
    assert x.grad.tolist() == [6.0, 6.0]
    assert given == [[False, True, False], [False, True, True]]


def test_an_output_of_integers_needs_no_gradient(split):
    whole, rest, _ = split[0](tg.param([1.5, 2.25]))
    assert (whole.requires_grad, rest.requires_grad) == (False, True)
    assert whole.data.tolist() == [1, 2]


def test_without_a_gradient_they_are_constants(split):
    parts = split[0](tg.tensor([1.5]))
    assert [part.op for part in parts] == ["constant"] * 3
    with tg.no_grad():
        assert not any(part.requires_grad for part in split[0](tg.param([1.5])))


def test_an_output_keeps_its_gradient_where_that_is_asked_for():
    s = tg.svd(tg.param(A), full_matrices=False).S
    s.retain_grad()
    tg.sum(s * s).backward()
    np.testing.assert_array_equal(s.grad, 2.0 * s.data)


def loss(a):
    q, r = tg.qr(a)
    sign, logarithm = tg.slogdet(r)
    return tg.sum(q * q * np.arange(12.0).reshape(4, 3)) + tg.sum(r * r) * sign + logarithm


def test_their_gradients_have_gradients():
    check_gradients(loss, tg.param(A))
    check_gradients(lambda a: tg.sum(tg.grad(loss)(a) ** 2), tg.param(A))


def test_forward_and_reverse_mode_agree_on_them():
    direction = np.cos(np.arange(12.0)).reshape(4, 3)
    _, tangent = tg.jvp(loss, (A,), (direction,))
    np.testing.assert_allclose(tangent, np.sum(tg.grad(loss)(A) * direction), rtol=1e-12)


def test_all_rows_of_a_jacobian_go_through_them_at_once():
    found = tg.jacobian(lambda a: tg.qr(a).R)(A)
    for i, j in ((0, 1), (2, 2), (2, 0)):
        want = tg.grad(lambda a, i=i, j=j: tg.qr(a).R[i, j])(A)
        np.testing.assert_allclose(found[i, j], want, atol=1e-13)


@pytest.mark.parametrize("read", ["q", "r", "both"])
def test_a_compiled_step_gives_the_bits_of_the_eager_one(read):
    w = tg.param(A)

    def step(x):
        w.grad = None
        q, r = tg.qr(w * x)
        total = tg.sum(q * A) if read == "q" else tg.sum(r * r)
        if read == "both":
            total = total + tg.slogdet(tg.matmul(r.T, r)).logabsdet + tg.sum(q[0])
        total.backward()
        return total, w.grad

    compiled = tg.compile(step)
    for k in range(1, 6):
        for got, want in zip(compiled(0.5 * k), step(0.5 * k), strict=True):
            np.testing.assert_array_equal(getattr(got, "data", got), getattr(want, "data", want))


def test_a_nan_in_one_of_them_is_named():
    with tg.anomaly(), pytest.raises(FloatingPointError, match="slogdet"):
        tg.slogdet(tg.param(np.zeros((2, 2))))


def test_messages_name_the_operation_of_an_output():
    recording = linearize([tg.svd(tg.param(A), full_matrices=False).S])
    whole, part = map(recording.describe, (1, 2))
    assert whole.startswith("svd recorded at") and part.startswith("svd of shape (3,) recorded at")


def test_there_may_be_one_output():
    op = Op("only", lambda x: (x * 2.0,), several=True)
    VJPS["only"] = (lambda g, y, x: g[0] * 2.0,)
    try:
        slope = tg.compile(tg.grad(lambda x: tg.sum(apply(op, (x,))[0] ** 2)))
        for k in range(1, 5):
            np.testing.assert_array_equal(slope(np.full(3, float(k))).data, np.full(3, 8.0 * k))
    finally:
        del OPS["only"], VJPS["only"]
