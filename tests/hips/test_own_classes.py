"""Values of classes of one's own that are traced: their boxes, vector spaces and gradients."""

from __future__ import annotations

import copy
import inspect

import numpy
import pytest

import tapegraph as tg
import tapegraph.autograd.numpy as np
from tapegraph.autograd import deriv, elementwise_grad, grad, jacobian, make_vjp, value_and_grad
from tapegraph.autograd.builtins import DictBox, SequenceBox
from tapegraph.autograd.core import VJPNode, backward_pass
from tapegraph.autograd.extend import Box, VSpace, defvjp, primitive, vspace
from tapegraph.autograd.numpy.numpy_boxes import ArrayBox
from tapegraph.autograd.numpy.numpy_vspaces import ArrayVSpace
from tapegraph.autograd.tracer import getval, isbox, new_box

X = numpy.array([0.3, -0.7, 1.9])


class Polynomial:
    """A polynomial by its coefficients, the constant first; it is no array."""

    def __init__(self, *coefficients):
        self.coefficients = [float(c) for c in coefficients]

    @primitive
    def at(self, x):
        return sum(c * x**i for i, c in enumerate(self.coefficients))

    def __add__(self, other):
        return vspace(self).add(self, other)

    def __mul__(self, number):
        return vspace(self).scalar_mul(self, number)


def powers(x, n):
    return [x**i for i in range(n)]


defvjp(
    Polynomial.at,
    lambda ans, p, x: lambda g: Polynomial(*powers(x, len(p.coefficients))) * g,
    lambda ans, p, x: (
        lambda g: g * sum(i * c * x ** (i - 1) for i, c in enumerate(p.coefficients) if i)
    ),
)


class PolynomialBox(Box):
    at = Polynomial.at
    __add__ = Polynomial.__add__
    __mul__ = Polynomial.__mul__

    @property
    def coefficients(self):
        return self._value.coefficients


class PolynomialSpace(VSpace):
    def __init__(self, value):
        self.size = len(value.coefficients)

    def zeros(self):
        return Polynomial(*[0.0] * self.size)

    def _add(self, p, q):
        return Polynomial(*map(sum, zip(p.coefficients, q.coefficients, strict=True)))

    def _scalar_mul(self, p, a):
        return Polynomial(*[c * a for c in p.coefficients])

    def _inner_prod(self, p, q):
        return numpy.dot(p.coefficients, q.coefficients)


@pytest.fixture(autouse=True)
def registered():
    boxes, spaces = dict(Box.type_mappings), dict(VSpace.mappings)
    PolynomialBox.register(Polynomial)
    PolynomialSpace.register(Polynomial)
    yield
    for mappings, before in ((Box.type_mappings, boxes), (VSpace.mappings, spaces)):
        mappings.clear()
        mappings.update(before)
    Box.types.discard(PolynomialBox)


P = Polynomial(1.0, 2.0, 3.0)


def close(p, expected):
    assert type(p) is Polynomial
    numpy.testing.assert_allclose(p.coefficients, expected, rtol=1e-14)


def test_a_gradient_by_a_value_is_one():
    """Of p(2)^2 + p(-1) the gradient is 2 p(2) (1, 2, 4) + (1, -1, 1)."""
    value, slope = value_and_grad(lambda p: p.at(2.0) ** 2 + p.at(-1.0))(P)
    assert value == 17.0**2 + 2.0
    close(slope, 2 * 17.0 * numpy.array([1.0, 2.0, 4.0]) + [1.0, -1.0, 1.0])
    by_both = grad(lambda p, x: np.sin(x) * p.at(x), (0, 1))(P, 0.5)
    close(by_both[0], numpy.sin(0.5) * numpy.array([1.0, 0.5, 0.25]))
    expected = numpy.cos(0.5) * 2.75 + numpy.sin(0.5) * (2.0 + 6.0 * 0.5)
    assert by_both[1] == pytest.approx(expected, rel=1e-14)


def test_values_in_structures():
    found = grad(lambda t: t["p"].at(t["x"][1]) * t["x"][0])({"p": P, "x": [2.0, X[0]], "q": P})
    close(found["p"], 2.0 * numpy.array([1.0, 0.3, 0.09]))
    close(found["q"], [0.0, 0.0, 0.0])  # nothing depends on it
    assert found["x"][0] == pytest.approx(1.0 + 0.6 + 0.27, rel=1e-14)


def test_arithmetic_of_values():
    """The sum, product and inner product of a space are recorded as they are."""
    space = vspace(P)

    def f(p, a):
        q = (p + p * a) * 3.0
        assert isinstance(q, PolynomialBox) and isbox(q) and vspace(q) == space
        return q.at(2.0) + space.inner_prod(q, p)

    # 3 (1 + a) (p(2) + p.p), and its derivatives.
    total, norm = 17.0, 14.0
    by_p, by_a = grad(f, (0, 1))(P, 0.5)
    expected = 4.5 * (numpy.array([1.0, 2.0, 4.0]) + 2 * numpy.array([1.0, 2.0, 3.0]))
    close(by_p, expected)
    assert by_a == pytest.approx(3 * (total + norm), rel=1e-14)
    close(space.covector(space.mut_add(None, P)), [1.0, 2.0, 3.0])


def test_a_pullback_and_a_pass_back():
    vjp, (value, aux) = make_vjp(lambda p: (p.at(2.0), "text"))(P)
    assert value == 17.0 and aux == "text"
    close(vjp((3.0, None)), [3.0, 6.0, 12.0])
    vjp, value = make_vjp(lambda p: np.array([p.at(2.0), p.at(0.0)]))(P)
    close(vjp(numpy.array([1.0, 10.0])), [11.0, 2.0, 4.0])
    box = new_box(P, 0, VJPNode.new_root())
    assert isinstance(box, PolynomialBox) and isinstance(box, Box) and box._trace == 0
    assert getval(box) is P and not isinstance(box, ArrayBox)
    close(backward_pass(1.0, (box.at(2.0) * 2.0)._node), [2.0, 4.0, 8.0])
    by_each = elementwise_grad(lambda p: np.array([p.at(1.0), p.at(2.0)]))(P)
    close(by_each, [2.0, 3.0, 5.0])


def test_a_second_derivative_by_a_value_is_an_error():
    assert grad(lambda x: P.at(x))(2.0) == 14.0  # P is a constant
    with pytest.raises(NotImplementedError, match="a Polynomial has no second derivative"):
        grad(lambda a: grad(lambda p: p.at(2.0) * a)(P).at(1.0))(3.0)


def test_what_values_are_refused_for():
    for transform in (deriv, jacobian):
        with pytest.raises(TypeError, match="Polynomial"):
            transform(lambda p: p.at(2.0))(P)
    with pytest.raises(TypeError, match="Polynomial"):
        make_vjp(lambda p: p * 2.0)(P)
    both = primitive(lambda p: [p, 1.0])
    defvjp(both, lambda ans, p: lambda g: g[0])
    with pytest.raises(TypeError, match="a list with a Polynomial in it"):
        grad(lambda p: both(p)[0].at(2.0))(P)
    del Box.type_mappings[Polynomial]
    with pytest.raises(TypeError, match="Polynomial"):
        grad(lambda p: p.at(2.0))(P)


class Flagged(numpy.ndarray):
    """An array that says whether it may be differentiated by."""

    frozen = False


def test_a_function_that_makes_the_boxes_of_a_class():
    """As a library says for its arrays: what it refuses is not differentiated by."""

    def boxed(x, trace, node):
        if x.frozen:
            raise ValueError("frozen")
        return ArrayBox(x, trace, node)

    Box.type_mappings[Flagged] = boxed
    VSpace.mappings[Flagged] = ArrayVSpace
    x = X.view(Flagged)
    for found in (
        grad(lambda x: np.sum(x**2))(x),
        grad(lambda t: np.sum(t["x"][0] ** 2))({"x": [x]})["x"][0],
        make_vjp(lambda x: x**2)(x)[0](numpy.ones(3)),
        numpy.diag(jacobian(lambda x: x**2)(x)),
    ):
        assert found.tolist() == (2 * X).tolist()
    box = new_box([x, x], 3, VJPNode.new_root())
    assert box._trace == box[1]._trace == 3 and vspace(x).shape == (3,)
    assert backward_pass(1.0, np.sum(box[0] * box[1])._node)[0].tolist() == X.tolist()
    frozen = x.view()
    frozen.frozen = True
    for transform in (grad, make_vjp, jacobian):
        with pytest.raises(ValueError, match="frozen"):
            transform(lambda x: np.sum(x**2))(frozen)


def test_boxes_by_the_classes_that_stand_for_them():
    box = ArrayBox(X, 2, VJPNode.new_root())
    assert isinstance(box, ArrayBox) and isinstance(box, Box) and box._trace == 2
    assert backward_pass(1.0, np.sum(box**2)._node).tolist() == (2 * X).tolist()
    again = ArrayBox(box._value, box._trace, (box * 2.0)._node)  # of its own node a box is itself
    assert numpy.array_equal(again._value, 2 * X)
    pair = SequenceBox((1.0, X), 0, VJPNode.new_root())
    assert isinstance(pair, SequenceBox) and isinstance(pair, tuple) and isbox(pair[1])
    for kind, boxes in ((numpy.ndarray, ArrayBox), (list, SequenceBox), (dict, DictBox)):
        assert Box.type_mappings[kind] is boxes and boxes in Box.types


def test_attributes_that_boxes_are_given():
    """A library adds to autograd's class of boxes; a tensor has that while it is differentiated."""
    before = {name: inspect.getattr_static(tg.Tensor, name) for name in ("item", "__copy__")}
    x = tg.param(3.0)
    try:
        ArrayBox.item = lambda self: np.ravel(self)[0]
        ArrayBox.twice = property(lambda self: self * 2)
        Box.__copy__ = lambda self: self * 10.0
        ArrayBox.__array_ufunc__ = None
        assert grad(lambda x: np.sum(x**2).item())(X).tolist() == (2 * X).tolist()
        assert grad(lambda x: np.sum(copy.copy(x.twice)))(X).tolist() == [20.0] * 3
        assert type(x.item()) is float and copy.copy(x) is x and x.twice.item() == 6.0
        assert deriv(lambda x: x[None].item() * 2.0)(3.0) == 2.0
        ArrayBox.item = lambda self: np.ravel(self)[0] * 5.0
        assert grad(lambda x: x.item())(3.0) == 5.0 and tg.tensor(3.0).item() == 3.0
    finally:
        for kind in (tg.Tensor, tg.Dual):
            for name in ("item", "__copy__"):
                found = inspect.getattr_static(kind, name)
                if hasattr(found, "own"):
                    setattr(kind, name, found.own)
                else:
                    delattr(kind, name)
            del kind.twice
        for name in ("item", "twice", "__array_ufunc__"):
            delattr(ArrayBox, name)
        del Box.__copy__
    assert all(inspect.getattr_static(tg.Tensor, name) is own for name, own in before.items())


class Loud(numpy.ndarray):
    """An array with ufuncs of its own, which does not know what stands beside it."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        plain = [x.view(numpy.ndarray) if isinstance(x, Loud) else x for x in inputs]
        found = super().__array_ufunc__(ufunc, method, *plain, **options)
        return numpy.asarray(found).view(Loud)


def test_an_array_that_computes_leaves_it_to_what_is_traced():
    Box.type_mappings[Loud], VSpace.mappings[Loud] = ArrayBox, ArrayVSpace
    y = numpy.array([1.0, 2.0, 3.0]).view(Loud)
    for f in (lambda x: y * x, lambda x: x * y, lambda x: np.multiply(y, x)):
        assert grad(lambda x, f=f: np.sum(f(x)))(X).tolist() == [1.0, 2.0, 3.0]
    assert type(y * 2.0) is Loud and (y + y).tolist() == [2.0, 4.0, 6.0]
    assert grad(lambda x: np.sum(np.add(x, 1.0) * x))(y).tolist() == [3.0, 5.0, 7.0]
