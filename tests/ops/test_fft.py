"""`tg.fft` beside SciPy: its `fftconvolve`, and `scipy.fft` by the protocol of backends."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.ops.fft import _fast_length
from tests.quick import check_product

RNG = np.random.default_rng(5)
SHAPES = [
    ((7,), (3,), None),
    ((3,), (7,), None),
    ((4, 6), (3, 2), None),
    ((4, 6), (4, 2), (1,)),
    ((4, 6), (1, 2), 1),
    ((1, 6), (4, 2), -1),
    ((4, 6), (1, 2), None),
    ((2, 3, 4), (2, 1, 3), (-1, 1)),
    ((5, 4), (1, 1), None),
    ((), (), None),
]
MODES = ("full", "same", "valid")


@pytest.fixture(scope="module")
def scipy_fft():
    return pytest.importorskip("scipy.fft")


def numbers(shape, dtype):
    parts = RNG.normal(size=(2, *shape))
    return np.asarray(parts[0] + 1j * parts[1] if dtype.kind == "c" else parts[0], dtype)


@pytest.mark.parametrize("mode", MODES)
def test_fftconvolve_is_scipys(mode):
    pytest.importorskip("scipy.signal")
    check = functools.partial(fftconvolve_is_scipys, mode)
    check_product(check, SHAPES, ["float64", "complex128", "float32", "complex64"])


def fftconvolve_is_scipys(mode, shapes, first):
    from scipy import signal

    one, other, axes = shapes
    a = numbers(one, np.dtype(first))
    b = numbers(other, np.dtype("float64" if a.itemsize > 8 or first == "float64" else "float32"))
    want = signal.fftconvolve(a, b, mode, axes)
    got = tg.fft.fftconvolve(a, b, mode, axes)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    accuracy = 1e-12 if got.dtype in (np.float64, np.complex128) else 1e-4
    np.testing.assert_allclose(got.data, want, rtol=accuracy, atol=accuracy)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_gradients_of_fftconvolve_are_those_of_differences_and_of_the_sum(mode, dtype):
    a, b = numbers((4, 6), np.dtype(dtype)), numbers((1, 3), np.dtype("float64"))

    def convolved(x, y):
        return tg.fft.fftconvolve(x, y, mode, axes=1)

    def by_hand(x, y):
        """The definition of it: each shift of the longer by an element of the shorter."""
        shifts = (tg.pad(x * y[:, k : k + 1], [(0, 0), (k, 2 - k)]) for k in range(3))
        whole = sum(shifts)
        start, size = {"full": (0, 8), "same": (1, 6), "valid": (2, 4)}[mode]
        return whole[:, start : start + size]

    tg.testing.check_gradients(convolved, a, b)
    found = []
    for f in (convolved, by_hand):
        x, y = tg.param(a), tg.param(b)
        with tg.use_backend("native"):
            tg.sum(tg.abs(f(x, y) - 0.5) ** 2).backward()
        found.append((x.grad, y.grad))
    for got, want in zip(*found, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_fftconvolve_in_tensorflow():
    pytest.importorskip("tensorflow")
    a, b = numbers((6,), np.dtype(complex)), numbers((3,), np.dtype(float))
    report = tg.testing.check_parity(lambda x, y: tg.fft.fftconvolve(x, y, "same"), a, b)
    assert report.backend == "tensorflow"


def test_fftconvolve_in_a_compiled_step_and_forward_mode():
    a, b = numbers((9,), np.dtype(complex)), numbers((4,), np.dtype(float))
    step = tg.compile(lambda x, y: tg.fft.fftconvolve(x, y, "same"))
    for scale in (1.0, -2.0):
        want = np.convolve(scale * a, b)[1:10]
        np.testing.assert_allclose(step(scale * a, b), want, rtol=1e-12)
    tangents = (numbers((9,), a.dtype), numbers((4,), b.dtype))
    _, moved = tg.jvp(tg.fft.fftconvolve, (a, b), tangents)
    want = np.convolve(tangents[0], b) + np.convolve(a, tangents[1])
    np.testing.assert_allclose(moved, want, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    "one, other, options, match",
    [
        ((3,), (2, 2), {}, "the same number of axes"),
        ((3,), (0,), {}, "none of them empty"),
        ((3, 4), (2, 4), {"axes": 1}, "broadcast along axis 0"),
        ((3, 2), (2, 3), {"mode": "valid"}, "one that fits into the other"),
        ((3,), (2,), {"mode": "most"}, "'most'"),
        ((3,), (2,), {"axes": 1}, "axis"),
    ],
)
def test_fftconvolve_refuses_what_does_not_fit(one, other, options, match):
    with pytest.raises(ValueError, match=f"fftconvolve: received .*{match}"):
        tg.fft.fftconvolve(tg.param(np.ones(one)), np.ones(other), **options)


def test_fast_lengths_have_small_prime_factors_and_none_is_left_out():
    smooth = sorted(2**i * 3**j * 5**k for i in range(11) for j in range(7) for k in range(5))
    for n in range(1, 600):
        assert _fast_length(n) == next(length for length in smooth if length >= n)


# -- scipy.fft -----------------------------------------------------------------------------------

CALLS = [
    ("fft", (8, 0), {"norm": "ortho"}),
    ("ifft", (), {"n": 3}),
    ("fft2", (), {}),
    ("ifft2", ((3, 4),), {"workers": 1}),
    ("fftn", (), {"axes": 0, "overwrite_x": True}),
    ("ifftn", (), {"s": 3, "axes": 1}),
    ("rfft", (), {"norm": "forward"}),
    ("irfft", (5,), {"axis": 0}),
    ("rfft2", (), {"s": (3, 4)}),
    ("irfft2", (), {}),
    ("rfftn", (), {}),
    ("irfftn", ((4, 7),), {}),
    ("hfft", (), {}),
    ("ihfft", (), {"n": 6}),
    ("fftshift", (), {"axes": 1}),
    ("ifftshift", (), {}),
]


@pytest.mark.parametrize("name, args, options", CALLS, ids=[call[0] for call in CALLS])
def test_functions_of_scipy_fft_record(scipy_fft, name, args, options):
    real = name in ("rfft", "rfft2", "rfftn", "ihfft")
    data = numbers((4, 5), np.dtype(float if real else complex))
    transform = getattr(scipy_fft, name)
    want = transform(data.copy(), *args, **options)  # which it may overwrite

    def loss(x):
        with scipy_fft.set_backend(tg.fft):
            out = transform(x, *args, **options)
        np.testing.assert_allclose(out.detach().data, want, rtol=1e-12, atol=1e-13)
        return tg.sum(tg.abs(out - 0.5) ** 2)

    x = tg.param(data)
    with tg.use_backend("native"):
        loss(x).backward()
    # The loss is quadratic, so that differences are exact.
    along = numbers((4, 5), data.dtype)
    ends = [
        np.sum(np.abs(transform(data + t * along, *args, **options) - 0.5) ** 2) for t in (1, -1)
    ]
    slope = np.real(np.vdot(x.grad, along))
    assert slope == pytest.approx((ends[0] - ends[1]) / 2.0, rel=1e-10)


def test_scipy_fft_keeps_what_is_plain_and_what_is_not_recorded(scipy_fft):
    x = np.arange(4.0)
    with scipy_fft.set_backend(tg.fft):
        assert type(scipy_fft.fft(x)) is np.ndarray
        assert type(scipy_fft.dct(x)) is np.ndarray
        _, tangent = tg.jvp(scipy_fft.fft, (x,), (x,))
        with pytest.raises(TypeError, match="lose the gradient"):
            scipy_fft.dct(tg.param(x))
        # Older ones refuse a plan themselves.
        with pytest.raises((TypeError, NotImplementedError), match="lose the gradient|plan"):
            scipy_fft.fft(tg.param(x), plan=1)
    np.testing.assert_allclose(tangent, np.fft.fft(x), atol=1e-14)
    # Without the backend SciPy takes it for an array: older ones ask for what a tensor has not.
    with pytest.raises((TypeError, AttributeError), match="lose the gradient|flags"):
        scipy_fft.fft(tg.param(x))
