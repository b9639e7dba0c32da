"""Every example runs, both ways, saves its picture, and reaches what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

for extra in ("matplotlib", "sklearn", "tqdm"):
    pytest.importorskip(extra)

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(p.stem for p in (ROOT / "examples").glob("[!_]*.py"))


def run(*command: object, cwd: Path, status: int = 0) -> str:
    """Run Python and return all it printed; `cwd` and the checkout are importable."""
    path = os.pathsep.join([str(cwd), str(ROOT)])
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env=os.environ | {"MPLBACKEND": "Agg", "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


def assert_picture(path: Path) -> None:
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", EXAMPLES)
def test_script_runs_and_saves_its_picture(name, tmp_path):
    out = run(ROOT / "examples" / f"{name}.py", "--quick", cwd=tmp_path)
    assert_picture(tmp_path / f"{name}.png")
    assert f"{name}.png" in out


@pytest.mark.parametrize("name", EXAMPLES)
def test_module_explains_itself(name, tmp_path):
    out = run("-m", f"examples.{name}", "--help", cwd=tmp_path)
    for option in ("--backend", "--seed", "--out", "--quick", "You learn"):
        assert option in out


def test_digits_are_learned(tmp_path):
    picture = tmp_path / "here.png"
    script = ROOT / "examples" / "digits.py"
    out = run(script, "--backend", "native", "--out", picture, cwd=tmp_path)
    accuracy = float(re.search(r"accuracy +([\d.]+)%", out).group(1))
    assert accuracy >= 96
    assert re.search(r"engine +native", out)
    assert_picture(picture)


@pytest.mark.parametrize("missing", ["matplotlib", "sklearn", "tqdm"])
def test_a_missing_extra_is_one_clear_line(missing, tmp_path):
    (tmp_path / f"{missing}.py").write_text(f"raise ModuleNotFoundError(name={missing!r})")
    out = run(ROOT / "examples" / "digits.py", "--quick", cwd=tmp_path, status=1)
    assert f"needs {missing}" in out
    assert 'pip install "tapegraph[examples]"' in out
    assert "Traceback" not in out
    assert "training" not in out  # said before any work is done
