"""Every worked example gives the numbers of `goldens.py`: tensors on each engine, and `Value`s."""

from __future__ import annotations

import numpy as np
import pytest
from goldens import GOLDENS

import tapegraph as tg
from tapegraph.lowering import GAPS

# Some examples have operations without lowering; `assert_ran_on` checks that only those fall back.
pytestmark = [
    pytest.mark.versions,
    pytest.mark.filterwarnings("ignore:backward ran in the native engine:RuntimeWarning"),
]

PIXELS = np.arange(1.0, 17.0).reshape(1, 1, 4, 4)
WORDS = [
    [1.0, 0.5, 0.3, 0.2, 0.8, 0.1, 0.4, 0.6],
    [0.2, 0.8, 0.1, 0.7, 0.3, 0.9, 0.5, 0.2],
    [0.6, 0.3, 0.7, 0.1, 0.5, 0.4, 0.2, 0.8],
    [0.4, 0.6, 0.2, 0.9, 0.1, 0.7, 0.8, 0.3],
]

# Examples on scalars: `leaf` makes a 0-d tensor or a `Value`.


def scalar_reverse(leaf):
    x = leaf(3.0)
    y = x**2 + 2 * x
    y.backward()
    return {"y": y.data, "x_grad": x.grad}


def linear_regression(leaf, made=lambda step: step):
    w, b = leaf(0.0), leaf(0.0)
    optimizer = tg.SGD([w, b], lr=0.001)

    @made
    def step():
        optimizer.zero_grad()
        loss = sum((w * x + b - y) ** 2 for x, y in enumerate([3, 5, 7, 9, 11], start=1))
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(100):
        loss = step()
    return {"w": w.data, "b": b.data, "loss": loss.data}


def wengert_xyz(leaf):
    x, y, z = leaf(2.0), leaf(-3.0), leaf(10.0)
    a = x * y
    f = a + z
    if leaf is tg.param:  # a Value keeps the gradient of every result unasked
        a.retain_grad()
        f.retain_grad()
    f.backward()
    return {"f": f.data, "grads": [v.grad for v in (x, y, z, a, f)]}


def julia_reuse(leaf):
    x, y = leaf(2.0), leaf(3.0)
    z = x + y
    if leaf is tg.param:
        z.retain_grad()
    (z + x).backward()
    return {"grads": [v.grad for v in (x, y, z)]}


def julia_linear(leaf):
    x, m, b = leaf(2.0), leaf(4.0), leaf(7.0)
    (m * x + b).backward()
    return {"grads": [v.grad for v in (m, x, b)]}


def micrograd_double_use(leaf):
    a = leaf(2.0)
    (a + a).backward()
    return {"grad": a.grad}


def poly(leaf):
    x = leaf(2.5)
    (x**3 - 2 * x + 5).backward()
    return {"grad": x.grad}


def composed(leaf):
    x, y = leaf(0.7), leaf(-0.4)
    tg.tanh(x * y + tg.exp(x)).backward()
    return {"grads": [x.grad, y.grad]}


def tiny_network(leaf):
    x1, x2 = leaf(1.0), leaf(0.5)
    h1 = tg.tanh(0.5 * x1 - 0.3 * x2)
    h2 = tg.tanh(0.8 * x1 + 0.1 * x2 + 0.2)
    ((h1 + h2 - 1) ** 2).backward()
    return {"grads": [x1.grad, x2.grad]}


# Examples on arrays


def tensor_matmul():
    w, x = tg.param([[0.1, 0.2], [0.3, 0.4]]), tg.param([[1.0], [2.0]])
    loss = tg.sum(w @ x)
    loss.backward()
    return {"loss": loss.data, "W_grad": w.grad, "x_grad": x.grad}


def mlp():
    w1, b1 = tg.param(np.arange(1, 9).reshape(2, 4) / 10), tg.param(np.zeros((1, 4)))
    w2, b2 = tg.param(np.arange(1, 5).reshape(4, 1) / 10), tg.param(np.zeros((1, 1)))
    out = tg.relu(tg.tensor([[1.0, 2.0]]) @ w1 + b1) @ w2 + b2
    loss = tg.mean((out - 1.0) ** 2)
    loss.backward()
    return {
        "loss": loss.data,
        "W1_grad": w1.grad,
        "W2_grad": w2.grad,
        "b1_grad": b1.grad,
        "b2_grad": b2.grad,
    }


def softmax_pick():
    logits = tg.param([[2.0, 1.0, 0.1]])
    probs = tg.softmax(logits)
    loss = probs[0, 0]
    loss.backward()
    return {"probs": probs.data, "loss": loss.data, "logits_grad": logits.grad}


def softmax_crossentropy():
    logits = tg.param([[2.0, 1.0, 0.1], [0.3, 2.2, -1.0]])
    loss = tg.softmax_crossentropy(logits, [0, 2])
    loss.backward()
    return {"loss": loss.data, "grad": logits.grad}


def self_attention():
    x = tg.tensor([[1.0, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]])
    weights = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8]])
    wq, wk = tg.param(weights), tg.param(weights[:, ::-1])
    wv = tg.param([[0.1, 0.3], [0.2, 0.4], [0.3, 0.5], [0.4, 0.6]])
    scores = (x @ wq) @ tg.transpose(x @ wk) / np.sqrt(2.0)
    out = tg.softmax(scores) @ (x @ wv)
    tg.sum(out).backward()
    return {"out": out.data, "Wq_grad": wq.grad, "Wk_grad": wk.grad, "Wv_grad": wv.grad}


def multi_head_gelu():
    gamma, beta = tg.param(np.ones((1, 8))), tg.param(np.zeros((1, 8)))
    w = tg.param((np.add.outer(np.arange(8), np.arange(8)) % 8 + 1) / 10)
    projected = tg.layer_norm(tg.tensor(WORDS), gamma, beta) @ w
    heads = tg.reshape(projected, (4, 2, 4))
    loss = tg.sum(tg.gelu(heads))
    loss.backward()
    return {
        "loss": loss.data,
        "Wqkv_grad": w.grad,
        "gamma_grad": gamma.grad,
        "beta_grad": beta.grad,
        "heads_shape": heads.shape,
    }


def embedding():
    table = tg.param(np.arange(1, 16).reshape(5, 3) / 10)
    embedded = tg.gather(table, [1, 3, 2])
    tg.sum(embedded).backward()
    return {"embedded": embedded.data, "grad": table.grad}


def masked_attention(weights):
    scores = tg.param([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    attn = tg.softmax(tg.where([[1, 1, 0], [1, 0, 0]], scores, -1e9))
    tg.sum(attn * weights).backward()
    return attn.data, scores.grad


def masked_where():
    attn, grad = masked_attention(1.0)
    return {"attn": attn, "grad": grad}


def masked_where_weighted():
    _, grad = masked_attention(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    return {"grad": grad}


def yolo_head():
    rows = """.1 .2 .1 .2 .3  .2 .1 .3 .1 .2  .3 .3 .2 .3 .1  .1 .2 .3 .2 .2
              .2 .1 .1 .3 .3  .3 .3 .2 .1 .1  .1 .2 .3 .1 .2  .2 .1 .1 .2 .3"""
    w = tg.param(np.array(rows.split(), dtype=np.float64).reshape(8, 5))
    target = np.zeros((4, 5))
    target[0] = [0.5, 0.5, 0.3, 0.4, 1.0]
    loss = tg.mean((tg.sigmoid(tg.tensor(WORDS) @ w) - target) ** 2)
    loss.backward()
    return {"loss": loss.data, "grad": w.grad}


def conv2d():
    x, k = tg.param(PIXELS), tg.param([[[[1.0, 0.0, -1.0]] * 3]])
    out = tg.conv2d(x, k)
    tg.sum(out).backward()
    return {"out": out.data, "kernel_grad": k.grad, "input_grad": x.grad}


def conv2d_padded():
    k = tg.param(np.ones((1, 1, 3, 3)))
    out = tg.conv2d(np.arange(1.0, 10.0).reshape(1, 1, 3, 3), k, pad=1)
    tg.sum(out).backward()
    return {"out": out.data, "kernel_grad": k.grad}


def pooled(pool):
    x = tg.param(PIXELS)
    out = pool(x, 2)
    tg.sum(out).backward()
    return {"out": out.data, "grad": x.grad}


def max_pool2d():
    return pooled(tg.max_pool2d)


def avg_pool2d():
    return pooled(tg.avg_pool2d)


def cnn_pipeline():
    k = tg.param(np.ones((1, 1, 3, 3)))
    out = tg.max_pool2d(tg.relu(tg.conv2d(PIXELS, k)), 2)
    tg.sum(out).backward()
    return {"out": out.data, "kernel_grad": k.grad}


def rnn():
    wh, wx = tg.param([[0.1, 0.2], [0.3, 0.4]]), tg.param([[0.5, 0.6], [0.7, 0.8]])
    h = tg.tensor(np.zeros((1, 2)))
    for x in ([[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 1.0]]):
        h = tg.tanh(h @ wh + tg.tensor(x) @ wx)
    tg.sum(h).backward()
    return {"h": h.data, "Wh_grad": wh.grad, "Wx_grad": wx.grad}


SCALAR = (
    scalar_reverse,
    linear_regression,
    wengert_xyz,
    julia_reuse,
    julia_linear,
    micrograd_double_use,
    poly,
    composed,
    tiny_network,
)
ON_ARRAYS = (
    tensor_matmul,
    mlp,
    softmax_pick,
    softmax_crossentropy,
    self_attention,
    multi_head_gelu,
    embedding,
    masked_where,
    masked_where_weighted,
    yolo_head,
    conv2d,
    conv2d_padded,
    max_pool2d,
    avg_pool2d,
    cnn_pipeline,
    rnn,
)


def assert_golden(example, *arguments):
    got, want = example(*arguments), GOLDENS[example.__name__]
    assert got.keys() == want.keys()
    for key in want:
        np.testing.assert_allclose(got[key], want[key], rtol=1e-9, atol=1e-9, err_msg=key)


def assert_ran_on(backend):
    report = tg.last_backward()
    gap = any((report.reason or "").startswith(op) for op in GAPS)
    assert report.backend == ("native" if gap else backend)


@pytest.mark.parametrize("example", ON_ARRAYS)
@pytest.mark.one_in(4, of="tensorflow")
def test_arrays(example, backend):
    assert_golden(example)
    assert_ran_on(backend)


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize("example", SCALAR)
def test_0d_tensors(example, backend):
    assert_golden(example, tg.param)
    assert_ran_on(backend)


@pytest.mark.parametrize("example", SCALAR)
def test_values(example):
    assert_golden(example, tg.Value)


def test_a_compiled_step(backend):
    assert_golden(linear_regression, tg.param, tg.compile)


def test_every_golden_is_tested():
    assert {example.__name__ for example in SCALAR + ON_ARRAYS} == set(GOLDENS)
