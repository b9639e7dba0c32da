"""Initial weights: bounds, variances and shapes, by closed forms and PyTorch's own numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tapegraph as tg
from tests.quick import in_one

# Fan-in and fan-out by shape: of a matrix for x @ w, and of kernels (out, in, *spatial).
FANS = {(300, 200): (300, 200), (40, 30, 5, 4): (600, 800), (50, 40, 30): (1200, 1500)}

UNIFORM = {
    "xavier_uniform": lambda i, o: math.sqrt(6 / (i + o)),
    "glorot_uniform": lambda i, o: math.sqrt(6 / (i + o)),
    "kaiming_uniform": lambda i, o: math.sqrt(6 / i),
    "he_uniform": lambda i, o: math.sqrt(6 / i),
    "lecun_uniform": lambda i, o: math.sqrt(3 / i),
}
NORMAL = {
    "xavier_normal": lambda i, o: math.sqrt(2 / (i + o)),
    "kaiming_normal": lambda i, o: math.sqrt(2 / i),
}
TRUNCATED = {
    "glorot_normal": lambda i, o: math.sqrt(2 / (i + o)),
    "he_normal": lambda i, o: math.sqrt(2 / i),
    "lecun_normal": lambda i, o: math.sqrt(1 / i),
}
# By integration of the normal density over [-2, 2].
DENSITY = math.exp(-2) / math.sqrt(2 * math.pi)
DEVIATION = math.sqrt(1 - 4 * DENSITY / math.erf(math.sqrt(2)))


def drawn(name, shape, *args, **options):
    tg.random.seed(3)
    return getattr(tg.random, name)(shape, *args, **options)


@in_one("dtype", [np.float64, np.float32])
@in_one("shape", FANS, ids=str)
@in_one("name", [*UNIFORM, *NORMAL, *TRUNCATED])
def test_bounds_and_variances(name, shape, dtype):
    x = drawn(name, shape, dtype=dtype)
    assert type(x) is np.ndarray and (x.shape, x.dtype) == (shape, dtype)
    number, fans = {**UNIFORM, **NORMAL, **TRUNCATED}[name], FANS[shape]
    wanted = number(*fans)
    deviation = wanted / math.sqrt(3) if name in UNIFORM else wanted
    # 60,000 numbers: a mean strays by 0.4 % of the deviation, the deviation by at most 0.3 %.
    assert abs(x.mean()) < 0.02 * deviation
    assert x.std() == pytest.approx(deviation, rel=0.015)
    # The density at 0, which tells the distributions apart, from the share near it.
    share = (np.abs(x) < 0.1 * deviation).mean()
    normal = math.erf(0.1 / math.sqrt(2))
    truncated = math.erf(0.1 * DEVIATION / math.sqrt(2)) / math.erf(math.sqrt(2))
    even = 0.1 / math.sqrt(3)
    expected = even if name in UNIFORM else normal if name in NORMAL else truncated
    assert share == pytest.approx(expected, rel=0.07)
    most = np.abs(x).max()
    if name in UNIFORM:
        assert 0.999 * wanted < most <= wanted * (1 + 1e-6)
    elif name in TRUNCATED:
        assert 1.99 * wanted / DEVIATION < most <= 2 * wanted / DEVIATION * (1 + 1e-6)
    else:
        assert most > 3.5 * wanted


def test_fans_are_pytorchs():
    torch = pytest.importorskip("torch")
    for shape, (fan_in, fan_out) in FANS.items():
        weight = torch.empty(shape).T if len(shape) == 2 else torch.empty(shape)
        assert torch.nn.init._calculate_fan_in_and_fan_out(weight) == (fan_in, fan_out)
        for mode, fan in (("fan_in", fan_in), ("fan_out", fan_out)):
            bound = torch.nn.init.calculate_gain("leaky_relu", 0.5) * math.sqrt(3 / fan)
            x = drawn("kaiming_uniform", shape, 0.5, mode)
            assert 0.999 * bound < np.abs(x).max() <= bound
            assert drawn("kaiming_normal", shape, 0.5, mode).std() == pytest.approx(
                bound / math.sqrt(3), rel=0.015
            )


def test_gains_are_factors():
    for name in ("xavier_uniform", "xavier_normal", "orthogonal"):
        twice = drawn(name, (30, 20), gain=2.0)
        np.testing.assert_allclose(twice, 2.0 * drawn(name, (30, 20)), rtol=1e-12)


def test_truncated_normals_have_a_place_and_a_width():
    x = tg.random.truncated_normal(5.0, 0.1, size=60_000)
    assert 0.1999 < np.abs(x - 5.0).max() <= 0.2 and abs(x.mean() - 5.0) < 0.002
    assert x.std() == pytest.approx(0.1 * DEVIATION, rel=0.015)
    assert tg.random.truncated_normal(1.0, 0.0).shape == ()
    assert abs(tg.random.truncated_normal(size=()) - 0.0) <= 2.0


@pytest.mark.parametrize("shape", [(5, 5), (7, 3), (3, 7), (4, 2, 3, 3), (30, 2, 3)], ids=str)
def test_orthogonal_matrices(shape):
    q = drawn("orthogonal", shape).reshape(shape[0], -1)
    small = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
    np.testing.assert_allclose(small, np.eye(len(small)), atol=1e-14)
    assert drawn("orthogonal", shape, dtype=np.float32).dtype == np.float32


def test_orthogonal_matrices_are_evenly_distributed():
    """Of Haar's measure each element has mean 0, and the trace mean 0 and variance 1."""
    tg.random.seed(0)
    every = np.stack([tg.random.orthogonal((3, 3)) for _ in range(4000)])
    assert np.abs(every.mean(axis=0)).max() < 0.04
    traces = np.trace(every, axis1=1, axis2=2)
    assert abs(traces.mean()) < 0.06 and traces.var() == pytest.approx(1.0, abs=0.08)
    assert (np.linalg.det(every) > 0).mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("name", ["he_normal", "xavier_uniform", "truncated_normal", "orthogonal"])
def test_steps_draw_weights_anew(name):
    draw = getattr(tg.random, name)
    size = {"size": (3, 2)} if name == "truncated_normal" else {"shape": (3, 2)}
    step = tg.compile(lambda x: x @ draw(**size))
    eagerly = []
    for call in (lambda x: x @ draw(**size), step):
        tg.random.seed(1)
        eagerly.append([np.asarray(call(np.eye(3))) for _ in range(5)])
    np.testing.assert_array_equal(*eagerly)
    assert not np.array_equal(eagerly[0][0], eagerly[0][4])


def test_empty_weights_are_empty():
    for name in (*UNIFORM, *NORMAL, *TRUNCATED, "orthogonal"):
        assert drawn(name, (0, 3)).shape == (0, 3)


BAD = {
    "a vector": ("he_normal", ((3,),), ValueError, r"shape=\(3,\); expected two axes or more"),
    "a length": ("orthogonal", ((3, -1),), ValueError, "lengths that are not negative"),
    "no shape": ("lecun_uniform", ("ab",), TypeError, "'shape'"),
    "a mode": ("kaiming_normal", ((2, 2), 0.0, "fan"), ValueError, "'fan_in' or 'fan_out'"),
    "a slope": ("kaiming_uniform", ((2, 2), np.nan), ValueError, "a=nan"),
    "a gain": ("xavier_normal", ((2, 2), -1.0), ValueError, "gain=-1.0"),
    "a scale": ("truncated_normal", (0.0, -1.0), ValueError, "scale=-1.0"),
    "another dtype": ("he_uniform", ((2, 2), np.int64), TypeError, "float32 or float64"),
    "a dtype": ("orthogonal", ((2, 2), 1.0, np.int64), TypeError, "float32 or float64"),
}


@pytest.mark.parametrize("name", BAD)
def test_arguments_that_are_none_leave_the_stream(name):
    function, args, kind, message = BAD[name]
    before = tg.random.get_state()
    with pytest.raises(kind, match=f"random.{function}: received.*{message}"):
        getattr(tg.random, function)(*args)
    assert tg.random.get_state() == before
