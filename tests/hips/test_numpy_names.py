"""On plain arguments every name is NumPy's, and nothing of it is lost on traced ones."""

from __future__ import annotations

import importlib
import types
from collections import OrderedDict

import numpy
import pytest

import tapegraph.autograd.numpy as np
from tapegraph.autograd import grad, jacobian
from tapegraph.autograd.scipy import special
from tests.quick import in_one

X = numpy.array([0.3, -0.7, 1.9])


@pytest.mark.parametrize("module", ["", "linalg", "fft", "random"])
def test_every_name_is_there(module):
    ours, theirs = (getattr(m, module) if module else m for m in (np, numpy))
    for name in theirs.__all__:
        value, expected = getattr(ours, name), getattr(theirs, name)
        if isinstance(expected, types.ModuleType) or name in ("r_", "c_", "row_stack"):
            continue
        if isinstance(expected, type):
            assert value == expected and issubclass(expected, value)
        else:
            assert value is expected or value.fun is expected


def test_names_are_of_one_module():
    names = np.numpy_wrapper
    assert all(getattr(names, name) is getattr(np, name) for name in names.__all__)


def test_plain_arguments_are_numpys_business():
    out = numpy.zeros(3)
    assert np.exp(X, out=out) is out and numpy.array_equal(out, numpy.exp(X))
    assert np.array([1, "a", None], dtype=object).dtype == object
    assert np.add.reduce([1, 2, 3]) == 6 and np.sum([[1, 2], [3, 4]]) == 10
    assert np.array([1, 2]).dtype == numpy.array([1, 2]).dtype
    assert type(np.sin(1.0)) is numpy.float64 and np.float32 is numpy.float32
    assert np.r_[1:3, 7].tolist() == [1, 2, 7] and np.c_[[1, 2], [3, 4]].tolist() == [
        [1, 3],
        [2, 4],
    ]
    assert np.fft.fft(X).dtype == numpy.complex128
    assert np.random.RandomState is numpy.random.RandomState
    assert np.newaxis is None and np.pi == numpy.pi and np.mgrid is numpy.mgrid
    with pytest.raises(AttributeError):
        np.no_such_name  # noqa: B018


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("spacing", [(), (0.5,), (0.5, numpy.array([0.0, 0.3, 1.0, 1.2]))])
def test_gradient_is_numpys(spacing, edge_order):
    a = numpy.sin(numpy.arange(12.0)).reshape(3, 4)
    seen = []

    def f(a):
        parts = np.gradient(a, *spacing, edge_order=edge_order)
        seen.extend(part._value for part in parts)
        return np.sum(parts[0] * 2.0) + np.sum(parts[1] ** 2)

    found = grad(f)(a)
    for part, expected in zip(
        seen, numpy.gradient(a, *spacing, edge_order=edge_order), strict=True
    ):
        numpy.testing.assert_allclose(part, expected, rtol=1e-12, atol=1e-14)
    step = 1e-6
    moved = numpy.zeros_like(a)
    moved[1, 2] = step

    def plain(a):
        parts = numpy.gradient(a, *spacing, edge_order=edge_order)
        return numpy.sum(parts[0] * 2.0) + numpy.sum(parts[1] ** 2)

    slope = (plain(a + moved) - plain(a - moved)) / (2 * step)
    assert found[1, 2] == pytest.approx(slope, rel=1e-7)


def test_integers_of_traced_values_are_plain():
    seen = []

    def f(x):
        seen.append(np.int64(x))
        return np.sum(x[np.int64(x)] * x)

    x = numpy.array([0.0, 1.2, 1.9])
    # x0 x0 + x1 x1 + x1 x2
    numpy.testing.assert_allclose(grad(f)(x), [2 * x[0], 2 * x[1] + x[2], x[1]], rtol=1e-15)
    assert type(seen[0]) is numpy.ndarray and seen[0].dtype == np.int64 == numpy.int64


def test_integers_are_numpys_types():
    assert type(np.int32(3)) is numpy.int32 and np.int64() == 0
    assert isinstance(numpy.int16(1), np.integer) and not isinstance(1.0, np.int64)
    assert numpy.issubdtype(numpy.uint8, np.integer) and numpy.iinfo(np.int8).max == 127
    assert numpy.dtype(np.int32) == numpy.int32 == np.zeros(1, dtype=np.int32).dtype
    assert {numpy.int64: 1}[np.int64] == 1


@pytest.mark.parametrize("name", ["stack", "vstack", "row_stack", "hstack", "concatenate"])
def test_iterators_are_joined(name):
    join = getattr(np, name)
    expected = getattr(numpy, "vstack" if name == "row_stack" else name)([X, 2 * X])
    assert numpy.array_equal(join(k * X for k in (1, 2)), expected)
    found = jacobian(lambda x: join(iter([x, 2 * x])))(X)
    assert numpy.array_equal(numpy.tensordot(found, X, 1), expected)


def test_row_stack_joins_arrays_of_several_rows():
    def f(x):
        return np.sum(np.row_stack((x, x[:1])) * numpy.arange(9.0).reshape(3, 3))

    expected = numpy.arange(6.0).reshape(2, 3) + numpy.array([[6.0, 7.0, 8.0], [0.0, 0.0, 0.0]])
    assert numpy.array_equal(grad(f)(numpy.ones((2, 3))), expected)


def test_where_takes_names():
    mask = [True, False, True]
    for named in ({"condition": mask, "x": X, "y": -X}, {"condition": mask, "y": -X, "x": X}):
        assert numpy.array_equal(np.where(**named), numpy.where(mask, X, -X))
    assert grad(lambda x: np.sum(np.where(mask, x, y=2 * x)))(X).tolist() == [1.0, 2.0, 1.0]
    assert np.where(condition=mask)[0].tolist() == [0, 2]
    for wrong in ({"x": X}, {"x": X, "z": X}):
        with pytest.raises((TypeError, ValueError)):
            np.where(mask, **wrong)


def linear(f, x):
    """The values of a function that is linear in ``x``, from its Jacobian alone."""
    return numpy.tensordot(jacobian(f)(x), x, x.ndim)


@in_one(
    "f",
    [
        lambda np, x: np.array([[x[0], x[1]], [x[2], 0.0]]),
        lambda np, x: np.array([x, [x[0], 0.0, x[1]]], ndmin=3),
        lambda np, x: np.asarray([x[0], x[2]]),
        lambda np, x: np.linspace(x[0], x[1], 5),
        lambda np, x: np.linspace(x, 2 * x, 3, endpoint=False, axis=1),
        lambda np, x: np.full((2, 2), x[1]),
        lambda np, x: np.full_like(numpy.ones((2, 3)), x[1]),
        lambda np, x: np.append(x, [x[0], x[1]]),
        lambda np, x: np.append([x], [[x[0], x[1], 0.0]], axis=0),
        lambda np, x: np.meshgrid(x, x[:2])[0] + np.meshgrid(x, x[:2], indexing="ij")[1].T,
        lambda np, x: np.r_["0,2", x, x[::-1]],
        lambda np, x: np.r_[x[0], x, 0.0],
        lambda np, x: np.c_[x, [x[0], x[1], 0.0]],
        lambda np, x: np.concatenate([x, [x[0], x[1]]]),
        lambda np, x: np.sum([x[0], x[1], 0.0]) * numpy.ones(1),
        lambda np, x: np.dot([x[0], x[1]], numpy.ones((2, 2))),
        lambda np, x: np.vstack(([x[0], x[1]], x[:2])),
        lambda np, x: np.where(numpy.array([True, False]), [x[0], x[1]], 0.0),
        lambda np, x: np.conj(np.real_if_close(x)),
        lambda np, x: np.block([[x, 2 * x], [numpy.ones(3) * x[1], x[::-1]]]),
        lambda np, x: np.block([x, x[0], 0.0]),
        lambda np, x: np.block([[x[:1, None], x[1:2, None]], [numpy.zeros((3, 1)), x[:, None]]]),
        lambda np, x: np.bincount([0, 4, 0], weights=x, minlength=7),
        lambda np, x: np.bincount([1, 0, 1], x),
        lambda np, x: np.histogram([0.0, 0.4, 1.0], 3, weights=x)[0],
        lambda np, x: np.histogram([0.5, 7.0, 1.0], [0.0, 0.5, 1.0], weights=x)[0],
        lambda np, x: np.histogram([[0.1, 0.9, 0.3]], 2, (0.2, 1.0), weights=x[None])[0],
        lambda np, x: np.histogram(x, 4)[1],
        lambda np, x: np.histogram(X, 4, range=(x[1], x[2]))[1],
        lambda np, x: np.histogram(X, x[1:])[1],
        lambda np, x: np.fft.fftshift(x),
        lambda np, x: np.fft.ifftshift(x),
        lambda np, x: np.fft.fftshift(numpy.ones((2, 1)) * x, axes=-1),
        lambda np, x: np.fft.ifftshift(numpy.ones((2, 1)) * x, axes=(0, 1)),
        lambda np, x: np.stack([x, 2 * x]).flatten("F"),
    ],
)
def test_what_numpy_does_not_dispatch_records(f):
    expected = f(numpy, X)
    numpy.testing.assert_allclose(linear(lambda x: f(np, x), X), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("density", [False, True])
def test_a_histogram_of_traced_data(density):
    a = numpy.array([[0.2, 1.7, 0.9], [1.1, 0.4, 1.3]])
    w = numpy.array([[1.0, 2.0, 0.5], [3.0, 1.5, 0.7]])

    def f(np, a, w):
        heights, edges = np.histogram(a, 3, weights=w, density=density)
        return np.sum(heights * numpy.array([1.0, -2.0, 5.0])) + np.sum(edges * X.mean())

    for argnum, x in enumerate((a, w)):
        found = grad(lambda a, w: f(np, a, w), argnum)(a, w)
        for place in numpy.ndindex(x.shape):
            moved = numpy.zeros_like(x)
            moved[place] = 1e-6
            sides = [[a, w], [a, w]]
            sides[0][argnum], sides[1][argnum] = x + moved, x - moved
            slope = (f(numpy, *sides[0]) - f(numpy, *sides[1])) / 2e-6
            assert found[place] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_what_a_histogram_refuses():
    with pytest.raises(ValueError, match=r"numpy.histogram: received weights of shape \(2,\)"):
        grad(lambda w: np.sum(np.histogram(X, weights=w)[0]))(X[:2])
    with pytest.raises(ValueError, match=r"numpy.bincount: received weights of shape \(2,\)"):
        grad(lambda w: np.sum(np.bincount([0, 1, 2], w)))(X[:2])


def test_edges_around_a_single_number_move_with_it():
    edges = []
    found = jacobian(lambda a: edges.append(np.histogram(a, 2)[1]) or edges[0])(X[:1])
    numpy.testing.assert_allclose(edges[0]._value, numpy.histogram(X[:1], 2)[1], rtol=1e-15)
    assert found.tolist() == [[1.0]] * 3


def test_frequencies_of_a_traced_spacing():
    # 1 / (n d), and its derivative -1 / (n d^2)
    assert grad(lambda d: np.fft.fftfreq(4, d)[1])(0.5) == pytest.approx(-1.0)
    assert grad(lambda d: np.fft.rfftfreq(4, d)[2])(0.5) == pytest.approx(-2.0)


@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.parametrize("name", ["array", "stack", "vstack", "hstack", "concatenate"])
def test_views_of_dicts_are_joined(name, kind):
    found = grad(lambda d: np.dot(np.ravel(getattr(np, name)(d.values())), numpy.arange(6.0)))(
        kind(a=X, b=2 * X)
    )
    assert type(found) is kind and found["a"].tolist() == [0.0, 1.0, 2.0]
    assert found["b"].tolist() == [3.0, 4.0, 5.0]


def test_own_functions():
    made = np.make_diagonal(X, offset=0, axis1=-1, axis2=-2)
    assert numpy.array_equal(made, numpy.diag(X))
    assert np.concatenate_args(0, X, X).shape == (6,)
    assert np.array_from_args((), {}, 1, 2).tolist() == [1, 2]
    assert np.metadata(X) == ((3,), 1, numpy.dtype(float), False)
    with pytest.raises(NotImplementedError, match="make_diagonal"):
        np.make_diagonal(X)


def test_functions_without_gradient_give_plain_arrays():
    def f(x):
        assert type(np.floor_divide(x, 0.5)) is numpy.ndarray
        assert np.isscalar(x[0]) and type(np.argsort(x)) is numpy.ndarray
        return np.sum(x * np.trunc(x))

    assert grad(f)(X).tolist() == numpy.trunc(X).tolist()


def test_what_cannot_be_recorded_is_an_error_by_name():
    with pytest.raises(TypeError, match="numpy.polyfit"):
        grad(lambda x: np.polyfit(x, x, 1))(X)
    with pytest.raises(TypeError, match="asarray"):
        grad(lambda x: np.sum(np.random.normal(x)))(X)


def test_scipy_is_asked_for_by_name_where_it_is_missing(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match="pip install scipy"):
        special.gammainc(1.0, 2.0)
    with pytest.raises(ImportError, match=r"scipy\.special\.erf"):
        special.erf  # noqa: B018
