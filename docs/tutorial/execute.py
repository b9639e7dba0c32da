"""Run the tutorial: ``python docs/tutorial/execute.py`` writes each text's notebook, with outputs.

A notebook is made from its text alone: edit the text, ``.md``, and run this. Beside what the cells
print and draw a file has nothing of the run: no times, and no standard error, to which TensorFlow
tells much. It needs the extras docs and tensorflow.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


def executed(text: Path, folder: str) -> nbformat.NotebookNode:
    """Return a text as a notebook whose cells have run in a folder."""
    notebook = jupytext.read(text)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    options = {"timeout": 600, "record_timing": False, "coalesce_streams": True}
    NotebookClient(notebook, **options).execute(cwd=folder)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
    return notebook


if __name__ == "__main__":
    for text in [Path(name) for name in sys.argv[1:]] or sorted(HERE.glob("*.md")):
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(text, folder), text.with_suffix(".ipynb"))
