"""Calls of every NumPy function that differentiates, and unusual numbers to call it with."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tapegraph.typed import Array


class Call(NamedTuple):
    """One way to call one of NumPy's functions.

    :ivar name: The function's name, as `python -m tapegraph functions` writes it.
    :ivar label: What is special about the call; unique within the function.
    :ivar shapes: Of the arrays that it takes.
    :ivar run: Takes the function's module or namespace, a function of it, and the arrays.
    """

    name: str
    label: str
    shapes: tuple[tuple[int, ...], ...]
    run: Callable[..., Any]

    def of(self, module: Any) -> Callable[..., Any]:
        """Return the call of a module that has NumPy's names, as a function of the arrays."""
        function = module
        for part in self.name.split(".")[1:]:
            function = getattr(function, part)
        return lambda *arrays: self.run(function, *arrays)


V, M, S, K = (5,), (2, 3), (3, 3), (2, 3, 4)

UNARY = """
    absolute angle arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil conjugate copy cos cosh
    deg2rad degrees exp exp2 expm1 fabs floor imag log log10 log1p log2 nan_to_num negative
    ones_like positive rad2deg radians real reciprocal rint sign sin sinc sinh sqrt square tan
    tanh trunc zeros_like atleast_1d atleast_2d atleast_3d ravel squeeze transpose flip diagflat
    fft.fftshift fft.ifftshift broadcast_arrays
""".split()
BINARY = """
    add arctan2 copysign divide divmod float_power floor_divide fmax fmin fmod heaviside hypot
    logaddexp logaddexp2 maximum minimum multiply power remainder subtract
""".split()
REDUCED = """
    amax amin max min mean nanmax nanmean nanmin nanstd nansum nanvar prod ptp std sum var median
    average
""".split()
TRANSFORMS = "fft hfft ifft ihfft irfft rfft".split()
OF_SQUARES = """
    cholesky det eig eigh eigvals eigvalsh inv pinv qr slogdet svd svdvals matrix_norm
""".split()

Run = Callable[..., Any]
ON_ONE: dict[str, tuple[tuple[str, tuple[int, ...], Run], ...]] = {
    "angle": (("degrees", V, lambda f, x: f(x, deg=True)),),
    "append": (("number", V, lambda f, x: f(x, 2.0)),),
    "around": (("two", V, lambda f, x: f(x, 2)),),
    "array_split": (("three", V, lambda f, x: f(x, 3)),),
    "astype": (
        ("single", V, lambda f, x: f(x, np.float32)),
        ("complex", V, lambda f, x: f(x, np.complex128)),
    ),
    "average": (
        ("weights", M, lambda f, x: f(x, 1, [0.5, 2.0, 1.0])),
        ("bools", M, lambda f, x: f(x, 1, [True, False, True], returned=True)),
    ),
    "block": (("number", M, lambda f, x: f([[x, x], [x, x]])),),
    "broadcast_to": (("rows", V, lambda f, x: f(x, (3, 5))),),
    "choose": (
        ("number", (3,), lambda f, x: f([1, 0, 1], [x, 2.0])),
        ("wrap", (3,), lambda f, x: f([5, -3, 1], [x, 2], mode="wrap")),
        ("clip", (3,), lambda f, x: f([5, -3, 1], [x, 2], mode="clip")),
    ),
    "clip": (
        ("both", V, lambda f, x: f(x, -1.0, 1.5)),
        ("low", V, lambda f, x: f(x, 0.5, None)),
        ("crossed", V, lambda f, x: f(x, 2, 1)),
    ),
    "column_stack": (("twice", V, lambda f, x: f([x, x])),),
    "compress": (("some", V, lambda f, x: f([True, False, True, False, True], x)),),
    "concatenate": (("flat", M, lambda f, x: f([x, x], axis=None)),),
    "convolve": (
        ("same", V, lambda f, x: f(x, [1.0, -2.0, 0.5], "same")),
        ("valid", V, lambda f, x: f(x, [1.0, -2.0, 0.5], 0)),
    ),
    "corrcoef": (("rows", M, lambda f, x: f(x)),),
    "cov": (
        ("rows", M, lambda f, x: f(x)),
        ("columns", M, lambda f, x: f(x, rowvar=False, ddof=0)),
        ("weights", M, lambda f, x: f(x, fweights=[1, 2, 1], aweights=[1.0, 0.5, 2.0])),
    ),
    "cumprod": (("flat", M, lambda f, x: f(x)), ("rows", M, lambda f, x: f(x, axis=1))),
    "cumsum": (
        ("flat", M, lambda f, x: f(x)),
        ("double", M, lambda f, x: f(x, axis=0, dtype=np.complex128)),
    ),
    "cumulative_prod": (("rows", M, lambda f, x: f(x, axis=1, include_initial=True)),),
    "cumulative_sum": (("vector", V, lambda f, x: f(x)),),
    "delete": (("two", V, lambda f, x: f(x, [0, 3])),),
    "diag": (("vector", V, lambda f, x: f(x, 1)), ("matrix", M, lambda f, x: f(x))),
    "diagonal": (("above", M, lambda f, x: f(x, 1)),),
    "diff": (
        ("once", V, lambda f, x: f(x)),
        ("twice", M, lambda f, x: f(x, 2)),
        ("around", V, lambda f, x: f(x, prepend=0.0, append=x[:2])),
    ),
    "divide": (("number", V, lambda f, x: f(1, x)),),
    "dot": (("number", V, lambda f, x: f(x, 2.0)),),
    "dsplit": (("two", K, lambda f, x: f(x, 2)),),
    "dstack": (("twice", V, lambda f, x: f([x, x])),),
    "einsum": (
        ("sum", M, lambda f, x: f("ij->i", x)),
        ("diagonal", S, lambda f, x: f("ii->i", x)),
    ),
    "expand_dims": (("front", V, lambda f, x: f(x, 0)),),
    "extract": (("some", M, lambda f, x: f([[1, 0, 1], [0, 1, 1]], x)),),
    "fft.fft2": (("matrix", M, lambda f, x: f(x)),),
    "fft.fftn": (("all", M, lambda f, x: f(x, norm="ortho")),),
    "fft.ifft2": (("matrix", M, lambda f, x: f(x)),),
    "fft.ifftn": (("long", M, lambda f, x: f(x, (4, 2))),),
    "fft.irfft2": (("matrix", M, lambda f, x: f(x)),),
    "fft.irfftn": (("all", M, lambda f, x: f(x)), ("no-axes", M, lambda f, x: f(x, axes=()))),
    "fft.rfft2": (("matrix", M, lambda f, x: f(x)),),
    "fft.rfftn": (("all", M, lambda f, x: f(x)), ("no-axes", M, lambda f, x: f(x, axes=()))),
    "flip": (("columns", M, lambda f, x: f(x, 1)),),
    "fliplr": (("matrix", M, lambda f, x: f(x)),),
    "flipud": (("matrix", M, lambda f, x: f(x)),),
    "full_like": (("number", M, lambda f, x: f(x, 7)), ("infinite", M, lambda f, x: f(x, np.inf))),
    "gradient": (
        ("one", V, lambda f, x: f(x)),
        ("number", V, lambda f, x: f(x, 2, edge_order=2)),
        ("double", V, lambda f, x: f(x, np.float64(0.3))),
        ("even", V, lambda f, x: f(x, np.arange(5) / 4)),
        ("places", V, lambda f, x: f(x, [0.0, 0.5, 0.75, 2.0, 3.0])),
        ("curved", V, lambda f, x: f(x, [0.0, 0.5, 0.75, 2.0, 3.0], edge_order=2)),
        ("axes", S, lambda f, x: f(x, 0.5, [0, 1, 3])),
        ("shared", S, lambda f, x: f(x, [0, 1, 3])),
    ),
    "histogram": (("bins", V, lambda f, x: f(x, [-1.0, 0.0, 2.0])),),
    "hsplit": (("three", M, lambda f, x: f(x, 3)),),
    "hstack": (("twice", M, lambda f, x: f([x, x])),),
    "insert": (("number", V, lambda f, x: f(x, [1, 3], 2.0)),),
    "interp": (
        ("places", V, lambda f, x: f(x, [-1.0, 0.0, 1.0, 2.0], [1.0, -0.0, np.inf, 2.0])),
        ("values", V, lambda f, x: f([-2, -1, -0.5, 0, 0.3, 1, 2.5, 3, 9], range(-1, 4), x)),
        ("ends", V, lambda f, x: f(x, [0.0, 1.0], [1.0, 2.0], left=-1.0, right=np.nan)),
        ("one", V, lambda f, x: f(x, [1.0], [2.0])),
    ),
    "linalg.diagonal": (("below", S, lambda f, x: f(x, offset=-1)),),
    "linalg.lstsq": (("tall", (4, 2), lambda f, x: f(x, [1.0, 2.0, 3.0, 4.0])),),
    "linalg.matrix_norm": (
        ("infinite", S, lambda f, x: f(x, ord=np.inf)),
        ("least", S, lambda f, x: f(x, ord=-1)),
        ("nuclear", S, lambda f, x: f(x, ord="nuc")),
        ("two", S, lambda f, x: f(x, ord=-2, keepdims=True)),
    ),
    "linalg.matrix_power": (("cube", S, lambda f, x: f(x, 3)), ("less", S, lambda f, x: f(x, -1))),
    "linalg.matrix_transpose": (("stack", K, lambda f, x: f(x)),),
    "linalg.norm": (
        ("vector", V, lambda f, x: f(x)),
        ("matrix", M, lambda f, x: f(x)),
        ("infinite", V, lambda f, x: f(x, np.inf)),
        ("least", M, lambda f, x: f(x, -np.inf, axis=1)),
        ("one", M, lambda f, x: f(x, 1, axis=0)),
        ("three", V, lambda f, x: f(x, 3)),
        ("count", V, lambda f, x: f(x, 0)),
        ("rows", M, lambda f, x: f(x, axis=1, keepdims=True)),
    ),
    "linalg.pinv": (("wide", M, lambda f, x: f(x)),),
    "linalg.qr": (("wide", M, lambda f, x: f(x)), ("triangle", S, lambda f, x: f(x, "r"))),
    "linalg.svd": (
        ("wide", M, lambda f, x: f(x, full_matrices=False)),
        ("values", M, lambda f, x: f(x, compute_uv=False)),
    ),
    "linalg.svdvals": (("wide", M, lambda f, x: f(x)),),
    "linalg.trace": (("offset", S, lambda f, x: f(x, offset=1)),),
    "linalg.vector_norm": (
        ("all", M, lambda f, x: f(x)),
        ("rows", M, lambda f, x: f(x, axis=1, ord=1)),
        ("count", M, lambda f, x: f(x, ord=0)),
    ),
    "linspace": (
        ("to", V, lambda f, x: f(x, 0.7, 7)),
        ("from", V, lambda f, x: f(1, x, 4, endpoint=False, axis=1)),
        ("nowhere", V, lambda f, x: f(x, x, 3, retstep=True)),
        ("one", V, lambda f, x: f(x, 2.0, 1)),
        ("none", V, lambda f, x: f(x, 2.0, 0)),
    ),
    "matrix_transpose": (("stack", K, lambda f, x: f(x)),),
    "maximum": (("number", V, lambda f, x: f(x, 0)), ("none", V, lambda f, x: f(np.nan, x))),
    "meshgrid": (("twice", V, lambda f, x: f(x, x[:2])),),
    "moveaxis": (("last", K, lambda f, x: f(x, 0, -1)),),
    "nan_to_num": (("numbers", V, lambda f, x: f(x, nan=1.5, posinf=2.0, neginf=-3.0)),),
    "pad": (
        ("constants", M, lambda f, x: f(x, 1, constant_values=2)),
        ("edge", M, lambda f, x: f(x, ((1, 0), (0, 2)), "edge")),
    ),
    "partition": (("middle", V, lambda f, x: f(x, 2)[2]),),
    "percentile": (
        ("number", V, lambda f, x: f(x, 30)),
        ("several", M, lambda f, x: f(x, [0.0, 55.0, 100.0], axis=1)),
    ),
    "polyval": (
        ("coefficients", V, lambda f, x: f(x, 0.5)),
        ("places", V, lambda f, x: f([3, -1, 2], x)),
        ("constant", V, lambda f, x: f([3], x)),
        ("nothing", V, lambda f, x: f([], x)),
    ),
    "power": (
        ("square", V, lambda f, x: f(x, 2)),
        ("half", V, lambda f, x: f(x, 0.5)),
        ("reciprocal", V, lambda f, x: f(x, -1)),
        ("base", V, lambda f, x: f(2.0, x)),
    ),
    "quantile": (
        ("number", V, lambda f, x: f(x, 0.3)),
        ("whole", V, lambda f, x: f(x, 1)),
        ("array", V, lambda f, x: f(x, np.float64(0.8))),
        ("single", V, lambda f, x: f(x, np.float32(0.8))),
        ("several", M, lambda f, x: f(x, [0.1, 0.6], axis=1, keepdims=True)),
        ("all", M, lambda f, x: f(x, [0, 1], axis=(0, 1))),
    ),
    "repeat": (("each", (3,), lambda f, x: f(x, [1, 0, 2])),),
    "reshape": (("flat", M, lambda f, x: f(x, -1)),),
    "roll": (("two", M, lambda f, x: f(x, 2)),),
    "rollaxis": (("last", K, lambda f, x: f(x, 2)),),
    "rot90": (("once", M, lambda f, x: f(x)),),
    "round": (
        ("whole", V, lambda f, x: f(x)),
        ("two", V, lambda f, x: f(x, 2)),
        ("tens", V, lambda f, x: f(x, -1)),
    ),
    "select": (
        ("number", V, lambda f, x: f([x == x, x != x], [x, 2.0], 3)),
        ("default", V, lambda f, x: f([x != x, [True, False] * 2 + [True]], [x, 2.0])),
    ),
    "lib.stride_tricks.sliding_window_view": (("rows", M, lambda f, x: f(x, 2, 1)),),
    "sort": (("rows", M, lambda f, x: f(x)), ("flat", M, lambda f, x: f(x, None))),
    "split": (("places", V, lambda f, x: f(x, [1, 3])),),
    "stack": (("twice", V, lambda f, x: f([x, x], 1)),),
    "swapaxes": (("ends", K, lambda f, x: f(x, 0, 2)),),
    "take": (("some", M, lambda f, x: f(x, [0, 2, 0], axis=1)),),
    "take_along_axis": (("rows", M, lambda f, x: f(x, np.array([[0], [2]]), 1)),),
    "tile": (("twice", M, lambda f, x: f(x, 2)),),
    "trace": (("one", M, lambda f, x: f(x)),),
    "trapezoid": (
        ("one", V, lambda f, x: f(x)),
        ("number", M, lambda f, x: f(x, dx=0.5, axis=0)),
        ("places", V, lambda f, x: f(x, [0.0, 1.0, 1.5, 3.0, 4.0])),
    ),
    "trapz": (("one", V, lambda f, x: f(x)),),
    "tril": (("matrix", M, lambda f, x: f(x)),),
    "triu": (("above", M, lambda f, x: f(x, 1)),),
    "unstack": (("columns", M, lambda f, x: f(x, axis=1)),),
    "vsplit": (("two", M, lambda f, x: f(x, 2)),),
    "vstack": (("twice", V, lambda f, x: f([x, x])),),
    "where": (("number", V, lambda f, x: f(x == x, x, 1)), ("mask", V, lambda f, x: f(x, 1.5, x))),
}
ON_TWO: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "append": (V, (2,)),
    "block": (V, V),
    "broadcast_arrays": (V, (2, 1)),
    "concatenate": (M, (1, 3)),
    "convolve": (V, (3,)),
    "cov": (V, V),
    "cross": (M, (3,)),
    "dot": (M, S),
    "inner": (M, S),
    "kron": (M, (2, 1)),
    "linalg.cross": (M, (3,)),
    "linalg.lstsq": ((4, 2), (4, 3)),
    "linalg.matmul": (M, S),
    "linalg.multi_dot": (M, S),
    "linalg.outer": (V, (3,)),
    "linalg.solve": (S, (3, 2)),
    "linalg.tensordot": (S, S),
    "linalg.vecdot": (M, M),
    "matmul": (M, (2, 3, 4)),
    "matvec": (M, (3,)),
    "meshgrid": (V, (2,)),
    "outer": (V, (3,)),
    "tensordot": (S, S),
    "vdot": (M, M),
    "vecdot": (M, M),
    "vecmat": ((2,), M),
    "vstack": (V, V),
}
TOGETHER = {"append": 0, "block": 1, "concatenate": 1, "linalg.multi_dot": 1, "vstack": 1}
ON_THREE: dict[str, tuple[tuple[tuple[int, ...], ...], Run]] = {
    "clip": ((V, V, V), lambda f, x, a, b: f(x, a, b)),
    "einsum": (((2, 3), (3, 4), (4,)), lambda f, a, b, c: f("ij,jk,k->ik", a, b, c)),
    "interp": ((V, (4,), (4,)), lambda f, x, xp, fp: f(x, np.sort(xp), fp)),
    "select": ((V, V, V), lambda f, c, a, b: f([c > 0, c == c], [a, b], 1)),
    "where": ((V, V, V), lambda f, c, a, b: f(c > 0, a, b)),
}


def calls() -> Iterator[Call]:
    """Yield every call of the table."""
    for name in UNARY:
        for label, shape in (("vector", V), ("matrix", M), ("number", ())):
            yield Call(f"np.{name}", label, (shape,), lambda f, x: f(x))
    for name in BINARY:
        yield Call(f"np.{name}", "both", (V, V), lambda f, a, b: f(a, b))
        yield Call(f"np.{name}", "spread", (M, (3,)), lambda f, a, b: f(a, b))
        yield Call(f"np.{name}", "right", (V,), lambda f, x: f(x, 1.5))
        yield Call(f"np.{name}", "left", (V,), lambda f, x: f(-2, x))
    for name in REDUCED:
        yield Call(f"np.{name}", "of-all", (M,), lambda f, x: f(x))
        yield Call(f"np.{name}", "of-many", ((300,),), lambda f, x: f(x))
        yield Call(f"np.{name}", "of-rows", (M,), lambda f, x: f(x, axis=1))
        yield Call(f"np.{name}", "of-columns", (K,), lambda f, x: f(x, axis=(0, 2), keepdims=True))
    for name in ("std", "var", "nanstd", "nanvar"):
        yield Call(f"np.{name}", "lost", (M,), lambda f, x: f(x, axis=1, ddof=1))
    for name in TRANSFORMS:
        yield Call(f"np.fft.{name}", "plain", (V,), lambda f, x: f(x))
        yield Call(f"np.fft.{name}", "longer", (M,), lambda f, x: f(x, 4, 0, "forward"))
    for name in OF_SQUARES:
        yield Call(f"np.linalg.{name}", "square", (S,), lambda f, x: f(x))
        yield Call(f"np.linalg.{name}", "stack", ((2, 2, 2),), lambda f, x: f(x))
    for name, ways in ON_ONE.items():
        for label, shape, run in ways:
            yield Call(f"np.{name}", label, (shape,), run)
    for name, shapes in ON_TWO.items():
        together = name in TOGETHER and TOGETHER[name]
        run = (lambda f, a, b: f([a, b])) if together else (lambda f, a, b: f(a, b))
        yield Call(f"np.{name}", "two", shapes, run)
    for name, (shapes, run) in ON_THREE.items():
        yield Call(f"np.{name}", "three", shapes, run)


def exists(name: str) -> bool:
    """Return whether this NumPy has a function: some are new in 2.1 or 2.2, and one has gone."""
    *path, last = name.split(".")
    return hasattr(importlib.import_module(".".join(["numpy", *path[1:]])), last)


CALLS = tuple(call for call in calls() if exists(call.name))


# ------------------------------------------------------------------ what to call them with


def _pools(dtype: Any) -> dict[str, list[float]]:
    limits = np.finfo(dtype)
    tiny, least = float(limits.tiny), float(limits.smallest_subnormal)
    huge, eps = float(limits.max), float(limits.eps)
    missing, endless = [np.nan] * 2, [np.inf, -np.inf] * 2
    ordinary = [0.5, -1.25, 3.0, 0.7, -0.1, 2.0, -2.0, 1.0]
    small = [least, -least, tiny, -3 * least, 0.0, -0.0]
    large = [huge, -huge, huge / 2, 1 / tiny, -(huge**0.5) * 1.5, 1 / eps]
    return {
        "ordinary": ordinary,
        "missing": ordinary + missing,
        "endless": ordinary + endless,
        "both": ordinary[:3] + missing + endless,
        "huge": ordinary[:3] + large,
        "tiny": ordinary[:3] + small,
        "zeros": [0.0, -0.0, 1.0, -1.0],
        "ties": [-1.0, 2.0, 2.0, 0.0],
        "mixed": ordinary[:4] + missing[:1] + endless[:2] + small + large + [0.0, -0.0],
    }


FILLINGS = tuple(_pools(np.float64))


def drawn(rng: np.random.Generator, shape: tuple[int, ...], filling: str, dtype: Any) -> Array:
    """Draw an array of unusual numbers."""
    kind = np.dtype(dtype)
    parts = np.empty(0, kind).real.dtype
    pool = np.array(_pools(parts)[filling], parts)
    out: Array = np.empty(shape, kind)
    out.real = rng.choice(pool, shape)
    if kind.kind == "c":
        out.imag = rng.choice(pool, shape)
    return out
