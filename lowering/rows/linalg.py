"""TensorFlow nodes: products, decompositions and norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.lowering.rows.rules import (
    Row,
    Rule,
    cast_to,
    finfo,
    int_axes,
    ints,
    is_large,
    known,
    number_like,
    own_gradient,
    permuted,
    raw,
    reshaped,
    shape_of,
    unless,
)
from tapegraph.lowering.runtime import tensorflow
from tapegraph.ops.linalg import terms_of
from tapegraph.ops.reduce import kept_shape


def _as_matrices(a: Any, b: Any) -> tuple[Any, Any]:
    """Write a 1-D operand as a row on the left, or as a column on the right."""
    if a.shape.rank == 1:
        a = reshaped(a, (1, *shape_of(a)))
    if b.shape.rank == 1:
        b = reshaped(b, (*shape_of(b), 1))
    return a, b


def _matmul(out: Any, a: Any, b: Any) -> Any:
    left, right = _as_matrices(a, b)
    product = raw.MatMul(a=left, b=right)
    return product if product.shape.rank == len(out.shape) else reshaped(product, out.shape)


def _batch_matmul(out: Any, a: Any, b: Any) -> Any:
    left, right = _as_matrices(a, b)
    product = raw.BatchMatMulV2(x=left, y=right)
    return product if product.shape.rank == len(out.shape) else reshaped(product, out.shape)


def _einsum(out: Any, *operands: Any, spec: str) -> Any:
    inputs = [cast_to(x, out.dtype) for x in operands]
    if len(inputs) == 2:
        return raw.Einsum(inputs=inputs, equation=spec)
    return tensorflow().einsum(spec, *inputs, optimize="greedy")  # one node a pair


def strong_zero_einsum(rule: Rule, out: Any, *operands: Any, spec: str) -> Any:
    """Contract with a gradient in which the cotangent's zeros absorb what they meet."""
    tf = tensorflow()
    terms, output = terms_of(spec)

    def lined_up(x: Any, term: str, labels: str) -> Any:
        order = [term.index(label) for label in labels if label in term]
        shape = shape_of(x)
        lengths = [shape[term.index(label)] if label in term else 1 for label in labels]
        return reshaped(permuted(x, order), tuple(lengths))

    def lowered(*xs: Any) -> Any:
        def gradient(g: Any) -> list[Any]:
            g = tf.convert_to_tensor(g)  # that of a gathered product comes as IndexedSlices
            grads = []
            for i, term in enumerate(terms):
                labels = term + "".join(sorted(set("".join(terms)) - set(term)))
                product = lined_up(g, output, labels)
                for j, x in enumerate(xs):
                    if j != i:
                        factor = lined_up(tf.cast(x, g.dtype), terms[j], labels)
                        product = raw.MulNoNan(x=factor, y=product)
                summed = tf.reduce_sum(product, axis=list(range(len(term), len(labels))))
                grads.append(tf.cast(summed, xs[i].dtype))
            return grads

        return rule(out, *xs, spec=spec), gradient

    return own_gradient(lowered, *operands)


def _inv(out: Any, a: Any) -> Any:
    return raw.MatrixInverse(input=a, adjoint=False)


def _solve(out: Any, a: Any, b: Any) -> Any:
    stack = out.shape[:-2]
    left, right = (
        cast_to(x, out.dtype)  # NumPy converts integers
        for x in (a, b)
    )
    return raw.MatrixSolve(matrix=_stacked(left, stack), rhs=_stacked(right, stack), adjoint=False)


def _stacked(x: Any, stack: tuple[int, ...]) -> Any:
    """Repeat matrices to a stack of them: MatrixSolve does not broadcast."""
    shape = (*stack, *shape_of(x)[-2:])
    return x if tuple(x.shape) == known(shape) else raw.BroadcastTo(input=x, shape=ints(shape))


def _det(out: Any, a: Any) -> Any:
    tf = tensorflow()

    def lowered(a: Any) -> Any:
        y = raw.MatrixDeterminant(input=a)

        def gradient(g: Any) -> Any:
            def by_cofactors() -> Any:
                return g[..., None, None] * cofactors(a)

            if not is_large(a):
                return by_cofactors()
            # Where no determinant is zero, there are inverses.
            far = tf.reduce_all(tf.math.is_finite(y) & (tf.abs(y) > finfo(a).tiny))
            return tf.cond(far, lambda: _by_inverse(g * y, a, by_cofactors), by_cofactors)

        return y, gradient

    return own_gradient(lowered, a)


def _by_inverse(scale: Any, a: Any, by_cofactors: Callable[[], Any]) -> Any:
    """Return scaled inverses transposed, many times quicker, where none is nearly singular."""
    tf = tensorflow()
    inverse = raw.MatrixInverse(input=a, adjoint=False)
    condition = tf.norm(a, 1, (-2, -1)) * tf.norm(inverse, 1, (-2, -1))
    right = tf.reduce_max(condition) < float(finfo(a).eps) ** (-1 / 3)
    quick = scale[..., None, None] * tf.linalg.matrix_transpose(inverse)
    return unless(right, quick, by_cofactors)


def cofactors(a: Any) -> Any:
    """Return ``det(a) inv(a).T`` by the singular values, as the native engine does.

    TensorFlow's own gradient of the determinant inverts the matrix, which may be singular.
    """
    tf = tensorflow()
    s, u, v = raw.Svd(input=a, compute_uv=True, full_matrices=False)
    n = a.shape[-1]
    others = tf.where(tf.eye(n, dtype=tf.bool), number_like(1.0, s), s[..., None, :])
    vh = tf.linalg.adjoint(v)
    turned = tf.linalg.det(tf.matmul(u, vh))
    if not a.dtype.is_complex:
        turned = tf.round(turned)  # 1 or -1
    product = tf.matmul(u * tf.reduce_prod(others, axis=-1)[..., None, :], vh)
    return turned[..., None, None] * tf.math.conj(product)


def _slogdet(out: Any, a: Any) -> Any:
    sign, logarithm = raw.LogMatrixDeterminant(input=a)
    return raw.Pack(values=[sign, logarithm], axis=len(out.shape) - 1)


def _cholesky(out: Any, a: Any) -> Any:
    return raw.Cholesky(input=a)


def _eigvalsh(out: Any, a: Any) -> Any:
    values, _ = raw.SelfAdjointEigV2(input=a, compute_v=True)
    return values


def _svdvals(out: Any, x: Any) -> Any:
    tf = tensorflow()

    def lowered(x: Any) -> Any:
        s, u, v = raw.Svd(input=x, compute_uv=True, full_matrices=False)

        # TensorFlow's own divides by the gaps between the values, which may be zero.
        def gradient(g: Any) -> Any:
            return tf.matmul(cast_to(g, x.dtype)[..., None, :] * u, v, adjoint_b=True)

        return tf.math.real(s), gradient

    return own_gradient(lowered, x)


def _pinv(out: Any, a: Any, *, rcond: float) -> Any:
    tf = tensorflow()

    def lowered(a: Any) -> Any:
        s, u, v = raw.Svd(input=a, compute_uv=True, full_matrices=False)
        kept = s > number_like(rcond, s) * tf.reduce_max(s, axis=-1, keepdims=True)
        inverse = tf.where(kept, 1.0 / tf.where(kept, s, tf.ones_like(s)), tf.zeros_like(s))
        y = tf.matmul(v * inverse[..., None, :], u, transpose_b=True)

        def gradient(g: Any) -> Any:
            yt, gt = tf.linalg.matrix_transpose(y), tf.linalg.matrix_transpose(g)
            outside_rows = gt - tf.matmul(a, tf.matmul(y, gt))
            outside_columns = gt - tf.matmul(tf.matmul(gt, y), a)
            return (
                tf.matmul(outside_rows, tf.matmul(y, yt))
                + tf.matmul(tf.matmul(yt, y), outside_columns)
                - tf.matmul(tf.matmul(yt, g), yt)
            )

        return y, gradient

    return own_gradient(lowered, a)


def _norm(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool, ord: float) -> Any:
    kept = kept_shape(shape_of(x), axis)

    def lowered(x: Any) -> Any:
        y = _norm_of(x, axis, ord)

        def gradient(g: Any) -> Any:
            cotangent = raw.Reshape(tensor=g, shape=ints(kept))
            # Zero where the cotangent is zero, be the slope infinite.
            return raw.MulNoNan(x=_slope(x, y, axis, ord), y=cotangent)

        return y if keepdims else raw.Reshape(tensor=y, shape=ints(out.shape)), gradient

    return own_gradient(lowered, x)


def _norm_of(x: Any, axis: tuple[int, ...], ord: float) -> Any:
    sizes = raw.Abs(x=x)
    if ord == math.inf:
        return raw.Max(input=sizes, axis=int_axes(axis), keep_dims=True)
    if ord == -math.inf:
        return raw.Min(input=sizes, axis=int_axes(axis), keep_dims=True)
    if ord == 1:
        return raw.Sum(input=sizes, axis=int_axes(axis), keep_dims=True)
    if ord == 2 and len(axis) == x.shape.rank:
        half = raw.L2Loss(t=x)  # half the sum of all squares, in one pass
        root = raw.Sqrt(x=raw.AddV2(x=half, y=half))
        return raw.Reshape(tensor=root, shape=ints([1] * len(axis)))
    if ord == 2:
        squares = raw.Sum(input=raw.Mul(x=x, y=x), axis=int_axes(axis), keep_dims=True)
        return raw.Sqrt(x=squares)
    powers = raw.Pow(x=sizes, y=number_like(ord, x))
    total = raw.Sum(input=powers, axis=int_axes(axis), keep_dims=True)
    return raw.Pow(x=total, y=number_like(1.0 / ord, x))


def _slope(x: Any, y: Any, axis: tuple[int, ...], ord: float) -> Any:
    """Return the gradient of a norm ``y`` by its vector ``x``; zero for a zero vector."""
    tf = tensorflow()
    signs = raw.Sign(x=x)
    if ord == 1:
        return signs
    if math.isinf(ord):
        ties = tf.cast(tf.abs(x) == y, x.dtype)
        return signs * ties / tf.reduce_sum(ties, axis=axis, keepdims=True)
    divisor = tf.where(y == 0, tf.ones_like(y), y)
    if ord == 2:
        return x / divisor
    return tf.where(y == 0, x, signs * tf.pow(tf.abs(x) / divisor, number_like(ord - 1.0, x)))


LOWERINGS: dict[str, Row | Rule] = {
    "matmul": Row(_matmul, xla=True),
    "batch_matmul": Row(_batch_matmul, xla=True),
    "einsum": _einsum,
    "inv": _inv,
    "solve": _solve,
    "det": _det,
    "slogdet": _slogdet,
    "cholesky": _cholesky,
    "eigvalsh": _eigvalsh,
    "svdvals": _svdvals,
    "pinv": _pinv,
    "norm": _norm,
}


def _of_product(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a product of matrices; raise where there is none."""
    (*before, rows, inner), (*stacked, other, columns) = a, b  # a ValueError for a vector
    if inner != other:
        raise ValueError
    return (*np.broadcast_shapes(tuple(before), tuple(stacked)), rows, columns)


# What eager kernels compute forwards of, with the shape of the result.
EAGER: dict[str, Callable[..., tuple[int, ...]]] = {
    "matmul": _of_product,
    "batch_matmul": _of_product,
}
