"""A compiled step in words: its traces, the engine that runs each and why, and what to change."""

from __future__ import annotations

from typing import Any

from tapegraph.compiling.arguments import call_text
from tapegraph.engines.auto import advice, choice, costs

_RECORDED_ONCE = (
    "Its next call alike is a real one too: the two are compared, and then the program runs."
)


def explained(step: Any, entries: list[Any], most: int, parameters: list[str]) -> str:
    """Return what a step holds, a paragraph for each trace."""
    name = step.__name__
    lines = [f"{name}: {len(entries)} of {most} traces"]
    if not entries:
        lines.append("It has not been called, or was reset: two calls alike make its program.")
    for entry in entries:
        structure, recording = entry.arguments
        text = call_text(name, parameters, structure)
        line = f"- {text}{'' if recording else ', under no_grad'}: {entry.reason}; "
        levels = []
        if entry.trace is not None:
            line += f"{len(entry.trace.recording)} entries, "
            levels = entry.trace.levels
        line += f"{entry.calls} calls, "
        if entry.programs is None:
            lines += [line + "recorded once", f"  {_RECORDED_ONCE}"]
            continue
        programs = entry.programs
        nbytes = programs.native.nbytes + sum(part.nbytes for part in levels)
        line += f"{nbytes / 1e6:.3g} MB of native buffers, "
        if levels:
            calls = sum(part.calls for part in levels)
            line += f"{sum(map(len, levels))} numbers of Values in {calls} calls, "
        line += f"made in {programs.seconds:.3g} s, ran in {programs.ran or 'none yet'}"
        lines += [line, *(f"  {sentence}" for sentence in _sentences(programs))]
    return "\n".join(lines)


def _sentences(programs: Any) -> list[str]:
    """Return why a program runs where it does, what the others cost, and what to change."""
    tuner, refused = programs.tuner, programs.refused
    told = [choice(), *costs(tuner, refused, programs.engine), advice(refused, tuner)]
    return [" ".join(told)]
