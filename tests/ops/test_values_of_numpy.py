"""Every function that differentiates gives NumPy's bits, dtypes, shapes and refusals.

It is called with NaN, infinities, huge and subnormal numbers, ties and zeros of both signs, through
NumPy's own name and through the drop-in. Where we differ on purpose a row of `DIFFERENT` says why,
and a row that no longer differs fails.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tapegraph as tg
import tapegraph.autograd.numpy as drop_in
from tapegraph.__main__ import names_of_functions
from tapegraph.typed import Array
from tests.ops.numpy_calls import CALLS, FILLINGS, Call, drawn, exists
from tests.same_bits import differs

# On these numbers what is computed in another order still agrees but for rounding.
TAME = ("ordinary", "ties")


@dataclass(frozen=True)
class Different:
    """Calls that differ from NumPy's on purpose.

    :ivar how: "refused", where NumPy computes; "given", where it raises; "zeros", in the sign of a
        zero; "rounding", in the last digits; "dtype", and rounding with it; "number", where NumPy
        gives NaN.
    :ivar dtypes: The dtypes' characters for which they differ.
    :ivar calls: Names, or names and labels, ``np.sum`` or ``np.sum:of-all``.
    :ivar reason: Why.
    :ivar before: The version of NumPy since which they are alike, where there is one.
    """

    how: str
    dtypes: str
    calls: str
    reason: str
    before: str = ""


DIFFERENT = (
    Different(
        "refused",
        "FD",
        "np.fmax np.fmin np.maximum np.minimum np.amax np.amin np.max np.min np.nanmax np.nanmin "
        "np.ptp np.clip np.histogram",
        "complex numbers have no order, by which a derivative could be chosen",
    ),
    Different(
        "refused",
        "FD",
        "np.astype:single",
        "the imaginary part would be dropped: write x.real",
    ),
    Different(
        "given",
        "fdFD",
        "np.fft.fftshift:number np.fft.ifftshift:number",
        "a single number has nothing to shift, and NumPy's error is an accident of unpacking",
    ),
    Different(
        "dtype",
        "f",
        "np.cov np.corrcoef np.float_power np.interp:three",
        "float32 stays float32, and a gradient with it",
    ),
    Different("dtype", "F", "np.cov np.corrcoef np.float_power", "complex64 stays complex64"),
    Different(
        "dtype",
        "fd",
        "np.linalg.eig np.linalg.eigvals",
        "the results' dtype does not hang on the numbers: they are always complex",
        before="2.5.0",
    ),
    Different(
        "dtype",
        "fdFD",
        "np.linalg.lstsq",
        "the rank is an int; residuals are those of the solution, not of LAPACK's rotation",
    ),
    Different(
        "rounding",
        "fdFD",
        "np.linalg.svdvals np.linalg.svd:values",
        "they come with the vectors that their gradient needs, by another way through LAPACK",
    ),
    Different("rounding", "fdFD", "np.linalg.eigvalsh", "as the singular values"),
    Different("given", "fdFD", "np.linalg.eigvalsh", "of infinities they are NaN, as in eigh"),
    Different("rounding", "fdFD", "np.linalg.qr:wide", "columns beyond Q's are Q.H @ a"),
    Different("rounding", "fdFD", "np.einsum", "by matrix products and sums, in pairs"),
    Different("rounding", "fd", "np.logaddexp2", "it is logaddexp in other units"),
    Different(
        "rounding",
        "FD",
        "np.power:half np.power:square np.power:reciprocal",
        "computed as x ** 0.5, x ** 2 and x ** -1 are, by np.sqrt, np.square and np.reciprocal",
    ),
    Different("rounding", "FD", "np.reciprocal", "it is the quotient 1 / x"),
    Different(
        "rounding", "fdFD", "np.vecdot np.linalg.vecdot np.vecmat", "products, then their sum"
    ),
    Different(
        "rounding",
        "fdFD",
        "np.linalg.norm np.linalg.vector_norm np.linalg.matrix_norm",
        "as the singular values, or of the numbers' sizes: infinite where one part of two is",
    ),
    Different(
        "rounding",
        "F",
        "np.mean np.average np.nanmean np.var np.nanvar np.std np.nanstd",
        "complex64 is divided in complex64, which NumPy divides by an int64 in complex128",
    ),
    Different("zeros", "fdFD", "np.dot:number", "a product; BLAS adds it to a zero"),
    Different(
        "zeros", "fd", "np.nanmin np.nanmax", "which of equal zeros is the least, or the largest"
    ),
    Different("zeros", "fdFD", "np.sort np.partition", "equal zeros stay in their order"),
    Different(
        "dtype",
        "f",
        "np.quantile np.percentile",
        "NumPy took q in the array's precision, and np.float64 for a number of Python's",
        before="2.4.0",
    ),
    Different(
        "rounding",
        "fd",
        "np.power:half",
        "computed as x ** 0.5, for which NumPy took np.sqrt in the operator alone",
        before="2.3.0",
    ),
    Different(
        "number",
        "fd",
        "np.quantile np.percentile",
        "an infinite neighbour that has no share in the result, or is equal, does not make it NaN",
    ),
)
# Beside infinities LAPACK may look for singular values for ever, and beside numbers whose squares
# are infinite it gives what hangs on its version.
DECOMPOSED = "svd pinv svdvals matrix_norm lstsq"
FINITE = tuple(f"np.linalg.{name}" for name in DECOMPOSED.split())


def rows_of(call: Call, dtype: str) -> Iterator[tuple[Different, str]]:
    """Yield the rows that are about a call, and the name in each that is."""
    for row in DIFFERENT:
        if row.before and np.lib.NumpyVersion(np.__version__) >= row.before:
            continue
        for name in row.calls.split() if dtype in row.dtypes else ():
            if name in (call.name, f"{call.name}:{call.label}"):
                yield row, name


def parts(result: Any) -> list[Any]:
    """Return a result, or all of several, as arrays."""
    if isinstance(result, (tuple, list)):
        return [part for each in result for part in parts(each)]
    return [np.asarray(result.data if isinstance(result, tg.Tensor) else result)]


def outcome(run: Any, *arguments: Any) -> Any:
    """Return what a call gives, or the error that it raises."""
    try:
        return parts(run(*arguments))
    except Exception as error:
        return error


def difference(got: Any, want: Any) -> str:
    """Return in words how two outcomes differ, or nothing."""
    if isinstance(got, Exception) or isinstance(want, Exception):
        alike = isinstance(got, Exception) and isinstance(want, Exception)
        return "" if alike else f"{got!r}, and {want!r} wanted"
    if len(got) != len(want):
        return f"{len(got)} results, and {len(want)} wanted"
    return next(filter(None, map(differs, got, want)), "")


def is_meant(how: str, got: Any, want: Any, filling: str) -> bool:
    """Return whether outcomes differ as a row says that they do."""
    if how in ("refused", "given"):
        refused, given = (got, want) if how == "refused" else (want, got)
        ours = how == "given" or isinstance(refused, TypeError)
        return isinstance(refused, Exception) and isinstance(given, list) and ours
    if isinstance(got, Exception) or isinstance(want, Exception):
        return False
    if how == "zeros":
        return not difference([x + 0.0 for x in got], [x + 0.0 for x in want])
    if how == "number":
        return all(np.all((a == b) | np.isnan(b)) for a, b in zip(got, want, strict=True))
    for ours, theirs in zip(got, want, strict=True):
        if ours.shape != theirs.shape or (how == "rounding" and ours.dtype != theirs.dtype):
            return False
        if filling in TAME and ours.dtype.kind in "fc":
            digits = max(np.finfo(x.dtype).eps for x in (ours, theirs) if x.dtype.kind in "fc")
            size = np.abs(theirs[np.isfinite(theirs)]).max(initial=1.0)
            close = 200 * digits
            if not np.allclose(ours, theirs, close, close * size, equal_nan=True):
                return False
    return True


def is_modest(array: Array) -> bool:
    sizes = np.abs(array[array != 0])
    limits = np.finfo(array.dtype)
    return not ((sizes > limits.max**0.25) | (sizes < limits.tiny**0.25)).any()


def check(dtype: str, draws: int) -> None:
    """Compare all calls, each with every filling; name all that differ, and rows that do not."""
    wrong: list[str] = []
    seen: set[tuple[Different, str]] = set()
    known = {(row, name) for call in CALLS for row, name in rows_of(call, dtype)}
    for i, call in enumerate(CALLS):
        rows = list(rows_of(call, dtype))
        theirs = call.of(np)
        for j, filling in enumerate(FILLINGS):
            for draw in range(draws):
                rng = np.random.default_rng([i, j, draw])
                arrays = [drawn(rng, shape, filling, dtype) for shape in call.shapes]
                if call.name in FINITE and not all(map(is_modest, arrays)):
                    continue
                tg.tape_reset()
                tensors = [tg.param(a) for a in arrays]
                want = outcome(theirs, *arrays)
                modules = (np, drop_in) if draw or filling == "mixed" else (np,)
                for module in modules:
                    got = outcome(call.of(module), *tensors)
                    told = difference(got, want)
                    meant = [
                        row for row in rows if told and is_meant(row[0].how, got, want, filling)
                    ]
                    seen.update(meant)
                    if told and not meant:
                        given = ", ".join(repr(a.tolist()) for a in arrays)
                        wrong.append(
                            f"{module.__name__}: {call.name}:{call.label} of {given}: {told}"
                        )
    # Whether digits and zeros differ hangs on the processor too.
    idle = {(row, name) for row, name in known - seen if row.how not in ("rounding", "zeros")}
    wrong += [f"{name} no longer differs: {row.reason}" for row, name in sorted(idle, key=str)]
    assert not wrong, "\n".join(wrong)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", [pytest.param("f", marks=pytest.mark.thorough), *"dD"])
def test_values_are_numpys(dtype):
    check(dtype, 1)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", "fdFD")
def test_values_are_numpys_in_many_draws(dtype):
    check(dtype, 40)


def test_every_function_that_differentiates_is_called():
    every = {names[0] for names in names_of_functions().values()}
    # What an empty array holds is nobody's to say.
    assert every - {call.name for call in CALLS} == {"np.empty_like"}


def test_rows_are_about_calls():
    known = {c.name for c in CALLS} | {f"{c.name}:{c.label}" for c in CALLS}
    rows = [name for row in DIFFERENT for name in row.calls.split() if exists(name.split(":")[0])]
    assert [name for name in rows if name not in known] == []


@pytest.mark.parametrize("name", ["svd", "pinv"])
def test_infinities_are_refused_where_lapack_looks_for_ever(name):
    x = [[-np.inf, 1.0, -1.25], [3.0, 0.5, -0.1], [np.inf, -np.inf, 0.5]]
    with pytest.raises(np.linalg.LinAlgError, match=f"^{name}: .*did not converge.*finite"):
        getattr(np.linalg, name)(tg.param(x))


def test_singular_values_beside_infinities_are_numpys():
    x = np.array([[-np.inf, 1.0, -1.25], [3.0, 0.5, -0.1], [np.inf, -np.inf, 0.5]])
    try:
        wanted = np.linalg.svdvals(x)
    except np.linalg.LinAlgError:  # as with some builds of LAPACK
        with pytest.raises(np.linalg.LinAlgError):
            tg.svdvals(tg.param(x))
        return
    np.testing.assert_array_equal(tg.svdvals(tg.param(x)).data, wanted)
    assert np.isnan(tg.norm(tg.param(x), "nuc").item())
