"""TensorFlow's log level is set for its import, unless the user has set it up, and taken back."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from tapegraph.lowering.runtime import NEEDED

pytestmark = pytest.mark.versions

# Every program starts without the variable that the tests set for all others.
START = """
import os, sys, warnings
chosen = os.environ.pop("CHOSEN", None)
os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)
if chosen is not None:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = chosen
before = dict(os.environ)
"""
CHANGED = """
import json
print(json.dumps({k: v for k, v in os.environ.items() if before.get(k) != v}))
"""
# What logs: the import, the first operation, a failing one, and XLA, which is made to be tried.
BACKWARD = """
import numpy as np
import tapegraph as tg
from tapegraph.lowering.steps import xla

xla.STEP = xla.STEP_ENTRY = 0.0
tg.set_backend("tensorflow")
x = tg.param(np.ones((3, 3)))

@tg.compile
def step():
    tg.sum(tg.sin(x) @ x).backward()

for _ in range(30):
    step()
assert tg.last_backward().backend == "tensorflow", tg.last_backward()
assert xla._compiles == 1
"""
IMPORT = """
from tapegraph.lowering import runtime
try:
    runtime.tensorflow()
except runtime.Unavailable as error:
    print(error)
"""


@pytest.mark.thorough  # packages that pose as TensorFlow are imported below
def test_little_is_written_and_no_variable_is_left(run_python):
    pytest.importorskip("tensorflow")
    quiet = run_python(START + BACKWARD + CHANGED)
    assert quiet.returncode == 0, quiet.stderr
    # What TensorFlow's libraries log before they have read the level; nothing of XLA's, no warning.
    for line in quiet.stderr.splitlines():
        assert re.match(r"I0000 .*\b(port|cudart_stub)\.cc:|WARNING: All log messages before", line)
    assert not [name for name in json.loads(quiet.stdout) if name.startswith(("TF_CPP", "TAPE"))]
    spoken = run_python(START + IMPORT + CHANGED, CHOSEN="0")
    assert spoken.returncode == 0, spoken.stderr
    # TensorFlow's own import sets some; tapegraph sets none beside them.
    assert json.loads(quiet.stdout) == json.loads(spoken.stdout)


def needed(module: str) -> str:
    """Return what gives a module all names of TensorFlow's that are asked for."""
    names = sorted({name for path in NEEDED for name in path.split(".")})
    lines = [f"{module}NEEDED = type('Needed', (), {{}})"]
    for owner in (module, f"{module}NEEDED."):
        lines += [f"{owner}{name} = {module}NEEDED" for name in names]
    return "\n" + "\n".join(lines) + "\n"


def stub(folder: Path, code: str) -> dict[str, str]:
    """Make a package that poses as TensorFlow, and the environment that finds it first."""
    (folder / "tensorflow").mkdir()
    (folder / "tensorflow" / "__init__.py").write_text(textwrap.dedent(code) + needed(""))
    return {"PYTHONPATH": str(folder)}


def test_the_level_is_set_for_the_import_alone(run_python, tmp_path):
    code = "import os; __version__ = '2.20.0'; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    done = run_python(START + IMPORT + CHANGED, **stub(tmp_path, code))
    assert done.stdout.split() == ["3", "{}"]


@pytest.mark.parametrize("variable", ["TF_CPP_MIN_LOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL"])
def test_the_users_own_choice_is_left_alone(variable, run_python, tmp_path):
    code = f"""
        import os

        __version__ = "2.20.0"
        print(os.environ[{variable!r}], os.environ.get("TF_CPP_MIN_LOG_LEVEL"))
        """
    choose = f"os.environ[{variable!r}] = before[{variable!r}] = '1'\n"
    done = run_python(START + choose + IMPORT + CHANGED, **stub(tmp_path, code))
    level = "1" if variable == "TF_CPP_MIN_LOG_LEVEL" else "None"
    assert done.stdout.split() == ["1", level, "{}"]


def test_a_failing_import_puts_everything_back(run_python, tmp_path):
    environment = stub(tmp_path, "raise ImportError('no DLL')")
    done = run_python(START + IMPORT + CHANGED, **environment)
    assert done.stdout.splitlines() == ["TensorFlow does not import: ImportError: no DLL", "{}"]


def test_a_level_that_another_thread_sets_meanwhile_stays(run_python, tmp_path):
    environment = stub(
        tmp_path,
        "import os; __version__ = '2.20.0'; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '1'",
    )
    done = run_python(START + IMPORT + CHANGED, **environment)
    assert json.loads(done.stdout) == {"TF_CPP_MIN_LOG_LEVEL": "1"}


def test_tensorflow_that_is_there_already_is_left_alone(run_python):
    program = """
from types import ModuleType
sys.modules["tensorflow"] = ModuleType("tensorflow")
sys.modules["tensorflow"].__version__ = "2.20.0"
"""
    program += needed('sys.modules["tensorflow"].')
    done = run_python(START + program + IMPORT + CHANGED)
    assert done.stdout.split() == ["{}"]
