"""Draw the README's picture: ``python docs/pictures/learning.py`` runs its first program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

import tapegraph as tg

mpl.use("Agg")
from matplotlib import pyplot  # noqa: E402

HERE = Path(__file__).parent
README = HERE.parents[1] / "README.md"


def main() -> None:
    """Run the program, and draw its loss and its boundary."""
    program, *_ = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    ran: dict[str, Any] = {}
    exec(program, ran)

    pyplot.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 9})
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(7, 2.6), layout="constrained")
    left.semilogy(ran["losses"], color="tab:blue")
    left.set(xlabel="step", ylabel="loss", yticks=[0.03, 0.1, 0.3], yticklabels=[0.03, 0.1, 0.3])
    left.minorticks_off()

    line = np.linspace(-3, 3, 121)
    grid = np.stack(np.meshgrid(line, line), axis=-1)
    with tg.no_grad():
        chance = tg.softmax(ran["network"](grid.reshape(-1, 2)), axis=1).data[:, 1]
    shades = right.contourf(
        line, line, chance.reshape(121, 121), np.linspace(0, 1, 11), cmap="RdBu", alpha=0.4
    )
    for inside, color, name in ((1, "tab:blue", "inside"), (0, "tab:red", "outside")):
        points = ran["points"][ran["inside"] == inside]
        right.plot(*points.T, ".", color=color, markersize=3, label=name)
    right.set(xlim=(-3, 3), ylim=(-3, 3), aspect="equal", xticks=[-2, 0, 2], yticks=[-2, 0, 2])
    figure.colorbar(shades, ax=right, label="chance of inside", ticks=[0, 0.5, 1])
    figure.savefig(HERE / "learning.png", dpi=110)


if __name__ == "__main__":
    main()
