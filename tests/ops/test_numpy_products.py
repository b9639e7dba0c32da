"""NumPy's products on tensors: the same values and errors through NumPy's own names."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg

rng = np.random.default_rng(3)
A, B, C = (rng.normal(size=s) for s in ((2, 3), (3, 4), (4, 3, 2)))
V, W = rng.normal(size=3), rng.normal(size=3)
S = rng.normal(size=(2, 3, 3))

CALLS = {
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
    CALLS["matvec"] = (lambda a, b: np.matvec(a, b), S, A)
    CALLS["vecmat"] = (lambda a, b: np.vecmat(a, b), A, S)


@pytest.mark.parametrize("name", list(CALLS))
def test_value_and_gradient_through_numpys_name(name):
    f, *arrays = CALLS[name]
    out = f(*map(tg.param, arrays))
    assert out.requires_grad
    np.testing.assert_allclose(out.numpy(), f(*arrays), rtol=1e-12, atol=1e-14, strict=True)
    tg.testing.check_gradients(f, *arrays, backend="native")


@pytest.mark.parametrize("name", [n for n in CALLS if len(CALLS[n]) == 3])
def test_arrays_on_either_side(name):
    f, a, b = CALLS[name]
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


T = tg.param(A)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: np.dot(T, A), ValueError, ["matmul", "(2, 3)"]),
        (lambda: np.dot(S, T), ValueError, ["dot", "(2, 3, 3)", "(2, 3)"]),
        (lambda: np.inner(T, B), ValueError, ["inner", "(3, 4)"]),
        (lambda: np.vdot(T, V), ValueError, ["vdot", "(3,)"]),
        (lambda: np.tensordot(T, B, 3), ValueError, ["tensordot", "axes=3"]),
        (lambda: np.tensordot(T, A, 1), ValueError, ["tensordot", "(2, 3)"]),
        (lambda: np.tensordot(T, A, ([0, 0], [0, 1])), ValueError, ["tensordot", "once"]),
        (lambda: np.tensordot(T, A, (0, 5)), ValueError, ["tensordot", "axis 5"]),
        (lambda: np.cross(T[:, :2], A), ValueError, ["cross", "three elements"]),
        (lambda: np.trace(tg.param(V)), ValueError, ["trace", "two axes"]),
        (lambda: np.diagonal(T, axis1=1, axis2=-1), ValueError, ["diagonal", "differ"]),
        (lambda: np.vecdot(T, V[:2]), ValueError, ["vecdot", "same length"]),
        (lambda: np.linalg.multi_dot([T]), ValueError, ["multi_dot", "two matrices"]),
        (lambda: np.linalg.multi_dot([T, V, T]), ValueError, ["multi_dot", "(3,)"]),
        (lambda: np.einsum("ij,jk", T), ValueError, ["einsum", "'ij,jk'", "1 terms"]),
        (lambda: np.einsum("ijk", T), ValueError, ["einsum", "one label an axis", "(2, 3)"]),
        (lambda: np.einsum("ij->k", T), ValueError, ["einsum", "labels of the operands"]),
        (lambda: np.einsum("ij->ii", T), ValueError, ["einsum", "each once"]),
        (lambda: np.einsum("ii", T), ValueError, ["einsum", "equal lengths", "'i'"]),
        (lambda: np.einsum("ij,ij", T, B), ValueError, ["einsum", "one length", "'i'"]),
        (lambda: np.einsum("i1", T), ValueError, ["einsum", "letters"]),
        (lambda: np.einsum("...j->j", T), ValueError, ["einsum", "'...' in the result"]),
        (lambda: np.einsum(T, [0, 99]), ValueError, ["einsum", "0 to 51"]),
        (lambda: np.dot(T, B, out=np.empty((2, 4))), TypeError, ["numpy.dot", "out="]),
        (lambda: np.trace(T, dtype=np.float32), TypeError, ["numpy.trace", "dtype="]),
        (lambda: np.einsum("ij", T, dtype=np.float32), TypeError, ["dtype"]),
    ],
)
def test_errors(call, kind, words):
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
