"""The operations of the table, one row each way to call one: ours, PyTorch's, and on what.

A million elements; matrices of 1,024; stacks of 32 x 128 x 256. ``ours`` takes tapegraph,
``theirs`` PyTorch, and then the arrays as tensors of each. Where PyTorch has no counterpart,
``theirs`` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.protocol import Array

Sample = Callable[[np.random.Generator], Array]
Call = Callable[..., Any]

SIDE = 1_000
MATRIX = 1_024
STACK = (32, 128, 256)
NONE = "PyTorch has no such function"


class Row(NamedTuple):
    """One way to call one operation.

    :ivar op: Its name in tapegraph's table.
    :ivar label: What it is called here: the name, and what is special.
    :ivar ours, theirs: The call in either library.
    :ivar inputs: How arrays that take a gradient are sampled, in float64.
    :ivar fixed: The same for arrays that take none: indices, masks, targets.
    :ivar gradient: Whether tapegraph has one, and PyTorch.
    :ivar agrees: What gives the same numbers: singular vectors have a sign that each chooses for
        itself, and the gradient by a symmetric matrix may stand in one triangle or in both.
    :ivar view: PyTorch's result shares its operand's memory.
    """

    op: str
    label: str
    ours: Call
    theirs: Call | str
    inputs: tuple[Sample, ...]
    fixed: tuple[Sample, ...] = ()
    gradient: bool = True
    their_gradient: bool = True
    agrees: tuple[str, ...] = ("forward", "gradient")
    view: bool = False


# Where inputs are sampled


def between(low: float, high: float, *shape: int) -> Sample:
    return lambda rng: rng.uniform(low, high, shape or (SIDE, SIDE))


def nonzero(*shape: int) -> Sample:
    return lambda rng: (
        rng.choice([-1.0, 1.0], shape or (SIDE, SIDE)) * between(0.3, 2.0, *shape)(rng)
    )


def below(count: int, *shape: int) -> Sample:
    return lambda rng: rng.integers(0, count, shape)


def mask(rng: np.random.Generator) -> Array:
    return rng.random((SIDE, SIDE)) < 0.5


def places(rng: np.random.Generator) -> Array:
    return rng.permutation(SIDE * SIDE).reshape(SIDE, SIDE)


def near_identity(rng: np.random.Generator) -> Array:
    """Return a well-conditioned matrix whose determinant is no overflow."""
    return np.eye(MATRIX) + rng.normal(0, 0.25 / MATRIX**0.5, (MATRIX, MATRIX))


def symmetric(rng: np.random.Generator) -> Array:
    """Return a positive definite matrix."""
    a = near_identity(rng)
    return (a @ a.T + (a @ a.T).T) / 2


ANYWHERE, POSITIVE, INSIDE, ABOVE = (
    between(-2, 2),
    between(0.5, 2),
    between(-0.9, 0.9),
    between(1.2, 3),
)
NONZERO = nonzero()
HUNDREDTH = between(0.99, 1.01)

# Element by element: where to sample, and PyTorch's name where it is another.

UNARY: dict[str, tuple[Sample, str]] = {
    "neg": (ANYWHERE, ""),
    "sin": (ANYWHERE, ""),
    "cos": (ANYWHERE, ""),
    "tan": (between(-1, 1), ""),
    "exp": (ANYWHERE, ""),
    "log": (POSITIVE, ""),
    "sqrt": (POSITIVE, ""),
    "tanh": (ANYWHERE, ""),
    "sigmoid": (ANYWHERE, ""),
    "relu": (NONZERO, ""),
    "abs": (NONZERO, ""),
    "silu": (ANYWHERE, "nn.functional.silu"),
    "log1p": (INSIDE, ""),
    "expm1": (ANYWHERE, ""),
    "log2": (POSITIVE, ""),
    "log10": (POSITIVE, ""),
    "exp2": (ANYWHERE, ""),
    "sinh": (ANYWHERE, ""),
    "cosh": (ANYWHERE, ""),
    "arcsin": (INSIDE, ""),
    "arccos": (INSIDE, ""),
    "arctan": (ANYWHERE, ""),
    "arcsinh": (ANYWHERE, ""),
    "arccosh": (ABOVE, ""),
    "arctanh": (INSIDE, ""),
    "sinc": (NONZERO, ""),
    "sign": (NONZERO, ""),
    "floor": (ANYWHERE, ""),
    "ceil": (ANYWHERE, ""),
    "rint": (ANYWHERE, "round"),
    "round": (ANYWHERE, ""),
    "trunc": (ANYWHERE, ""),
}
SPECIAL: dict[str, tuple[Sample, str]] = {
    "erf": (ANYWHERE, "special.erf"),
    "erfc": (ANYWHERE, "special.erfc"),
    "erfinv": (INSIDE, "special.erfinv"),
    "erfcx": (ANYWHERE, "special.erfcx"),
    "log_ndtr": (ANYWHERE, "special.log_ndtr"),
    "entr": (POSITIVE, "special.entr"),
    "gammaln": (ABOVE, "special.gammaln"),
}
BINARY: dict[str, tuple[Sample, Sample, str]] = {
    "add": (ANYWHERE, ANYWHERE, ""),
    "sub": (ANYWHERE, ANYWHERE, ""),
    "mul": (ANYWHERE, ANYWHERE, ""),
    "div": (NONZERO, NONZERO, ""),
    "pow": (POSITIVE, ANYWHERE, ""),
    "arctan2": (NONZERO, NONZERO, ""),
    "hypot": (NONZERO, NONZERO, ""),
    "logaddexp": (ANYWHERE, ANYWHERE, ""),
    "maximum": (ANYWHERE, ANYWHERE, ""),
    "minimum": (ANYWHERE, ANYWHERE, ""),
    "fmax": (ANYWHERE, ANYWHERE, ""),
    "fmin": (ANYWHERE, ANYWHERE, ""),
    "mod": (NONZERO, NONZERO, "remainder"),
    "floor_divide": (NONZERO, NONZERO, ""),
}
COMPARED = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
THEIR_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
PREDICATES = ("isnan", "isinf", "isfinite", "signbit", "logical_not")


def _of(path: str) -> Call:
    """Return the call of a function by its dotted name, in whichever library comes first."""

    def call(library: Any, *tensors: Any) -> Any:
        for name in path.split("."):
            library = getattr(library, name)
        return library(*tensors)

    return call


def elementwise() -> Iterator[Row]:
    for name, (sample, theirs) in UNARY.items():
        yield Row(name, name, _of(name), _of(theirs or name), (sample,))
    for name, (a, b, theirs) in BINARY.items():
        yield Row(name, name, _of(name), _of(theirs or name), (a, b))
    for name, (sample, theirs) in SPECIAL.items():
        yield Row(name, name, _of(f"special.{name}"), _of(theirs), (sample,))
    row = between(-2, 2, SIDE)
    yield Row("add", "add, a row", _of("add"), _of("add"), (ANYWHERE, row))
    yield Row("mul", "mul, a row", _of("mul"), _of("mul"), (ANYWHERE, row))
    yield Row("pow", "pow, squared", lambda tg, x: x**2, lambda torch, x: x**2, (ANYWHERE,))
    yield Row(
        "gelu",
        "gelu",
        _of("gelu"),
        lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh"),
        (ANYWHERE,),
    )
    yield Row("cbrt", "cbrt", _of("cbrt"), NONE, (NONZERO,))
    yield Row(
        "clip",
        "clip",
        lambda tg, x: tg.clip(x, -1.0, 1.0),
        lambda torch, x: torch.clip(x, -1.0, 1.0),
        (ANYWHERE,),
    )
    yield Row(
        "where",
        "where",
        lambda tg, a, b, cond: tg.where(cond, a, b),
        lambda torch, a, b, cond: torch.where(cond, a, b),
        (ANYWHERE, ANYWHERE),
        (mask,),
    )
    yield Row("astype", "astype, the other width", _ours_astype, _their_astype, (ANYWHERE,))


def _ours_astype(tg: Any, x: Any) -> Any:
    return tg.astype(x, np.float32 if x.dtype == np.float64 else np.float64)


def _their_astype(torch: Any, x: Any) -> Any:
    return x.to(torch.float32 if x.dtype == torch.float64 else torch.float64)


def special() -> Iterator[Row]:
    yield Row(
        "polygamma",
        "polygamma, 1",
        lambda tg, x: tg.special.polygamma(1, x),
        lambda torch, x: torch.polygamma(1, x),
        (ABOVE,),
    )
    for name in ("xlogy", "xlog1py"):
        yield Row(name, name, _of(f"special.{name}"), _of(f"special.{name}"), (NONZERO, POSITIVE))
    yield Row("bessel_i", "bessel_i, i0", _of("special.i0"), _of("special.i0"), (ANYWHERE,))
    yield Row(
        "bessel_j",
        "bessel_j, j0",
        _of("special.j0"),
        _of("special.bessel_j0"),
        (ANYWHERE,),
        their_gradient=False,
    )
    for name in ("gamma", "gammasgn"):
        yield Row(name, name, _of(f"special.{name}"), NONE, (ABOVE,))
    for name in ("beta", "betaln"):
        yield Row(name, name, _of(f"special.{name}"), NONE, (ABOVE, ABOVE))


def reductions() -> Iterator[Row]:
    for name in ("sum", "mean"):
        yield Row(name, f"{name}, all", _of(name), _of(name), (ANYWHERE,))
        for axis in (0, 1):
            along, theirs = _along(name, axis), _along(name, axis)
            yield Row(name, f"{name}, axis {axis}", along, theirs, (ANYWHERE,))
    for name in ("max", "min"):
        yield Row(name, f"{name}, all", _of(name), _of(f"a{name}"), (ANYWHERE,))
        for axis in (0, 1):
            along, theirs = _along(name, axis), _along(f"a{name}", axis)
            yield Row(name, f"{name}, axis {axis}", along, theirs, (ANYWHERE,))
    yield Row("prod", "prod, axis 1", _along("prod", 1), _along("prod", 1), (HUNDREDTH,))
    for name, sample in (("cumsum", ANYWHERE), ("cumprod", HUNDREDTH)):
        yield Row(name, f"{name}, axis 1", _along(name, 1), _along(name, 1), (sample,))
    for axis in (0, -1):
        along, theirs = _along("softmax", axis), _along("softmax", axis)
        yield Row("softmax", f"softmax, axis {axis}", along, theirs, (ANYWHERE,))


def _along(name: str, axis: int) -> Call:
    return lambda library, x: getattr(library, name)(x, axis)


def products() -> Iterator[Row]:
    square = between(-2, 2, MATRIX, MATRIX)
    stack, other = between(-2, 2, *STACK), between(-2, 2, STACK[0], STACK[2], STACK[1])
    yield Row("matmul", "matmul", _of("matmul"), _of("matmul"), (square, square))
    yield Row("batch_matmul", "batch_matmul", _of("batch_matmul"), _of("matmul"), (stack, other))
    yield Row(
        "batch_matmul",
        "batch_matmul, transposed",
        lambda tg, a, b: a @ b.transpose(0, 2, 1),
        lambda torch, a, b: a @ b.transpose(1, 2),
        (stack, stack),
    )
    yield Row(
        "batch_matmul",
        "batch_matmul, by a matrix",
        _of("batch_matmul"),
        _of("matmul"),
        (stack, between(-2, 2, STACK[2], STACK[2])),
    )
    yield Row(
        "einsum",
        "einsum, bij,bjk->bik",
        lambda tg, a, b: tg.einsum("bij,bjk->bik", a, b),
        lambda torch, a, b: torch.einsum("bij,bjk->bik", a, b),
        (stack, other),
    )


def decompositions() -> Iterator[Row]:
    """Yield the rows of numpy.linalg, which record on tensors."""
    for name in ("inv", "det", "pinv", "svdvals"):
        yield Row(name, name, _ours_linalg(name), _of(f"linalg.{name}"), (near_identity,))
    yield Row(
        "lstsq",
        "lstsq",
        lambda tg, a: np.linalg.lstsq(a, np.ones(len(a), a.dtype))[0],
        lambda torch, a: torch.linalg.lstsq(a, torch.ones(len(a), 1, dtype=a.dtype))[0],
        (near_identity,),
    )
    for name in ("cholesky", "eigvalsh"):
        ours, theirs = _ours_linalg(name), _of(f"linalg.{name}")
        yield Row(name, name, ours, theirs, (symmetric,), agrees=("forward",))
    yield Row(
        "slogdet",
        "slogdet, logabsdet",
        lambda tg, a: np.linalg.slogdet(a)[1],
        lambda torch, a: torch.linalg.slogdet(a)[1],
        (near_identity,),
    )
    yield Row(
        "solve",
        "solve",
        _ours_linalg("solve"),
        _of("linalg.solve"),
        (near_identity, between(-2, 2, MATRIX, MATRIX)),
    )
    yield Row(
        "eigh",
        "eigh, vectors",
        lambda tg, a: np.linalg.eigh(a)[1],
        lambda torch, a: torch.linalg.eigh(a)[1],
        (symmetric,),
        agrees=(),
    )
    yield Row(
        "svd",
        "svd, left vectors",
        lambda tg, a: np.linalg.svd(a, full_matrices=False)[0],
        lambda torch, a: torch.linalg.svd(a, full_matrices=False)[0],
        (near_identity,),
        agrees=(),
    )
    yield Row("norm", "norm", _ours_linalg("norm"), _of("linalg.norm"), (ANYWHERE,))
    for name, parts in (("qr", 0), ("eig", 0)):
        yield Row(
            name,
            name,
            lambda tg, a, name=name, part=parts: np.abs(getattr(np.linalg, name)(a)[part]),
            lambda torch, a, name=name, part=parts: getattr(torch.linalg, name)(a)[part].abs(),
            (between(-2, 2, 256, 256),),
            agrees=(),
        )
    lengths = between(-2, 2, 20_000), between(-2, 2, 500)
    yield Row("convolve", "convolve", lambda tg, a, v: np.convolve(a, v), NONE, lengths)


def of_complex_numbers() -> Iterator[Row]:
    """Yield what is computed of complex numbers, with a real result."""
    turn = 0.6 + 0.8j
    for name in ("real", "imag", "angle"):
        yield Row(
            name,
            name,
            lambda tg, x, name=name: getattr(np, name)(x * turn),
            lambda torch, x, name=name: getattr(torch, name)(x * turn),
            (NONZERO,),
        )
    yield Row(
        "conj",
        "conj",
        lambda tg, x: (np.conj(x * turn) * turn).imag,
        lambda torch, x: (torch.conj(x * turn) * turn).imag,
        (ANYWHERE,),
    )
    yield Row(
        "from_parts",
        "sign of complex numbers",
        lambda tg, x: np.sign(x * turn).imag,
        lambda torch, x: torch.sgn(x * turn).imag,
        (NONZERO,),
    )
    for name in ("fft", "ifft", "rfft"):
        yield Row(
            name,
            name,
            lambda tg, x, name=name: getattr(np.fft, name)(x).real,
            lambda torch, x, name=name: getattr(torch.fft, name)(x).real,
            (ANYWHERE,),
        )
    yield Row("irfft", "irfft", lambda tg, x: np.fft.irfft(x), _of("fft.irfft"), (ANYWHERE,))


def _ours_linalg(name: str) -> Call:
    return lambda tg, *tensors: getattr(np.linalg, name)(*tensors)


def shapes() -> Iterator[Row]:
    yield Row(
        "transpose", "transpose", _of("transpose"), lambda torch, x: x.T, (ANYWHERE,), view=True
    )
    half = (SIDE * 2, SIDE // 2)
    yield Row(
        "reshape",
        "reshape",
        lambda tg, x: tg.reshape(x, half),
        lambda torch, x: torch.reshape(x, half),
        (ANYWHERE,),
        view=True,
    )
    yield Row(
        "broadcast_to",
        "broadcast_to",
        lambda tg, x: tg.broadcast_to(x, (SIDE, SIDE)),
        lambda torch, x: torch.broadcast_to(x, (SIDE, SIDE)),
        (between(-2, 2, SIDE, 1),),
        view=True,
    )
    yield Row(
        "concat",
        "concat",
        lambda tg, a, b: tg.concat([a, b]),
        lambda torch, a, b: torch.cat([a, b]),
        (between(-2, 2, SIDE // 2, SIDE), between(-2, 2, SIDE // 2, SIDE)),
    )


def indexing() -> Iterator[Row]:
    rows = below(SIDE, SIDE)
    yield Row("getitem", "getitem", _item, _item, (ANYWHERE,), view=True)
    yield Row(
        "index",
        "index, rows and columns",
        lambda tg, x, i, j: x[i, j],
        lambda torch, x, i, j: x[i, j],
        (ANYWHERE,),
        (below(SIDE, SIDE, 100), below(SIDE, SIDE, 100)),
    )
    yield Row(
        "gather",
        "gather, rows",
        lambda tg, x, i: tg.gather(x, i),
        lambda torch, x, i: torch.nn.functional.embedding(i, x),
        (ANYWHERE,),
        (rows,),
    )
    yield Row(
        "gather",
        "gather, columns",
        lambda tg, x, i: tg.gather(x, i, axis=1),
        lambda torch, x, i: torch.index_select(x, 1, i),
        (ANYWHERE,),
        (rows,),
    )
    yield Row(
        "tensor_slice",
        "tensor_slice",
        lambda tg, x: tg.tensor_slice(x, (100, 100), (500, 500)),
        lambda torch, x: x.narrow(0, 100, 500).narrow(1, 100, 500),
        (ANYWHERE,),
        view=True,
    )
    for axis in (0, 1):
        yield Row(
            "roll",
            f"roll, axis {axis}",
            lambda tg, x, axis=axis: tg.roll(x, 3, axis),
            lambda torch, x, axis=axis: torch.roll(x, 3, axis),
            (ANYWHERE,),
        )
    yield Row("scatter", "scatter", _ours_scatter, _their_scatter, (ANYWHERE,), (places,))


def _item(library: Any, x: Any) -> Any:
    return x[100:900:2, 100:]


def _ours_scatter(tg: Any, x: Any, at: Any) -> Any:
    from tapegraph.ops.index import scatter

    return scatter(x, at, (SIDE * SIDE,))


def _their_scatter(torch: Any, x: Any, at: Any) -> Any:
    empty = torch.zeros(SIDE * SIDE, dtype=x.dtype)
    return empty.scatter_add(0, at.reshape(-1), x.reshape(-1))


def layers() -> Iterator[Row]:
    rows, width = STACK[0] * STACK[1], STACK[2]
    images = between(-2, 2, 16, 16, 64, 64)
    yield Row(
        "layer_norm",
        "layer_norm",
        _of("layer_norm"),
        lambda torch, x, g, b: torch.nn.functional.layer_norm(x, x.shape[-1:], g, b),
        (between(-2, 2, *STACK), between(0.5, 2, width), between(-2, 2, width)),
    )
    yield Row(
        "conv2d",
        "conv2d, 3x3 of 16 channels",
        lambda tg, x, k: tg.conv2d(x, k, pad=1),
        lambda torch, x, k: torch.nn.functional.conv2d(x, k, padding=1),
        (images, between(-2, 2, 16, 16, 3, 3)),
    )
    for name in ("max_pool2d", "avg_pool2d"):
        yield Row(
            name,
            f"{name}, 2x2",
            lambda tg, x, name=name: getattr(tg, name)(x, 2),
            lambda torch, x, name=name: getattr(torch.nn.functional, name)(x, 2),
            (images,),
        )
    yield Row(
        "softmax_crossentropy",
        "softmax_crossentropy",
        _of("softmax_crossentropy"),
        _of("nn.functional.cross_entropy"),
        (between(-2, 2, rows, width),),
        (below(width, rows),),
    )
    yield Row(
        "mse_loss", "mse_loss", _of("mse_loss"), _of("nn.functional.mse_loss"), (ANYWHERE, ANYWHERE)
    )


def without_gradient() -> Iterator[Row]:
    def forward(
        op: str, ours: Call, theirs: Call | str, *inputs: Sample, view: bool = False
    ) -> Row:
        return Row(op, op, ours, theirs, inputs, gradient=False, view=view)

    for name, theirs in zip(COMPARED, THEIR_COMPARED, strict=True):
        yield forward(name, _numpys(name), _of(theirs), ANYWHERE, ANYWHERE)
    for name in LOGICAL:
        yield forward(name, _numpys(name), _of(name), ANYWHERE, ANYWHERE)
    for name in (*PREDICATES, "all", "any"):
        yield forward(name, _numpys(name), _of(name), ANYWHERE)
    for name in ("argmax", "argmin"):
        yield forward(
            name, lambda tg, x, name=name: getattr(np, name)(x, axis=1), _along(name, 1), ANYWHERE
        )
    yield forward(
        "argsort",
        lambda tg, x: np.argsort(x, axis=1, kind="stable"),
        lambda torch, x: torch.argsort(x, dim=1, stable=True),
        ANYWHERE,
    )
    yield forward(
        "round_to",
        lambda tg, x: x.astype("float16"),
        lambda torch, x: x.half().to(torch.float32),
        ANYWHERE,
    )
    yield forward("argpartition", lambda tg, x: np.argpartition(x, 10, axis=1), NONE, ANYWHERE)
    yield forward(
        "searchsorted",
        lambda tg, edges, x: np.searchsorted(edges, x),
        lambda torch, edges, x: torch.searchsorted(edges, x),
        lambda rng: np.sort(rng.uniform(-2, 2, SIDE)),
        ANYWHERE,
    )
    yield forward(
        "detach", lambda tg, x: x.detach(), lambda torch, x: x.detach(), ANYWHERE, view=True
    )
    yield forward("within", lambda tg, x: x, "the check of indices within a capture")


def _numpys(name: str) -> Call:
    return lambda tg, *tensors: getattr(np, name)(*tensors)


FAMILIES = (
    elementwise,
    special,
    reductions,
    products,
    decompositions,
    of_complex_numbers,
    shapes,
    indexing,
    layers,
    without_gradient,
)
ROWS: tuple[Row, ...] = tuple(row for family in FAMILIES for row in family())
