"""What would lose a gradient in silence inside a function that is differentiated is an error."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tapegraph as tg
from tapegraph import autograd

X = np.array([1.0, 2.0])


def assigned(x):
    z = np.zeros(2)
    z[0] = tg.sum(x)
    return tg.sum(z)


def assigned_to_many(x):
    z = np.zeros(3)
    z[:2] = x
    return tg.sum(z)


def listed(x):
    return tg.sum(x * x.tolist())


LOST = {
    "an element": (assigned, ["float", "z[0] = x", "np.where", "np.stack"]),
    "elements": (assigned_to_many, ["numpy.asarray", "z[:2] = x", "np.where", "np.stack"]),
    "tolist": (listed, ["tolist", ".numpy().tolist()"]),
    "math": (lambda x: math.sin(x[0]), ["float", "tg.sin for math.sin"]),
}
TRANSFORMS = {
    "grad": lambda f: tg.grad(f)(X),
    "value_and_grad": lambda f: tg.value_and_grad(f)(X),
    "vjp": lambda f: tg.vjp(f, X),
    "jvp": lambda f: tg.jvp(f, (X,), (X,)),
    "forward": lambda f: tg.jacobian(f, mode="forward")(X),
    "reverse": lambda f: tg.jacobian(f, mode="reverse")(X),
    "hessian": lambda f: tg.hessian(f)(X),
    "hvp": lambda f: tg.hvp(f, (X,), (X,)),
    "the drop-in": lambda f: autograd.grad(f)(X),
    "minimize": lambda f: tg.optim.minimize(f, X),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("lost", LOST)
def test_a_lost_gradient_is_an_error_that_says_what_to_write(transform, lost):
    f, words = LOST[lost]
    if transform == "minimize":
        pytest.importorskip("scipy")
    with pytest.raises(TypeError) as caught:
        TRANSFORMS[transform](f)
    message = str(caught.value)
    assert all(word in message for word in words)
    *_, line = message.split(f"(at {__file__}:")
    first = f.__code__.co_firstlineno
    assert first <= int(line[:-1]) <= first + 3


def test_the_traceback_ends_at_the_assignment():
    with pytest.raises(TypeError) as caught:
        tg.grad(assigned)(X)
    assert caught.traceback[-1].name == "assigned"


def test_an_error_of_numpys_own_stays_what_it_is():
    def ragged(x):
        z = np.zeros(2)
        z[0] = [1.0, 2.0]
        return x

    with pytest.raises(ValueError, match="sequence"):
        tg.grad(ragged)(1.0)


@pytest.mark.parametrize("solver", ["brentq", "bisect", "ridder", "root_scalar", "minimize"])
@pytest.mark.parametrize("transform", [tg.grad, tg.jacfwd])
def test_a_conversion_in_scipys_solvers_is_the_error_that_arrives(solver, transform):
    optimize = pytest.importorskip("scipy.optimize")
    options = {"x0": [1.0]} if solver == "minimize" else {"a": 0.0, "b": 2.0}
    if solver == "root_scalar":
        options = {"bracket": (0.0, 2.0)}

    def residual(x, a):
        y = x * x
        return y - a

    def root(a):
        return getattr(optimize, solver)(residual, args=(a,), **options)

    with pytest.raises(TypeError, match=rf"scipy\.optimize\.{solver}: .*tg\.optim\.root") as caught:
        transform(root)(2.0)
    assert "would lose the" in str(caught.value)
    assert str(caught.value).endswith(f"(at {__file__}:{root.__code__.co_firstlineno + 1})")


def test_an_error_of_scipys_own_stays_what_it_is():
    optimize = pytest.importorskip("scipy.optimize")

    def root(a):
        # Of a conversion SciPy's error arrives, or ours: it calls the function again with ours set.
        with pytest.raises((ValueError, TypeError), match=r"signs|would lose the"):
            optimize.ridder(lambda x: x - a, 0.0, 2.0)
        return optimize.ridder(lambda x: x * x + 1.0, 0.0, 2.0)

    with pytest.raises(ValueError, match="different signs"):
        tg.grad(root)(1.0)


def test_what_the_messages_say_to_write_works():
    def stacked(x):
        return tg.sum(np.stack([tg.sum(x), x[0] ** 2]))

    def chosen(x):
        return tg.sum(np.where(np.arange(2) == 0, tg.sum(x), 0.0))

    np.testing.assert_array_equal(tg.grad(stacked)(X), [3.0, 1.0])
    np.testing.assert_array_equal(tg.grad(chosen)(X), [1.0, 1.0])
    read = tg.grad(lambda x: tg.sum(x * x.numpy().tolist()))
    np.testing.assert_array_equal(read(X), X)


def test_tolist_of_a_parameter_warns_once_a_line():
    x = tg.param(X)
    with pytest.warns(tg.LostGradientWarning, match=r"tolist.*tensor\.numpy\(\)\.tolist\(\)"):
        assert x.tolist() == [1.0, 2.0]
    assert tg.tensor(X).tolist() == [1.0, 2.0]
    assert x.numpy().tolist() == [1.0, 2.0]
    assert x.detach().tolist() == [1.0, 2.0]


def test_tolist_is_an_error_where_warnings_are(monkeypatch):
    monkeypatch.setenv("TAPEGRAPH_STRICT", "1")
    with pytest.raises(TypeError, match="tolist"):
        tg.param(X).tolist()


def test_a_dual_has_no_list_of_numbers():
    with pytest.raises(TypeError, match=r"tolist.*Dual.*dual\.numpy\(\)\.tolist\(\)"):
        tg.Dual(X, X).tolist()
