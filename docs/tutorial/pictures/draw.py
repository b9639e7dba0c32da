"""Draw what the tutorial's notebooks show: ``python docs/tutorial/pictures/draw.py``.

Each cell that ends in a drawing, or draws with Matplotlib, gets a picture, named after its notebook
and numbered. The pages link them for those who read text; the site has them from running the cells.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import tempfile
from pathlib import Path

import tapegraph as tg

HERE = Path(__file__).resolve().parent
CELL = re.compile(r"^```{code-cell} python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def draw(notebook: Path) -> None:
    """Run a notebook, and save its pictures."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    count = 0
    for code in CELL.findall(notebook.read_text()):
        body = ast.parse(re.sub(r"^:tags:.*$", "", code, flags=re.MULTILINE)).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), notebook.name, "exec"), namespace)
        value = None
        if last is not None:
            value = eval(compile(ast.Expression(last.value), notebook.name, "eval"), namespace)
        pyplot = sys.modules.get("matplotlib.pyplot")
        if isinstance(value, tg.Drawing):
            count += 1
            value.save(HERE / f"{notebook.stem[:2]}-{count}.svg")
        elif pyplot is not None and pyplot.get_fignums():
            count += 1
            pyplot.savefig(HERE / f"{notebook.stem[:2]}-{count}.png", dpi=70)
            pyplot.close("all")


if __name__ == "__main__":
    os.environ["MPLBACKEND"] = "Agg"
    notebooks = sorted(HERE.parent.glob("*.md"))
    os.chdir(tempfile.mkdtemp())  # some cells save files
    for notebook in notebooks:
        draw(notebook)
