"""Which values the option about XLA takes, and where its default comes from."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.compiling import compiled

pytestmark = pytest.mark.versions


@pytest.mark.parametrize("xla", [1, 0, "yes", "True", 0.5, np.True_, [], "native"])
def test_other_values_are_refused_where_they_enter(xla):
    with pytest.raises(ValueError, match="compile: received xla=.*expected True, False, 'auto'"):
        tg.compile(lambda x: x, xla=xla)


@pytest.mark.parametrize(
    ("text", "option"), [("1", True), ("0", False), ("auto", "auto"), ("", "auto")]
)
def test_the_environment_gives_the_default(monkeypatch, text, option):
    monkeypatch.setenv("TAPEGRAPH_XLA", text)
    assert compiled._xla_of_environment() is option
    monkeypatch.setattr(compiled, "_default_xla", compiled._xla_of_environment())
    assert tg.compile(_twice)._xla is option
    assert tg.compile(_twice, xla=False)._xla is False


@pytest.mark.thorough
def test_another_value_in_the_environment_is_refused_at_import():
    run = subprocess.run(
        [sys.executable, "-c", "import tapegraph"],
        env={"TAPEGRAPH_XLA": "true", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "TAPEGRAPH_XLA: received 'true'; expected '1', '0' or 'auto'" in run.stderr


def test_natively_it_changes_nothing_and_goes_where_the_function_goes():
    w = tg.param([1.0, 2.0])

    class Model:
        @tg.compile(xla=True)
        def loss(self, x):
            return tg.sum(w * x)

    model = Model()
    with tg.use_backend("native"):
        for _ in range(4):
            assert model.loss(np.ones(2)).item() == 3.0
    assert model.loss._xla is True  # as the method's own function has it
    assert tg.compile(_twice, xla=False)._xla is False
    assert pickle.loads(pickle.dumps(tg.compile(_twice, xla=False)))._xla is False


def _twice(x):
    return 2.0 * x
