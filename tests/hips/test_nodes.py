"""Operators written by hand with autograd's boxes and nodes, against closed forms."""

from __future__ import annotations

import numpy
import pytest

import tapegraph as tg
import tapegraph.autograd.numpy as np
from tapegraph.autograd import (
    core,
    deriv,
    elementwise_grad,
    grad,
    make_jvp,
    tracer,
    util,
)
from tapegraph.autograd.core import JVPNode, VJPNode, backward_pass, primitive_jvps, primitive_vjps
from tapegraph.autograd.differential_operators import _make_jvp, _make_vjp
from tapegraph.autograd.extend import (
    SparseObject,
    defjvp,
    defvjp,
    primitive,
    register_notrace,
    vspace,
)
from tapegraph.autograd.numpy.numpy_boxes import ArrayBox
from tapegraph.autograd.numpy.numpy_jvps import broadcast, broadcast_f
from tapegraph.autograd.numpy.numpy_vspaces import ArrayVSpace, ComplexArrayVSpace
from tapegraph.autograd.numpy.numpy_wrapper import _astype
from tapegraph.autograd.tracer import Node, isbox, new_box, trace, trace_stack
from tapegraph.autograd.util import func

X = numpy.array([0.3, -0.7, 1.9])


def box(x, level=0):
    return new_box(x, level, VJPNode.new_root())


def test_rows_of_a_jacobian_by_hand():
    x = box(X)
    y = np.array([np.sum(x**3), x[0] * x[1]])
    expected = [3 * X**2, [X[1], X[0], 0.0]]
    rows = [backward_pass(unit, y._node) for unit in numpy.eye(2)]
    assert all(type(row) is numpy.ndarray for row in rows)
    numpy.testing.assert_allclose(rows, expected, rtol=1e-14)
    # With a traced cotangent the result is traced.
    traced = np.stack([backward_pass(box(unit), y._node) for unit in numpy.eye(2)])
    assert isbox(traced)
    numpy.testing.assert_allclose(traced._value, expected, rtol=1e-14)


def test_a_pass_ends_at_the_box_whose_trace_is_open():
    def slope(x):
        inner = box(x)
        return backward_pass(1.0, (inner**2 * x)._node)  # 2 x x: the other x is a constant

    assert slope(3.0) == 18.0
    assert grad(slope)(3.0) == 12.0
    x = box(3.0)
    assert backward_pass(5.0, x._node) == 5.0
    assert backward_pass(1.0, slope(x)._node) == 12.0


def test_structures_of_boxes():
    root = VJPNode.new_root()
    with trace_stack.new_trace() as level:
        start = new_box((2.0, {"w": [X]}), level, root)
        end = (lambda a, p: a**2 * np.sum(p["w"][0] ** 2))(*start)
        other = box(1.0, level + 1)
    assert trace_stack.top == -1
    assert end._trace == start._trace == level == 0 and other._trace == 1
    assert isinstance(start, tuple) and start._node is root
    a, p = backward_pass(1.0, end._node)
    assert a == pytest.approx(4 * X @ X)
    numpy.testing.assert_allclose(p["w"][0], 8 * X)
    assert tg.param(1.0)._trace == -1


def test_trace():
    root = VJPNode.new_root()
    value, node = trace(root, lambda x: np.sum(x**2), X)
    assert value == X @ X
    assert backward_pass(1.0, node).tolist() == (2 * X).tolist()
    w = tg.param(2.0)
    with pytest.warns(UserWarning, match="^Output seems independent of input"):
        assert trace(VJPNode.new_root(), lambda x: w * 2.0, 1.0)[1] is None


def test_a_trace_in_a_trace():
    def value_and_slope(x):
        value, node = trace(VJPNode.new_root(), lambda y: y**3 * x, x)
        return value + backward_pass(1.0, node)  # x^4 + 3 x^3

    value, node = trace(VJPNode.new_root(), value_and_slope, 2.0)
    assert value == 16.0 + 24.0
    assert backward_pass(1.0, node) == 4 * 8.0 + 9 * 4.0 == grad(value_and_slope)(2.0)


def test_what_cannot_be_made_by_hand():
    class Recipe(Node):
        pass

    with pytest.raises(TypeError, match=r"new_box: received a Recipe; expected a root VJPNode"):
        new_box(1.0, 0, Recipe.new_root())
    root = VJPNode.new_root()
    new_box(1.0, 0, root)
    with pytest.raises(ValueError, match="new_box: received a node that has a box"):
        new_box(1.0, 0, root)
    with pytest.raises(
        TypeError, match=r"VJPNode: only the tape makes nodes.*VJPNode\.new_root\(\)"
    ):
        VJPNode(1.0, None, (), {}, (), ())
    with pytest.raises(TypeError, match=r"backward_pass: .*that depends on no box"):
        backward_pass(1.0, (tg.param(1.0) * 2.0)._node)
    with pytest.raises(TypeError, match=r"backward_pass: received float 1\.0"):
        backward_pass(1.0, 1.0)
    with pytest.raises(AttributeError, match="_node"):
        tg.tensor(1.0)._node  # noqa: B018
    with pytest.raises(TypeError, match="forward mode"):
        deriv(lambda x: box(x))(1.0)
    with pytest.raises(ValueError, match=r"backward_pass: .*\(2,\).*\(3,\)"):
        backward_pass(numpy.ones(2), (box(X) * 2)._node)


def test_calls_that_are_not_traced():
    @primitive
    def rounded(x):
        assert not isbox(x)
        return numpy.round(x)

    register_notrace(VJPNode, rounded)
    register_notrace(VJPNode, np.full_like)
    try:
        seen = []
        assert grad(lambda x: seen.append(rounded(x)) or x * seen[0])(2.7) == 3.0
        assert type(seen[0]) is numpy.float64
        assert grad(lambda x: np.sum(np.full_like(X, x)) + x)(2.0) == 1.0
        # Forward mode has its own rules.
        assert deriv(lambda x: np.sum(np.full_like(X, x)))(2.0) == 3.0
        with pytest.raises(NotImplementedError, match="JVP"):
            deriv(rounded)(2.7)
        register_notrace(JVPNode, rounded)
        assert deriv(lambda x: x * rounded(x))(2.7) == 3.0
    finally:
        primitive_vjps.pop(np.full_like, None)
        primitive_vjps.pop(rounded, None)
        primitive_jvps.pop(rounded, None)
    with pytest.raises(TypeError, match="register_notrace: received the class Node"):
        register_notrace(Node, rounded)


def test_a_gradient_that_adds_itself():
    @primitive
    def second(x):
        return x[1]

    def maker(ans, x):
        def vjp(g):
            def mut_add(a):
                a[1] += g
                return a

            return SparseObject(vspace(x), mut_add)

        return vjp

    defvjp(second, maker)
    found = grad(lambda x: second(x) ** 2 + np.sum(x))(X)
    numpy.testing.assert_allclose(found, [1.0, 1.0 + 2 * X[1], 1.0])
    assert vspace(SparseObject(vspace(X), None)) == vspace(X)


def test_names_for_rules():
    assert func(len) is len
    assert _make_vjp(np.sin, 0.3)[0](1.0) == numpy.cos(0.3)
    assert _make_jvp(np.sin, 0.3)(1.0)[1] == numpy.cos(0.3)
    assert broadcast(X, numpy.ones((2, 3))).tolist() == [X.tolist()] * 2
    shift = primitive(lambda x, y: x + y)
    defjvp(
        shift,
        lambda g, ans, x, y: broadcast(g, ans),
        lambda g, ans, x, y: broadcast_f(ans, lambda g: g)(g),
    )
    numpy.testing.assert_allclose(make_jvp(shift)(2.0, X)(1.0)[1], numpy.ones(3))
    found = elementwise_grad(lambda x: _astype(x, numpy.float32) * 2.0)(X)
    assert found.tolist() == [2.0, 2.0, 2.0] and found.dtype == numpy.float64


def test_classes_of_arrays_of_ones_own():
    class Array(numpy.ndarray):
        pass

    ArrayBox.register(Array)
    ArrayVSpace.register(Array)
    x = X.view(Array)
    try:
        numpy.testing.assert_allclose(grad(lambda x: np.sum(x**2))(x), 2 * X)
        assert vspace(x).shape == (3,)
    finally:
        del ArrayVSpace.mappings[Array]
    assert not isinstance(vspace(X), ComplexArrayVSpace) and ComplexArrayVSpace.iscomplex
    assert isinstance(vspace(numpy.array([1j])), ComplexArrayVSpace)


def test_cotangents_of_complex_numbers_are_autograds():
    """A holomorphic function's is ``g f'(z)``, and of the modulus the conjugate's direction."""
    z, g = np.array([1.0 + 2.0j, 0.5 - 1.0j]), np.array([1.0 + 1.0j, 2.0j])
    box = new_box(z, 0, VJPNode.new_root())
    np.testing.assert_allclose(backward_pass(g, (box**3)._node), g * 3 * z**2, rtol=1e-14)
    np.testing.assert_allclose(backward_pass(g, (box**3 * 1j)._node), g * 3j * z**2, rtol=1e-14)
    outer = new_box(z, 0, VJPNode.new_root())
    passed = backward_pass(numpy.abs(z), np.abs(outer)._node)
    np.testing.assert_allclose(passed, np.conj(z), rtol=1e-14)


def test_core_hands_on_what_autograds_does():
    for name in ("Box", "Node", "isbox", "trace"):
        assert getattr(core, name) is getattr(tracer, name)
    for name in ("func", "subval"):
        assert getattr(core, name) is getattr(util, name)


class Line(Node):
    """A line of text for each operation, as autograd's own example writes it."""

    def __init__(self, value, fun, args, kwargs, parent_argnums, parents):
        self.lines = parents[0].lines
        args = list(args)
        for i, parent in zip(parent_argnums, parents, strict=True):
            args[i] = parent.name
        self.name = "xyzuvw"[len(self.lines)]
        self.lines.append(
            f"{self.name} = {fun.__name__}({', '.join(map(str, args))}) = {value:.3f}"
        )

    def initialize_root(self, x):
        self.name, self.lines = "x", [f"x = {x}"]


def test_a_tracer_of_ones_own():
    def f(x):
        return np.sin(x + x) - 0.5

    value, end = trace(Line.new_root(1.0), f, 1.0)
    assert value == f(1.0)
    lines = ["x = 1.0", "y = add(x, x) = 2.000", "z = sin(y) = 0.909", "u = sub(z, 0.5) = 0.409"]
    assert end.lines == lines
    value, end = trace(Line.new_root(1.0), grad(f), 1.0)
    assert value == pytest.approx(2.0 * numpy.cos(2.0))
    assert end.lines[1:3] == ["y = add(x, x) = 2.000", "z = cos(y) = -0.416"]
    with pytest.warns(UserWarning, match="independent"):
        assert trace(Line.new_root(1.0), lambda x: 2.0, 1.0) == (2.0, None)
