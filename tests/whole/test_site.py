"""The site builds without a warning, and its reference has every public name."""

import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import pytest

import tapegraph as tg

ROOT = Path(__file__).parents[2]
BUILD = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs"]


@pytest.mark.thorough  # half a minute; .ci/run asks for it
def test_the_site_builds_and_has_every_name(tmp_path):
    for package in ("furo", "myst_nb", "sphinx"):
        pytest.importorskip(package, reason="needs the extra docs")
    done = subprocess.run([*BUILD, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr  # with -W a warning is an error; kernels may say more

    from sphinx.util.inventory import InventoryFile

    with open(tmp_path / "objects.inv", "rb") as stored:
        inventory = InventoryFile.load(stored, "", lambda folder, page: page)
    found = {name for kind in inventory if kind.startswith("py:") for name in inventory[kind]}
    public = {f"tapegraph.{name}" for name in tg.__all__ if name != "array_api"}  # NumPy's names
    for module in ("special", "testing", "lowering"):
        public |= {f"tapegraph.{module}.{name}" for name in attrgetter(module)(tg).__all__}
    assert public - found == set()

    # An entry is not empty: the docstring is there, and a method tells of its function.
    assert "Sine, as" in (tmp_path / "api" / "elementwise.html").read_text()
    assert "tapegraph.Tensor.exp" in found

    # The pages of the root are taken in, and what they link to is a page of the site.
    contributing = (tmp_path / "contributing.html").read_text()
    assert "Add an operation" in contributing and 'href="parity.html"' in contributing
    # Of the notebooks there is what they printed, once, and their pictures.
    neuron = (tmp_path / "tutorial" / "01-one-multiplication.html").read_text()
    assert neuron.count("-4.0 -2.0 2.0") == 1 and neuron.count("<img") == 2
    assert 'href="../tour.html#scalars"' in neuron
    # The sections of the index are the navigation.
    assert '<span class="caption-text">Differentiate</span>' in (tmp_path / "tour.html").read_text()
