"""``numpy.linalg`` on tensors: the same values and errors through NumPy's own names."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.ops import linalg

rng = np.random.default_rng(4)
inf = np.inf
A = rng.uniform(-1, 1, (3, 3)) + 3 * np.eye(3)
STACK = np.stack([A, A.T + 1.0])
TALL, WIDE = rng.normal(size=(4, 2)), rng.normal(size=(2, 3))
SPD = A @ A.T
V = rng.normal(size=3)
LA = np.linalg

CALLS = {
    "inv": (lambda a: LA.inv(a), STACK),
    "solve": (lambda a, b: LA.solve(a, b), A, V),
    "solve-matrices": (lambda a, b: LA.solve(a, b), STACK, A),
    "solve-stack": (lambda a, b: LA.solve(a, b), A, STACK),
    "det": (lambda a: LA.det(a), STACK),
    "slogdet": (lambda a: LA.slogdet(a)[1], STACK),
    "slogdet-named": (lambda a: LA.slogdet(a).logabsdet, A),
    "cholesky": (lambda a: LA.cholesky(a), SPD),
    "cholesky-upper": (lambda a: LA.cholesky(a, upper=True), SPD),
    "eigvalsh": (lambda a: LA.eigvalsh(a), SPD),
    "eigvalsh-U": (lambda a: LA.eigvalsh(a, "U"), A),
    "eigh-values": (lambda a: LA.eigh(a).eigenvalues, SPD),
    "eigh-vectors": (lambda a: LA.eigh(a, UPLO="U").eigenvectors, SPD),
    "svd-U": (lambda a: LA.svd(a, full_matrices=False).U, TALL),
    "svd-S": (lambda a: LA.svd(a, full_matrices=False).S, WIDE),
    "svd-Vh": (lambda a: LA.svd(a, False)[2], WIDE),
    "svd-square": (lambda a: LA.svd(a)[0], A),
    "svd-values-only": (lambda a: LA.svd(a, compute_uv=False), TALL),
    "svdvals": (lambda a: LA.svdvals(a), STACK),
    "pinv": (lambda a: LA.pinv(a), TALL),
    "pinv-rcond": (lambda a: LA.pinv(a, rcond=1e-8), STACK),
    "lstsq": (lambda a, b: LA.lstsq(a, b)[0], TALL, rng.normal(size=4)),
    "lstsq-rcond": (lambda a, b: LA.lstsq(a, b, rcond=1e-9)[1], TALL, rng.normal(size=(4, 2))),
    "matrix_power": (lambda a: LA.matrix_power(a, 3), STACK),
    "matrix_power-negative": (lambda a: LA.matrix_power(a, -2), A),
    "norm": (lambda a: LA.norm(a), STACK),
    "norm-axis": (lambda a: LA.norm(a, axis=-1, keepdims=True), A),
    "norm-inf": (lambda a: LA.norm(a, inf), V),
    "norm-p": (lambda a: LA.norm(a, 3, axis=0), A),
    "norm-nuc": (lambda a: LA.norm(a, "nuc", axis=(1, 2)), STACK),
    "norm-1": (lambda a: LA.norm(a, 1), A),
    "norm-spectral": (lambda a: LA.norm(a, ord=2), A),
    "vector_norm": (lambda a: LA.vector_norm(a, axis=(0, 2), ord=1), STACK),
    "matrix_norm": (lambda a: LA.matrix_norm(a, ord=-inf, keepdims=True), STACK),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_value_and_gradient_through_numpys_name(name):
    f, *arrays = CALLS[name]
    out = f(*map(tg.param, arrays))
    assert out.requires_grad
    np.testing.assert_allclose(out.numpy(), f(*arrays), rtol=1e-10, atol=1e-13, strict=True)
    tg.testing.check_gradients(f, *arrays, backend="native")


@pytest.mark.parametrize("name", ["slogdet", "eigh", "svd"])
def test_tuples_have_numpys_names(name):
    got, want = getattr(LA, name)(tg.param(SPD)), getattr(LA, name)(SPD)
    assert type(got).__name__ == type(want).__name__
    assert got._fields == want._fields
    for part, array in zip(got, want, strict=True):
        np.testing.assert_allclose(part.numpy(), array, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("a", "b"),
    [(TALL, np.ones(4)), (WIDE, np.ones((2, 2))), (np.ones((3, 2)), np.arange(3.0)), (A, V)],
)
def test_all_that_lstsq_returns(a, b):
    for part, array in zip(LA.lstsq(tg.param(a), b), LA.lstsq(a, b), strict=True):
        value = part if isinstance(part, int) else part.numpy()
        np.testing.assert_allclose(value, array, rtol=1e-10, atol=1e-12)


def test_sign_of_the_determinant_has_a_zero_gradient():
    x = tg.param(A)
    LA.slogdet(x).sign.backward()
    np.testing.assert_array_equal(x.grad, np.zeros((3, 3)))


def test_log_of_a_zero_determinant():
    x = tg.param(np.zeros((2, 2)))
    sign, logarithm = LA.slogdet(x)
    assert (sign.item(), logarithm.item()) == (0.0, -inf)
    tg.where(sign > 0, logarithm, 0.0).backward()
    np.testing.assert_array_equal(x.grad, np.zeros((2, 2)))


def test_equal_eigenvalues_do_not_spoil_the_values_gradient():
    x = tg.param(np.eye(3))
    LA.eigh(x)[0].sum().backward()
    np.testing.assert_array_equal(x.grad, np.eye(3))


def test_power_zero_and_count_of_nonzeros_are_constants():
    x = tg.param([[1.0, 2.0], [0.0, 4.0]])
    np.testing.assert_array_equal(LA.matrix_power(x, 0).data, np.eye(2))
    np.testing.assert_array_equal(LA.norm(x, 0, axis=1).data, [2.0, 1.0])
    assert not LA.norm(x, 0, axis=1).requires_grad


def test_norm_of_integers():
    assert linalg.norm([3, 4]).item() == 5.0
    assert linalg.norm(tg.tensor([1, -2]), inf).dtype == np.float64


T = tg.param(TALL)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: LA.inv(T), LA.LinAlgError, ["inv", "(4, 2)", "square"]),
        (lambda: LA.inv(tg.param(np.zeros((2, 2)))), LA.LinAlgError, ["inv", "Singular"]),
        (lambda: LA.solve(T, T), LA.LinAlgError, ["solve", "square"]),
        (lambda: LA.solve(tg.param(A), np.ones(2)), ValueError, ["solve", "(2,)", "(3,)"]),
        (lambda: LA.solve(tg.param(A), 1.0), ValueError, ["solve", "()"]),
        (lambda: LA.det(tg.param(V)), LA.LinAlgError, ["det", "(3,)"]),
        (lambda: LA.cholesky(tg.param(-SPD)), LA.LinAlgError, ["cholesky", "positive"]),
        (lambda: LA.eigh(tg.param(A), "X"), ValueError, ["eigh", "'X'"]),
        (lambda: LA.svd(T), ValueError, ["svd", "full_matrices=False"]),
        (lambda: LA.svdvals(tg.param(V)), LA.LinAlgError, ["svdvals", "(3,)"]),
        (lambda: LA.lstsq(T, V), LA.LinAlgError, ["lstsq", "(3,)"]),
        (lambda: LA.matrix_power(tg.param(A), 1.5), TypeError, ["matrix_power", "1.5"]),
        (lambda: LA.matrix_power(T, 2), LA.LinAlgError, ["matrix_power", "square"]),
        (lambda: LA.norm(T, "bad"), ValueError, ["norm", "'bad'"]),
        (lambda: LA.norm(T, 3), ValueError, ["norm", "ord=3"]),
        (lambda: LA.norm(T, "fro", axis=0), ValueError, ["norm", "'fro'", "a number"]),
        (lambda: LA.norm(tg.param(STACK), 2), ValueError, ["norm", "one axis or two"]),
        (lambda: LA.norm(T, axis=(0, 0)), ValueError, ["norm", "differ"]),
        (lambda: LA.norm(T, axis=5), ValueError, ["norm", "axis 5"]),
        (lambda: LA.svd(T, hermitian=True), TypeError, ["numpy.svd", "hermitian=True"]),
        (lambda: LA.pinv(T, hermitian=True), TypeError, ["numpy.pinv", "hermitian=True"]),
        (lambda: LA.eigvals(T), TypeError, ["eigvals", "no gradient"]),
        (lambda: LA.qr(T), TypeError, ["qr", "no gradient"]),
    ],
)
def test_errors(call, kind, words):
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_solution_of_a_system_by_forward_mode():
    t = rng.normal(size=(3, 3))
    _, tangent = tg.jvp(lambda a: linalg.solve(a, V), (A,), (t,))
    np.testing.assert_allclose(tangent, -LA.solve(A, t @ LA.solve(A, V)), rtol=1e-12)


# ------------------------------------------------------------------ equal eigenvalues

Q = LA.qr(rng.normal(size=(3, 3))).Q
TWICE = Q @ np.diag([1.0, 1.0, 3.0]) @ Q.T  # two eigenvalues are equal up to rounding
TALL_TWICE = LA.qr(rng.normal(size=(4, 3))).Q @ np.diag([2.0, 1.0, 1.0]) @ Q
TALL_FLAT = LA.qr(rng.normal(size=(4, 3))).Q @ np.diag([2.0, 1.0, 0.0]) @ Q
T3 = rng.normal(size=(3, 3))


def directional(f, x, t):
    """Return the derivative along t in both modes, and by a difference quotient."""
    leaf = tg.param(x)
    with np.errstate(all="ignore"):
        f(leaf).backward()
        tangent = tg.jvp(f, (x,), (t,))[1]
        h = 1e-6
        with tg.no_grad():
            quotient = (f(tg.tensor(x + h * t)) - f(tg.tensor(x - h * t))).item() / (2 * h)
    return np.sum(leaf.grad * t), float(tangent), quotient


def root(values, vectors):
    return (np.sqrt(values) * vectors) @ vectors.T


UNDEFINED = {
    "eigh of the identity": (lambda a: tg.sum(LA.eigh(a).eigenvectors), np.eye(3)),
    "eigh": (lambda a: tg.sum(LA.eigh(a).eigenvectors[:, 0] ** 2 * [1, 2, 3]), TWICE),
    # This has one, which does not come through the eigenvectors.
    "root of the identity": (lambda a: tg.sum(root(*LA.eigh(a)) * T3), np.eye(3)),
    "svd of the identity": (lambda a: tg.sum(LA.svd(a).U), np.eye(3)),
    "svd, U": (lambda a: tg.sum(LA.svd(a, False).U[:, 1] ** 2 * [1, 2, 3, 4]), TALL_TWICE),
    "svd, Vh": (lambda a: tg.sum(LA.svd(a, False).Vh[2] ** 2 * [1, 2, 3]), TALL_TWICE),
    "svd, U at zero": (lambda a: tg.sum(LA.svd(a, False).U[:, 2] ** 2 * [1, 2, 3, 4]), TALL_FLAT),
    "svd, Vh at zero": (lambda a: tg.sum(LA.svd(a, False)[2][2] ** 2 * [1, 2, 3, 4]), TALL_FLAT.T),
}
DEFINED = {
    "sum of eigenvalues": (lambda a: tg.sum(LA.eigh(a).eigenvalues), TWICE),
    "sum of squares": (lambda a: tg.sum(LA.eigh(a).eigenvalues ** 2), TWICE),
    "another eigenvector": (lambda a: tg.sum(LA.eigh(a)[1][:, 2] ** 2 * [1, 2, 3]), TWICE),
    "masked eigenvectors": (
        lambda a: tg.sum(LA.eigh(a)[1] ** 2 * [0, 0, 1] * [[1], [2], [3]]),
        TWICE,
    ),
    "sum of singular values": (lambda a: tg.sum(LA.svd(a, False).S ** 2), TALL_TWICE),
    "another U": (lambda a: tg.sum(LA.svd(a, False).U[:, 0] ** 2 * [1, 2, 3, 4]), TALL_TWICE),
    "another Vh": (lambda a: tg.sum(LA.svd(a, False).Vh[0] ** 2 * [1, 2, 3]), TALL_TWICE),
    "Vh at zero": (lambda a: tg.sum(LA.svd(a, False).Vh[2] ** 2 * [1, 2, 3]), TALL_FLAT),
    "U at zero": (lambda a: tg.sum(LA.svd(a, False).U[:, 2] ** 2 * [1, 2, 3]), TALL_FLAT.T),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_vectors_of_equal_values_have_no_gradient(name):
    f, x = UNDEFINED[name]
    t = rng.normal(size=x.shape)
    reverse, forward, _ = directional(f, x, t + t.T if x.shape == (3, 3) else t)
    assert np.isnan(reverse) and np.isnan(forward)


@pytest.mark.parametrize("name", DEFINED)
def test_equal_values_leave_the_others_their_gradient(name):
    f, x = DEFINED[name]
    t = rng.normal(size=x.shape)
    reverse, forward, quotient = directional(f, x, t + t.T if x.shape == (3, 3) else t)
    np.testing.assert_allclose([reverse, forward], quotient, rtol=1e-7, atol=1e-8)


def test_a_matrix_of_equal_eigenvalues_spoils_no_other_of_the_stack():
    stack = np.stack([np.eye(3), SPD])
    for f in (lambda a: LA.eigh(a)[1], lambda a: LA.svd(a).U):
        x, alone = tg.param(stack), tg.param(SPD)
        f(x).backward()
        f(alone).backward()
        np.testing.assert_allclose(x.grad[1], alone.grad, rtol=1e-12)
        assert np.isnan(x.grad[0]).any()


def test_a_matrix_that_does_not_move_leaves_its_vectors_where_they_are():
    for f in (lambda a: LA.eigh(a)[1], lambda a: LA.svd(a).U):
        np.testing.assert_array_equal(tg.jvp(f, (np.eye(3),), (np.zeros((3, 3)),))[1], 0.0)
