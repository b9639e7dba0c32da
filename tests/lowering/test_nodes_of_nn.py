"""Nodes that captures use: layers agree with the native engine, forward and gradients."""

from __future__ import annotations

import importlib.util
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tapegraph as tg
from tapegraph import fallback
from tapegraph.capture import Capture
from tapegraph.lowering import GAPS, LOWERINGS
from tapegraph.lowering.rows.nn import WHOLE_LOWERINGS
from tapegraph.recording.linearize import linearize
from tapegraph.testing import PARITY_TOLERANCE
from tests.cases import CASES
from tests.quick import a_few_each

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"
)

DTYPES = ("float64", "float32")
# In the quick suite float64 alone.
QUICK = [DTYPES[0], *(pytest.param(d, marks=pytest.mark.thorough) for d in DTYPES[1:])]
inf, nan = np.inf, np.nan
LOWEST = np.finfo(np.float32).min


@pytest.fixture(autouse=True)
def infinities_are_meant():
    with np.errstate(all="ignore"):
        yield


def recorded(f: Callable[..., Any], arrays: Sequence[Any]) -> Any:
    return linearize([f(*map(tg.param, arrays))])


def cotangents(recording: Any, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1.0, 1.0, y.shape).astype(y.dtype) for y in recording.seeds()]


def compiled(recording: Any) -> Callable[..., Any]:
    """Return the recording's graph as a function of another run of it and its cotangents."""
    from tests.lowering.forward import gradient

    run = gradient(recording, recording.program.wanted)

    def of_another(recording: Any, seeds: Any) -> Any:
        return run([recording.values[slot] for slot in recording.program.fed], seeds)

    return of_another


def agree(run: Callable[..., Any], recording: Any, seeds: Sequence[Any], label: str = "") -> None:
    """Compare results and gradients of a graph with those of the native engine."""
    results, grads = run(recording, seeds)
    native = [*recording.seeds(), *fallback.gradients(recording, seeds)]
    for got, want in zip([*results, *grads], native, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype), label
        rtol, atol = PARITY_TOLERANCE[want.dtype.name]
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=label)


def test_they_are_gaps_of_a_plain_backward():
    assert set(WHOLE_LOWERINGS) == {"layer_norm", "conv2d", "max_pool2d", "avg_pool2d"}
    assert set(WHOLE_LOWERINGS) <= set(GAPS)
    assert not set(WHOLE_LOWERINGS) & set(LOWERINGS)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", QUICK)
@pytest.mark.parametrize("op", sorted(WHOLE_LOWERINGS))
def test_cases_agree(op, dtype, thorough):
    for case in CASES if thorough else a_few_each(CASES, most=4):
        if case.op != op:
            continue
        recording = recorded(case.function(dtype), case.arrays(dtype))
        agree(compiled(recording), recording, cotangents(recording), case.id)


# A call, and the shapes of what it takes.
LAYERS = {
    "conv2d": (lambda x, k: tg.conv2d(x, k), (2, 2, 3, 4), (2, 2, 2, 2)),
    "conv2d pad stride": (
        lambda x, k: tg.conv2d(x, k, stride=(2, 1), pad=(1, 2)),
        (2, 1, 4, 3),
        (2, 1, 3, 2),
    ),
    "conv2d dilation": (
        lambda x, k: tg.conv2d(x, k, stride=(1, 2), pad=1, dilation=(2, 3)),
        (1, 2, 4, 5),
        (2, 2, 2, 2),
    ),
    "max_pool2d": (lambda x: tg.max_pool2d(x, 2), (2, 2, 4, 5)),
    "max_pool2d overlapping": (
        lambda x: tg.max_pool2d(x, (2, 3), stride=1, pad=(1, 2)),
        (1, 2, 3, 3),
    ),
    "max_pool2d gaps": (lambda x: tg.max_pool2d(x, 2, stride=(3, 4), pad=1), (1, 1, 5, 5)),
    "avg_pool2d": (lambda x: tg.avg_pool2d(x, 2), (2, 2, 4, 5)),
    "avg_pool2d overlapping": (
        lambda x: tg.avg_pool2d(x, (2, 3), stride=1, pad=(1, 2)),
        (1, 2, 3, 3),
    ),
    "layer_norm": (lambda x, a, b: tg.layer_norm(x, a, b), (4, 3), (3,), (3,)),
    "layer_norm scalars": (lambda x, a, b: tg.layer_norm(x, a, b), (2, 2, 3), (), (2, 1)),
}
SPECIAL = (nan, inf, -inf, LOWEST, 0.0, -0.0, 1.0, -1.0)


@pytest.mark.parametrize("dtype", QUICK)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.one_in(4)
def test_special_values_and_ties_agree(layer, dtype, thorough):
    f, *shapes = LAYERS[layer]
    # Sums of numbers so far apart depend on their order: for maxima alone.
    values = SPECIAL if layer.startswith("max") else [v for v in SPECIAL if v != LOWEST]
    rng = np.random.default_rng(0)
    run = None
    for often in (0.0, 0.05, 0.2, 0.6, 1.0):
        for trial in range(12 if thorough else 3):
            arrays = []
            for shape in shapes:
                ties = rng.integers(-1, 2, shape).astype(float)
                special = rng.choice(values if trial % 3 else values[2:4], shape)
                hit = rng.uniform(size=shape) < often
                arrays.append(np.where(hit, special, ties).astype(dtype))
            recording = recorded(f, arrays)
            run = run or compiled(recording)
            (seed,) = cotangents(recording, trial)
            seed[rng.uniform(size=seed.shape) < 0.4] = 0.0
            if trial % 4 == 0:
                seed[rng.uniform(size=seed.shape) < 0.1] = rng.choice([inf, nan])
            agree(run, recording, [seed], f"{often} {trial}")
            agree(run, recording, [np.zeros_like(seed)])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", QUICK)
@pytest.mark.parametrize(
    ("image", "options", "gradient"),
    [
        # Below the lowest number there is -inf, and below that padding, which never wins.
        ([[-inf, LOWEST], [-inf, -inf]], {}, [[0, 1], [0, 0]]),
        ([[-inf, -inf], [-inf, -inf]], {"pad": 1}, [[1, 1], [1, 1]]),
        ([[LOWEST, LOWEST], [LOWEST, LOWEST]], {"pad": 1}, [[1, 1], [1, 1]]),
        ([[-inf, -inf], [-inf, LOWEST]], {"pad": 1, "stride": 1}, [[3, 1], [1, 4]]),
        # A NaN is greater than any number.
        ([[inf, 1.0], [nan, nan]], {}, [[0, 0], [1, 0]]),
        ([[1.0, nan], [inf, 5.0]], {"pad": 1, "stride": 1}, [[1, 4], [3, 1]]),
    ],
)
def test_the_first_maximum_takes_the_cotangent(image, options, gradient, dtype):
    lowest = np.finfo(dtype).min
    x = np.array(image, dtype)[None, None]
    x[x == LOWEST] = lowest
    recording = recorded(lambda x: tg.max_pool2d(x, 2, **options), [x])
    seeds = [np.ones_like(recording.seeds()[0])]
    (result,), (found,) = compiled(recording)(recording, seeds)
    np.testing.assert_array_equal(result, recording.seeds()[0])
    np.testing.assert_array_equal(found[0, 0], gradient)


ZERO_STAYS_ZERO = {
    "conv2d by an infinite kernel": (
        lambda x, k: tg.conv2d(x, k)[..., :1],
        [[[[[1.0, 2.0]]]], [[[[inf]]]]],
        [[inf, 0.0], 1.0],
    ),
    "dilated conv2d of a NaN": (
        lambda x, k: tg.conv2d(x, k, dilation=2)[..., :1],
        [[[[[1.0, nan, 2.0, nan]]]], [[[[3.0, 4.0]]]]],
        [[3.0, 0.0, 4.0, 0.0], [1.0, 2.0]],
    ),
    "layer_norm of a row with a NaN": (
        lambda x, a, b: tg.layer_norm(x, a, b)[:1],
        [[[1.0, 3.0], [nan, 1.0]], 1.0, 0.0],
        [[0.0, 0.0, 0.0, 0.0], 0.0, 2.0],
    ),
    "avg_pool2d beside a NaN": (
        lambda x: tg.avg_pool2d(x, (1, 2))[..., :1],
        [[[[[1.0, 2.0, nan, inf]]]]],
        [[0.5, 0.5, 0.0, 0.0]],
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", QUICK)
@pytest.mark.parametrize("name", ZERO_STAYS_ZERO)
def test_zero_stays_zero(name, dtype):
    f, points, expected = ZERO_STAYS_ZERO[name]
    recording = recorded(lambda *xs: tg.sum(f(*xs)), [np.array(p, dtype) for p in points])
    _, grads = compiled(recording)(recording, [np.ones((), dtype)])
    for got, want in zip(grads, expected, strict=True):
        np.testing.assert_allclose(got.ravel(), np.ravel(want), atol=1e-6)


MIXED = {
    "conv2d of integers": (lambda x, k: tg.conv2d(x, k), [np.arange(9), np.arange(4)], "l"),
    "conv2d of two dtypes": (
        lambda x, k: tg.conv2d(x, k, dilation=2),
        [np.arange(9.0, dtype="f"), np.arange(4.0)],
        "d",
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_dtypes_follow_numpy(name):
    from tests.lowering.forward import forward

    f, arrays, kind = MIXED[name]
    with Capture() as capture:
        leaves = [capture.input(a.reshape(1, 1, n, n)) for a, n in zip(arrays, (3, 2), strict=True)]
        y = f(*leaves)
        recording = capture.recording([y])
    (got,) = forward(recording)([recording.values[s] for s in recording.program.fed])
    assert got.dtype.char == kind
    np.testing.assert_array_equal(got, recording.seeds()[0])


@pytest.mark.parametrize("kinds", ["fdf", "ffd", "dff", "dfd"])
def test_layer_norm_rounds_where_numpy_does(kinds):
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-2.0, 2.0, (3, 4)[i > 0 :]).astype(k) for i, k in enumerate(kinds)]
    recording = recorded(tg.layer_norm, arrays)
    results, grads = compiled(recording)(recording, cotangents(recording))
    native = [*recording.seeds(), *fallback.gradients(recording, cotangents(recording))]
    for got, want in zip([*results, *grads], native, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)  # some of it is float32


def test_gradients_of_results_and_of_a_capture():
    from tests.lowering.forward import gradient

    x = np.random.default_rng(0).uniform(-1.0, 1.0, (2, 1, 6, 6))
    k = tg.param(np.random.default_rng(1).uniform(-1.0, 1.0, (3, 1, 3, 3)))
    with Capture() as capture:
        image = capture.input(x)
        features = tg.max_pool2d(tg.relu(tg.conv2d(image, k, pad=1)), 2)
        loss = tg.sum(features * features)
        recording = capture.recording([loss])
    names = [op.name for op in recording.program.ops]
    wanted = [names.index("max_pool2d"), names.index("param"), names.index("input")]
    run = gradient(recording, wanted)
    feeds = [recording.values[slot] for slot in recording.program.fed]
    (result,), (by_features, by_kernel, by_image) = run(feeds, [np.ones(())])
    np.testing.assert_allclose(result, loss.numpy())
    np.testing.assert_allclose(by_features, 2.0 * features.numpy())

    y = tg.param(x)
    out = tg.max_pool2d(tg.relu(tg.conv2d(y, k, pad=1)), 2)
    with tg.use_backend("native"):
        tg.sum(out * out).backward()
    np.testing.assert_allclose(by_kernel, k.grad, rtol=1e-9)
    np.testing.assert_allclose(by_image, y.grad, rtol=1e-9, atol=1e-12)


# TensorFlow can abort the process on what has no element: with --thorough, an interpreter of its
# own; without, pytest-xdist names the test that crashed.
CORNERS = """
    import itertools, sys
    import numpy as np
    import tapegraph as tg
    from tapegraph import fallback
    from tests.lowering.forward import gradient
    from tapegraph.recording.linearize import linearize

    rng = np.random.default_rng(0)

    def check(label, f, *shapes):
        arrays = [rng.uniform(-1.0, 1.0, shape).astype(DTYPE) for shape in shapes]
        try:
            recording = linearize([f(*map(tg.param, arrays))])
        except ValueError:
            return 0  # refused when recorded
        print(label, shapes, file=sys.stderr)  # the last one is named where the process dies
        seeds = [np.ones_like(y) for y in recording.seeds()]
        run = gradient(recording, recording.program.wanted)
        results, grads = run([recording.values[s] for s in recording.program.fed], seeds)
        native = [*recording.seeds(), *fallback.gradients(recording, seeds)]
        for got, want in zip([*results, *grads], native, strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        return 1

    tried = 0
    STRIDE = 1 if THOROUGH else 3  # of what is tried, but for the images
    IMAGES = [(0, 1, 3, 3), (2, 0, 3, 3), (2, 1, 0, 3), (2, 1, 0, 0), (0, 0, 0, 0), (1, 1, 1, 5)]
    with np.errstate(all="ignore"):
        for i, image in enumerate(IMAGES):
            kernels = [(2, image[1], 2, 2), (0, image[1], 2, 2), (1, image[1], 1, 1)]
            convolved = [{}, {"pad": 2, "dilation": 2}, {"pad": (3, 2), "stride": 9}]
            pooled = {"ksize": 1}, {"ksize": 2, "pad": 1}, {"ksize": (1, 3), "stride": 7}
            for options, kernel in [*itertools.product(convolved, kernels)][i % STRIDE :: STRIDE]:
                tried += check("conv2d", lambda x, k: tg.conv2d(x, k, **options), image, kernel)
            pools = [*itertools.product([tg.max_pool2d, tg.avg_pool2d], pooled)]
            for pool, options in pools[i % STRIDE :: STRIDE]:
                tried += check(pool.__name__, lambda x: pool(x, **options), image)
        # A window of so many pixels is no graph of as many nodes.
        for pool in (tg.max_pool2d, tg.avg_pool2d):
            tried += check(
                pool.__name__, lambda x: pool(x, 40, stride=30, pad=39), (1, 1, 50, 50)
            )
        for shape in [(0,), (0, 3), (3, 0), (2, 0, 3), (0, 0), (1,), (1, 2, 1, 2, 1, 2, 1, 3)]:
            for factor in [(), (1,), shape] if THOROUGH else [(1,)]:
                tried += check("layer_norm", tg.layer_norm, shape, factor, shape)
    assert tried > (60 if THOROUGH else 20), tried
"""


def test_corners_have_the_native_numbers():
    exec(textwrap.dedent(f"\n    DTYPE, THOROUGH = 'float64', False\n{CORNERS}"), {})


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_corner_takes_the_process_down(run_python, dtype):
    program = f"\n    DTYPE, THOROUGH = {dtype!r}, True\n{CORNERS}"
    done = run_python(program, TF_ENABLE_ONEDNN_OPTS="1")
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-4000:]}"


class _Pools:
    """A step with two pools, and the same eagerly."""

    def __init__(self, **options):
        kernel = np.random.default_rng(0).normal(size=(2, 1, 3, 3))
        self.params = [tg.param(kernel), tg.param(kernel)]
        self.options = options

    def step(self, k, x):
        k.grad = None
        y = tg.max_pool2d(tg.conv2d(x, k, pad=1) * 1.0, 2, **self.options)
        loss = tg.sum(tg.max_pool2d(tg.relu(y), 2) ** 2)
        loss.backward()
        with tg.no_grad():
            k -= 0.01 * k.grad
        return loss


@pytest.mark.parametrize("number", [nan, -inf])
def test_a_pool_of_a_step_without_gradients_leaves_what_is_not_finite_to_numpy(number):
    step = tg.compile(lambda x: tg.max_pool2d(x, 2) * 1.0, verify_every=None)
    images = np.random.default_rng(1).normal(size=(5, 1, 1, 4, 6))
    images[4, 0, 0, :2, 2:4] = number
    with tg.use_backend("tensorflow"):
        for i, x in enumerate(images):
            wanted = x.reshape(1, 1, 2, 2, 3, 2).max((3, 5))
            np.testing.assert_array_equal(step(x), wanted)
            engine = "native" if i == 4 else "tensorflow"
            assert i < 2 or step._entries[0].programs.ran.startswith(engine)


@pytest.mark.filterwarnings("ignore:backward ran in the native engine")
@pytest.mark.parametrize("number", [nan, inf, -inf])
def test_a_pool_of_a_step_has_no_branch_and_leaves_what_is_not_finite_to_the_native_engine(number):
    pools = _Pools()
    compiled_k, eager_k = pools.params
    step = tg.compile(lambda x: pools.step(compiled_k, x), verify_every=None)
    images = np.random.default_rng(1).normal(size=(6, 1, 1, 8, 8))
    images[4, 0, 0, 2, 3] = number
    with tg.use_backend("tensorflow"), np.errstate(all="ignore"):
        for i, x in enumerate(images[:5]):
            loss = step(x)
            np.testing.assert_allclose(loss.item(), pools.step(eager_k, x).item(), rtol=1e-9)
            np.testing.assert_allclose(compiled_k.data, eager_k.data, rtol=1e-9)
            engine = "native" if i == 4 else "tensorflow"
            assert i < 2 or step._entries[0].programs.ran.startswith(engine)
    graph = step._entries[0].programs._runners["tensorflow"].program.graphs.graph
    kinds = [node.type for node in graph.call.function.graph.get_operations()]
    assert kinds.count("MaxPool") == 2
    assert kinds.count("If") + kinds.count("StatelessIf") == 1  # around the assignments
