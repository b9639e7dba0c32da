"""Losses and activations against PyTorch: values, gradients, second derivatives, bad input."""

import numpy as np
import pytest

import tapegraph as tg

X = np.array([-1000.0, -2.5, -1.0, -0.3, 0.0, 0.4, 1.0, 2.0, 40.0])
Y = np.array([0.0, 1.0, 0.3, 0.0, 0.0, 1.0, 1.0, 0.5, 1.0])
CALLS = {
    "leaky_relu": (lambda x, y: tg.leaky_relu(x, 0.2), lambda F, x, y: F.leaky_relu(x, 0.2)),
    "elu": (lambda x, y: tg.elu(x, 1.5), lambda F, x, y: F.elu(x, 1.5)),
    **{
        f"binary_crossentropy {r}": (
            lambda x, y, r=r: tg.binary_crossentropy(x, y, reduction=r),
            lambda F, x, y, r=r: F.binary_cross_entropy_with_logits(x, y, reduction=r),
        )
        for r in ("mean", "sum", "none")
    },
    "smooth_l1": (
        lambda x, y: tg.smooth_l1(x, y, 0.7),
        lambda F, x, y: F.smooth_l1_loss(x, y, beta=0.7),
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("backend", ["native", "tensorflow"])
@pytest.mark.parametrize("name", CALLS)
def test_as_pytorch(name, backend, dtype):
    torch = pytest.importorskip("torch")
    if backend == "tensorflow":
        pytest.importorskip("tensorflow")
    ours, theirs = CALLS[name]
    x, y = tg.param(X.astype(dtype)), Y.astype(dtype)
    t = torch.tensor(X.astype(dtype), requires_grad=True)
    expected = theirs(torch.nn.functional, t, torch.tensor(y))
    expected.sum().backward()
    with tg.use_backend(backend):
        out = ours(x, y)
        tg.sum(out).backward()
    rtol = 1e-5 if dtype == "float32" else 1e-12
    assert out.dtype == x.grad.dtype == dtype
    np.testing.assert_allclose(out.numpy(), expected.detach().numpy(), rtol, 1e-7)
    np.testing.assert_allclose(x.grad, t.grad.numpy(), rtol, 1e-7)


def test_a_sure_logit_keeps_its_digits():
    loss = tg.binary_crossentropy([40.0, -40.0], [1.0, 0.0], reduction="none")
    np.testing.assert_allclose(loss.numpy(), np.log1p(np.exp([-40.0, -40.0])), rtol=1e-12)


@pytest.mark.parametrize("loss", [tg.binary_crossentropy, tg.smooth_l1])
def test_bad_input_is_refused(loss):
    with pytest.raises(ValueError, match="equal shapes"):
        loss(np.ones((3, 1)), np.ones(3))
    with pytest.raises(ValueError, match="reduction='max'"):
        loss(np.ones(3), np.ones(3), reduction="max")
    with pytest.raises(ValueError, match="beta=0"):
        tg.smooth_l1([1.0], [1.0], beta=0)
