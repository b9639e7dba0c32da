"""Cases of complex numbers: one or more for every operation that takes them.

Each is NumPy's own function, which on arrays is the reference of itself on tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import tapegraph as tg
from tapegraph.typed import Array
from tests.cases.elementwise import div_strong, mul_strong


@dataclass(frozen=True, eq=False)
class ComplexCase:
    """One way to call one operation with complex numbers.

    :ivar op: The operation's name.
    :ivar label: What is special about it; unique within the operation.
    :ivar run: Takes arrays or tensors.
    :ivar inputs: Where it is called.
    """

    op: str
    label: str
    run: Callable[..., Any]
    inputs: tuple[Array, ...]

    @property
    def id(self) -> str:
        """The row's name, unique in the table."""
        return f"{self.op}-{self.label}"


_rng = np.random.default_rng(1)


def _complex(*lengths: int) -> Array:
    return np.asarray(_rng.normal(size=lengths) + 1j * _rng.normal(size=lengths))


X, B, R = _complex(3, 2), _complex(3, 2), _rng.normal(size=(3, 2))
P, V, A, Y = np.abs(R) + 0.5, _complex(4), _complex(3, 3), _complex(4, 5)
SQUARE = _rng.normal(size=(3, 3))

# By the operation that each of NumPy's functions records.
UNARY: dict[str, Any] = {
    "neg": np.negative,
    "conj": np.conjugate,
    "real": np.real,
    "imag": np.imag,
    **{
        name: getattr(np, name)
        for name in (
            "sin cos tan exp log sqrt tanh log1p expm1 log2 log10 exp2 sinh cosh arcsin arccos "
            "arctan arcsinh arccosh arctanh abs angle sinc rint"
        ).split()
    },
}
BINARY: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
}


def _hermitian(a: Any) -> Any:
    return a + np.conj(a.T)


def _definite(a: Any) -> Any:
    return a @ np.conj(a.T) + 3.0 * np.eye(len(a))


def _of_svd(a: Any) -> Any:
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    return u @ vh


def _of_eig(a: Any) -> Any:
    w, v = np.linalg.eig(a)
    return (v * np.exp(w)) @ np.linalg.inv(v)


def _elementwise() -> Iterator[ComplexCase]:
    for op, function in UNARY.items():
        yield ComplexCase(op, "matrix", function, (X,))
    yield ComplexCase("sigmoid", "matrix", lambda x: 1 / (1 + np.exp(-x)), (X,))
    yield ComplexCase("sigmoid", "own", tg.sigmoid, (X,))
    yield ComplexCase("erf", "matrix", tg.special.erf, (X,))
    yield ComplexCase("erfc", "matrix", tg.special.erfc, (X,))
    for op, f in {**BINARY, "mul_strong": mul_strong, "div_strong": div_strong}.items():
        yield ComplexCase(op, "both", f, (X, B))
        yield ComplexCase(op, "row", f, (X, _complex(2)))
        yield ComplexCase(op, "real-left", f, (P, B))
        yield ComplexCase(op, "real-right", f, (X, P))
        yield ComplexCase(op, "number", lambda a, f=f: f(a, 1 - 0.5j), (X,))
        yield ComplexCase(op, "number-left", lambda a, f=f: f(1.5j, a), (P,))
        yield ComplexCase(op, "whole", lambda a, f=f: f(a, 3), (X,))
    yield ComplexCase("mul", "square", np.square, (X,))
    yield ComplexCase("mul", "parts", lambda a, b: a * np.conj(b) + 1j * np.real(a), (X, B))
    yield ComplexCase("div", "reciprocal", np.reciprocal, (X,))
    yield ComplexCase("from_parts", "sign", np.sign, (X,))
    yield ComplexCase("from_parts", "nan-to-num", np.nan_to_num, (X,))
    between = lambda fp: np.interp([0.0, 0.3, 2.5, 3.0, 4.0], np.arange(4), fp)  # noqa: E731
    yield ComplexCase("from_parts", "interp", between, (V,))
    yield ComplexCase("round", "beside", lambda x: np.round(x, 1) + x, (X,))
    yield ComplexCase("where", "mixed", lambda a, b: np.where(R > 0, a, b), (X, R))
    yield ComplexCase("where", "nan-to-num", np.nan_to_num, (X,))
    yield ComplexCase("astype", "of-reals", lambda x: x.astype(np.complex128) * 1j, (R,))
    yield ComplexCase("astype", "copy", np.copy, (X,))


def _reductions() -> Iterator[ComplexCase]:
    yield ComplexCase("sum", "axis", lambda x: np.sum(x, axis=0), (X,))
    yield ComplexCase("sum", "trace", np.trace, (A,))
    yield ComplexCase("mean", "all", np.mean, (X,))
    yield ComplexCase("mean", "var", np.var, (X,))
    yield ComplexCase("mean", "var-ddof", lambda x: np.var(x, axis=1, ddof=1), (X,))
    yield ComplexCase("mean", "std", lambda x: np.std(x, axis=0), (X,))
    yield ComplexCase("prod", "axis", lambda x: np.prod(x, axis=0), (X,))
    yield ComplexCase("cumsum", "axis", lambda x: np.cumsum(x, 0), (X,))
    yield ComplexCase("cumprod", "axis", lambda x: np.cumprod(x, axis=0), (X,))


def _places() -> Iterator[ComplexCase]:
    yield ComplexCase("transpose", "matrix", np.transpose, (X,))
    yield ComplexCase("reshape", "flat", lambda x: np.reshape(x, -1), (X,))
    yield ComplexCase("concat", "mixed", lambda a, b: np.concatenate([a, b]), (X, R))
    yield ComplexCase("concat", "stack", lambda a, b: np.stack([a, b]), (X, B))
    yield ComplexCase("concat", "pad", lambda x: np.pad(x, 1), (X,))
    yield ComplexCase("broadcast_to", "stack", lambda x: np.broadcast_to(x, (2, 3, 2)), (X,))
    yield ComplexCase("getitem", "slice", lambda x: x[1:, 0], (X,))
    yield ComplexCase("getitem", "flip", np.flip, (X,))
    yield ComplexCase("index", "pairs", lambda x: x[[0, 1, 0], [1, 0, 1]], (X,))
    yield ComplexCase("gather", "rows", lambda x: np.take(x, [0, 2, 0], 0), (X,))
    yield ComplexCase("gather", "sort", np.sort, (V,))
    yield ComplexCase("roll", "flat", lambda x: np.roll(x, 1, 0), (X,))


def _products() -> Iterator[ComplexCase]:
    yield ComplexCase("matmul", "matrices", np.matmul, (A, X))
    yield ComplexCase("matmul", "vector", np.matmul, (A, _complex(3)))
    yield ComplexCase("matmul", "real", np.matmul, (SQUARE, X))
    yield ComplexCase("matmul", "vdot", np.vdot, (V, _complex(4)))
    yield ComplexCase("matmul", "power", lambda a: np.linalg.matrix_power(a, 3), (A,))
    yield ComplexCase("batch_matmul", "stacks", np.matmul, (_complex(2, 3, 2), _complex(2, 2, 3)))
    yield ComplexCase("convolve", "full", np.convolve, (V, _complex(3)))
    yield ComplexCase("convolve", "same", lambda a, b: np.convolve(a, b, "same"), (V, P[:, 0]))
    yield ComplexCase("mul", "outer", np.outer, (V, _complex(3)))
    yield ComplexCase("mul", "kron", np.kron, (_complex(2, 2), _complex(2)))
    yield ComplexCase("sum", "vecdot", np.vecdot, (X, B))
    yield ComplexCase("einsum", "chain", lambda a, b: np.einsum("ij,jk->ki", a, b), (A, X))
    yield ComplexCase("einsum", "real", lambda a, b: np.einsum("ij,jk->ik", a, b), (SQUARE, X))


def _linalg() -> Iterator[ComplexCase]:
    la = np.linalg
    yield ComplexCase("solve", "matrix", la.solve, (A, X))
    yield ComplexCase("solve", "vector", la.solve, (A, _complex(3)))
    yield ComplexCase("inv", "matrix", la.inv, (A,))
    yield ComplexCase("det", "matrix", la.det, (A,))
    rank_two = np.outer(_complex(3), _complex(3)) + np.diag([1.0, 0.0, 0.0])
    yield ComplexCase("det", "singular", la.det, (rank_two,))
    yield ComplexCase("slogdet", "sign", lambda a: la.slogdet(a)[0], (A,))
    yield ComplexCase("slogdet", "logarithm", lambda a: la.slogdet(a)[1], (A,))
    yield ComplexCase("cholesky", "definite", lambda a: la.cholesky(_definite(a)), (A,))
    yield ComplexCase("eigvalsh", "hermitian", lambda a: la.eigvalsh(_hermitian(a)), (A,))
    yield ComplexCase("eigh", "values", lambda a: la.eigh(_hermitian(a))[0], (A,))
    yield ComplexCase("eigh", "vectors", lambda a: np.abs(la.eigh(_hermitian(a))[1]), (A,))
    yield ComplexCase("eig", "values", lambda a: la.eig(a)[0], (A,))
    yield ComplexCase("eig", "eigvals", la.eigvals, (A,))
    yield ComplexCase("eig", "vectors", lambda a: np.abs(la.eig(a)[1]), (A,))
    yield ComplexCase("eig", "of-reals", lambda a: np.abs(la.eig(a)[1]), (SQUARE,))
    yield ComplexCase("eig", "exponential", _of_eig, (A,))
    yield ComplexCase("svdvals", "tall", lambda a: la.svd(a, compute_uv=False), (X,))
    yield ComplexCase("svdvals", "nuclear", lambda x: la.norm(x, "nuc"), (X,))
    yield ComplexCase("svd", "tall", _of_svd, (X,))
    yield ComplexCase("svd", "wide", _of_svd, (X.T.copy(),))
    yield ComplexCase("pinv", "tall", la.pinv, (X,))
    yield ComplexCase("lstsq", "tall", lambda a, b: la.lstsq(a, b)[0], (X, B))
    yield ComplexCase("lstsq", "wide", lambda a, b: la.lstsq(a, b)[0], (X.T.copy(), A[:2]))
    yield ComplexCase("qr", "tall", lambda a: la.qr(a)[0], (X,))
    yield ComplexCase("qr", "triangle", lambda a: la.qr(a, mode="r"), (X,))
    yield ComplexCase("qr", "wide", lambda a: la.qr(a)[1], (X.T.copy(),))
    yield ComplexCase("qr", "stack", lambda a: la.qr(a)[0], (_complex(2, 4, 2),))
    for order in (None, 1, 3, np.inf):
        run = lambda x, order=order: la.norm(x, order, axis=0)  # noqa: E731
        yield ComplexCase("abs", f"norm-{order}", run, (X,))


def _transforms() -> Iterator[ComplexCase]:
    fft: Any = np.fft
    stack, reals = _complex(2, 4, 5), Y.real.copy()
    for norm in ("backward", "ortho", "forward"):
        for op, label, run, x in (
            ("fft", "last", lambda x, norm=norm: fft.fft(x, norm=norm), Y),
            ("fft", "short", lambda x, norm=norm: fft.fft(x, n=3, norm=norm), reals),
            ("fft", "two", lambda x, norm=norm: fft.fft2(x, norm=norm), Y),
            ("ifft", "long", lambda x, norm=norm: fft.ifft(x, n=7, axis=0, norm=norm), Y),
            ("ifft", "all", lambda x, norm=norm: fft.ifftn(x, norm=norm), stack),
            ("rfft", "last", lambda x, norm=norm: fft.rfft(x, norm=norm), reals),
            ("rfft", "first", lambda x, norm=norm: fft.rfft(x, n=6, axis=0, norm=norm), reals),
            ("rfft", "all", lambda x, norm=norm: fft.rfftn(x, norm=norm), stack.real.copy()),
            ("irfft", "even", lambda x, norm=norm: fft.irfft(x, norm=norm), Y),
            ("irfft", "odd", lambda x, norm=norm: fft.irfft(x, n=7, norm=norm), Y),
            ("irfft", "two", lambda x, norm=norm: fft.irfft2(x, s=(3, 4), norm=norm), Y),
            ("irfft", "hfft", lambda x, norm=norm: fft.hfft(x, norm=norm), Y),
            ("rfft", "ihfft", lambda x, norm=norm: fft.ihfft(x, norm=norm), reals),
        ):
            yield ComplexCase(op, f"{label}-{norm}", run, (x,))
    yield ComplexCase("fft", "apart", lambda x: fft.fftn(x, axes=(2, 0)), (stack,))
    yield ComplexCase("roll", "fftshift", fft.fftshift, (Y,))
    yield ComplexCase("roll", "ifftshift", lambda x: fft.ifftshift(x, axes=1), (Y,))


COMPLEX_CASES: tuple[ComplexCase, ...] = (
    *_elementwise(),
    *_reductions(),
    *_places(),
    *_products(),
    *_linalg(),
    *_transforms(),
)
