"""What programs of photonics and signal processing lean on: complex matrices, sparse primitives."""

from __future__ import annotations

import numpy
import pytest

import tapegraph.autograd.numpy as np
from tapegraph.autograd import grad, jacobian, make_jvp
from tapegraph.autograd.core import primitive_vjps
from tapegraph.autograd.extend import defjvp, defvjp, primitive

RNG = numpy.random.default_rng(5)


def drawn(*shape):
    return RNG.normal(size=shape) + 1j * RNG.normal(size=shape)


A, B, W = drawn(3, 3), drawn(3, 3), drawn(3, 3)
NEAR_HERMITIAN = A @ A.conj().T + 3 * numpy.eye(3) + 0.1 * B
U, V = drawn(3), drawn(5)


def loss(x):
    x = np.ravel(x)
    weights = numpy.exp(1j * numpy.arange(x.size))
    return np.sum(np.abs(x) ** 4) + np.sum(np.real(weights * x))


def conjugate_gradient(f, x, step=1e-6):
    """By differences: the derivative by the real part minus i times the one by the imaginary."""
    found = numpy.zeros(x.shape, x.dtype)
    for place in numpy.ndindex(x.shape):
        for unit in (1.0, 1j) if numpy.iscomplexobj(x) else (1.0,):
            dx = numpy.zeros_like(x)
            dx[place] = unit * step
            found[place] += numpy.conj(unit) * (f(x + dx) - f(x - dx)) / (2 * step)
    return found


def check(f, x):
    numpy.testing.assert_allclose(grad(f)(x), conjugate_gradient(f, x), rtol=1e-5, atol=1e-6)
    # Forward mode along a direction, against the real part of the product with the gradient.
    along = RNG.normal(size=x.shape).astype(x.dtype)
    slope = make_jvp(f)(x)(along)[1]
    assert slope == pytest.approx(numpy.real(numpy.sum(grad(f)(x) * along)), rel=1e-8)


OF_MATRICES = {
    "sqrtm": (lambda sl, a: sl.sqrtm(a), NEAR_HERMITIAN),
    "expm": (lambda sl, a: sl.expm(a), 0.3 * A),
    "expm, real": (lambda sl, a: sl.expm(a), 0.3 * A.real),
    "expm, batch": (lambda sl, a: sl.expm(a), 0.3 * drawn(2, 2, 2)),
    "solve_sylvester, a": (lambda sl, a: sl.solve_sylvester(a, B, W), NEAR_HERMITIAN),
    "solve_sylvester, b": (lambda sl, b: sl.solve_sylvester(NEAR_HERMITIAN, b, W), B),
    "solve_triangular": (lambda sl, a: sl.solve_triangular(a, W), NEAR_HERMITIAN),
    "solve_triangular, T": (lambda sl, a: sl.solve_triangular(a, W, trans=1), NEAR_HERMITIAN),
    "solve_triangular, C": (lambda sl, a: sl.solve_triangular(a, W, trans="C"), NEAR_HERMITIAN),
    "solve_banded": (lambda sl, a: sl.solve_banded((1, 1), a, W), NEAR_HERMITIAN),
}


@pytest.mark.parametrize("name", OF_MATRICES)
def test_functions_of_complex_matrices(name):
    pytest.importorskip("scipy")
    import scipy.linalg

    import tapegraph.autograd.scipy.linalg as sl

    f, a = OF_MATRICES[name]
    numpy.testing.assert_array_equal(f(sl, a), f(scipy.linalg, a))
    seen = []

    def traced(a):
        seen.append(f(sl, a))
        return loss(seen[-1])

    grad(traced)(a)
    numpy.testing.assert_allclose(seen[-1]._value, f(scipy.linalg, a), rtol=1e-10)
    check(lambda a: loss(f(sl, a)), a)


def test_second_derivative_of_expm():
    pytest.importorskip("scipy")
    from tapegraph.autograd.scipy.linalg import expm

    a = 0.4 * A.real

    def slope(t):
        return grad(lambda t: np.sum(expm(t * a) * W.real))(t)

    exact = numpy.sum(a @ a @ expm(0.7 * a) * W.real)
    assert grad(slope)(0.7) == pytest.approx(exact, rel=1e-10)


def test_functions_of_scipy_take_rules():
    """A function that has none here is one object, which rules are given to."""
    pytest.importorskip("scipy")
    import tapegraph.autograd.scipy.linalg as sl

    assert sl.logm is sl.logm
    defvjp(sl.logm, lambda ans, a: lambda g: g @ np.linalg.inv(a).T)  # of commuting matrices
    d = numpy.diag([0.5, 2.0])
    found = grad(lambda a: np.trace(sl.logm(a)))(d)
    numpy.testing.assert_allclose(found, numpy.diag([2.0, 0.5]))
    del primitive_vjps[sl.logm]


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(("a", "v"), [(V, U), (U, V), (V.real, U), (V.real, U.real)])
def test_convolve(a, v, mode):
    numpy.testing.assert_allclose(
        jacobian(lambda a: np.real(np.convolve(a, v, mode)))(a.real),
        numpy.stack([numpy.convolve(e, v, mode).real for e in numpy.eye(a.size)], axis=1),
        atol=1e-12,
    )
    check(lambda a: loss(np.convolve(a, v, mode)), a)
    check(lambda v: loss(np.convolve(a, v, mode)), v)
    assert type(np.convolve([1, 2], [1, 2])) is numpy.ndarray


def test_convolve_refuses():
    for a, v, mode in ((A, U, "full"), (U, U, "half"), (U[:0], U, "full")):
        with pytest.raises(ValueError, match=r"^convolve: received"):
            grad(lambda v, a=a, mode=mode: loss(np.convolve(a, v, mode)))(v)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("axes", [None, 1])
@pytest.mark.parametrize("real", [True, False])
def test_fftconvolve(mode, axes, real):
    signal = pytest.importorskip("scipy.signal")
    from tapegraph.autograd.scipy.signal import fftconvolve

    one, other = drawn(3, 5), drawn(3 if axes else 2, 3)
    one, other = (one.real, other.real) if real else (one, other)
    seen = []

    def traced(x):
        seen.append(fftconvolve(x, other, mode, axes))
        return loss(seen[-1])

    grad(traced)(one)
    expected = signal.fftconvolve(one, other, mode, axes)
    numpy.testing.assert_allclose(seen[-1]._value, expected, atol=1e-12)
    check(traced, one)
    check(lambda x: loss(fftconvolve(one, x, mode, axes)), other)


def test_fftconvolve_refuses():
    pytest.importorskip("scipy")
    from tapegraph.autograd.scipy.signal import fftconvolve

    for other, mode in ((A, "half"), (U, "full"), (drawn(2, 4), "valid")):
        with pytest.raises(ValueError, match="fftconvolve: received"):
            grad(lambda x, other=other, mode=mode: loss(fftconvolve(x, other, mode)))(A)


def test_joining_views_and_iterables():
    parts = {"a": U, "b": 1j * U}
    stacked = numpy.stack(list(parts.values()))

    def scaled(scale):
        return {name: scale * x for name, x in parts.items()}

    for join in (np.stack, np.vstack, np.array):
        found = grad(lambda s, join=join: loss(join(scaled(s).values())))(2.0)
        expected = conjugate_gradient(lambda s: loss(s * stacked), numpy.array(2.0))
        assert found == pytest.approx(float(expected), rel=1e-6)
    made = grad(lambda s: loss(np.concatenate(x for x in scaled(s).values())))(2.0)
    assert made == pytest.approx(found)


def test_array_of_objects_computes_on():
    def f(x):
        return np.sum(np.array([x[0], 2.0 * x[1]], dtype=object).ravel() ** 2)

    numpy.testing.assert_allclose(grad(f)(np.array([1.0, 3.0])), [2.0, 24.0])


@primitive
def sparse_product(entries, indices, x):
    """A sparse matrix times a vector: a result's numbers and where they stand."""
    rows, columns = indices
    touched = numpy.unique(rows)
    out = numpy.zeros(x.size, complex)
    numpy.add.at(out, rows, entries * x[columns])
    return out[touched], touched, numpy.abs(out[touched])


def _by_entries(ans, entries, indices, x):
    _, touched, _ = ans

    def vjp(g):
        value, whole, size = g
        assert whole.dtype == touched.dtype and not whole.any()
        assert np.isrealobj(size) and np.iscomplexobj(value)
        spread = numpy.zeros((x.size, touched.size))
        spread[touched, numpy.arange(touched.size)] = 1.0
        phase = np.conj(ans[0]) / ans[2]
        return np.dot(spread, value + size * phase)[indices[0]] * x[indices[1]]

    return vjp


defvjp(sparse_product, _by_entries, argnums=[0])
defjvp(
    sparse_product,
    lambda g, ans, entries, indices, x: (
        sparse_product(g, indices, x)[0],
        numpy.zeros(ans[1].shape),
        np.real(sparse_product(g, indices, x)[0] * np.conj(ans[0])) / ans[2],
    ),
)


def test_a_primitive_gives_numbers_and_indices():
    indices = numpy.array([[0, 2, 2], [1, 0, 2]])
    entries = drawn(3)

    def f(entries):
        value, touched, size = sparse_product(entries, indices, U)
        assert touched.dtype.kind == "i" and type(touched) is numpy.ndarray
        assert size.dtype == float
        return loss(value) + np.sum(size * U.real[touched])

    check(f, entries)
