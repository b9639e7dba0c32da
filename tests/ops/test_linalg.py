"""NumPy's products and ``numpy.linalg`` on tensors: its values and errors, by its own names."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.ops import linalg
from tests.quick import in_one

rng = np.random.default_rng(3)
A, B, C = (rng.normal(size=s) for s in ((2, 3), (3, 4), (4, 3, 2)))
V, W = rng.normal(size=3), rng.normal(size=3)
S = rng.normal(size=(2, 3, 3))

PRODUCTS = {
    "dot": (lambda a, b: np.dot(a, b), A, B),
    "dot-named": (lambda a, b: np.dot(a=a, b=b), A, B),
    "dot-stack": (lambda a, b: np.dot(a, b), A, S),
    "inner": (lambda a, b: np.inner(a, b), A, V),
    "vdot": (lambda a, b: np.vdot(a, b), A, A),
    "outer": (lambda a, b: np.outer(a, b), V, W),
    "linalg.outer": (lambda a, b: np.linalg.outer(a, b), V, W),
    "tensordot": (lambda a, b: np.tensordot(a, b, 1), A, B),
    "tensordot-axes": (lambda a, b: np.tensordot(a, b, axes=([1], [0])), A, B),
    "linalg.tensordot": (lambda a, b: np.linalg.tensordot(a, b, axes=1), A, B),
    "kron": (lambda a, b: np.kron(a, b), A, V),
    "cross": (lambda a, b: np.cross(a, b), A, V),
    "cross-axis": (lambda a, b: np.cross(a, b, axis=1), A, A[::-1]),
    "cross-axisa": (lambda a, b: np.cross(a, b, axisa=1, axisb=0, axisc=0), A, A.T),
    "linalg.cross": (lambda a, b: np.linalg.cross(a, b, axis=-1), V, W),
    "linalg.matmul": (lambda a, b: np.linalg.matmul(a, b), A, B),
    "linalg.matrix_transpose": (lambda a: np.linalg.matrix_transpose(a), C),
    "vecdot": (lambda a, b: np.vecdot(a, b), A, V),
    "vecdot-axis": (lambda a, b: np.vecdot(a, b, axis=0), A, A),
    "linalg.vecdot": (lambda a, b: np.linalg.vecdot(a, b, axis=-1), A, V),
    "trace": (lambda a: np.trace(a, 1), A),
    "trace-axes": (lambda a: np.trace(a, offset=-1, axis1=2, axis2=0), C),
    "linalg.trace": (lambda a: np.linalg.trace(a, offset=1), C),
    "diagonal": (lambda a: np.diagonal(a, -1), A),
    "diagonal-axes": (lambda a: np.diagonal(a, axis1=1, axis2=2), C),
    "linalg.diagonal": (lambda a: np.linalg.diagonal(a, offset=1), C),
    "multi_dot": (lambda *xs: np.linalg.multi_dot(xs), A, B, C[:, :, 0], V),
    "einsum": (lambda a, b: np.einsum("ij,jk", a, b), A, B),
    "einsum-spaces": (lambda a, b: np.einsum(" ij , jk -> k ", a, b), A, B),
    "einsum-optimize": (lambda a, b: np.einsum("ij,jk", a, b, optimize=True), A, B),
    "einsum-lists": (lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [2, 0]), A, B),
    "einsum-lists-implicit": (lambda a, b: np.einsum(a, [..., 0], b, [0]), A, V),
    "einsum-ellipsis": (lambda a, b: np.einsum("...ij,...j->...i", a, b), S, A),
    "einsum-ellipsis-summed-axis": (lambda a: np.einsum("i...->...", a), C),
}
if hasattr(np, "matvec"):
    PRODUCTS["matvec"] = (lambda a, b: np.matvec(a, b), S, A)
    PRODUCTS["vecmat"] = (lambda a, b: np.vecmat(a, b), A, S)


@pytest.mark.parametrize("name", list(PRODUCTS))
def test_a_product_through_numpys_name(name):
    f, *arrays = PRODUCTS[name]
    out = f(*map(tg.param, arrays))
    assert out.requires_grad
    np.testing.assert_allclose(out.numpy(), f(*arrays), rtol=1e-12, atol=1e-14, strict=True)
    tg.testing.check_gradients(f, *arrays, backend="native")


@in_one("name", [n for n in PRODUCTS if len(PRODUCTS[n]) == 3])
def test_arrays_on_either_side_of_a_product(name):
    f, a, b = PRODUCTS[name]
    for out in (f(tg.param(a), b), f(a, tg.param(b))):
        assert out.requires_grad
        np.testing.assert_allclose(out.numpy(), f(a, b), rtol=1e-12, atol=1e-14)


def test_a_large_product_is_contracted_by_matrix_products():
    a, b = rng.normal(size=(40, 60)), rng.normal(size=(60, 30))
    np.testing.assert_allclose(np.einsum("ij,jk", tg.param(a), b).data, a @ b, rtol=1e-10)


def test_chain_is_multiplied_in_the_cheapest_order():
    tg.tape_reset()
    a, b, c = (tg.param(np.ones(s)) for s in ((1, 50), (50, 50), (50, 1)))
    product = np.linalg.multi_dot([c, a, b])
    assert product.shape == (50, 50)
    shapes = [e.shape for e in tg.tape() if e.op == "matmul"]
    assert shapes == [(1, 50), (50, 50)]


X = tg.param(A)


@in_one(
    ("call", "kind", "words"),
    [
        (lambda: np.dot(X, A), ValueError, ["matmul", "(2, 3)"]),
        (lambda: np.dot(S, X), ValueError, ["dot", "(2, 3, 3)", "(2, 3)"]),
        (lambda: np.inner(X, B), ValueError, ["inner", "(3, 4)"]),
        (lambda: np.vdot(X, V), ValueError, ["vdot", "(3,)"]),
        (lambda: np.tensordot(X, B, 3), ValueError, ["tensordot", "axes=3"]),
        (lambda: np.tensordot(X, A, 1), ValueError, ["tensordot", "(2, 3)"]),
        (lambda: np.tensordot(X, A, ([0, 0], [0, 1])), ValueError, ["tensordot", "once"]),
        (lambda: np.tensordot(X, A, (0, 5)), ValueError, ["tensordot", "axis 5"]),
        (lambda: np.cross(X[:, :2], A), ValueError, ["cross", "three elements"]),
        (lambda: np.trace(tg.param(V)), ValueError, ["trace", "two axes"]),
        (lambda: np.diagonal(X, axis1=1, axis2=-1), ValueError, ["diagonal", "differ"]),
        (lambda: np.vecdot(X, V[:2]), ValueError, ["vecdot", "same length"]),
        (lambda: np.linalg.multi_dot([X]), ValueError, ["multi_dot", "two matrices"]),
        (lambda: np.linalg.multi_dot([X, V, X]), ValueError, ["multi_dot", "(3,)"]),
        (lambda: np.einsum("ij,jk", X), ValueError, ["einsum", "'ij,jk'", "1 terms"]),
        (lambda: np.einsum("ijk", X), ValueError, ["einsum", "one label an axis", "(2, 3)"]),
        (lambda: np.einsum("ij->k", X), ValueError, ["einsum", "labels of the operands"]),
        (lambda: np.einsum("ij->ii", X), ValueError, ["einsum", "each once"]),
        (lambda: np.einsum("ii", X), ValueError, ["einsum", "equal lengths", "'i'"]),
        (lambda: np.einsum("ij,ij", X, B), ValueError, ["einsum", "one length", "'i'"]),
        (lambda: np.einsum("i1", X), ValueError, ["einsum", "letters"]),
        (lambda: np.einsum("...j->j", X), ValueError, ["einsum", "'...' in the result"]),
        (lambda: np.einsum(X, [0, 99]), ValueError, ["einsum", "0 to 51"]),
        (lambda: np.dot(X, B, out=np.empty((2, 4))), TypeError, ["numpy.dot", "out="]),
        (lambda: np.trace(X, out=np.zeros(())), TypeError, ["numpy.trace", "out="]),
        (lambda: np.einsum("ij", X, dtype=np.float32), TypeError, ["dtype"]),
    ],
)
def test_errors_of_products(call, kind, words):
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_zero_stays_zero_in_einsum():
    x, y = tg.param([[0.0, 1.0]]), np.array([[np.inf], [2.0]])
    with np.errstate(all="ignore"):
        out = np.einsum("ij,jk->ik", tg.where(x > 0, x, 0.0), y)
        out.backward([[0.0]])
    np.testing.assert_array_equal(x.grad, np.zeros((1, 2)))


# ------------------------------------------------------------------ solutions and decompositions

draw = np.random.default_rng(4)
inf = np.inf
SQUARE = draw.uniform(-1, 1, (3, 3)) + 3 * np.eye(3)
STACK = np.stack([SQUARE, SQUARE.T + 1.0])
TALL, WIDE = draw.normal(size=(4, 2)), draw.normal(size=(2, 3))
SPD = SQUARE @ SQUARE.T
VECTOR = draw.normal(size=3)
LA = np.linalg

DECOMPOSITIONS = {
    "inv": (lambda a: LA.inv(a), STACK),
    "solve": (lambda a, b: LA.solve(a, b), SQUARE, VECTOR),
    "solve-matrices": (lambda a, b: LA.solve(a, b), STACK, SQUARE),
    "solve-stack": (lambda a, b: LA.solve(a, b), SQUARE, STACK),
    "det": (lambda a: LA.det(a), STACK),
    "slogdet": (lambda a: LA.slogdet(a)[1], STACK),
    "slogdet-named": (lambda a: LA.slogdet(a).logabsdet, SQUARE),
    "cholesky": (lambda a: LA.cholesky((a + a.T) / 2), SPD),
    "cholesky-upper": (lambda a: LA.cholesky((a + a.T) / 2, upper=True), SPD),
    "eigvalsh": (lambda a: LA.eigvalsh(a), SPD),
    "eigvalsh-U": (lambda a: LA.eigvalsh(a, "U"), SQUARE),
    "eigh-values": (lambda a: LA.eigh(a).eigenvalues, SPD),
    "eigh-vectors": (lambda a: LA.eigh(a, UPLO="U").eigenvectors, SPD),
    "svd-U": (lambda a: LA.svd(a, full_matrices=False).U, TALL),
    "svd-S": (lambda a: LA.svd(a, full_matrices=False).S, WIDE),
    "svd-Vh": (lambda a: LA.svd(a, False)[2], WIDE),
    "svd-square": (lambda a: LA.svd(a)[0], SQUARE),
    "svd-values-only": (lambda a: LA.svd(a, compute_uv=False), TALL),
    "svdvals": (lambda a: LA.svdvals(a), STACK),
    "pinv": (lambda a: LA.pinv(a), TALL),
    "pinv-rcond": (lambda a: LA.pinv(a, rcond=1e-8), STACK),
    "lstsq": (lambda a, b: LA.lstsq(a, b)[0], TALL, draw.normal(size=4)),
    "lstsq-rcond": (lambda a, b: LA.lstsq(a, b, rcond=1e-9)[1], TALL, draw.normal(size=(4, 2))),
    "matrix_power": (lambda a: LA.matrix_power(a, 3), STACK),
    "matrix_power-negative": (lambda a: LA.matrix_power(a, -2), SQUARE),
    "norm": (lambda a: LA.norm(a), STACK),
    "norm-axis": (lambda a: LA.norm(a, axis=-1, keepdims=True), SQUARE),
    "norm-inf": (lambda a: LA.norm(a, inf), VECTOR),
    "norm-p": (lambda a: LA.norm(a, 3, axis=0), SQUARE),
    "norm-nuc": (lambda a: LA.norm(a, "nuc", axis=(1, 2)), STACK),
    "norm-1": (lambda a: LA.norm(a, 1), SQUARE),
    "norm-spectral": (lambda a: LA.norm(a, ord=2), SQUARE),
    "vector_norm": (lambda a: LA.vector_norm(a, axis=(0, 2), ord=1), STACK),
    "matrix_norm": (lambda a: LA.matrix_norm(a, ord=-inf, keepdims=True), STACK),
}


@pytest.mark.parametrize("name", list(DECOMPOSITIONS))
def test_a_decomposition_through_numpys_name(name):
    f, *arrays = DECOMPOSITIONS[name]
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
    [
        (TALL, np.ones(4)),
        (WIDE, np.ones((2, 2))),
        (np.ones((3, 2)), np.arange(3.0)),
        (SQUARE, VECTOR),
    ],
)
def test_all_that_lstsq_returns(a, b):
    for part, array in zip(LA.lstsq(tg.param(a), b), LA.lstsq(a, b), strict=True):
        value = part if isinstance(part, int) else part.numpy()
        np.testing.assert_allclose(value, array, rtol=1e-10, atol=1e-12)


def test_sign_of_the_determinant_has_a_zero_gradient():
    x = tg.param(SQUARE)
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


X_TALL = tg.param(TALL)


@in_one(
    ("call", "kind", "words"),
    [
        (lambda: LA.inv(X_TALL), LA.LinAlgError, ["inv", "(4, 2)", "square"]),
        (lambda: LA.inv(tg.param(np.zeros((2, 2)))), LA.LinAlgError, ["inv", "Singular"]),
        (lambda: LA.solve(X_TALL, X_TALL), LA.LinAlgError, ["solve", "square"]),
        (lambda: LA.solve(tg.param(SQUARE), np.ones(2)), ValueError, ["solve", "(2,)", "(3,)"]),
        (lambda: LA.solve(tg.param(SQUARE), 1.0), ValueError, ["solve", "()"]),
        (lambda: LA.det(tg.param(VECTOR)), LA.LinAlgError, ["det", "(3,)"]),
        (lambda: LA.cholesky(tg.param(-SPD)), LA.LinAlgError, ["cholesky", "positive"]),
        (lambda: LA.eigh(tg.param(SQUARE), "X"), ValueError, ["eigh", "'X'"]),
        (lambda: LA.svd(X_TALL), ValueError, ["svd", "full_matrices=False"]),
        (lambda: LA.svdvals(tg.param(VECTOR)), LA.LinAlgError, ["svdvals", "(3,)"]),
        (lambda: LA.lstsq(X_TALL, VECTOR), LA.LinAlgError, ["lstsq", "(3,)"]),
        (lambda: LA.matrix_power(tg.param(SQUARE), 1.5), TypeError, ["matrix_power", "1.5"]),
        (lambda: LA.matrix_power(X_TALL, 2), LA.LinAlgError, ["matrix_power", "square"]),
        (lambda: LA.norm(X_TALL, "bad"), ValueError, ["norm", "'bad'"]),
        (lambda: LA.norm(X_TALL, 3), ValueError, ["norm", "ord=3"]),
        (lambda: LA.norm(X_TALL, "fro", axis=0), ValueError, ["norm", "'fro'", "a number"]),
        (lambda: LA.norm(tg.param(STACK), 2), ValueError, ["norm", "one axis or two"]),
        (lambda: LA.norm(X_TALL, axis=(0, 0)), ValueError, ["norm", "differ"]),
        (lambda: LA.norm(X_TALL, axis=5), ValueError, ["norm", "axis 5"]),
        (lambda: LA.svd(X_TALL, hermitian=True), TypeError, ["numpy.svd", "hermitian=True"]),
        (lambda: LA.pinv(X_TALL, hermitian=True), TypeError, ["numpy.pinv", "hermitian=True"]),
        (lambda: LA.eigvals(X_TALL), LA.LinAlgError, ["eig", "(4, 2)", "square"]),
        (lambda: LA.qr(X_TALL, "complete"), ValueError, ["qr", "'complete'", "reduced"]),
        (lambda: LA.cond(X_TALL), TypeError, ["cond", "no gradient"]),
    ],
)
def test_errors_of_decompositions(call, kind, words):
    with pytest.raises(kind) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


# ------------------------------------------------------------------ the symmetric factor

WEIGHTS = draw.normal(size=(3, 3))


@pytest.mark.parametrize("upper", [False, True])
def test_the_gradient_of_cholesky_is_the_symmetric_one(upper, backend):
    """As in PyTorch: half of it in each triangle, whichever triangle is read."""

    def f(a):
        return tg.sum(LA.cholesky(a, upper=upper) * WEIGHTS)

    def difference(i, j):  # by both elements, which move together
        unit = np.zeros((3, 3))
        unit[i, j] = unit[j, i] = 1e-6
        slope = np.sum((LA.cholesky(SPD + unit) - LA.cholesky(SPD - unit)) * lower) / 2e-6
        return slope if i == j else slope / 2

    lower = WEIGHTS.T if upper else WEIGHTS
    wanted = np.array([[difference(i, j) for j in range(3)] for i in range(3)])
    found = tg.grad(f)(SPD)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)
    for mode in ("forward", "reverse"):
        np.testing.assert_allclose(tg.jacobian(f, mode=mode)(SPD), found, rtol=1e-12, atol=1e-14)


def test_cholesky_reads_one_triangle_and_takes_the_other_for_its_mirror_image():
    for upper in (False, True):
        half = np.triu(SPD) if upper else np.tril(SPD)
        half = half + np.where(half == 0, np.nan, 0.0)
        found = tg.cholesky(half, upper=upper).data
        np.testing.assert_array_equal(found, LA.cholesky(SPD, upper=upper))
        grads = tg.grad(lambda a: tg.sum(tg.cholesky(a, upper=upper) * WEIGHTS))  # noqa: B023
        np.testing.assert_array_equal(grads(half), grads(SPD))


def test_cholesky_agrees_with_pytorch_to_the_third_order():
    torch = pytest.importorskip("torch")
    weights = torch.tensor(WEIGHTS)
    seeds = [draw.normal(size=(3, 3)) for _ in range(2)]
    seeds = [t + t.T for t in seeds]
    theirs = torch.tensor(SPD, requires_grad=True)
    y = (torch.linalg.cholesky(theirs) * weights).sum()
    ours = tg.param(SPD)
    z = tg.sum(tg.cholesky(ours) * WEIGHTS)
    for seed in [*seeds, None]:
        (slope,) = torch.autograd.grad(y, theirs, create_graph=True)
        (own,) = tg.gradients(z, ours, create_graph=True)
        np.testing.assert_allclose(own.data, slope.detach(), rtol=1e-9, atol=1e-11)
        if seed is not None:
            y, z = (slope * torch.tensor(seed)).sum(), tg.sum(own * seed)
    # And the modes agree along a direction that is not symmetric.
    seed = seeds[0] + np.triu(WEIGHTS)
    f = lambda a: tg.sum(tg.cholesky(a) * WEIGHTS)  # noqa: E731
    products = [
        tg.hvp(f, (SPD,), (seed,)),
        tg.jvp(tg.grad(f), (SPD,), (seed,))[1],
        tg.grad(lambda a: tg.jvp(f, (a,), (seed,))[1])(SPD),
        np.tensordot(tg.hessian(f)(SPD), seed, 2),
    ]
    for product in products:
        np.testing.assert_allclose(product, products[0], rtol=1e-10, atol=1e-12)


def test_solution_of_a_system_by_forward_mode():
    t = draw.normal(size=(3, 3))
    _, tangent = tg.jvp(lambda a: linalg.solve(a, VECTOR), (SQUARE,), (t,))
    np.testing.assert_allclose(tangent, -LA.solve(SQUARE, t @ LA.solve(SQUARE, VECTOR)), rtol=1e-12)


# ------------------------------------------------------------------ equal eigenvalues

Q = LA.qr(draw.normal(size=(3, 3))).Q
TWICE = Q @ np.diag([1.0, 1.0, 3.0]) @ Q.T  # two eigenvalues are equal up to rounding
TALL_TWICE = LA.qr(draw.normal(size=(4, 3))).Q @ np.diag([2.0, 1.0, 1.0]) @ Q
TALL_FLAT = LA.qr(draw.normal(size=(4, 3))).Q @ np.diag([2.0, 1.0, 0.0]) @ Q
T3 = draw.normal(size=(3, 3))


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
    t = draw.normal(size=x.shape)
    reverse, forward, _ = directional(f, x, t + t.T if x.shape == (3, 3) else t)
    assert np.isnan(reverse) and np.isnan(forward)


@pytest.mark.parametrize("name", DEFINED)
def test_equal_values_leave_the_others_their_gradient(name):
    f, x = DEFINED[name]
    t = draw.normal(size=x.shape)
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


@pytest.mark.parametrize("smallest", [1.0, 1e-4, 1e-9, 0.0])
def test_the_gradient_of_a_determinant_is_its_cofactors(smallest):
    generator = np.random.default_rng(2)
    u, v = (np.linalg.qr(generator.normal(size=(4, 4)))[0] for _ in range(2))
    matrix = u @ np.diag([3.0, 2.0, 1.5, smallest]) @ v
    x = tg.param(matrix)
    np.linalg.det(x).backward()
    minors = [
        [np.linalg.det(np.delete(np.delete(matrix, i, 0), j, 1)) for j in range(4)]
        for i in range(4)
    ]
    signs = (-1.0) ** np.add.outer(np.arange(4), np.arange(4))
    np.testing.assert_allclose(x.grad, signs * minors, atol=1e-13)


@pytest.mark.parametrize("options", [{}, {"rtol": None}, {"rtol": 1e-2}, {"rcond": 1e-2}])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tolerances_of_pinv(options, dtype):
    # With rtol=None the second is below three times float64's precision, and kept by default.
    x = np.diag([1.0, 4e-16, 1e-3]).astype(dtype)
    np.testing.assert_allclose(
        np.linalg.pinv(tg.tensor(x), **options), np.linalg.pinv(x, **options), rtol=1e-6
    )


def test_a_constants_full_svd_is_numpys():
    x = np.arange(6.0).reshape(2, 3)
    u, s, vh = np.linalg.svd(tg.tensor(x))
    for found, expected in zip((u, s, vh), np.linalg.svd(x), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-14)
    with pytest.raises(ValueError, match="full_matrices=True"):
        np.linalg.svd(tg.param(x))
    with pytest.raises(ValueError, match="full_matrices=True"):
        tg.jvp(lambda x: np.linalg.svd(x)[1], (x,), (x,))


def test_vectors_of_small_integers_keep_their_dtype():
    x = np.array([100, 200, 3], np.uint8)
    found = np.vecdot(tg.tensor(x), tg.tensor(x))
    assert found.dtype == np.uint8 and found.item() == np.vecdot(x, x)
