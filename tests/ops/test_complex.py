"""Complex numbers: what every operation gives of them, its derivatives, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.fallback.rules import strong_zeros, to_ndarray
from tapegraph.recording.linearize import linearize
from tapegraph.recording.op import OPS, PART
from tapegraph.testing import check_gradients
from tests.cases.complex_numbers import COMPLEX_CASES
from tests.quick import check_each, each_operation, in_one

each = each_operation(COMPLEX_CASES)
# Compared in place, or scattered by a gradient: nothing to differentiate by itself.
WITHOUT = {
    *("argsort", "detach", "equal", "greater", "greater_equal", "isfinite", "isinf", "isnan"),
    *("less", "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor"),
    *("not_equal", "scatter", "signbit", "tensor_slice"),
}
Z = np.array([1.0 + 2.0j, -0.5 + 0.25j])


def drawn(rng, like):
    parts = rng.normal(size=(2, *np.shape(like)))
    return parts[0] + 1j * parts[1] if np.iscomplexobj(like) else parts[0]


@each
def test_it_is_numpys_and_its_gradient_is_that_of_finite_differences(op):
    check_each(op, COMPLEX_CASES, it_is_numpys_and_its_gradient_is_that_of_finite_differences)


def it_is_numpys_and_its_gradient_is_that_of_finite_differences(case):
    out = case.run(*map(tg.param, case.inputs))
    want = np.asarray(case.run(*case.inputs))
    np.testing.assert_allclose(out.data, want, rtol=1e-12, atol=1e-13)
    assert out.dtype == want.dtype or case.op == "eig"
    check_gradients(case.run, *case.inputs, rtol=2e-5, atol=1e-6)


@each
@pytest.mark.one_in(2, start=1)
def test_its_tangent_is_that_of_finite_differences(op):
    check_each(op, COMPLEX_CASES, its_tangent_is_that_of_finite_differences)


def its_tangent_is_that_of_finite_differences(case):
    rng, h = np.random.default_rng(2), 1e-6
    for i, x in enumerate(case.inputs):
        tangents = [np.zeros_like(other) for other in case.inputs]
        tangents[i] = drawn(rng, x)
        pairs = list(zip(case.inputs, tangents, strict=True))
        ends = [np.asarray(case.run(*(p + s * t for p, t in pairs))) for s in (h, -h)]
        _, found = tg.jvp(case.run, case.inputs, tuple(tangents))
        want = (ends[0] - ends[1]) / (2.0 * h)
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@each
@pytest.mark.one_in(2)
def test_its_second_derivative_is_that_of_finite_differences(op):
    check_each(op, COMPLEX_CASES, its_second_derivative_is_that_of_finite_differences)


def its_second_derivative_is_that_of_finite_differences(case):
    rng, h = np.random.default_rng(3), 2e-6
    weights = rng.normal(size=np.shape(case.run(*case.inputs)))

    def slope(*arrays):
        """A number of the first gradients, and the parameters."""
        params = list(map(tg.param, arrays))
        loss = tg.sum(weights * tg.abs(case.run(*params)) ** 2)
        if not loss.requires_grad:
            return None, params
        grads = tg.gradients(loss, params, create_graph=True, allow_unused=True)
        total = [tg.sum(tg.sin(g.real) + tg.cos(g.imag)) for g in grads if g is not None]
        return sum(total[1:], total[0]), params

    found, params = slope(*case.inputs)
    if found is None or not found.requires_grad:
        assert case.op == "rint"
        return
    second = tg.gradients(found, params, allow_unused=True)
    for i, x in enumerate(case.inputs):
        t = drawn(rng, x)
        ends = []
        for sign in (1.0, -1.0):
            moved = list(case.inputs)
            moved[i] = x + sign * h * t
            ends.append(slope(*moved)[0].item())
        got = 0.0 if second[i] is None else np.sum(np.conj(second[i].data) * t).real
        assert got == pytest.approx((ends[0] - ends[1]) / (2.0 * h), rel=1e-4, abs=1e-5)


def test_every_operation_says_whether_it_takes_complex_numbers():
    recorded = set()
    for case in COMPLEX_CASES:
        program = linearize([case.run(*map(tg.param, case.inputs)) * 1.0]).program
        found = {op for slot, op in enumerate(program.ops) if program.inputs[slot]}
        recorded |= {op.name for op in found - {PART}}
    assert {name for name, op in OPS.items() if op.takes_complex} - recorded - WITHOUT == set()
    assert {name for name in recorded if not OPS[name].takes_complex} == {"hypot", "norm", "rfft"}


@in_one(
    ("op", "call"),
    {
        "relu": tg.relu,
        "maximum": lambda z: tg.maximum(z, 0.0),
        "minimum": lambda z: np.minimum(1.0, z),
        "fmax": lambda z: np.fmax(z, z),
        "max": np.max,
        "softmax": tg.softmax,
        "clip": lambda z: np.clip(z, 0.0, 1.0),
        "floor": np.floor,
        "mod": lambda z: z % 2.0,
        "arctan2": lambda z: np.arctan2(z, 1.0),
        "fabs": np.fabs,
        "copysign": lambda z: np.copysign(z, 1.0),
        "heaviside": lambda z: np.heaviside(z, 1.0),
        "mse_loss": lambda z: tg.mse_loss(z, np.zeros(2)),
        "rfftn": np.fft.rfft,
        "erfinv": tg.special.erfinv,
    }.items(),
    ids=lambda x: x if isinstance(x, str) else "",
)
@in_one("make", [tg.param, tg.tensor])
def test_what_has_no_complex_meaning_is_refused_by_name(op, call, make):
    with pytest.raises(TypeError, match=rf"^{op}: received complex numbers.*test_complex.py"):
        call(make(Z))


def test_the_gradient_points_where_the_loss_rises():
    z = tg.param(Z)
    tg.sum(tg.abs(z) ** 2).backward()
    np.testing.assert_allclose(z.grad, 2.0 * Z)
    np.testing.assert_allclose(tg.grad(lambda z: tg.sum(tg.abs(z) ** 2))(Z), 2.0 * Z)
    assert tg.grad(lambda x: tg.abs(x * 1j) ** 2)(3.0) == 6.0  # of a real argument it is real


def test_holomorphic_derivatives():
    want = 3.0 * Z**2 * np.exp(Z) + Z**3 * np.exp(Z)
    found = tg.elementwise_grad(lambda z: z**3 * np.exp(z), holomorphic=True)(Z)
    np.testing.assert_allclose(found, want, rtol=1e-12)
    value, slope = tg.value_and_grad(lambda z: z * z, holomorphic=True)(1.0 + 2.0j)
    assert (value, slope) == (-3.0 + 4.0j, 2.0 + 4.0j)
    for mode in (None, "forward", "reverse"):
        rows = tg.jacobian(lambda z: z * z, mode=mode, holomorphic=True)(Z)
        np.testing.assert_allclose(rows, np.diag(2.0 * Z), rtol=1e-14)


def test_jacobians_of_real_and_complex_numbers():
    x = np.array([0.5, 2.0])
    rows = tg.jacobian(lambda x: np.exp(1j * x))(x)
    np.testing.assert_allclose(rows, np.diag(1j * np.exp(1j * x)), rtol=1e-14)
    rows = tg.jacobian(lambda z: tg.abs(z) ** 2)(Z)
    np.testing.assert_allclose(rows, np.diag(2.0 * Z), rtol=1e-14)
    np.testing.assert_allclose(
        tg.hessian(lambda x: tg.abs(np.sum(np.exp(1j * x))) ** 2)(x),
        2.0 * np.cos(1.5) * np.array([[-1.0, 1.0], [1.0, -1.0]]),
        rtol=1e-12,
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: tg.sum(tg.param(Z)).backward(),
            ["backward", "complex128", "holomorphic=True"],
        ),
        (lambda: tg.grad(lambda z: z * z)(1j), ["complex128", "holomorphic=True"]),
        (lambda: tg.grad(lambda x: x * x, holomorphic=True)(1.0), ["grad", "float64"]),
        (lambda: tg.jacobian(lambda z: z * z)(Z), ["jacobian", "holomorphic=True"]),
        (lambda: tg.param(Z).astype("float64"), ["astype", "imaginary", ".real"]),
        (lambda: tg.param(Z, dtype="float32"), ["param", "imaginary", ".real"]),
        (lambda: tg.tensor(Z, dtype=float), ["tensor", "imaginary", ".real"]),
        (lambda: tg.sum(tg.param([1.0])).backward(1j), ["backward", "complex128", ".real"]),
        (lambda: tg.jvp(lambda x: x, (1.0,), (1j,)), ["jvp", "complex128", "real"]),
        (lambda: float(tg.tensor(Z[0])), ["float", "complex", ".real"]),
        (lambda: tg.param([1.0]).assign(Z[:1]), ["assign", "imaginary", ".real"]),
    ],
)
def test_what_would_lose_a_part_is_refused(call, words):
    with pytest.raises(TypeError) as refused:
        call()
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_modes_that_cannot_say_it_are_refused():
    with pytest.raises(ValueError, match="forward"):
        tg.jacobian(lambda z: tg.abs(z), mode="forward")(Z)
    with pytest.raises(ValueError, match="reverse"):
        tg.jacobian(lambda x: x * 1j, mode="reverse")(np.ones(2))


def test_numpys_promotion():
    single, double = tg.param(np.ones(2, np.complex64)), tg.param(np.ones(2, np.float64))
    assert (single * 1j).dtype == (single * 2.0).dtype == np.complex64
    half = tg.param(np.ones(2, np.float32))
    assert (half * 1j).dtype == (1j * half).dtype == tg.mul(1j, half).dtype == np.complex64
    assert tg.where(np.array([True, False]), 1j, half).dtype == np.complex64
    assert tg.add(1j, 2.0).dtype == np.complex128
    assert (single * double).dtype == np.complex128
    assert tg.abs(single).dtype == single.real.dtype == np.float32
    (single * double).real.sum().backward()
    assert single.grad.dtype == np.complex64
    assert double.grad.dtype == np.float64


def test_zeros_of_a_cotangent_absorb():
    z = tg.param([0.0j, 1.0 + 1.0j])
    roots = tg.where(np.array([False, True]), np.sqrt(z), 0.0)
    tg.sum(tg.abs(roots) ** 2).backward()
    np.testing.assert_allclose(z.grad, [0.0, (1.0 + 1.0j) / np.sqrt(2.0)])


@np.errstate(all="ignore")
def test_zeros_of_a_cotangent_absorb_part_by_part():
    g = strong_zeros(np.array([2.0j, 3.0 + 0.0j]))
    factor = np.array([complex(np.inf, 1.0), complex(1.0, np.inf)])
    got = to_ndarray(g * factor)
    assert got.tolist() == [complex(-2.0, np.inf), complex(3.0, np.inf)]
    got = to_ndarray(
        np.matmul(strong_zeros(np.array([[2.0j]])), np.array([[complex(np.inf, 1.0)]]))
    )
    assert got.tolist() == [[complex(-2.0, np.inf)]]
    x = tg.param(2.0)
    y = tg.where(np.array(False), (x * complex(0.0, np.inf)).imag, x * 3.0)
    y.backward()
    assert x.grad == 3.0


@pytest.mark.parametrize("name", ["real", "imag", "conj", "angle"])
def test_of_real_numbers(name):
    x = np.array([1.5, -2.0])
    out = getattr(np, name)(tg.param(x))
    np.testing.assert_array_equal(out.data, getattr(np, name)(x))
    assert out.dtype == np.float64
    assert out.requires_grad == (name in ("real", "conj"))
