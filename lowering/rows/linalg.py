"""TensorFlow nodes: products, decompositions, norms, and Fourier transforms of the last axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegraph.differentiation.products import strong_matmul
from tapegraph.lowering.rows import (
    GraphTracer,
    Result,
    Row,
    Rule,
    WithGradient,
    cast_to,
    finfo,
    is_large,
    own_gradient,
    permuted,
    raw,
    reduced,
    repeated_to,
    reshaped,
    selected,
    shape_of,
    summed_to,
    tensor_of,
    unless,
    with_own_gradient,
)
from tapegraph.lowering.runtime import GraphTensor, tf
from tapegraph.ops.linalg import may_cut, terms_of
from tapegraph.ops.reduce import kept_shape


def _as_matrices(a: GraphTensor, b: GraphTensor) -> tuple[GraphTensor, GraphTensor]:
    """Write a 1-D operand as a row on the left, or as a column on the right."""
    if a.shape.rank == 1:
        a = reshaped(a, (1, *shape_of(a)))
    if b.shape.rank == 1:
        b = reshaped(b, (*shape_of(b), 1))
    return a, b


def _matmul(out: Result, a: GraphTensor, b: GraphTensor) -> GraphTensor:
    left, right = _as_matrices(a, b)
    if left.shape.rank == right.shape.rank == 2:
        product = raw.MatMul(a=left, b=right)
    else:
        product = raw.BatchMatMulV2(x=left, y=right)
    return product if product.shape.rank == len(out.shape) else reshaped(product, out.shape)


def _product_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    (*before, rows, inner), (*stacked, other, columns) = a, b  # a ValueError for a vector
    if inner != other:
        raise ValueError
    return (*np.broadcast_shapes(tuple(before), tuple(stacked)), rows, columns)


def product_keeping_zeros(rule: Rule) -> Rule:
    """Return the rule of a product of matrices in which a cotangent's zeros absorb."""

    @with_own_gradient
    def keeping(out: Result, a: GraphTensor, b: GraphTensor) -> WithGradient:
        def gradient(g: GraphTensor) -> list[GraphTensor]:
            left, right = _as_matrices(a, b)
            g = g if b.shape.rank > 1 else g[..., None]
            g = g if a.shape.rank > 1 else g[..., None, :]
            transposed = tf.linalg.matrix_transpose
            ga = summed_to(_strong_product(g, transposed(right), (True, False)), left)
            gb = summed_to(_strong_product(transposed(left), g, (False, True)), right)
            return [reshaped(ga, shape_of(a)), reshaped(gb, shape_of(b))]

        return rule(out, a, b), gradient

    return keeping


def _strong_product(a: GraphTensor, b: GraphTensor, absorbs: tuple[bool, bool]) -> GraphTensor:
    """Multiply matrices so that a zero of the cotangent adds nothing."""
    dtype = np.dtype(a.dtype.as_numpy_dtype)

    def product(x: GraphTracer, y: GraphTracer) -> GraphTracer:
        return GraphTracer(tf.matmul(x.tensor, y.tensor), dtype)

    factors: tuple[Any, Any] = GraphTracer(a, dtype), GraphTracer(b, dtype)
    found: Any = strong_matmul(*factors, absorbs, product)
    return tensor_of(found, dtype)


def _einsum(out: Result, *operands: GraphTensor, spec: str) -> GraphTensor:
    if len(operands) == 2:
        return raw.Einsum(inputs=operands, equation=spec)
    return tf.einsum(spec, *operands, optimize="greedy")  # one node a pair


@with_own_gradient
def _einsum_keeping_zeros(out: Result, *operands: GraphTensor, spec: str) -> WithGradient:
    terms, output = terms_of(spec)

    def lined_up(x: GraphTensor, term: str, labels: str) -> GraphTensor:
        order = [term.index(label) for label in labels if label in term]
        shape = shape_of(x)
        lengths = [shape[term.index(label)] if label in term else 1 for label in labels]
        return reshaped(permuted(x, order), tuple(lengths))

    def gradient(g: GraphTensor) -> list[GraphTensor]:
        grads = []
        for i, term in enumerate(terms):
            labels = term + "".join(sorted(set("".join(terms)) - set(term)))
            product = lined_up(g, output, labels)
            for j, x in enumerate(operands):
                if j != i:
                    product = raw.MulNoNan(x=lined_up(x, terms[j], labels), y=product)
            grads.append(reduced("Sum", product, range(len(term), len(labels))))
        return grads

    return _einsum(out, *operands, spec=spec), gradient


def _solve(out: Result, a: GraphTensor, b: GraphTensor) -> GraphTensor:
    # MatrixSolve does not broadcast.
    left, right = (repeated_to(x, (*out.shape[:-2], *shape_of(x)[-2:])) for x in (a, b))
    return raw.MatrixSolve(matrix=left, rhs=right, adjoint=False)


@with_own_gradient
def _det(out: Result, a: GraphTensor) -> WithGradient:
    y = raw.MatrixDeterminant(input=a)

    def gradient(g: GraphTensor) -> GraphTensor:
        def by_cofactors() -> GraphTensor:
            return g[..., None, None] * tf.math.conj(_cofactors(a))

        if a.dtype.is_complex or not is_large(a):
            return by_cofactors()

        def by_inverse() -> GraphTensor:
            """Return the same many times faster, if no matrix is nearly singular."""
            inverse = raw.MatrixInverse(input=a, adjoint=False)
            condition = tf.norm(a, 1, (-2, -1)) * tf.norm(inverse, 1, (-2, -1))
            right = tf.reduce_max(condition) < float(finfo(a).eps) ** (-1 / 3)
            quick = (g * y)[..., None, None] * tf.linalg.matrix_transpose(inverse)
            return unless(right, quick, by_cofactors)

        # Where no determinant is zero, there are inverses.
        far = tf.reduce_all(tf.math.is_finite(y) & (tf.abs(y) > finfo(a).tiny))
        return tf.cond(far, by_inverse, by_cofactors)

    return y, gradient


def _cofactors(a: GraphTensor) -> GraphTensor:
    """Return ``det(a) inv(a).T`` by the singular values, also for singular matrices."""
    s, u, v = raw.Svd(input=a, compute_uv=True, full_matrices=False)
    n = a.shape[-1]
    others = selected(tf.eye(n, dtype=tf.bool), 1.0, s[..., None, :])
    vh = tf.linalg.adjoint(v)
    turned = tf.linalg.det(u @ vh)
    if not a.dtype.is_complex:
        turned = tf.round(turned)  # 1 or -1
    product = (u * tf.reduce_prod(others, axis=-1)[..., None, :]) @ vh
    return turned[..., None, None] * tf.math.conj(product)


def _slogdet(out: Result, a: GraphTensor) -> Sequence[GraphTensor]:
    if not a.dtype.is_complex:
        return raw.LogMatrixDeterminant(input=a)

    def lowered(a: GraphTensor) -> WithGradient:
        sign, logarithm = raw.LogMatrixDeterminant(input=a)

        def gradient(by_sign: GraphTensor, by_logarithm: GraphTensor) -> GraphTensor:
            # With w = tr(inv(a) da) the logarithm moves by Re w, and the sign by i sign Im w.
            turned = tf.math.imag(tf.math.conj(by_sign) * sign)
            factor = tf.complex(by_logarithm, -turned)
            return factor[..., None, None] * raw.MatrixInverse(input=a, adjoint=True)

        return (sign, tf.math.real(logarithm)), gradient

    return own_gradient(lowered, a)


def _eigvalsh(out: Result, a: GraphTensor) -> GraphTensor:
    values, _ = raw.SelfAdjointEigV2(input=a, compute_v=True)
    return tf.math.real(values)


@with_own_gradient
def _svdvals(out: Result, x: GraphTensor) -> WithGradient:
    s, u, v = raw.Svd(input=x, compute_uv=True, full_matrices=False)

    # TensorFlow's own divides by the gaps between the values, which may be zero.
    def gradient(g: GraphTensor) -> GraphTensor:
        return tf.matmul(cast_to(g, x.dtype)[..., None, :] * u, v, adjoint_b=True)

    return tf.math.real(s), gradient


@with_own_gradient
def _pinv(out: Result, a: GraphTensor, *, rcond: float) -> WithGradient:
    s, u, v = raw.Svd(input=a, compute_uv=True, full_matrices=False)
    kept = s > rcond * tf.reduce_max(s, axis=-1, keepdims=True)
    inverse = selected(kept, 1.0 / selected(kept, s, 1.0), 0.0)
    y = tf.matmul(v * inverse[..., None, :], u, transpose_b=True)

    def gradient(g: GraphTensor) -> GraphTensor:
        yt, gt = tf.linalg.matrix_transpose(y), tf.linalg.matrix_transpose(g)
        outside_rows, outside_columns = gt - a @ (y @ gt), gt - gt @ (y @ a)
        total = outside_rows @ (y @ yt) + yt @ (y @ outside_columns) - yt @ (g @ yt)
        eps = float(finfo(a).eps)
        if not may_cut(rcond, shape_of(a), eps):
            return total
        # For M = U^T da V singular vectors kept, k, that turn towards ones cut, c, move the
        # pseudo-inverse by V (N M + F N M^T) U^T, element by element, symmetric, where
        # F_kc = s_c / s_k and N_kc = F_kc / (s_k^2 - s_c^2). The native rule is without a gap.
        rounding = tf.reduce_max(s, axis=-1, keepdims=True) * (eps * s.shape[-1])
        pairs = kept[..., None] & ~(kept | (s <= rounding))[..., None, :]
        large, small = selected(pairs, s[..., None], 1.0), selected(pairs, s[..., None, :], 0.0)
        near = small / large / ((large - small) * (large + small))
        far = near * small / large
        near, far = (x + tf.linalg.matrix_transpose(x) for x in (near, far))
        across = tf.matmul(v, g @ u, transpose_a=True)
        inner = near * across + far * tf.linalg.matrix_transpose(across)
        return total + tf.matmul(u @ inner, v, transpose_b=True)

    return y, gradient


def _lstsq(out: Result, a: GraphTensor, b: GraphTensor, *, rcond: float) -> GraphTensor:
    return raw.BatchMatMulV2(x=_pinv(out, a, rcond=rcond), y=b)


@with_own_gradient
def _norm(
    out: Result, x: GraphTensor, *, axis: tuple[int, ...], keepdims: bool, ord: float
) -> WithGradient:
    kept = kept_shape(shape_of(x), axis)
    y = _norm_of(x, axis, ord)

    def gradient(g: GraphTensor) -> GraphTensor:
        # Zero where the cotangent is zero, be the slope infinite.
        return raw.MulNoNan(x=_slope(x, y, axis, ord), y=reshaped(g, kept))

    return y if keepdims else reshaped(y, out.shape), gradient


def _norm_of(x: GraphTensor, axis: tuple[int, ...], ord: float) -> GraphTensor:
    sizes = raw.Abs(x=x)
    if math.isinf(ord):
        return reduced("Max" if ord > 0 else "Min", sizes, axis, keepdims=True)
    if ord == 1:
        return reduced("Sum", sizes, axis, keepdims=True)
    if ord == 2 and len(axis) == x.shape.rank:
        half = raw.L2Loss(t=x)  # half the sum of all squares, in one pass
        return reshaped(raw.Sqrt(x=half + half), (1,) * len(axis))
    if ord == 2:
        return raw.Sqrt(x=reduced("Sum", x * x, axis, keepdims=True))
    return reduced("Sum", sizes**ord, axis, keepdims=True) ** (1.0 / ord)


def _slope(x: GraphTensor, y: GraphTensor, axis: tuple[int, ...], ord: float) -> GraphTensor:
    """Return the gradient of a norm ``y`` with respect to its vector ``x``; zero at zero."""
    signs = raw.Sign(x=x)
    if ord == 1:
        return signs
    if math.isinf(ord):
        ties = cast_to(raw.Abs(x=x) == y, x.dtype)
        return signs * ties / reduced("Sum", ties, axis, keepdims=True)
    divisor = selected(y == 0.0, 1.0, y)
    if ord == 2:
        return x / divisor
    return selected(y == 0.0, x, signs * (raw.Abs(x=x) / divisor) ** (ord - 1.0))


_AXES = ("", "", "2D", "3D")  # by how many of the last axes a node takes


def _transform(node: str) -> Rule:
    def rule(out: Result, x: GraphTensor, *, axes: tuple[int, ...], norm: str) -> GraphTensor:
        rank, count = len(out.shape), len(axes)
        if sorted(axes) == list(range(rank - count, rank)) and count < len(_AXES):
            x = getattr(raw, node + _AXES[count])(input=x)
        else:
            for axis in axes:
                x = _along(axis, rank, getattr(raw, node), x)
        size = math.prod(out.shape[axis] for axis in axes)
        return _scaled(x, size, norm, forward=node == "FFT")

    return rule


def _along(
    axis: int, rank: int, node: Callable[..., GraphTensor], x: GraphTensor, **options: object
) -> GraphTensor:
    order = [*range(rank)]
    order[axis], order[-1] = order[-1], order[axis]
    if axis == rank - 1:
        return node(input=x, **options)
    return permuted(node(input=permuted(x, order), **options), order)


def _scaled(x: GraphTensor, size: Any, norm: str, *, forward: bool) -> GraphTensor:
    """Scale TensorFlow's result, whose norm is "backward"."""
    factor = {"backward": 1.0, "ortho": math.sqrt(size), "forward": size}[norm]
    if factor == 1.0:
        return x
    return x * (1.0 / factor if forward else factor)


def _rfft(out: Result, x: GraphTensor, *, axis: int, norm: str) -> GraphTensor:
    real = cast_to(x, "float32" if out.dtype == "complex64" else "float64")
    n = x.shape[axis]
    y = _along(axis, len(out.shape), raw.RFFT, real, fft_length=[n], Tcomplex=out.dtype)
    return _scaled(y, n, norm, forward=True)


def _irfft(out: Result, x: GraphTensor, *, n: int, axis: int, norm: str) -> GraphTensor:
    x = cast_to(x, "complex64" if out.dtype == "float32" else "complex128")
    y = _along(axis, len(out.shape), raw.IRFFT, x, fft_length=[n], Treal=out.dtype)
    return _scaled(y, n, norm, forward=False)


_PRODUCT = Row(
    _matmul,
    xla=True,
    complex=True,
    strong_zero=product_keeping_zeros(_matmul),
    shape=_product_shape,
)

LOWERINGS: dict[str, Row | Rule] = {
    "matmul": _PRODUCT,
    "batch_matmul": _PRODUCT,
    "einsum": Row(_einsum, complex=True, strong_zero=_einsum_keeping_zeros),
    "inv": Row(lambda out, a: raw.MatrixInverse(input=a, adjoint=False), complex=True),
    "solve": Row(_solve, complex=True),
    "det": Row(_det, complex=True),
    "slogdet": Row(_slogdet, complex=True),
    "cholesky": Row(lambda out, a: raw.Cholesky(input=a), complex=True),
    "eigvalsh": Row(_eigvalsh, complex=True),
    "svdvals": Row(_svdvals, complex=True),
    "pinv": _pinv,
    "lstsq": _lstsq,
    "norm": _norm,
    "fft": Row(_transform("FFT"), complex=True),
    "ifft": Row(_transform("IFFT"), complex=True),
    "rfft": Row(_rfft, complex=True),
    "irfft": Row(_irfft, complex=True),
}
