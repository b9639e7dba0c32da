"""Operations that users register: on the tape, in both engines, in both modes, or refused."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.recording.linearize import linearize
from tapegraph.recording.op import DEFINED, OPS

X = np.array([[0.5, 1.5, -0.25], [2.0, -1.0, 0.75]])
_number = itertools.count().__next__


@pytest.fixture
def name():
    """A name that no test used before: registered operations stay."""
    return f"user_op_{_number()}"


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


@tg.defop(
    vjp=lambda g, y, x, *, rate=1.0: g * sigmoid(rate * x),
    jvp=lambda tangents, y, x, *, rate: tangents[0] * tg.sigmoid(rate * x),
    lowering=lambda x, *, rate: _tf().nn.softplus(rate * x) / rate,
)
def soft_ramp(x, *, rate=1.0):
    """Softplus."""
    return np.logaddexp(0.0, rate * x) / rate


@tg.defop(
    name="weighted_square",
    vjp=(lambda g, y, x, w: 2 * g * x * w, lambda g, y, x, w: g * x**2),
    jvp=lambda t, y, x, w: sum_of(t[0], 2 * x * w) + sum_of(t[1], x**2),
    lowering=lambda x, w: x * x * w,
)
def square(x, w):
    return x * x * w


def sum_of(tangent, factor):
    return 0.0 if tangent is None else tangent * factor


def _tf():
    return pytest.importorskip("tensorflow")


# -- taking part -------------------------------------------------------------------------------


def test_is_recorded_like_any_other_operation():
    x = tg.param(X, name="x")
    y = soft_ramp(x, rate=2.0)
    assert (type(y), y.op, y.inputs, y.attrs) == (tg.Tensor, "soft_ramp", (x,), {"rate": 2.0})
    np.testing.assert_array_equal(y.data, np.logaddexp(0.0, 2 * X) / 2)
    assert "soft_ramp" in str(tg.tape())
    assert __file__ in str(tg.tape())


def test_keeps_the_functions_name_and_docstring():
    assert (soft_ramp.__name__, soft_ramp.__doc__) == ("soft_ramp", "Softplus.")
    assert square.__name__ == "weighted_square"


def test_differentiates_with_both_engines(backend):
    x = tg.param(X)
    tg.sum(soft_ramp(x * 3.0, rate=2.0)).backward()
    np.testing.assert_allclose(x.grad, 3.0 * sigmoid(6.0 * X), rtol=1e-12)
    assert tg.last_backward().backend == backend


def test_passes_the_checks_of_gradients_and_parity():
    tg.testing.check_gradients(lambda x: soft_ramp(x, rate=0.5), X)
    tg.testing.check_gradients(square, X, X[:, :1])
    pytest.importorskip("tensorflow")
    for dtype in (np.float32, np.float64):
        report = tg.testing.check_parity(square, X.astype(dtype), X[0].astype(dtype))
        assert report.backend == "tensorflow"


def test_broadcasting_and_mixed_precision(backend):
    x, w = tg.param(X.astype(np.float32)), tg.param(X[:, :1])
    y = square(x, w)
    y.backward()
    assert y.dtype == np.float64
    assert (x.grad.dtype, w.grad.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(x.grad, 2 * X * X[:, :1], rtol=1e-6)
    np.testing.assert_allclose(w.grad, (X**2).sum(axis=1, keepdims=True), rtol=1e-6)


def test_numbers_arrays_and_lists_are_operands(backend):
    x = tg.param(X.astype(np.float32))
    y = square(square(square(x, 2.0), 3), X[0].astype(np.float32))
    assert y.dtype == np.float32
    y.backward()
    np.testing.assert_allclose(x.grad, 8 * X**7 * 144 * X[0], rtol=1e-5)
    assert not square([1.0, 2.0], 3.0).requires_grad
    np.testing.assert_array_equal(square([1.0, 2.0], 3.0).data, [3.0, 12.0])


def test_forward_mode_and_its_levels():
    value, tangent = tg.jvp(lambda x: soft_ramp(x, rate=2.0), (X,), (np.ones_like(X),))
    np.testing.assert_allclose(value, np.logaddexp(0.0, 2 * X) / 2)
    np.testing.assert_allclose(tangent, sigmoid(2 * X))
    slope = sigmoid(0.6) * (1 - sigmoid(0.6)) * 2
    assert tg.grad(tg.grad(lambda x: soft_ramp(x, rate=2.0)))(0.3) == pytest.approx(slope)
    assert tg.grad(lambda x: square(3.0, x))(1.0) == 9.0
    assert tg.grad(lambda x: square(x, x))(2.0) == 12.0


def test_without_a_tangent_rule_forward_mode_says_so(name):
    f = tg.defop(np.exp, name=name, vjp=lambda g, y, x: g * y)
    with pytest.raises(NotImplementedError, match=rf"{name}: .*jvp= to tg\.defop"):
        tg.jvp(f, (1.0,), (1.0,))


def test_without_a_tangent_rule_there_is_a_first_derivative_and_no_second(name):
    f = tg.defop(np.exp, name=name, vjp=lambda g, y, x: g * y)
    assert tg.grad(f)(1.0) == np.exp(1.0)
    with pytest.raises(NotImplementedError, match=rf"{name}: .*jvp= to tg\.defop"):
        tg.grad(tg.grad(f))(1.0)


def test_without_a_lowering_the_tape_runs_natively_and_says_why(name):
    pytest.importorskip("tensorflow")
    f = tg.defop(np.exp, name=name, vjp=lambda g, y, x: g * y)
    x = tg.param(X)
    f(x).sum().backward()
    assert (tg.last_backward().backend, tg.last_backward().reason) == (
        "native",
        f"{name} has no lowering",
    )
    assert tg.testing.check_parity(f, X).reason == f"{name} has no lowering"


def test_a_lowering_that_fails_falls_back_whole(name):
    pytest.importorskip("tensorflow")
    f = tg.defop(np.exp, name=name, vjp=lambda g, y, x: g * y, lowering=lambda x: x[0])
    x = tg.param(X)
    with tg.use_backend("tensorflow"), pytest.warns(RuntimeWarning, match=f"lowering of {name}"):
        f(x).backward()
    np.testing.assert_array_equal(x.grad, np.exp(X))


def test_zero_stays_zero_with_both_engines(backend, name):
    f = tg.defop(np.log, name=name, vjp=lambda g, y, x: g / x, lowering=lambda x: _tf().math.log(x))
    x = tg.param([0.0, 2.0])
    with np.errstate(all="ignore"):
        y = tg.where(x.data > 0, f(x), 0.0)
    if backend == "tensorflow":  # TensorFlow's own gradient of the lowering may not absorb
        tg.set_backend("auto")
    y.backward()
    np.testing.assert_array_equal(x.grad, [0.0, 0.5])


def test_a_tuple_of_rules_computes_what_is_asked_for(name):
    asked = []

    def rule(i):
        return lambda g, y, a, b, c: asked.append(i) or g

    f = tg.defop(lambda a, b, c: a + b + c, name=name, vjp=(rule(0), rule(1), None))
    a, c = tg.param(1.0), tg.param(2.0)
    with tg.use_backend("native"):
        f(a, 1.0, c).backward()
    assert asked == [0]
    assert (a.grad, c.grad) == (1.0, 0.0)
    assert not f(1.0, 2.0, c).requires_grad


def test_inputs_without_a_gradient_get_none(name):
    f = tg.defop(lambda a, b: a * b, name=name, vjp=lambda g, y, a, b: (g * b, None))
    a, b = tg.param(2.0), tg.param(3.0)
    with tg.use_backend("native"):
        f(a, b).backward()
    assert (a.grad, b.grad) == (3.0, 0.0)


def test_any_number_of_arrays(name):
    f = tg.defop(
        lambda *arrays: sum(arrays), name=name, vjp=lambda g, y, *arrays: tuple(g for _ in arrays)
    )
    tg.testing.check_gradients(f, X, X[0], X[:, :1], backend="native")


def test_a_foreign_ufunc_works_on_tensors_by_its_own_name(name):
    halve = np.frompyfunc(lambda x: x / 2, 1, 1)
    special = pytest.importorskip("scipy.special")
    tg.defop(
        special.jv,
        name=name,
        vjp=(None, lambda g, y, n, x: g * special.jvp(n, x)),
        jvp=lambda t, y, n, x: t[1] * (special.jv(n - 1, x) - special.jv(n + 1, x)) / 2,
    )
    tg.testing.check_gradients(lambda x: special.jv(1, x), X, backend="native")
    second = tg.grad(tg.grad(lambda x: special.jv(0, x)))(1.3)
    assert second == pytest.approx(special.jvp(0, 1.3, 2), rel=1e-12)
    with pytest.raises(TypeError, match="tg.defop"):
        halve(tg.param(X))


def test_attributes_make_one_graph_each(graph_engine):
    _tf()

    def cached(**attrs):
        x = tg.param(X)
        soft_ramp(x, **attrs).backward()
        return tg.last_backward().cached

    assert [cached(rate=1.0), cached(), cached(rate=3.0), cached(rate=3.0)] == [
        False,
        True,  # the default, written out or not
        False,
        True,
    ]


def test_threads_share_an_operation():
    results = []

    def work():
        x = tg.param(X)
        with tg.use_backend("native"):
            soft_ramp(x).backward()
        results.append(x.grad)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for grad in results:
        np.testing.assert_allclose(grad, sigmoid(X))


def test_no_grad_and_plain_operands_record_nothing():
    with tg.no_grad():
        assert not soft_ramp(tg.param(X)).requires_grad
    assert not soft_ramp(X).requires_grad


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 1, 2)])
def test_every_shape(shape):
    x = tg.param(np.full(shape, 0.5))
    with tg.use_backend("native"):
        soft_ramp(x).backward()
    np.testing.assert_allclose(x.grad, np.full(shape, sigmoid(0.5)))


# -- a wrong result or rule --------------------------------------------------------------------

WRONG_GRADIENTS = {
    "a reduction not spread": (np.sum, lambda g, y, x: g, r"shape \(\).* shape \(2, 3\)"),
    "of another shape": (np.exp, lambda g, y, x: g.T, r"shape \(3, 2\).* shape \(2, 3\)"),
    "that only broadcasts": (np.exp, lambda g, y, x: g[:1], r"shape \(1, 3\).* shape \(2, 3\)"),
    "too many": (np.exp, lambda g, y, x: (g, g), r"2 gradients .* 1, one per input"),
    "complex": (np.exp, lambda g, y, x: g * 1j, r"complex128 .* real numbers"),
}


@pytest.mark.parametrize("what", WRONG_GRADIENTS)
def test_a_wrong_gradient_is_an_error_that_names_the_operation(what, name):
    forward, vjp, message = WRONG_GRADIENTS[what]
    f = tg.defop(lambda x: forward(x), name=name, vjp=vjp)
    x = tg.param(X)
    y = f(x)
    with (
        tg.use_backend("native"),
        pytest.raises((TypeError, ValueError), match=f"^{name}: .*{message}"),
    ):
        y.backward()
    assert x.grad is None


def test_a_gradient_is_not_summed_by_chance(name):
    # (3, 3) would broadcast from the input's (3,), but the result is no (3, 3).
    f = tg.defop(lambda x: x + 1, name=name, vjp=lambda g, y, x: np.outer(g, g))
    with tg.use_backend("native"), pytest.raises(ValueError, match=name):
        f(tg.param(X[0])).backward()


def test_rules_cannot_harm_what_is_recorded(name):
    def vjp(g, y, x):
        g *= 2
        return g

    f = tg.defop(lambda x: x * 2, name=name, vjp=vjp)
    x = tg.param(X)
    with tg.use_backend("native"), pytest.raises(ValueError, match="read-only"):
        f(x).backward()


def _writes(x):
    x += 1
    return x


WRONG_RESULTS = {
    "writes": (_writes, ValueError, "writes into its argument.*Copy it first"),
    "a tuple": (lambda x: (x, x), TypeError, "a tuple from forward"),
    "integers": (lambda x: x.astype(int), TypeError, "int64.* from forward"),
    "complex": (lambda x: x + 1j, TypeError, "complex128"),
    "text": (lambda x: "text", TypeError, "str 'text'"),
}


@pytest.mark.parametrize("what", WRONG_RESULTS)
def test_a_wrong_result_is_an_error_that_names_the_operation(what, name):
    forward, error, message = WRONG_RESULTS[what]
    f = tg.defop(forward, name=name, vjp=lambda g, y, x: g)
    before = len(tg.tape())
    x = tg.param(X)
    with pytest.raises(error, match=f"^{name}: .*{message}"):
        f(x)
    np.testing.assert_array_equal(x.data, X)
    assert len(tg.tape()) == before + 1


def test_a_result_shares_no_memory_with_its_input(name):
    f = tg.defop(lambda x: x, name=name, vjp=lambda g, y, x: g)
    x = tg.param(X)
    assert not np.shares_memory(f(x).data, x.data)


# -- wrong calls -------------------------------------------------------------------------------

WRONG_CALLS = {
    "too few": (lambda x: square(x), TypeError, "weighted_square: received 1 .*expected 2"),
    "too many": (lambda x: soft_ramp(x, 2.0), TypeError, "soft_ramp: received 2 .*expected 1"),
    "unknown": (lambda x: soft_ramp(x, speed=2.0), TypeError, "attribute speed; expected rate"),
    "unhashable": (lambda x: soft_ramp(x, rate=[2.0]), TypeError, "hashable.*tuples"),
    "object": (lambda x: square(x, object()), TypeError, "weighted_square: .*'argument 1'"),
    "value": (lambda x: soft_ramp(tg.Value(1.0)), TypeError, "soft_ramp: received a Value"),
}


@pytest.mark.parametrize("what", WRONG_CALLS)
def test_a_wrong_call_is_explained(what):
    call, error, message = WRONG_CALLS[what]
    with pytest.raises(error, match=message):
        call(tg.param(X))


def test_a_required_attribute_is_asked_for(name):
    f = tg.defop(lambda x, *, n: x * n, name=name, vjp=lambda g, y, x, *, n: g * n)
    with pytest.raises(TypeError, match=f"{name}: received no n="):
        f(X)


# -- wrong registrations -----------------------------------------------------------------------


def optional(x, n=2):
    return x * n


def vjp(g, y, x):
    return g


REGISTRATIONS = {
    "a name of ours": (lambda: tg.defop(np.sin, vjp=vjp), ValueError, "'sin', which is taken"),
    "a name of our entries": (
        lambda: tg.defop(np.negative, vjp=vjp, name="root"),
        ValueError,
        "'root', which is taken",
    ),
    "a name of theirs": (
        lambda: tg.defop(np.sin, vjp=vjp, name="soft_ramp"),
        ValueError,
        "'soft_ramp', which is taken",
    ),
    "no name": (lambda: tg.defop(lambda x: x, vjp=vjp), ValueError, "name="),
    "no function": (lambda: tg.defop(3, vjp=vjp), TypeError, "int 3 for 'forward'"),
    "no rule": (lambda: tg.defop(_writes, vjp=None), TypeError, "for 'vjp'"),
    "no tangent rule": (
        lambda: tg.defop(np.exp, vjp=vjp, name="e", jvp=1),
        TypeError,
        "int 1 for 'jvp'",
    ),
    "no lowering": (
        lambda: tg.defop(np.exp, vjp=vjp, name="e", lowering="exp"),
        TypeError,
        "str 'exp' for 'lowering'",
    ),
    "optional arrays": (lambda: tg.defop(optional, vjp=vjp), TypeError, "keyword-only"),
    "rules to spare": (
        lambda: tg.defop(np.exp, vjp=(vjp, vjp), name="e"),
        ValueError,
        "2 rules in vjp for e; expected one per input, 1",
    ),
}


@pytest.mark.parametrize("what", REGISTRATIONS)
def test_a_wrong_registration_is_refused_and_leaves_no_trace(what):
    call, error, message = REGISTRATIONS[what]
    before = set(DEFINED), set(OPS)
    with pytest.raises(error, match=message):
        call()
    assert (set(DEFINED), set(OPS)) == before


def test_ours_stay_ours():
    assert not set(DEFINED) & set(OPS)
    assert np.exp(tg.param(1.0)).op == "exp"


def test_the_same_function_again_replaces_it(name):
    def ramp(x):
        return x * x

    old = tg.defop(ramp, vjp=lambda g, y, x: 0.0 * g, name=name)
    earlier = old(tg.param(3.0, name="earlier"))

    def ramp(x):
        return x * x

    new = tg.defop(ramp, vjp=lambda g, y, x: 2.0 * g * x, name=name)
    x = tg.param(3.0)
    new(x).backward()
    assert x.grad == 6.0
    earlier.backward()  # what was recorded keeps the rule that it was recorded with
    assert earlier.inputs[0].grad == 0.0


def test_another_function_of_the_same_name_is_refused(name):
    def ramp(x):
        return x * x

    def slope(x):
        return x + x

    op = tg.defop(ramp, vjp=lambda g, y, x: 2.0 * g * x, name=name)
    with pytest.raises(ValueError, match="which is taken"):
        tg.defop(slope, vjp=lambda g, y, x: 2.0 * g, name=name)
    with pytest.raises(ValueError, match="which is taken"):
        tg.defop(lambda x: x, vjp=lambda g, y, x: g, name=name)
    x = tg.param(3.0)
    op(x).backward()
    assert x.grad == 6.0


def test_the_array_a_rule_returns_stays_the_users(name):
    stored = np.array([1.0, 2.0])
    op = tg.defop(lambda x: 1.0 * x, vjp=lambda g, y, x: stored, name=name)
    x = tg.param([5.0, 6.0])
    (op(x) + op(x) + op(x)).backward([1.0, 1.0])
    op(x).backward([1.0, 1.0])
    np.testing.assert_array_equal(stored, [1.0, 2.0])
    np.testing.assert_array_equal(x.grad, [4.0, 8.0])
    x.grad[...] = 0.0
    np.testing.assert_array_equal(stored, [1.0, 2.0])


def test_a_rule_may_write_to_the_same_buffer_at_every_call(name):
    buffer = np.zeros(2)
    op = tg.defop(lambda x: 1.0 * x, vjp=lambda g, y, x: np.multiply(g, x, out=buffer), name=name)
    x, z = tg.param([1.0, 2.0]), tg.param([10.0, 20.0])
    (op(x) + op(z)).backward([1.0, 1.0])
    np.testing.assert_array_equal(x.grad, [1.0, 2.0])
    np.testing.assert_array_equal(z.grad, [10.0, 20.0])
    op(z).backward([0.0, 0.0])
    np.testing.assert_array_equal(x.grad, [1.0, 2.0])


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_rule_may_return_a_matrix(name):
    op = tg.defop(lambda x: 2.0 * x, vjp=lambda g, y, x: np.asmatrix(2.0 * g), name=name)
    x, w = tg.param(np.ones((2, 2))), np.array([[1.0, 2.0], [3.0, 4.0]])
    tg.sum(op(x * w) * w).backward()
    assert type(x.grad) is np.ndarray
    np.testing.assert_array_equal(x.grad, 2.0 * w * w)


@pytest.mark.parametrize(
    ("one", "other"), [(0.0, -0.0), (1, True), (1, 1.0), ((1, 0.0), (1, -0.0)), (0.0, False)]
)
def test_attributes_that_are_equal_but_not_the_same_are_two_structures(name, one, other):
    def forward(x, *, s):
        return x * np.copysign(1.0, np.ravel(s)[-1]) * (2.0 if type(s) is float else 1.0)

    op = tg.defop(forward, vjp=lambda g, y, x, *, s: g, name=name)
    keys = [linearize([op(tg.param(1.0), s=s)]).program.key for s in (one, other, one)]
    assert keys[0] == keys[2] != keys[1]


def test_the_graph_of_one_attribute_is_not_taken_for_anothers(name):
    pytest.importorskip("tensorflow")
    op = tg.defop(
        lambda x, *, s: x * np.copysign(1.0, s),
        vjp=lambda g, y, x, *, s: g * np.copysign(1.0, s),
        lowering=lambda x, *, s: x * np.copysign(1.0, s),
        name=name,
    )
    with tg.use_backend("tensorflow"):
        for s, want in ((0.0, 1.0), (-0.0, -1.0)):
            x = tg.param(3.0)
            op(x, s=s).backward()
            assert (x.grad, tg.last_backward().backend) == (want, "tensorflow")


def test_a_lowering_that_gives_nan_fails_parity(name):
    tf = pytest.importorskip("tensorflow")
    op = tg.defop(
        lambda x: x * x,
        vjp=lambda g, y, x: 2.0 * g * x,
        lowering=lambda x: x * x * tf.constant(float("nan"), x.dtype),
        name=name,
    )
    with pytest.raises(
        AssertionError, match="native engine gives .*[0-9]\\).*TensorFlow gives .*nan"
    ):
        tg.testing.check_parity(op, np.array([1.0]))


def test_too_few_gradients_are_an_error_that_counts_them():
    f = tg.defop(lambda a, b: a * b, name="half_derived", vjp=lambda g, y, a, b: g * b)
    out = f(tg.param([1.0]), tg.param([2.0]))
    with (
        tg.use_backend("native"),
        pytest.raises(ValueError, match="half_derived: received 1 gradients from vjp; expected 2"),
    ):
        out.backward()


def test_random_numbers_drawn_inside_an_operation_are_refused_in_a_compiled_step():
    def jittered(x):
        return x + tg.random.normal(size=x.shape)

    op = tg.defop(jittered, vjp=lambda g, y, x: g, name="jittered_in_a_step")
    x = np.ones(3)
    op(x)  # eagerly it may
    step = tg.compile(op)
    with pytest.raises(
        tg.ConcretizationError,
        match=r"random.normal: the operation jittered_in_a_step draws random numbers.*"
        r"jittered_in_a_step\(x, tg.random.normal\(...\)\)",
    ):
        step(x)
    tg.compile(lambda x: x * tg.random.normal(size=3))(x)  # the next one draws as before


def test_random_numbers_drawn_for_an_operation_are_those_of_eager_calls():
    op = tg.defop(lambda x, z: x * z, vjp=lambda g, y, x, z: (g * z, g * x), name="scaled_by")

    def f(x):
        return op(x, tg.random.normal(size=3))

    found = []
    for step in (f, tg.compile(f)):
        tg.random.seed(3)
        found.append([step(np.ones(3)).numpy() for _ in range(4)])
    np.testing.assert_array_equal(*found)


# -- complex numbers ---------------------------------------------------------------------------

Z = np.array([1.0 + 2.0j, -0.5 + 0.25j, 0.3 - 0.7j])
W = np.array([0.5, 1.5, -2.0])


@tg.defop(
    name="square_times",
    takes_complex=True,
    vjp=(lambda g, y, z, w: g * np.conj(2 * z * w), lambda g, y, z, w: g * np.conj(z**2)),
    jvp=lambda t, y, z, w: sum_of(t[0], 2 * z * w) + sum_of(t[1], z**2),
    lowering=lambda z, w: z * z * w,
)
def square_times(z, w):
    return z * z * w


@tg.defop(
    name="intensity",
    takes_complex=True,
    vjp=lambda g, y, z: 2 * g * z,
    jvp=lambda t, y, z: 2 * np.real(np.conj(z) * t[0]),
    lowering=lambda z: _tf().math.real(z * _tf().math.conj(z)),
)
def intensity(z):
    return np.real(z * z.conj())


@tg.defop(
    name="turned",
    takes_complex=True,
    vjp=lambda g, y, x: g * np.conj(1j * y),
    jvp=lambda t, y, x: t[0] * 1j * y,
    lowering=lambda x: _tf().complex(_tf().cos(x), _tf().sin(x)),
)
def turned(x):
    return np.exp(1j * x)


def loss_of_own(z, w):
    return tg.sum(intensity(square_times(z, w) * turned(w) + 1j) * intensity(z))


def loss_of_ours(z, w):
    return tg.sum(tg.abs(z * z * w * tg.exp(1j * w) + 1j) ** 2 * tg.abs(z) ** 2)


def squared_slopes(loss):
    def size(z, w):
        by_z, by_w = tg.grad(loss, argnums=(0, 1))(z, w)
        return tg.sum(tg.abs(by_z) ** 2) + tg.sum(by_w**2)

    return size


def test_complex_numbers_agree_with_differences_and_with_our_operations(backend):
    tg.testing.check_gradients(loss_of_own, Z, W)
    z, w = tg.param(Z), tg.param(W)
    loss_of_own(z, w).backward()
    assert (tg.last_backward().backend, w.grad.dtype) == (backend, np.float64)
    by_z, by_w = tg.grad(loss_of_ours, argnums=(0, 1))(Z, W)
    np.testing.assert_allclose(z.grad, by_z, rtol=1e-12)
    np.testing.assert_allclose(w.grad, by_w, rtol=1e-12)
    step = tg.compile(tg.value_and_grad(loss_of_own, argnums=(0, 1)))
    for scale in (1.0, 0.5):
        want, slopes = tg.value_and_grad(loss_of_ours, argnums=(0, 1))(scale * Z, W)
        value, found = step(scale * Z, W)
        np.testing.assert_allclose(value, want, rtol=1e-12)
        for got, slope in zip(found, slopes, strict=True):
            np.testing.assert_allclose(got, slope, rtol=1e-12)


def test_complex_numbers_in_second_derivatives_and_forward_mode():
    pairs = (loss_of_own, loss_of_ours), tuple(map(squared_slopes, (loss_of_own, loss_of_ours)))
    for own, ours in pairs:
        for got, want in zip(*(tg.grad(f, argnums=(0, 1))(Z, W) for f in (own, ours)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-11)
    along = (Z[::-1].copy(), W[::-1].copy())
    got, want = (tg.jvp(f, (Z, W), along) for f in (loss_of_own, loss_of_ours))
    np.testing.assert_allclose(got, want, rtol=1e-12)
    rows = tg.jacobian(lambda z: square_times(z, W), holomorphic=True)(Z)
    np.testing.assert_allclose(rows, np.diag(2 * Z * W), rtol=1e-12)
    np.testing.assert_allclose(tg.jacobian(turned)(W), np.diag(1j * np.exp(1j * W)), rtol=1e-12)


def test_complex_numbers_keep_the_arrays_precision(backend):
    z, w = tg.param(Z.astype(np.complex64)), tg.param(W.astype(np.float32))
    out = square_times(square_times(z, 2.0j), w)
    assert out.dtype == np.complex64
    tg.sum(tg.abs(out)).backward()
    assert (z.grad.dtype, w.grad.dtype) == (np.complex64, np.float32)
    by_w = np.abs(-4 * Z**4) * np.sign(W)
    np.testing.assert_allclose(w.grad, by_w, rtol=1e-5)


def test_zeros_of_a_cotangent_stay_where_a_complex_slope_is_not_finite():
    f = tg.defop(
        lambda z: np.sqrt(z),
        name="complex_root",
        takes_complex=True,
        vjp=lambda g, y, z: g / np.conj(2 * y),
    )
    z = tg.param([0j, 4.0 + 0j])
    with np.errstate(all="ignore"):
        tg.sum(tg.real(f(z)) * np.array([0.0, 1.0])).backward()
    np.testing.assert_array_equal(z.grad, [0.0, 0.25])


def test_complex_numbers_are_refused_without_a_rule_for_them(name):
    f = tg.defop(lambda x: x * x, vjp=lambda g, y, x: 2 * g * x, name=name)
    match = rf"{name}: received complex numbers; expected real numbers.*takes_complex=True"
    for z in (tg.param(Z), Z, 1j, tg.Dual(Z, Z)):
        with pytest.raises(TypeError, match=match):
            f(z)
    g = tg.defop(lambda x: x * 1j, vjp=lambda g, y, x: g, name=f"{name}_turned")
    with pytest.raises(TypeError, match=rf"{name}_turned: .*from forward; .*takes_complex=True"):
        g(tg.param(W))
    with pytest.raises(TypeError, match=rf"{name}_turned: .*from forward; .*takes_complex=True"):
        g(np.arange(3))


def test_a_complex_gradient_between_real_numbers_is_refused(name):
    f = tg.defop(lambda x: x * x, vjp=lambda g, y, x: 2j * g, name=name, takes_complex=True)
    y = f(tg.param(W))
    with tg.use_backend("native"), pytest.raises(TypeError, match="complex.*input 0 from vjp"):
        y.backward()


# -- rules that cannot be called ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"vjp": lambda g, y, x, res: g}, r"vjp\(g, y, x, res\) for .* expected vjp\(g, y, x, \*"),
        ({"vjp": lambda g, x: g}, r"expected vjp\(g, y, x, \*, rate\)"),
        ({"vjp": lambda g, y, x: g}, r"unexpected keyword argument 'rate'"),
        ({"vjp": (lambda g, y: g,)}, r"vjp\(g, y\) for"),
        (
            {"vjp": lambda g, y, x, *, rate: g, "jvp": lambda t, x, *, rate: t},
            r"expected jvp\(tangents, y, x, \*, rate\)",
        ),
        (
            {"vjp": lambda g, y, x, *, rate: g, "lowering": lambda x: x},
            r"expected lowering\(x, \*, rate\)",
        ),
    ],
)
def test_a_rule_of_other_arguments_is_refused_when_it_is_registered(name, rules, expected):
    with pytest.raises(TypeError, match=rf"^defop: received .*{expected}"):
        tg.defop(lambda x, *, rate=1.0: x * rate, name=name, **rules)
    assert name not in DEFINED


def test_rules_may_take_more_than_they_are_given(name):
    made = tg.defop(
        lambda x, *, rate=1.0: x * rate, name=name, vjp=lambda g, *rest, extra=0, **options: g * 2.0
    )
    x = tg.param([1.0])
    made(x, rate=2.0).sum().backward()
    np.testing.assert_array_equal(x.grad, [2.0])
