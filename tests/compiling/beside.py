"""A step run eagerly, and the same step compiled: whatever it leaves and returns must be equal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tapegraph as tg

TOLERANCE = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-4}


def engine_of(step: Any) -> str:
    """Return the engine that runs a compiled step, ``""`` before it has a program."""
    found = re.search(r"ran in (native|tensorflow)", step.explain())
    return found[1] if found else ""


def taken(value: Any) -> Any:
    """Copy what a step returned, or what it works on, as plain arrays in the same structures."""
    if isinstance(value, tg.Optimizer):
        return value.state_dict()
    if isinstance(value, tg.Tensor):
        return value.detach().numpy()
    if isinstance(value, tg.Value):
        return value.data
    if isinstance(value, dict):
        return type(value)((key, taken(part)) for key, part in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(taken, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(taken, value))
    if isinstance(value, (np.ndarray, np.generic)):
        return np.array(value)
    return value


def standing(state: Sequence[Any]) -> list[Any]:
    """Copy the parameters, with their gradients, and the optimizers of a step."""
    leaves = (tg.Tensor, tg.Value)
    return [(taken(x), taken(x.grad)) if isinstance(x, leaves) else taken(x) for x in state]


def agree(got: Any, want: Any, engine: str, where: str = "") -> None:
    """Compare two structures of arrays: natively bit for bit, and else within a tolerance."""
    if isinstance(want, np.ndarray):
        assert isinstance(got, np.ndarray), where
        assert (got.shape, got.dtype) == (want.shape, want.dtype), where
        if want.dtype.kind != "f" or engine == "native":
            np.testing.assert_array_equal(got, want, err_msg=where)
            assert np.array_equal(np.signbit(got), np.signbit(want)) if got.dtype.kind == "f" else 1
        else:
            rtol = TOLERANCE[want.dtype]
            np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol, err_msg=where)
        return
    if isinstance(want, float) and isinstance(got, np.ndarray):
        got = got.item()  # a number that depends on an argument comes back as a tensor
    if isinstance(want, dict):
        assert type(got) is type(want) and list(got) == list(want), where
        for key in want:
            agree(got[key], want[key], engine, f"{where}[{key!r}]")
    elif isinstance(want, (list, tuple)):
        assert type(got) is type(want) and len(got) == len(want), where
        for i, (one, two) in enumerate(zip(got, want, strict=True)):
            agree(one, two, engine, f"{where}[{i}]")
    elif isinstance(want, float):
        assert type(got) is float, where
        if want == want or got == got:  # a NaN of Python's has no sign that counts
            agree(np.array(got), np.array(want), engine, where)
    else:
        assert type(got) is type(want) and got == want, where


Make = Callable[[], "tuple[Callable[..., Any], Sequence[Any]]"]


def run(step: Callable[..., Any], state: Sequence[Any], calls: Sequence[Any]) -> list[Any]:
    """Call a step on each tuple of arguments; return what it returned and left after each."""
    tg.random.seed(0)
    rows = []
    with np.errstate(all="ignore"):
        for args in calls:
            out = step(*args() if callable(args) else args)
            rows.append((taken(out), standing(state)))
    return rows


def beside(
    make: Make,
    calls: Sequence[Any],
    engine: str,
    around: Callable[..., Any] = lambda step, state: step,
    **options: Any,
) -> Any:
    """Run a step eagerly and compiled, and hold them equal after each call; return the latter.

    ``around`` makes of a step, compiled or not, and its state what is called.
    """
    saved = tg.random.get_state()
    try:
        with tg.use_backend("native"):
            step, state = make()
            want = run(around(step, state), state, calls)
        with tg.use_backend(engine):
            step, state = make()
            compiled = tg.compile(step, **options)
            got = run(around(compiled, state), state, calls)
    finally:
        tg.random.set_state(saved)
    for i, (one, two) in enumerate(zip(got, want, strict=True), 1):
        agree(one, two, engine, f"call {i}: ")
    return compiled
