"""The drop-in against closed forms: nothing here needs autograd."""

from __future__ import annotations

import math
import sys
import warnings
from collections import OrderedDict

import numpy
import pytest

import tapegraph as tg
import tapegraph.autograd.numpy as np
from tapegraph.autograd import (
    checkpoint,
    deriv,
    elementwise_grad,
    grad,
    grad_and_aux,
    hessian,
    holomorphic_grad,
    jacobian,
    make_ggnvp,
    make_jvp,
    make_vjp,
    multigrad_dict,
    value_and_grad,
)
from tapegraph.autograd.builtins import DictBox, SequenceBox
from tapegraph.autograd.core import primitive as old_primitive
from tapegraph.autograd.extend import (
    VSpace,
    def_linear,
    defjvp,
    defjvp_argnums,
    defvjp,
    defvjp_argnums,
    notrace_primitive,
    primitive,
    vspace,
)
from tapegraph.autograd.misc import const_graph, flatten
from tapegraph.autograd.misc.fixed_points import fixed_point
from tapegraph.autograd.misc.optimizers import sgd
from tapegraph.autograd.numpy.numpy_boxes import ArrayBox
from tapegraph.autograd.test_util import check_grads, combo_check
from tapegraph.autograd.tracer import getval, isbox
from tapegraph.autograd.util import quick_grad_check, subval, subvals

X = numpy.array([0.3, -0.7, 1.9])


def test_derivatives_of_any_order():
    f = np.sin
    for order in range(1, 8):
        f = grad(f)
        assert f(0.7) == pytest.approx(math.sin(0.7 + order * math.pi / 2), rel=1e-13)
        assert isinstance(f(0.7), float)


def test_jacobian_and_hessian():
    assert numpy.array_equal(jacobian(lambda x: x**2)(X), numpy.diag(2 * X))
    assert numpy.allclose(hessian(lambda x: np.sum(x) ** 3)(X), 6 * X.sum() * numpy.ones((3, 3)))
    assert jacobian(lambda x: x[:0])(X).shape == (0, 3)


def calls_of(f, *args):
    """Count the Python functions that run in a call."""
    count = 0

    def called(frame, event, arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(called)
    try:
        f(*args)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("derivative", [hessian, lambda f: jacobian(lambda x: x**2 * f(x))])
def test_all_rows_in_one_pass(derivative):
    # An unrolled loop over the rows takes eight times the calls.
    found = derivative(lambda x: np.sum(np.sin(x) * x[::-1]))
    found(numpy.ones(8))
    assert calls_of(found, numpy.ones(64)) < 1.5 * calls_of(found, numpy.ones(8))


def test_a_hessian_of_several_results():
    found = hessian(lambda x: np.array([x[0] ** 2 * x[1], np.sum(x**2)]))(X)
    first = numpy.array([[2 * X[1], 2 * X[0], 0.0], [2 * X[0], 0.0, 0.0], [0.0, 0.0, 0.0]])
    numpy.testing.assert_allclose(found, [first, 2 * numpy.eye(3)], rtol=1e-14)
    with pytest.warns(UserWarning, match="independent"):  # nothing depends, of no elements
        assert hessian(lambda x: x[:0] ** 2)(X).shape == (0, 3, 3)
    assert hessian(lambda x: np.reshape(np.sum(x**2), (1, 1)))(X).shape == (1, 1, 3, 3)
    third = grad(lambda x: np.sum(hessian(lambda y: np.sum(y**4))(x)))(X)
    numpy.testing.assert_allclose(third, 24 * X, rtol=1e-14)


@pytest.mark.parametrize("kind", [float, int, numpy.float32, numpy.float64, numpy.asarray])
def test_derivatives_by_numbers_are_numpys(kind):
    x = kind(2)
    dtype = numpy.float32 if kind is numpy.float32 else numpy.float64
    tree = grad(lambda p: p["used"][0] ** 2)({"used": [x], "unused": x})
    vjp, _ = make_vjp(np.sin)(x)
    found = [
        *(grad(f)(x) for f in (np.sin, lambda x: x, grad(np.sin))),
        *value_and_grad(lambda x: x**2)(x),
        *(tree["used"][0], tree["unused"], vjp(x), deriv(np.sin)(x), elementwise_grad(np.sin)(x)),
        *make_jvp(np.sin)(x)(x),
        *(jacobian(np.sin)(x), hessian(np.sin)(x)),
    ]
    assert [(part.shape, part.dtype) for part in found] == [((), dtype)] * len(found)
    assert found[0] == pytest.approx(math.cos(2.0), rel=1e-6)
    assert all(type(part) is numpy.ndarray for part in found[-2:])


def test_results_are_plain():
    value, gradient = value_and_grad(lambda x: np.sum(x**2))(X)
    assert isinstance(value, float) and type(gradient) is numpy.ndarray
    vjp, out = make_vjp(np.exp)(X)
    assert type(out) is numpy.ndarray and type(vjp(X)) is numpy.ndarray
    # The pullback of a pullback was recorded; where every level has ended its results are plain.
    product = make_ggnvp(np.tanh)(X)(X)
    assert type(product) is numpy.ndarray
    assert numpy.allclose(product, X / numpy.cosh(X) ** 4)


def test_a_parameter_outside_keeps_the_result_on_the_tape():
    w = tg.param(2.0)
    slope = grad(lambda x: w**3 * x)(1.0)
    slope.backward()
    assert slope.item() == 8.0 and w.grad == 12.0


def test_multigrad_and_aux():
    gradients = multigrad_dict(lambda a, b=2.0, *, c: a * b * c)(3.0, c=5.0)
    assert gradients == OrderedDict(a=10.0, b=15.0, c=6.0)
    gradient, aux = grad_and_aux(lambda x: (np.sum(x**2), {"twice": 2 * x}))(X)
    assert numpy.array_equal(gradient, 2 * X) and numpy.array_equal(aux["twice"], 2 * X)


def test_independent_results_give_zeros_and_a_warning():
    with pytest.warns(UserWarning, match="^Output seems independent of input"):
        assert grad(lambda x: 3.0)(1.0) == 0.0
    with pytest.warns(UserWarning, match="^Output seems independent of input"):
        assert make_jvp(lambda x: 3.0)(X)(X) == (3.0, 0.0)
    found = grad(lambda p: p["used"] ** 2)({"used": 2.0, "unused": X})
    assert found["used"] == 4.0 and found["unused"].tolist() == [0.0, 0.0, 0.0]


def test_positions_of_arguments():
    def f(x, y):
        return x * y**2

    assert grad(f, -1)(2.0, 5.0) == grad(f, 1)(2.0, 5.0) == 20.0
    assert grad(f, (-1, 0))(2.0, 5.0) == (20.0, 25.0)
    for argnum in (2, -3, (0, 2)):
        with pytest.raises(IndexError, match=r"argnum -?\d and 2 positional arguments"):
            grad(f, argnum)(2.0, 5.0)
    with pytest.raises(IndexError, match="argnum 0 and 0 positional arguments"):
        grad(f)(x=2.0, y=5.0)
    for argnum in (1.5, "y"):
        with pytest.raises(TypeError, match="the position of an argument"):
            grad(f, argnum)


@pytest.mark.parametrize("argnum", [[], ()])
def test_by_no_argument_there_is_nothing_to_differentiate(argnum):
    with pytest.warns(UserWarning, match="independent"):
        assert grad(lambda x: x**2, argnum)(2.0) == ()
    with pytest.warns(UserWarning, match="independent"):
        assert value_and_grad(lambda x: x**2, argnum)(2.0) == (4.0, ())
    with pytest.warns(UserWarning, match="independent"):
        vjp, value = make_vjp(lambda x: x**2, argnum)(2.0)
    assert value == 4.0 and vjp(1.0) == ()


@pytest.mark.parametrize("make", [make_vjp, make_jvp])
def test_what_is_no_number_is_named_by_its_path(make):
    tree = {"w": 2.0, "layers": [1.0, {"name": "first"}]}
    with pytest.raises(TypeError, match=r"str 'first' for the argument\['layers'\]\[1\]\['name'\]"):
        make(lambda p: p["w"])(tree)
    with pytest.raises(TypeError, match="float16.*astype"):
        make(np.sum)(X.astype(numpy.float16))


def test_directions_have_the_structure_of_the_value():
    vjp, _ = make_vjp(lambda x: {"twice": 2 * x, "sum": np.sum(x)})(X)
    assert vjp({"twice": 1.0, "sum": 3.0}).tolist() == [5.0, 5.0, 5.0]
    with pytest.raises(ValueError, match=r"shape \(2,\) for .*'twice'.*shape \(3,\)"):
        vjp({"twice": X[:2], "sum": 1.0})
    with pytest.raises(ValueError, match=r"\{.twice.: \*\}; expected .*\{.twice.: \*, .sum.: \*\}"):
        vjp({"twice": X})
    with pytest.raises(ValueError, match=r"shape \(2,\) for the direction; expected shape \(3,\)"):
        make_jvp(np.exp)(X)(X[:2])


def test_cotangents_of_what_depends_on_nothing():
    """None stands for zero, and what is no number may be part of a value."""
    for aux in (1, 2.5, "text", None, X, [1.0, X], {"a": 1}, [], object()):
        vjp, value = make_vjp(lambda x, aux=aux: (np.sum(x**2), aux))(X)
        assert type(value[1]) is type(aux) and str(value[1]) == str(aux)
        assert vjp((1.0, None)).tolist() == (2 * X).tolist()
        assert vjp((1.0, aux)).tolist() == (2 * X).tolist()
        assert (
            grad_and_aux(lambda x, aux=aux: (np.sum(x**2), aux))(X)[0].tolist() == (2 * X).tolist()
        )
    vjp, value = make_vjp(lambda x: {"a": [2 * x, np.sum(x)], "b": (x, "text")})(X)
    assert vjp({"a": None, "b": (X, None)}).tolist() == X.tolist()
    assert vjp({"a": [None, 3.0], "b": None}).tolist() == [3.0, 3.0, 3.0]
    assert value["b"][1] == "text" and type(value["b"][0]) is numpy.ndarray
    with pytest.raises(ValueError, match=r"structure \[\*\]; expected .*\(\*, \*\)"):
        make_vjp(lambda x: (x, np.sum(x)))(X)[0]([X])


def test_an_array_is_the_cotangent_of_a_list():
    vjp, _ = make_vjp(lambda x: [x[0] * x[1], x[1]])(X)
    assert vjp(numpy.array([1.0, 3.0])).tolist() == [X[1], X[0] + 3.0, 0.0]
    with pytest.raises(ValueError, match="structure"):
        vjp(numpy.ones(3))


def test_a_rule_without_a_derivative_of_its_own_is_an_error_by_name():
    @primitive
    def cube(x):
        return x**3

    @primitive
    def square(x):
        return x**2

    defvjp(cube, lambda ans, x: lambda g: 3 * g * square(x))
    assert grad(cube)(2.0) == 12.0
    with pytest.raises(NotImplementedError, match="square.*VJP"):
        grad(grad(cube))(2.0)
    with pytest.raises(NotImplementedError, match="cube.*JVP"):
        grad(deriv(cube))(2.0)


def test_no_scalar_is_an_error():
    for f in (np.exp, lambda x: (np.sum(x), np.sum(x))):
        with pytest.raises(TypeError, match="one real number"):
            grad(f)(X)


def test_a_float_of_a_traced_value_is_an_error():
    with pytest.raises(TypeError, match="float"):
        grad(lambda x: math.sin(x))(1.0)


def test_complex_numbers_take_autograds_convention():
    """The gradient is the conjugate of the direction in which the function rises."""
    z = numpy.array([1.0 + 2.0j, -0.5 + 0.25j])
    numpy.testing.assert_allclose(grad(lambda z: np.sum(np.abs(z) ** 2))(z), 2.0 * z.conj())
    want = 3.0 * z**2 * numpy.exp(z) + z**3 * numpy.exp(z)
    numpy.testing.assert_allclose(holomorphic_grad(lambda z: z**3 * np.exp(z))(z), want)
    twice = holomorphic_grad(holomorphic_grad(lambda z: z**3))
    assert twice(1.0 + 2.0j) == 6.0 * (1.0 + 2.0j)
    check_grads(lambda z: np.fft.fft(z) * np.conj(z))(z)
    check_grads(lambda x: np.real(np.linalg.eig(x)[0]))(numpy.array([[2.0, 1.0], [0.5, -1.0]]))


@pytest.mark.parametrize("transform", [grad, elementwise_grad])
def test_a_complex_result_is_refused(transform):
    with pytest.raises(TypeError, match="complex"):
        transform(lambda z: z * z)(1j)


def test_spaces_of_complex_numbers():
    space = vspace({"z": numpy.array([1j, 2.0])})
    assert space.size == 4 and len(list(space.standard_basis())) == 4
    z, w = numpy.array([1.0 + 1.0j]), numpy.array([2.0 - 3.0j])
    one = vspace(z)
    assert one.iscomplex and one.inner_prod(z, w) == -1.0
    assert one.covector(w).tolist() == [2.0 + 3.0j]
    assert one.ones().tolist() == [1.0 + 1.0j] and one.randn().dtype == complex


# Primitives


def cubes():
    @primitive
    def cube(x):
        assert not isbox(x) and isinstance(x, (float, numpy.ndarray))
        return x**3

    return cube


def test_a_primitive_of_any_order():
    cube = cubes()
    defvjp(cube, lambda ans, x: lambda g: 3 * g * x**2)
    assert [f(2.0) for f in (cube, grad(cube), grad(grad(cube)))] == [8.0, 12.0, 12.0]
    defjvp(cube, lambda g, ans, x: 3 * g * x**2)
    assert make_jvp(cube)(2.0)(1.0) == (8.0, 12.0)
    for nested in (deriv(grad(cube)), grad(deriv(cube)), deriv(deriv(cube))):
        assert nested(2.0) == 12.0
    check_grads(cube, order=3)(numpy.array([0.4, -1.2]))


def test_a_primitive_without_rules_is_an_error_by_name():
    cube = cubes()
    with pytest.raises(NotImplementedError, match="cube.*VJP"):
        grad(cube)(2.0)
    with pytest.raises(NotImplementedError, match="cube.*JVP"):
        deriv(cube)(2.0)
    defvjp(cube, lambda ans, x: lambda g: g, argnums=(1,))
    with pytest.raises(NotImplementedError, match="argument 0"):
        grad(cube)(2.0)


def test_the_last_definition_wins():
    cube = cubes()
    defvjp(cube, lambda ans, x: lambda g: g)
    defvjp(cube, lambda ans, x: lambda g: 5.0 * g)
    assert grad(cube)(2.0) == 5.0


def test_a_function_of_numpy_may_be_redefined():
    import tapegraph.autograd.numpy.numpy_wrapper as names
    from tapegraph.autograd.core import primitive_vjps

    assert elementwise_grad(np.heaviside)(X, 0.0).tolist() == [0.0, 0.0, 0.0]
    defvjp(np.heaviside, lambda ans, x, y: lambda g: g * np.exp(-(x**2)), None)
    try:
        assert names.heaviside is np.heaviside
        assert numpy.allclose(elementwise_grad(np.heaviside)(X, 0.0), numpy.exp(-(X**2)))
        second = elementwise_grad(elementwise_grad(np.heaviside))(X, 0.0)
        assert numpy.allclose(second, -2 * X * numpy.exp(-(X**2)))
    finally:
        del primitive_vjps[np.heaviside]


def test_a_primitive_of_any_arguments():
    @primitive
    def chosen(name, table, options, x):
        return table[name][0] * options["scale"] * x

    def maker(argnums, ans, args, kwargs):
        name, table, options, x = args
        every = (
            None,
            lambda g: {"a": [np.sum(g * options["scale"] * x), 9.0], "b": [0.0]},
            lambda g: {"scale": np.sum(g * table[name][0] * x), "unused": 1.0},
            lambda g: g * table[name][0] * options["scale"],
        )
        return lambda g: [every[i](g) for i in argnums]

    defvjp_argnums(chosen, maker)

    def f(table, options, x):
        return np.sum(chosen("a", table, options, x) ** 2)

    table, options = {"a": [2.0, 0.0], "b": [7.0]}, {"scale": 3.0, "unused": 0.0}
    found = grad(f, (0, 1, 2))(table, options, X)
    square = numpy.sum(X**2)
    assert found[0]["a"][0] == pytest.approx(2 * 2.0 * 9.0 * square)
    assert found[0]["b"] == [0.0]
    assert found[1]["scale"] == pytest.approx(2 * 3.0 * 4.0 * square)
    assert numpy.allclose(found[2], 2 * 36 * X)
    # Of a traced number inside a plain dict, at the second order.
    inner = grad(grad(lambda s: f(table, {"scale": s, "unused": 0.0}, X)))
    assert inner(3.0) == pytest.approx(2 * 4.0 * square)


def test_a_rule_gives_an_array_for_a_list_of_numbers():
    @primitive
    def f(p):
        return numpy.sin(p[0]) + p[1]

    defvjp(f, lambda ans, p: lambda g: np.array([g * np.cos(p[0]), g]))
    defjvp(f, lambda g, ans, p: g[0] * np.cos(p[0]) + g[1])
    for kind in (list, tuple):
        assert grad(lambda x, kind=kind: f(kind((x[0], x[1]))))(X).tolist() == [
            math.cos(X[0]),
            1.0,
            0.0,
        ]
    second = hessian(lambda x: f([x[0], x[1]]) * x[0])(X[:2])
    expected = [[2 * math.cos(X[0]) - X[0] * math.sin(X[0]), 1.0], [1.0, 0.0]]
    numpy.testing.assert_allclose(second, expected, rtol=1e-14)
    # Of a list of lists: an array of rows, and an array beside a list.
    rows = primitive(lambda p: p[0][0] * p[0][1] + p[1][0] + 2 * p[1][1])
    for rule in (
        lambda ans, p: lambda g: g * np.array([[p[0][1], p[0][0]], [1.0, 2.0]]),
        lambda ans, p: lambda g: ([g * p[0][1], g * p[0][0]], g * np.array([1.0, 2.0])),
    ):
        defvjp(rows, rule)
        found = grad(lambda x: rows([[x[0], x[1]], (x[1], x[2])]))(X)
        assert found.tolist() == [X[1], X[0] + 1.0, 2.0]
    wrong = primitive(lambda p: p[0])
    defvjp(wrong, lambda ans, p: lambda g: g * np.ones(3))
    with pytest.raises(ValueError, match=r"wrong|lambda.*structure \*; expected .*\[\*, \*\]"):
        grad(lambda x: wrong([x[0], x[1]]))(X)


def test_a_rule_that_looks_at_the_arguments_of_its_call():
    """An argument of any class may hold what another one lists, as a circuit its parameters."""

    class Circuit:
        def __init__(self, *angles):
            self.angles = angles

        def run(self):
            return np.sin(self.angles[0]) * self.angles[1]

    @primitive
    def executed(angles, circuit):
        return circuit.run()

    def maker(ans, angles, circuit):
        a, b = circuit.angles  # of the call, so that a second derivative is one level down
        parts = np.array([np.cos(a) * b, np.sin(a)])
        return lambda g: g * (parts._value if isbox(parts) else parts)

    defvjp(executed, maker, argnums=[0])

    def f(x):
        circuit = Circuit(x[0] * 2.0, x[1])
        return executed(list(circuit.angles), circuit)

    a, b = 2 * X[0], X[1]
    expected = [2 * math.cos(a) * b, math.sin(a), 0.0]
    numpy.testing.assert_allclose(grad(f)(X), expected, rtol=1e-14)
    second = [[-4 * math.sin(a) * b, 2 * math.cos(a), 0.0], [2 * math.cos(a), 0.0, 0.0], [0.0] * 3]
    numpy.testing.assert_allclose(jacobian(grad(f))(X), second, rtol=1e-14)
    numpy.testing.assert_allclose(hessian(f)(X), second, rtol=1e-14)
    # What the call was not given is refused, for there is no rule by it.
    with pytest.raises(TypeError, match="traced value that is no argument"):
        grad(lambda x: executed([x[0]], Circuit(x[0], x[1])))(X)


def test_a_primitive_of_several_results():
    @primitive
    def parts(x):
        return {"square": x**2, "rest": [numpy.sum(x), "text"]}

    defvjp(parts, lambda ans, x: lambda g: 2 * x * g["square"] + g["rest"][0])
    defjvp_argnums(
        parts,
        lambda argnums, gs, ans, args, kwargs: {
            "square": 2 * args[0] * gs[0],
            "rest": [np.sum(gs[0]), 0.0],
        },
    )

    def f(x):
        found = parts(x)
        assert found["rest"][1] == "text"
        return np.sum(found["square"]) * found["rest"][0]

    expected = 2 * X * X.sum() + numpy.sum(X**2)
    assert numpy.allclose(grad(f)(X), expected)
    second = 2 * numpy.add.outer(X, X) + 2 * numpy.eye(3) * X.sum()
    assert numpy.allclose(hessian(f)(X), second)


def test_whole_numbers_of_a_primitive_carry_its_gradient():
    @primitive
    def step(x):
        return (x > 0).astype(int)

    defvjp(step, lambda ans, x: lambda g: g)  # straight through
    assert grad(lambda x: np.sum(step(x) * X))(X).tolist() == X.tolist()


def test_keyword_arguments_of_a_primitive():
    @primitive
    def product(x, y=2.0, *, by=1.0):
        return x * y * by

    defvjp(
        product,
        lambda ans, x, y, by: lambda g: g * y * by,
        lambda ans, x, y, by: lambda g: g * x * by,
    )
    defjvp(
        product,
        lambda g, ans, x, y, by: g * y * by,
        lambda g, ans, x, y, by: g * x * by,
    )
    # d/dx of 3 x**2, of 5 x, and of 7 x, whose factor the function itself is differentiated by.
    functions = (
        (lambda x: product(x, y=x, by=3.0), 12.0),
        (lambda x: product(5.0, y=x), 5.0),
        (lambda x: product(7.0, 1.0, by=x), 7.0),
    )
    for f, expected in functions:
        assert grad(f)(2.0) == deriv(f)(2.0) == expected
    assert grad(grad(functions[0][0]))(2.0) == 6.0


def test_rules_by_methods():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        @old_primitive
        def product(x, y, z):
            return x * y + 0 * z

        product.defgrad(lambda ans, x, y, z: lambda g: y * g)
        product.defvjp(lambda g, ans, vs, gvs, x, y, z: x * g * vs.size / gvs.size, argnum=1)
        product.defvjp_is_zero([2])
    assert ["deprecated" in str(w.message) for w in caught] == [True] * 3
    assert grad(product, (0, 1, 2))(2.0, 5.0, 7.0) == (5.0, 2.0, 0.0)
    with pytest.warns(UserWarning, match="deprecated"):
        quick_grad_check(lambda x, y: x**2 * y, 1.3, (2.0,))
    with pytest.warns(UserWarning), pytest.raises(AssertionError, match=r"\(VJP\) check of"):
        quick_grad_check(lambda x: x * getval(x), 1.3)


def test_a_constant_graph_computes_anew():
    f = const_graph(lambda scale, x, *, shift: scale * np.abs(x) + shift, 2.0, shift=1.0)
    assert [f(3.0), f(-4.0)] == [7.0, 9.0]
    assert grad(f)(-4.0) == -2.0


def test_names_of_derivatives():
    def cost(x):
        return x

    assert grad(cost, 1).__name__ == "grad_of_cost_wrt_argnum_1"
    assert "grad of function cost" in grad(cost).__doc__
    assert subvals((1, 2, 3), [(1, 5)]) == (1, 5, 3) == subval([1, 2, 3], 1, 5)


def test_what_a_primitive_refuses():
    cube = cubes()
    defvjp(cube, lambda ans, x: lambda g: numpy.ones(7))
    with pytest.raises(ValueError, match=r"cube.*shape \(7,\).*\(3,\)"):
        grad(lambda x: np.sum(cube(x)))(X)
    scaled = primitive(lambda x, *, by: x * by)
    with pytest.raises(TypeError, match="traced keyword"):
        grad(lambda x: scaled(x, by=x))(2.0)
    with pytest.raises(TypeError, match="the result str"):
        grad(primitive(lambda x: "text"))(2.0)
    with pytest.raises(TypeError, match="traced value that is no argument"):
        grad(lambda x: primitive(lambda y: x * y)(2.0 * x))(2.0)
    with pytest.raises(TypeError, match="expected a function"):
        defvjp(cube, "same")


def test_linear_and_untraced_functions():
    @primitive
    def product(x, y):
        return x * y

    def_linear(product)
    assert make_jvp(product, (0, 1))(1.0, 2.0)((1.0, 1.0)) == (2.0, 3.0)
    seen = []
    look = notrace_primitive(lambda x: seen.append(x) or 2.0)
    assert grad(lambda x: x * look(x))(5.0) == 2.0
    assert seen == [5.0] and not isbox(seen[0])


def test_a_primitive_in_a_compiled_step_is_refused():
    cube = cubes()
    defvjp(cube, lambda ans, x: lambda g: 3 * g * x**2)
    step = tg.compile(lambda x: elementwise_grad(cube)(x))
    with pytest.raises(tg.ConcretizationError, match="plain value"):
        step(X)


def test_gradients_in_a_compiled_step():
    step = tg.compile(value_and_grad(lambda x: np.sum(np.sin(x) * np.array([x[0], 1.0, x[2]]))))
    for shift in range(4):
        x = X + shift
        value, gradient = step(x)
        factor = numpy.array([x[0], 1.0, x[2]])
        assert float(value) == pytest.approx(numpy.sum(numpy.sin(x) * factor))
        expected = numpy.cos(x) * factor + numpy.sin(x) * numpy.array([1.0, 0.0, 1.0])
        numpy.testing.assert_allclose(numpy.asarray(gradient), expected, rtol=1e-12)


# Looking at traced values


def test_boxes():
    def f(x):
        assert isinstance(x, ArrayBox) and isbox(x)
        assert type(x._value) is numpy.ndarray and numpy.array_equal(getval(x), X)
        assert numpy.array_equal(x._value, X)
        return np.sum(x)

    grad(f)(X)
    make_jvp(f)(X)(X)
    assert not isinstance(X, ArrayBox) and not isbox(tg.tensor(X))

    def of_structures(p):
        assert isinstance(p, DictBox) and not isinstance(p, SequenceBox)
        assert isinstance(p["w"], SequenceBox) and not isinstance(p["w"], DictBox)
        return p["w"][0]

    grad(of_structures)({"w": [2.0]})
    assert not isinstance({"w": 2.0}, DictBox) and not isinstance([2.0], SequenceBox)


def test_spaces_of_ones_own():
    class Money:
        pass

    class MoneySpace(VSpace):
        size = 1

        def zeros(self):
            return Money()

    MoneySpace.register(Money)
    try:
        assert isinstance(vspace(Money()).zeros(), Money)
    finally:
        del VSpace.mappings[Money]
    with pytest.raises(TypeError, match="vspace"):
        vspace(Money())


# Modules


def test_flatten_is_differentiable():
    tree = {"b": (numpy.ones((2, 2)), 3.0), "a": [X]}
    flat, unflatten = flatten(tree)
    assert flat.tolist() == [*X, 1, 1, 1, 1, 3.0]
    again = unflatten(flat)
    assert list(again) == ["b", "a"] and again["b"][1] == 3.0 and again["b"][0].shape == (2, 2)
    found = grad(lambda t: np.sum(flatten(t)[0] ** 3))(tree)
    assert numpy.allclose(found["a"][0], 3 * X**2) and found["b"][1] == 27.0
    empty, back = flatten([])
    assert empty.shape == (0,) and back(empty) == []


def test_fixed_point_of_any_order():
    def root(a):
        return fixed_point(lambda a: lambda x: 0.5 * (x + a / x), a, 1.0, distance, 1e-13)

    def distance(x, y):
        return abs(x - y)

    assert root(2.0) == pytest.approx(2**0.5)
    assert grad(root)(2.0) == pytest.approx(0.5 * 2**-0.5)
    assert grad(grad(root))(2.0) == pytest.approx(-0.25 * 2**-1.5)


def test_sgd_against_its_formula():
    x, velocity = 3.0, 0.0
    for _ in range(4):
        velocity = 0.9 * velocity - 0.1 * 2 * x
        x += 0.1 * velocity
    assert sgd(grad(lambda x, i: x**2), 3.0, num_iters=4) == pytest.approx(x)


def test_checkpoint():
    f = checkpoint(lambda x, y: np.exp(np.sin(x) * y))
    x = 0.4
    assert grad(f)(x, 2.0) == pytest.approx(2 * math.cos(x) * math.exp(2 * math.sin(x)))
    expected = (4 * math.cos(x) ** 2 - 2 * math.sin(x)) * math.exp(2 * math.sin(x))
    assert grad(grad(f))(x, 2.0) == pytest.approx(expected)


def test_a_checkpoint_of_a_derivative():
    for f, expected in (
        (checkpoint(grad(np.sin)), -math.sin(0.4)),
        (checkpoint(grad(grad(np.sin))), -math.cos(0.4)),
        (lambda x: np.sum(checkpoint(elementwise_grad(np.exp))(x * X)), numpy.exp(0.4 * X) @ X),
    ):
        assert grad(f)(0.4) == pytest.approx(expected, rel=1e-14)
    assert grad(grad(checkpoint(grad(np.sin))))(0.4) == pytest.approx(-math.cos(0.4), rel=1e-14)


def test_check_grads_finds_a_mistake():
    cube = cubes()
    defvjp(cube, lambda ans, x: lambda g: 3.01 * g * x**2)
    with pytest.raises(AssertionError, match=r"\(VJP\) check of cube"):
        check_grads(cube, modes=["rev"], order=1)(2.0)
    defvjp(cube, lambda ans, x: lambda g: 3 * g * wrong(x))
    wrong = primitive(lambda x: x**2)
    defvjp(wrong, lambda ans, x: lambda g: 1.99 * g * x)
    with pytest.raises(AssertionError, match=r"\(VJP\) check of vjp_cube"):
        check_grads(cube, modes=["rev"])(2.0)
    with pytest.raises(ValueError, match="modes"):
        check_grads(cube, modes=["sideways"])(2.0)
    combo_check(lambda x, y, power=1: x * y**power, (0, 1))([1.2], [0.7, 2.0], power=[1, 2])


def test_every_form_of_import(run_python):
    done = run_python(
        """
        import tapegraph.autograd.scipy.stats.norm as norm
        from tapegraph.autograd.scipy import stats
        import tapegraph.autograd.scipy.stats.poisson
        from tapegraph.autograd.scipy.stats.multivariate_normal import logpdf
        assert norm is stats.norm and stats.multivariate_normal.logpdf is logpdf
        assert tapegraph.autograd.scipy.stats.poisson.pmf is stats.poisson.pmf

        import numpy, tapegraph.autograd.numpy as np
        import tapegraph.autograd.numpy.linalg as linalg, tapegraph.autograd.numpy.random as random
        from tapegraph.autograd.numpy import fft
        from tapegraph.autograd.numpy.fft import fftn
        assert np.linalg is linalg and np.fft is fft and fft.fftn is fftn
        assert random.RandomState is np.random.RandomState is numpy.random.RandomState

        import tapegraph.autograd.numpy.numpy_boxes as numpy_boxes
        from tapegraph.autograd.numpy.numpy_jvps import broadcast
        from tapegraph.autograd.numpy.numpy_vjps import unbroadcast_f
        from tapegraph.autograd.numpy.numpy_vspaces import ArrayVSpace
        from tapegraph.autograd.misc.tracers import const_graph
        from tapegraph.autograd.misc.flatten import flatten_func
        import tapegraph.autograd.misc.optimizers as optimizers
        assert np.numpy_boxes is numpy_boxes and numpy_boxes.ArrayBox
        print(optimizers.adam.__name__)
        """
    )
    assert done.stdout == "adam\n", done.stderr
