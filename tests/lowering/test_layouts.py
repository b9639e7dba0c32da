"""Images in compiled steps lie channels last, and nobody can tell but by the transposes."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tests.lowering.test_compiled_steps import both, ran
from tests.optional import optional
from tests.quick import thinned

optional("tensorflow")

RNG = np.random.default_rng(0)
IMAGES = (2, 3, 6, 5)


@pytest.fixture(autouse=True)
def tensorflow():
    with tg.use_backend("tensorflow"):
        yield


def convolved(x, k):
    return tg.conv2d(x, k, pad=1)


def broadcasts(x, k, *shapes):
    """Add up products of images with factors of fewer axes, or shorter ones."""
    y = convolved(x, k)
    return sum(y * np.arange(1.0, 1 + np.prod(s)).reshape(s) for s in shapes)


def gradient_of_a_layer(x, k):
    y = tg.relu(convolved(x, k))
    (slope,) = tg.gradients(tg.sum(tg.max_pool2d(y, 2) ** 2), [y])
    return y * slope + slope * slope


def constants_beside_gradients(x, k):
    y = convolved(x, k)
    # Each reads the images otherwise, where no gradient flows and where one does.
    share = tg.sum(tg.reshape(y, (2, -1)).detach(), axis=1)
    return tg.sum(tg.reshape(y, (2, -1)) ** 2, axis=1) * share


# What is computed from images of this shape and a kernel that keeps it.
CASES = {
    "bias": lambda x, k: convolved(x, k) + tg.mean(k, axis=(1, 2, 3)).reshape(3, 1, 1),
    "a number a channel": lambda x, k: broadcasts(x, k, (3, 1, 1), (1, 3, 1, 1), (1, 1, 1), ()),
    "fewer axes": lambda x, k: broadcasts(x, k, (5,), (6, 1), (6, 5), (3, 1, 5), (2, 1, 1, 1)),
    "images beside": lambda x, k: tg.maximum(convolved(x, k), x) * x + np.ones((1, 1, *IMAGES)),
    "chosen": lambda x, k: tg.where((y := convolved(x, k)) > x, y * y, tg.abs(y)) * (y < 1.0),
    "the mean of a batch": lambda x, k: (y := convolved(x, k)) - tg.mean(y, (0, 2, 3), True),
    "over pixels": lambda x, k: tg.sum((y := convolved(x, k)), (2, 3)) * tg.max(y, (-1, -2)),
    "over rows": lambda x, k: tg.sum(convolved(x, k) ** 3, 2) + tg.min(x, 2),
    "over channels": lambda x, k: tg.softmax(convolved(x, k), 1) * tg.sum(convolved(x, k), 1, True),
    "joined": lambda x, k: tg.concat([y := convolved(x, k), tg.relu(y)], 1) * 2.0,
    "joined beside": lambda x, k: tg.concat([x, convolved(x, k), x * x], 0),
    "pools": lambda x, k: tg.max_pool2d(
        tg.avg_pool2d(convolved(x, k), 2, pad=1), (1, 2), pad=(0, 1)
    ),
    "in other axes": lambda x, k: tg.transpose(tg.exp(convolved(x, k) * 0.1), axes=(3, 0, 2, 1)),
    "a row": lambda x, k: convolved(x, k)[:, 1:, 2] * convolved(x, k)[:, 1:, 2, :1],
    "by itself": lambda x, k: tg.sum(tg.conv2d(x, x)) * tg.conv2d(k, k, pad=1),
    "one pixel": lambda x, k: convolved((y := tg.conv2d(x[:1], x[:1])) + 1.0, k[:1, :1]) * y,
    "gradient of a layer": gradient_of_a_layer,
    "constants beside gradients": constants_beside_gradients,
}


@pytest.mark.parametrize("case", thinned(CASES, 2))
@pytest.mark.one_in(4)
def test_numbers_are_those_of_images_channels_first(case):
    def make():
        rng = np.random.default_rng(1)
        x, k = tg.param(rng.normal(size=IMAGES)), tg.param(rng.normal(size=(3, 3, 3, 3)))

        def step(weight):
            x.grad = k.grad = None
            y = CASES[case](x, k)
            loss = tg.sum(y * np.cos(np.arange(y.size)).reshape(y.shape)) * weight
            loss.backward()
            return y

        return step, [x, k]

    step, _ = both(make, [(1.0,), (0.5,), (2.0,), (-1.0,)])
    assert ran(step) == "tensorflow"


def test_state_and_cotangents_are_channels_first():
    seeds = RNG.normal(size=(4, *IMAGES))

    def make():
        rng = np.random.default_rng(1)
        kernel, held = tg.param(rng.normal(size=(3, 3, 3, 3))), tg.tensor(np.zeros(IMAGES))
        kernel.grad = held.grad = None

        def step(x, seed):
            y = tg.relu(convolved(x, kernel))
            kernel.grad = None
            y.backward(seed)
            held.assign(held * 0.5 + y.detach())
            return y * held

        return step, [kernel, held]

    images = RNG.normal(size=(4, *IMAGES))
    step, (kernel, held) = both_states(make, list(zip(images, seeds, strict=True)))
    assert ran(step) == "tensorflow"


def both_states(make, calls):
    eager, ours = make()
    step, others = make()
    step = tg.compile(step)
    for given in calls:
        with tg.use_backend("native"):
            want = eager(*given)
        np.testing.assert_allclose(step(*given).data, want.detach().data, rtol=1e-9, atol=1e-12)
    for one, other in zip(ours, others, strict=True):
        np.testing.assert_allclose(other.data, one.data, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(others[0].grad, ours[0].grad, rtol=1e-9, atol=1e-12)
    return step, others


def nodes(step) -> list[str]:
    """Return the kinds of nodes of a step's graph."""
    program = step._entries[0].programs._runners["tensorflow"].program
    return [node.type for node in program.graphs.graph.call.function.graph.get_operations()]


def test_nothing_is_transposed_between_layers():
    rng = np.random.default_rng(1)
    kernels = [tg.param(rng.normal(size=(4, c, 3, 3))) for c in (1, 4, 4)]
    biases = [tg.param(np.zeros(4)) for _ in kernels]
    weights = tg.param(rng.normal(size=(16, 2)))

    @tg.compile
    def step(x):
        for k, b in zip(kernels, biases, strict=True):
            k.grad = b.grad = None
            x = tg.max_pool2d(tg.relu(tg.conv2d(x, k, pad=1) + b.reshape(4, 1, 1)), 2)
        loss = tg.sum(x.reshape(3, 16) @ weights)
        loss.backward()
        return loss

    for _ in range(5):
        step(rng.normal(size=(3, 1, 16, 16)))
    assert ran(step) == "tensorflow"
    # Each kernel and its gradient, and the images where they become rows, and back.
    assert nodes(step).count("Transpose") == 2 * len(kernels) + 2
