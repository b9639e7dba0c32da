"""Cases of ``tapegraph/ops/creation.py``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.ops import creation
from tapegraph.testing.cases.case import Case, anywhere, exactly


def cases() -> Iterator[Case]:
    """Yield the family's cases."""
    for label, lengths in (("0d", ()), ("3d", (2, 1, 3)), ("empty", (0, 3))):
        x = (anywhere(*lengths),)
        yield Case("astype", f"copy-{label}", creation.copy, x, reference=np.copy)
        yield Case("astype", f"astype-{label}", _there_and_back, x, reference=np.copy)
        for name in ("zeros_like", "ones_like"):
            yield Case(
                "add",
                f"{name}-{label}",
                lambda x, name=name: x + getattr(creation, name)(x),
                x,
                reference=lambda x, name=name: x + getattr(np, name)(x),
            )
        yield Case(
            "mul",
            f"full_like-{label}",
            lambda fill, x: creation.full_like(x, fill),
            (anywhere(),),
            (np.zeros(lengths),),
            reference=lambda fill, x: np.full_like(x, fill),
        )
        for decimals in (0, 1):
            yield Case(
                "round",
                f"round-{label}-{decimals}",
                partial(creation.round, decimals=decimals),
                x,
                reference=partial(np.round, decimals=decimals),
            )
    yield Case(
        "add",
        "real-imag",
        lambda x: creation.real(x) + creation.imag(x),
        (anywhere(2),),
        reference=np.copy,
    )
    yield Case(
        "round",
        "round-halves",
        creation.round,
        (exactly([-1.5, -0.5, 0.5, 1.5, 2.5]),),
        reference=np.round,
        expected=([0.0] * 5,),
    )
    yield Case(
        "round",
        "round-tens",
        partial(creation.round, decimals=-1),
        (exactly([14.0, 15.0, 25.0, -126.0]),),
        reference=partial(np.round, decimals=-1),
        expected=([0.0] * 4,),
    )


def _there_and_back(x: Any) -> Any:
    return creation.astype(creation.astype(x, np.float64), x.dtype)
