"""Cases: Sums, extremes, statistics and softmax."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.ops import reduce
from tapegraph.typed import Array
from tests.cases.case import (
    Case,
    Input,
    Shape,
    anywhere,
    distinct,
    exactly,
    operation,
)

# Reductions

REDUCED: tuple[tuple[str, Shape, dict[str, Any]], ...] = (
    ("all", (2, 3), {}),
    ("all-kept", (2, 3), {"keepdims": True}),
    ("first", (2, 3), {"axis": 0}),
    ("last", (2, 3), {"axis": -1}),
    ("last-kept", (2, 3), {"axis": -1, "keepdims": True}),
    ("middle", (2, 3, 2), {"axis": 1}),
    ("outer-two", (2, 3, 2), {"axis": (0, 2)}),
    ("outer-two-kept", (2, 3, 2), {"axis": (-1, 0), "keepdims": True}),
    ("all-named", (2, 3), {"axis": (0, 1)}),
    ("no-axis", (2, 3), {"axis": ()}),
    ("0d", (), {}),
    ("0d-kept", (), {"keepdims": True}),
    ("empty", (2, 0), {"axis": 0}),
)


def _sums() -> Iterator[Case]:
    for function, reference in ((reduce.sum, np.sum), (reduce.mean, _mean)):
        for label, lengths, options in REDUCED:
            yield Case(
                function.__name__,
                label,
                partial(function, **options),
                (anywhere(*lengths),),
                reference=partial(reference, **options),
            )
    yield Case("sum", "nothing", reduce.sum, (anywhere(0, 3),), reference=lambda x: np.zeros(()))
    for label, lengths, axis in (
        ("vector", (4,), 0),
        ("matrix", (2, 3), -1),
        ("first", (2, 3, 2), 0),
        ("middle", (2, 3, 2), 1),
        ("middle-negative", (2, 3, 2), -2),
        ("last", (2, 3, 2), 2),
        ("one-class", (3, 1), -1),
        ("no-rows", (0, 3), -1),
        ("no-classes", (2, 0), -1),
    ):
        yield Case(
            "softmax",
            label,
            partial(reduce.softmax, axis=axis),
            (anywhere(*lengths),),
            reference=partial(softmax_of, axis=axis),
        )
    # Weighted, since the sum of a softmax is constant.
    for label, point in (("far-apart", [1000.0, 0.0, -1000.0]), ("masked", [0.0, -1e9, -1e9])):
        yield Case(
            "softmax",
            label,
            lambda x, weights: reduce.softmax(x) * weights,
            (exactly(point),),
            (np.array([1.0, 2.0, 3.0]),),
            expected=([0.0, 0.0, 0.0],),
        )


def _mean(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
    total = np.sum(x, axis=axis, keepdims=keepdims)
    return total * total.size / x.size if x.size else total


def softmax_of(x: Array, axis: int = -1) -> Any:
    """Return NumPy's softmax of modest numbers."""
    return np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)


nan = float("nan")

STATISTICS: tuple[tuple[str, Shape, dict[str, Any]], ...] = (
    ("all", (2, 3), {}),
    ("all-kept", (2, 3), {"keepdims": True}),
    ("first", (2, 3), {"axis": 0}),
    ("last-kept", (2, 3), {"axis": -1, "keepdims": True}),
    ("middle", (2, 3, 2), {"axis": 1}),
    ("outer-two", (2, 3, 2), {"axis": (-1, 0)}),
    ("outer-two-kept", (2, 3, 2), {"axis": (0, 2), "keepdims": True}),
    ("no-results", (3, 0), {"axis": 0}),
)

# The function, the operation that it records, NumPy's function, and where to sample.
REDUCTIONS: tuple[tuple[Any, str, Callable[..., Any], Callable[..., Input]], ...] = (
    (reduce.max, "max", np.max, distinct),
    (reduce.min, "min", np.min, distinct),
    (reduce.ptp, "max", np.ptp, distinct),
    (reduce.prod, "prod", np.prod, anywhere),
    (reduce.var, "mul", np.var, anywhere),
    (reduce.std, "sqrt", np.std, anywhere),
    (reduce.nansum, "sum", np.nansum, anywhere),
    (reduce.nanmean, "div", np.nanmean, anywhere),
    (reduce.nanmax, "max", np.nanmax, distinct),
    (reduce.nanmin, "min", np.nanmin, distinct),
    (reduce.nanvar, "mul", np.nanvar, anywhere),
    (reduce.nanstd, "sqrt", np.nanstd, anywhere),
    (reduce.average, "mean", np.mean, anywhere),
    (reduce.median, "index", np.median, distinct),
)


def _of_statistics() -> Iterator[Case]:
    """Yield the family's cases."""
    yield from _reductions()
    yield from _unbiased()
    yield from _missing()
    yield from _averages()
    yield from _logsumexps()
    yield from _quantiles()
    yield from _running()
    yield from _neighbours()
    yield from _kinks()


def _reductions() -> Iterator[Case]:
    for function, op, reference, domain in REDUCTIONS:
        for label, lengths, options in STATISTICS:
            yield Case(
                op,
                f"{function.__name__}-{label}",
                partial(function, **options),
                (domain(*lengths),),
                reference=partial(reference, **options),
            )
    for function, reference in (
        (reduce.max, np.max),
        (reduce.min, np.min),
        (reduce.prod, np.prod),
    ):
        for label, lengths, options in (
            ("0d", (), {}),
            ("0d-kept", (), {"keepdims": True}),
            ("no-axis", (2, 3), {"axis": ()}),
        ):
            yield Case(
                function.__name__,
                f"{function.__name__}-{label}",
                partial(function, **options),
                (anywhere(*lengths),),
                reference=partial(reference, **options),
            )
    for lengths in ((0,), (0, 2)):
        run, reference = partial(reduce.prod, axis=0), partial(np.prod, axis=0)
        label = f"prod-of-nothing-{len(lengths)}d"
        yield Case("prod", label, run, (anywhere(*lengths),), reference=reference)


def _unbiased() -> Iterator[Case]:
    for function, op, reference in (
        (reduce.var, "mul", np.var),
        (reduce.std, "sqrt", np.std),
        (reduce.nanvar, "mul", np.nanvar),
        (reduce.nanstd, "sqrt", np.nanstd),
    ):
        for ddof in (1, 0.5):
            yield Case(
                op,
                f"{function.__name__}-ddof-{ddof}",
                partial(function, axis=0, ddof=ddof),
                (anywhere(4, 2),),
                reference=partial(reference, axis=0, ddof=ddof),
            )


def _missing() -> Iterator[Case]:
    """Yield inputs with NaN, whose gradients are those of the same numbers without it."""
    x = exactly([[1.0, nan, 4.0], [nan, nan, 2.0], [3.0, nan, nan]])
    third = 1.0 / 3.0
    for name, op, options, gradient in (
        ("nansum", "sum", {}, [[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
        ("nanmean", "div", {"axis": 1}, [[0.5, 0.0, 0.5], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
        ("nanmax", "max", {"axis": 1}, [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
        ("nanmin", "min", {"axis": 1}, [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
        # Of 1, 4, 2 and 3, about 2.5, over 3.
        ("nanvar", "mul", {"ddof": 1}, [[-1.0, 0.0, 1.0], [0.0, 0.0, -third], [third, 0.0, 0.0]]),
        ("nanstd", "sqrt", {"axis": 1}, [[-0.5, 0.0, 0.5], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
    ):
        run = partial(operation(name), **options)
        yield Case(
            op,
            f"{name}-missing",
            run,
            (x,),
            reference=partial(getattr(np, name), **options),
            expected=(gradient,),
        )


def _averages() -> Iterator[Case]:
    for label, lengths, weights, options in (
        ("weighted", (2, 3), (2, 3), {}),
        ("along", (2, 3), (3,), {"axis": 1}),
        ("along-first-kept", (2, 3), (2,), {"axis": 0, "keepdims": True}),
        ("weighted-axis", (2, 3), (2, 3), {"axis": -1}),
        ("along-two-turned", (2, 3, 4), (4, 2), {"axis": (2, 0)}),
    ):
        yield Case(
            "div",
            f"average-{label}",
            lambda x, w, options=options: reduce.average(x, weights=w * w + 1.0, **options),
            (anywhere(*lengths), anywhere(*weights)),
            reference=lambda x, w, options=options: np.average(x, weights=w * w + 1.0, **options),
        )


def _logsumexps() -> Iterator[Case]:
    for label, lengths, options in STATISTICS:
        yield Case(
            "log" if lengths != (3, 0) else "exp",
            f"logsumexp-{label}",
            partial(reduce.logsumexp, **options),
            (anywhere(*lengths),),
            reference=lambda x, options=options: np.log(np.sum(np.exp(x), **options)),
        )
    yield Case(
        "log",
        "logsumexp-factors",
        lambda x, b: reduce.logsumexp(x, axis=1, b=b * b + 1.0),
        (anywhere(2, 3), anywhere(3)),
        reference=lambda x, b: np.log(np.sum((b * b + 1.0) * np.exp(x), axis=1)),
    )
    for label, point, gradient in (
        ("large", [1000.0, 1000.0], [0.5, 0.5]),
        ("far-apart", [-1000.0, 1000.0], [0.0, 1.0]),
        ("masked", [-np.inf, 1.0, 1.0], [0.0, 0.5, 0.5]),
    ):
        yield Case(
            "log",
            f"logsumexp-{label}",
            reduce.logsumexp,
            (exactly(point),),
            expected=(gradient,),
        )


def _quantiles() -> Iterator[Case]:
    for label, lengths, q, options in (
        ("scalar", (5,), 0.3, {}),
        ("exact", (5,), 0.5, {}),
        ("ends", (4,), np.array([0.0, 1.0]), {}),
        ("several", (3, 4), np.array([0.1, 0.5, 0.9]), {"axis": 0}),
        ("several-kept", (3, 2, 2), np.array([0.2, 0.7]), {"axis": (0, 2), "keepdims": True}),
        ("table", (3, 4), np.array([[0.25, 0.5], [0.6, 1.0]]), {"axis": -1}),
    ):
        for name, whole in (("quantile", 1.0), ("percentile", 100.0)):
            yield Case(
                "index",
                f"{name}-{label}",
                partial(_at, operation(name), q * whole, options),
                (distinct(*lengths),),
                reference=partial(_at, getattr(np, name), q * whole, options),
            )


def _at(function: Callable[..., Any], q: Any, options: dict[str, Any], x: Any) -> Any:
    # In the inputs' dtype, as an array of float64 would make the result.
    return function(x, q.astype(x.dtype) if isinstance(q, np.ndarray) else q, **options)


def _running() -> Iterator[Case]:
    for function, reference in ((reduce.cumsum, np.cumsum), (reduce.cumprod, np.cumprod)):
        for label, lengths, axis in (
            ("vector", (5,), None),
            ("flat", (2, 3), None),
            ("first", (4, 2), 0),
            ("last", (2, 5), -1),
            ("middle", (2, 3, 2), 1),
            ("one", (1, 2), 0),
            ("0d", (), None),
            ("empty", (0, 3), 0),
            ("no-columns", (3, 0), 0),
        ):
            yield Case(
                function.__name__,
                f"{function.__name__}-{label}",
                partial(function, axis=axis),
                (anywhere(*lengths),),
                reference=partial(reference, axis=axis),
            )


def _neighbours() -> Iterator[Case]:
    options: dict[str, Any]
    for label, lengths, options in (
        ("vector", (4,), {}),
        ("second", (2, 5), {"n": 2}),
        ("first-axis", (3, 2), {"axis": 0}),
        ("middle", (2, 3, 2), {"axis": -2}),
        ("numbers-around", (2, 3), {"prepend": np.float64(1.5), "append": np.float64(-2.0)}),
        ("nothing-left", (2, 2), {"n": 3}),
    ):
        yield Case(
            "sub",
            f"diff-{label}",
            partial(_diff, reduce.diff, options),
            (anywhere(*lengths),),
            reference=partial(_diff, np.diff, options),
        )
    yield Case(
        "sub",
        "diff-arrays-around",
        lambda x, before, after: reduce.diff(x, prepend=before, append=after),
        (anywhere(2, 3), anywhere(), anywhere(2, 2)),
        reference=lambda x, before, after: np.diff(x, prepend=before, append=after),
    )
    for label, lengths, options in (
        ("unit", (4,), {}),
        ("step", (2, 3), {"dx": 0.5}),
        ("first-axis", (3, 2), {"axis": 0}),
        ("one-point", (1, 2), {"axis": 0}),
    ):
        yield Case(
            "sum",
            f"trapezoid-{label}",
            partial(reduce.trapezoid, **options),
            (anywhere(*lengths),),
            reference=partial(_trapezoid, **options),
        )
    for label, lengths, places, options in (
        ("places", (4,), (4,), {}),
        ("places-first-axis", (3, 2), (3,), {"axis": 0}),
        ("places-each", (2, 3), (2, 3), {}),
    ):
        yield Case(
            "sum",
            f"trapezoid-{label}",
            partial(reduce.trapezoid, **options),
            (anywhere(*lengths), anywhere(*places)),
            reference=partial(_trapezoid, **options),
        )


def _diff(function: Callable[..., Any], options: dict[str, Any], x: Any) -> Any:
    """Call with edges of the inputs' dtype."""
    edges = {k: v.astype(x.dtype) for k, v in options.items() if isinstance(v, np.float64)}
    return function(x, **{**options, **edges})


def _trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    columns = np.moveaxis(y, axis, -1)
    if x is None:
        x = dx * np.arange(columns.shape[-1])
    elif x.ndim > 1:
        x = np.moveaxis(x, axis, -1)
    return np.sum((x[..., 1:] - x[..., :-1]) * (columns[..., 1:] + columns[..., :-1]), -1) / 2


def _kinks() -> Iterator[Case]:
    tied = exactly([[1.0, 1.0, 0.0], [2.0, 0.0, 0.0]])
    missing = exactly([[1.0, nan, 0.0], [2.0, 5.0, 0.0]])
    for name, op, point, gradient in (
        ("max", "max", tied, [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]),
        ("min", "min", tied, [[0.0, 0.0, 1.0], [0.0, 0.5, 0.5]]),
        ("ptp", "max", tied, [[0.5, 0.5, -1.0], [1.0, -0.5, -0.5]]),
        ("nanmax", "max", tied, [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]),
        ("median", "index", tied, [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
    ):
        yield Case(
            op,
            f"{name}-ties",
            partial(operation(name), axis=1),
            (point,),
            reference=partial(getattr(np, name), axis=1),
            expected=(gradient,),
        )
    for name, op, gradient in (
        ("max", "max", [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]),
        ("min", "min", [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        ("median", "index", [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]),
    ):
        yield Case(
            op,
            f"{name}-nan",
            partial(operation(name), axis=1),
            (missing,),
            reference=partial(getattr(np, name), axis=1),
            expected=(gradient,),
        )
    for name, op in (("std", "sqrt"), ("nanstd", "sqrt")):
        yield Case(
            op,
            f"{name}-constant",
            partial(operation(name), axis=1),
            (exactly([[2.0, 2.0], [1.0, 3.0]]),),
            reference=partial(np.std, axis=1),
            expected=([[0.0, 0.0], [-0.5, 0.5]],),
        )
    yield from _zeros()


# The function, what is special, the point, and the gradient of the sum of the result.
ZEROS: tuple[tuple[str, str, list[float], list[float]], ...] = (
    ("prod", "one-zero", [2.0, 0.0, 3.0], [0.0, 6.0, 0.0]),
    ("prod", "two-zeros", [2.0, 0.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0]),
    ("cumprod", "one-zero", [2.0, 0.0, 3.0], [1.0, 8.0, 0.0]),
    ("cumprod", "zeros", [1.0, 2.0, 0.0, 3.0, 0.0, 5.0], [3.0, 1.0, 8.0, 0.0, 0.0, 0.0]),
    ("cumprod", "leading-zero", [0.0, 4.0], [5.0, 0.0]),
)


def _zeros() -> Iterator[Case]:
    for name, label, point, gradient in ZEROS:
        yield Case(
            name,
            f"{name}-{label}",
            operation(name),
            (exactly(point),),
            reference=getattr(np, name),
            expected=(gradient,),
        )


def cases() -> Iterator[Case]:
    """Yield the family's cases."""
    yield from _sums()
    yield from _of_statistics()
