"""Operands of both float dtypes, of integers and bools, and of no elements, in both engines."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.lowering import GAPS
from tapegraph.testing import check_parity
from tests.cases import CASES
from tests.quick import in_one

needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"
)
# These compute a part from their float32 operands alone: the graph of it has float32's digits.
PARTLY_LOW = ("lstsq", "logsumexp")


def of_several():
    """The first case of each operation that takes several tensors, and of each function."""
    seen = set()
    for case in CASES:
        kind = (case.op, getattr(case.run, "__qualname__", None), len(case.inputs))
        if len(case.inputs) > 1 and case.op not in GAPS and kind not in seen:
            seen.add(kind)
            if not case.label.startswith(PARTLY_LOW):
                yield case


def either_first():
    """Each case with one of its dtypes first, in turn; both with --thorough."""
    for i, case in enumerate(of_several()):
        for j, first in enumerate((np.float32, np.float64)):
            marks = [] if (i + j) % 2 else [pytest.mark.thorough]
            yield pytest.param(case, first, marks=marks, id=f"{case.id}-{first.__name__}")


@needs_tensorflow
@pytest.mark.parametrize(("case", "first"), [*either_first()])
@pytest.mark.one_in(8)
def test_operands_of_both_float_dtypes_agree(case, first, graph_engine):
    graph_engine.set_cache_limit(1)
    rest = np.float64 if first is np.float32 else np.float32
    arrays = [a.astype(rest if i else first) for i, a in enumerate(case.arrays())]
    with np.errstate(all="ignore"):
        report = check_parity(case.function(), *arrays)
    assert report.backend == "tensorflow"


@pytest.mark.parametrize("dtypes", [(np.float32, np.float64), (np.float64, np.float32)], ids=str)
def test_crossentropy_of_both_float_dtypes_is_that_of_float64(dtypes, backend):
    x = np.array([[0.5, -1.25, 2.0], [1.5, 0.25, -0.75]])
    t = np.array([[0.25, 0.5, 0.25], [0.125, 0.5, 0.375]])
    logits, targets = (tg.param(a.astype(d)) for a, d in zip((x, t), dtypes, strict=True))
    loss = tg.softmax_crossentropy(logits, targets)
    loss.backward()
    assert tg.last_backward().backend == backend
    log_p = x - np.log(np.exp(x).sum(-1, keepdims=True))
    assert loss.dtype == np.float64
    np.testing.assert_allclose(loss.item(), -(t * log_p).sum() / 2, rtol=1e-14)
    for leaf, want in ((logits, (np.exp(log_p) - t) / 2), (targets, -log_p / 2)):
        rtol = 1e-6 if leaf.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(leaf.grad, want, rtol=rtol, atol=1e-8)


def test_einsum_multiplies_in_the_dtype_of_the_result(backend):
    a, b, c = np.float32([1 / 3, 2 / 3]), np.float32([1 / 7, 5 / 7]), np.array([0.1, 0.7])
    z = tg.param(c)
    tg.einsum("i,i,i->", a, b, z).backward()
    np.testing.assert_array_equal(z.grad, a.astype(np.float64) * b.astype(np.float64))


@needs_tensorflow
@pytest.mark.parametrize(
    ("shape", "take"),
    [
        ((0, 3), lambda x: x[np.zeros(0, int), np.zeros(0, int)]),
        ((2, 0, 4), lambda x: x[[1, 0], :, [3, 3]]),
        ((0, 1, 3), lambda x: tg.gather(x, [0, 2], axis=-1)),
        ((0, 3), lambda x: tg.gather(x, np.zeros((2, 0), int))),
        ((2, 0, 2), lambda x: np.trace(x, axis1=0, axis2=2)),
        ((2, 2, 0), lambda x: tg.einsum("iij->ij", x)),
        ((0, 0), lambda x: tg.softmax_crossentropy(x, np.zeros(0, int))),
        ((2, 0), lambda x: tg.softmax_crossentropy(x, x)),
    ],
)
def test_taking_of_an_empty_array_runs_in_the_graph(shape, take, graph_engine):
    x = tg.param(np.zeros(shape))
    with np.errstate(all="ignore"):
        take(x).backward()
    assert tg.last_backward().backend == "tensorflow"
    assert x.grad.shape == shape


@pytest.mark.parametrize("shape", [(1, 1, 3, 0), (1, 1, 0, 2), (2, 1, 0, 0)])
@pytest.mark.parametrize("pool", [tg.max_pool2d, tg.avg_pool2d], ids=lambda f: f.__name__)
def test_images_without_pixels_are_refused(pool, shape):
    with pytest.raises(ValueError, match=rf"{pool.__name__}: received images of shape"):
        pool(tg.param(np.zeros(shape)), 3, pad=2)


INTEGERS = ([-2, 0, 3], np.int64), ([-2, 0, 3], np.int8), ([2, 0, 3], np.uint8), ([1, 0, 1], bool)


@in_one(("numbers", "kind"), INTEGERS, ids=[k.__name__ for _, k in INTEGERS])
@in_one("dtype", [np.float64, np.float32])
@in_one(
    ("function", "on_the_left", "slope"),
    [
        (np.copysign, False, lambda x, i: np.copysign(1.0, x) * np.where(i < 0, -1.0, 1.0)),
        (np.fmod, True, lambda x, i: -np.trunc(i / x)),
        (np.heaviside, True, lambda x, i: 1.0 * (i == 0)),
        (
            np.power,
            True,
            lambda x, i: [
                float(a) ** b * np.log(a) if a > 0 else 0.0 for a, b in zip(i, x, strict=True)
            ],
        ),
    ],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_integers_and_bools_as_operands(function, on_the_left, slope, dtype, numbers, kind):
    points, integers = np.array([0.7, -1.3, 2.2], dtype), np.array(numbers).astype(kind)

    def f(x):
        return function(integers, x) if on_the_left else function(x, integers)

    x = tg.param(points)
    with tg.use_backend("native"), np.errstate(all="ignore"):
        y = f(x)
        y.backward()
        value, tangent = tg.jvp(f, (points,), (np.ones_like(points),))
        np.testing.assert_allclose(y.numpy(), f(points), rtol=1e-6)
    assert tangent.dtype == value.dtype == y.dtype
    want = slope(points.astype(float), integers.astype(float))
    np.testing.assert_allclose(x.grad, want, rtol=1e-6)
    np.testing.assert_allclose(tangent, want, rtol=1e-6)
