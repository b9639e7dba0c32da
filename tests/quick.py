"""Which rows of a table the quick suite tries, and how those of one operation are one test."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

import tapegraph as tg
from tests.cases import Case, ComplexCase

Named = TypeVar("Named", Case, ComplexCase)
_Parameters = type(pytest.param())


def a_few_each(cases: Iterable[Named], few: int = 1, most: int | None = None) -> list[Named]:
    """Return the first few cases of each function, which the first word of a label names.

    ``most`` is how many of one operation, where what is tested hangs on little else.
    """
    seen: Counter[object] = Counter()
    found = []
    for case in cases:
        key = (case.op, case.label.partition("-")[0])
        seen[key] += 1
        if seen[key] <= few and (most is None or seen[case.op] < most):
            seen[case.op] += 1
            found.append(case)
    return found


def each_operation(cases: Iterable[Named], every: int = 1) -> Any:
    """Make a test one item for each operation of the cases, or one in so many: argument ``op``."""
    return pytest.mark.parametrize("op", thinned(dict.fromkeys(case.op for case in cases), every))


def check_each(op: str, cases: Iterable[Named], check: Callable[[Named], object]) -> None:
    """Check the cases of an operation, each on an empty tape; name all that fail."""
    check_all([case for case in cases if case.op == op], check)


def check_all(cases: Iterable[Named], check: Callable[[Named], object]) -> None:
    """Check cases, each on an empty tape; name all that fail."""
    failures: dict[str, Exception] = {}
    for case in cases:
        tg.tape_reset()
        try:
            check(case)
        except Exception as error:
            failures[case.id] = error
    if failures:
        told = "\n".join(f"{name}: {error}" for name, error in failures.items())
        raise AssertionError(told) from next(iter(failures.values()))


def check_product(check: Callable[..., object], *choices: Iterable[Any]) -> None:
    """Check every combination, each on an empty tape; name all that fail."""
    failures: dict[str, Exception] = {}
    for chosen in itertools.product(*choices):
        tg.tape_reset()
        try:
            check(*chosen)
        except Exception as error:
            failures[", ".join(map(str, chosen))] = error
    if failures:
        told = "\n".join(f"{name}: {error}" for name, error in failures.items())
        raise AssertionError(told) from next(iter(failures.values()))


def in_one(names: Any, values: Iterable[Any], ids: object = None) -> Any:
    """Like ``pytest.mark.parametrize``, but one test, which tries all and names those that fail."""
    of = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    rows = []
    for value in values:
        if isinstance(value, _Parameters):
            assert not value.marks, "what is marked is a test of its own"
            rows.append(value.values)
        else:
            rows.append(tuple(value) if len(of) > 1 else (value,))

    def decorate(test: Callable[..., object]) -> Callable[..., None]:
        @functools.wraps(test)
        def tries_all(**others: Any) -> None:
            check_product(lambda row: test(**dict(zip(of, row, strict=True)), **others), rows)

        signature = inspect.signature(test)
        kept = [p for p in signature.parameters.values() if p.name not in of]
        tries_all.__signature__ = signature.replace(parameters=kept)  # as pytest reads it
        return tries_all

    return decorate


def thinned(values: Iterable[Any], every: int) -> list[Any]:
    """Return values as parameters, all but one in so many for ``--thorough`` alone."""
    return [
        pytest.param(value, marks=[pytest.mark.thorough] if i % every else [])
        for i, value in enumerate(values)
    ]
