"""Results as a table of text or Markdown, as JSON, and as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.auto import ENGINES, Row
from benchmarks.contenders import OURS
from benchmarks.contest import Result
from benchmarks.protocol import Spread


def table(result: Result, *, markdown: bool = False) -> str:
    """Return one workload's table: a row a contender, a column of ratios an engine of ours."""
    rows = figure_rows(result) if result.figures else contest_rows(result)
    rounds = f" ({result.rounds} rounds)" if result.rounds else ""
    lines = [f"{result.name}: {result.about}{rounds}", ""]
    lines += (as_markdown if markdown else as_text)(rows)
    remarks = [f"{name} left out: {reason}" for name, reason in result.skipped.items()]
    remarks += result.notes
    if remarks:
        lines += ["", *(f"- {remark}" for remark in remarks)]
    return "\n".join(lines)


def contest_rows(result: Result) -> list[list[str]]:
    rows = [["", "ms a step", *(f"{name} ÷ this" for name in result.ours)]]
    for name in result.seconds:
        ratios = [
            quoted(result.ratio(ours, name)) if name in result.theirs else ""
            for ours in result.ours
        ]
        rows.append([name, significant(1e3 * result.spread(name).median), *ratios])
    return rows


def figure_rows(result: Result) -> list[list[str]]:
    rows = [["", "median", "quartiles", "unit"]]
    for name, (unit, (low, median, high)) in result.figures.items():
        quartiles = f"{significant(low)} to {significant(high)}"
        rows.append([name, significant(median), quartiles, unit])
    return rows


def auto_table(rows: Sequence[Row], steps: int, *, markdown: bool = False) -> str:
    """Return the table of the first steps, engine by engine."""
    cells = [["TensorFlow", *(f"{e}, s" for e in ENGINES), "auto / better", "first step / native"]]
    for row in rows:
        totals = [significant(row.total(engine).median) for engine in ENGINES]
        imported = "imported before" if row.imported else "imported in time"
        ratios = [quoted(row.over_better), quoted(row.first_over_native)]
        cells.append([imported, *totals, *ratios])
    rounds = len(rows[0].starts["auto"])
    lines = [
        f"{rows[0].workload}: the first {steps} steps in a fresh process, compiling included "
        f"({rounds} rounds)",
        "",
    ]
    return "\n".join(lines + (as_markdown if markdown else as_text)(cells))


def as_text(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)]
        ).rstrip()
        for row in rows
    ]


def as_markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = rows
    rule = ["---", *("---:" for _ in head[1:])]
    return ["| " + " | ".join(row) + " |" for row in (head, rule, *body)]


def quoted(ratio: Spread) -> str:
    """Return a median with its quartiles."""
    low, median, high = map(significant, ratio)
    return f"{median} ({low} to {high})"


def significant(number: float) -> str:
    """Return three significant digits, with no exponent where it can be helped."""
    if number == 0 or 1e-4 <= abs(number) < 1e6:
        digits = f"{number:#.3g}"
        return digits.rstrip(".") if "e" not in digits else f"{number:,.0f}"
    return f"{number:.2e}"


def as_json(results: Sequence[Result], context: dict[str, Any]) -> dict[str, Any]:
    """Return everything measured, as plain data; times are in seconds."""
    return context | {
        "workloads": {
            r.name: {
                "about": r.about,
                "rounds": r.rounds,
                "seconds": {name: _spread(r.spread(name)) for name in r.seconds},
                "ratios": {
                    ours: {name: _spread(r.ratio(ours, name)) for name in r.theirs}
                    for ours in r.ours
                },
                "figures": {
                    name: {"unit": unit} | _spread(spread)
                    for name, (unit, spread) in r.figures.items()
                },
                "skipped": r.skipped,
                "notes": r.notes,
            }
            for r in results
        }
    }


def _spread(spread: Spread) -> dict[str, Any]:
    return {"median": spread.median, "quartiles": [spread.low, spread.high]}


def write_json(path: str, data: dict[str, Any]) -> None:
    Path(path).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def write_png(path: str, results: Sequence[Result]) -> None:
    """Draw every ratio as a point between its quartiles, a panel a workload."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator

    contests = [r for r in results if r.ours and r.theirs]
    if not contests:
        return
    names = list(dict.fromkeys(name for r in contests for name in r.ours))
    colours = {name: f"C{i}" for i, name in enumerate(names)}
    rows = [len(r.theirs) for r in contests]
    figure, axes = plt.subplots(
        len(contests),
        1,
        figsize=(8, 1.2 + 0.5 * len(contests) + 0.3 * sum(rows)),
        height_ratios=rows,
        sharex=True,
        layout="constrained",
        squeeze=False,
    )
    for ax, result in zip(axes[:, 0], contests, strict=True):
        _draw(ax, result, colours)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(LogLocator(subs=range(1, 10)))
    ax.xaxis.set_minor_formatter("")
    figure.supxlabel(f"time over the peer's, median and quartiles (left of 1: {OURS} is faster)")
    points = [plt.Line2D([], [], color=c, marker="o", linestyle="") for c in colours.values()]
    figure.legend(points, list(colours), loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw(ax: Any, result: Result, colours: dict[str, str]) -> None:
    for i, ours in enumerate(result.ours):
        ratios = [result.ratio(ours, name) for name in result.theirs]
        ax.errorbar(
            [r.median for r in ratios],
            [row + 0.2 * (i - (len(result.ours) - 1) / 2) for row in range(len(ratios))],
            xerr=[[r.median - r.low for r in ratios], [r.high - r.median for r in ratios]],
            color=colours[ours],
            fmt="o",
            markersize=4,
            linewidth=1,
        )
    ax.set_xscale("log")
    ax.axvline(1, color="black", linewidth=1)
    ax.set_yticks(range(len(result.theirs)), result.theirs)
    ax.set_ylim(len(result.theirs) - 0.5, -0.5)
    ax.grid(axis="x", alpha=0.3)
    ax.set_title(result.name, loc="left", fontsize="medium", fontweight="bold")
