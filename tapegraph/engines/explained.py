"""Engines in words: which one runs, why, what the others would cost, and what to change."""

from __future__ import annotations

from collections.abc import Mapping

from tapegraph.engines import registry
from tapegraph.engines.backend import chosen_by, get_backend
from tapegraph.engines.tuner import Tuner

COMPILED = "a compiled step runs forward, backward and update as one program: tg.compile(step)"


def choice() -> str:
    """Return which backend is chosen, and by whom."""
    return f"The backend is {get_backend()!r} ({chosen_by()})."


def costs(tuner: Tuner | None, refused: Mapping[str, str], running: str = "") -> list[str]:
    """Return what each engine takes, as measured, or else why it has not been.

    :param running: The name of the engine that runs it anyhow.
    :param tuner: What `auto` has measured, where it has.
    :param refused: Why engines do not run this, by name.
    """
    told = []
    measured = [] if tuner is None else [c for c in tuner.measured if c.runs]
    for candidate in measured:
        title = registry.engine(candidate.way).title
        runs = "1 run" if candidate.runs == 1 else f"{candidate.runs} runs"
        told.append(f"{capital(title)} takes {milliseconds(candidate.run)}, by {runs}.")
    known = {candidate.way for candidate in measured}
    for name in registry.rivals():
        title = capital(registry.engine(name).title)
        if name in refused:
            told.append(f"{title} does not run it: {refused[name].rstrip('.')}.")
        elif name not in known and name != running:
            told.append(f"{title} has not been measured: {_price(tuner, name)}.")
    return told


def _price(tuner: Tuner | None, name: str) -> str:
    waiting = [] if tuner is None else [c for c in tuner.untried if c.way == name]
    if waiting:
        return f"trying it costs about {waiting[0].price():.2g} s"
    costs = registry.engine(name).costs
    load = 0.0 if registry.engine(name).loaded() else costs.load
    return f"the first run costs at least {load + costs.compile:.2g} s"


def advice(refused: Mapping[str, str], tuner: Tuner | None) -> str:
    """Return what to change for another engine to run."""
    backend = get_backend()
    open_to = [name for name in registry.rivals() if name not in refused]
    if not open_to:
        return "To have another engine, see to that first."
    if backend == registry.NATIVE:
        return 'To have them measured, choose tg.set_backend("auto").'
    if backend != registry.AUTO:
        return 'To have the faster one found by measuring, choose tg.set_backend("auto").'
    if tuner is not None and len(tuner.measured) > 1 and not tuner.untried:
        return "There is nothing to change: the faster one has been found by measuring."
    return f'To have it tried at once, choose tg.set_backend("{open_to[0]}").'


def milliseconds(seconds: float) -> str:
    """Write a time."""
    return f"{seconds * 1e3:.3g} ms"


def capital(title: str) -> str:
    """Begin a sentence."""
    return f"{title[0].upper()}{title[1:]}"
