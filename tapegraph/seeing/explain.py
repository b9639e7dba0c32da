"""`explain`: which engine would compute a derivative, why, and what to change."""

from __future__ import annotations

from typing import Any

from tapegraph.compiling.compiled import Compiled
from tapegraph.engines import auto, registry
from tapegraph.engines.auto import COMPILED, advice, backend_in_force, capital, costs
from tapegraph.engines.backend import get_backend
from tapegraph.engines.choice import Choice
from tapegraph.errors import escaped, kind_of, message
from tapegraph.interrupts import raise_interrupt
from tapegraph.recording.linearize import History, entry_name
from tapegraph.recording.node import tape_entry
from tapegraph.tensors.tensor import Tensor
from tapegraph.tensors.value import Value

# So many parameters are named.
_NAMED = 6


def explain(y: Tensor | Value | Any) -> str:
    """Describe in sentences how a result would be differentiated, or how a compiled step runs.

    The sentences name the engine, the reason, the measured cost of each engine, and how to get
    another one. Nothing runs or compiles.

    :param y: A recorded result, or a compiled step, for its own ``explain()``.
    :returns: Str. A few sentences.
    :raises TypeError: ``y`` is neither.
    :raises RuntimeError: Its entries were cleared, or a leaf was changed after it was recorded.

    >>> w = tg.param([1.0, 2.0], name="w")
    >>> with tg.use_backend("native"):
    ...     print(tg.explain(tg.sum(w * w)))  # doctest: +ELLIPSIS
    sum of shape () recorded at ... comes from 1 parameter, 'w', by 2 operations: mul, sum.
    Its backward would run in the native engine. The backend is 'native' (by tg.use_backend).
    ...
    """
    if isinstance(y, Compiled):
        return y.explain()
    if isinstance(y, Value):
        return (
            f"{y!r}, the result of {y.op}, is differentiated number by number, in Python: engines "
            f"take arrays. A faster way: {COMPILED}; or numbers held in arrays, tg.param([...])."
        )
    if not isinstance(y, Tensor):
        raise TypeError(message("explain", kind_of(y), "a Tensor, a Value or a compiled step"))
    if not y._requires_grad:
        return (
            f"A {y.op} of shape {y._array.shape} needs no gradient: nothing would run. "
            "Compute it from tg.param, outside tg.no_grad(); results of compiled steps are "
            "constants."
        )
    history = History([y])
    refused: dict[str, str] = {}
    for name in registry.rivals():
        try:
            rival = registry.engine(name)
            why = rival.unavailable() or rival.refusal(history)
        except Exception as error:
            raise_interrupt(error)
            why = str(error) or type(error).__name__
        if why is not None:
            refused[name] = str(why)
    found = auto.BACKWARDS.choices.get(history.key)
    engine, reason = _engine(history, refused, found)
    title = registry.engine(engine).title
    names = [f"{x.name!r}" for x in history.wanted if x.name]
    unnamed = len(history.wanted) - len(names)
    shown = names[:_NAMED] + [f"{len(names) - _NAMED} more"] * (len(names) > _NAMED)
    shown += [f"{unnamed} without a name"] * (unnamed > 0)
    ops = list(dict.fromkeys(node._op.name for node in reversed(history.entries)))
    entry = tape_entry(y)
    listed = ", ".join(ops[:_NAMED]) + (", ..." if len(ops) > _NAMED else "")
    lines = [
        f"{entry_name(entry._op, entry)} comes from {_count(len(history.wanted), 'parameter')}, "
        f"{', '.join(shown)}, by {_count(len(history.entries), 'operation')}: {listed}.",
        f"Its backward would run in {title}. {backend_in_force()} {reason}".strip(),
        *costs([found] if found else [], refused, engine, history.length),
        advice(found, refused),
        f"{capital(COMPILED)}.",
    ]
    return "\n".join(map(escaped, lines))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _engine(history: History, refused: dict[str, str], found: Choice | None) -> tuple[str, str]:
    """Return the engine that would run, and why it precedes others."""
    name = get_backend()
    if name != registry.AUTO:
        return (registry.NATIVE if name in refused else name), ""
    if len(refused) == len(registry.rivals()):
        return registry.NATIVE, ""
    decision = auto.decide(history) if found is None else found.choose()
    engine = decision.way.engine
    reason = "" if decision.failure is None else decision.failure.reason
    return engine, f"{capital(reason.removeprefix('auto: '))}." if reason else ""
