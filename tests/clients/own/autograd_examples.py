"""autograd's own examples, as they are but for the number of their steps."""

from __future__ import annotations

import functools
import itertools
import re
import runpy
from pathlib import Path

import autograd.misc.optimizers as optimizers
import matplotlib.pyplot as plt
import numpy
import pytest
import scipy.optimize
from autograd.misc import flatten
from beside import same

EXAMPLES = Path(__file__).parent.parent / "examples"
# What others import, and what downloads the data that it learns from.
NO_PROGRAMS = ("__init__", "data", "data_mnist")
WITH_DOWNLOAD = ("convnet", "generative_adversarial_net", "neural_net", "variational_autoencoder")
NAMES = sorted(
    path.stem for path in EXAMPLES.glob("*.py") if path.stem not in NO_PROGRAMS + WITH_DOWNLOAD
)
STEPS = 4


class Stop(Exception):
    """It has shown enough."""


def shortened(optimizer):
    @functools.wraps(optimizer)
    def run(grad, x0, callback=None, num_iters=200, **options):
        found = optimizer(grad, x0, callback, min(num_iters, STEPS), **options)
        same(flatten(found)[0], rtol=1e-5, atol=1e-7)
        return found

    return run


def minimized(minimize):
    @functools.wraps(minimize)
    def run(fun, x0, *args, **options):
        given = {**(options.pop("options", None) or {}), "maxiter": STEPS}
        found = minimize(fun, x0, *args, options=given, **options)
        same(found.x, rtol=1e-3, atol=1e-4)
        return found

    return run


@pytest.mark.parametrize("name", NAMES)
def test_example(name, monkeypatch, capsys):
    for optimizer in ("sgd", "rmsprop", "adam"):
        monkeypatch.setattr(optimizers, optimizer, shortened(getattr(optimizers, optimizer)))
    monkeypatch.setattr(scipy.optimize, "minimize", minimized(scipy.optimize.minimize))
    monkeypatch.setattr(plt, "show", lambda *_, **__: None)
    monkeypatch.setattr(plt, "pause", lambda *_: None)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(EXAMPLES)
    if name == "hmm_em":  # it prints the likelihood, step by step, until nothing changes
        count = itertools.count()
        printed = print

        def stopping(*values):
            printed(*values)
            if next(count) == STEPS:
                raise Stop

        monkeypatch.setitem(__builtins__, "print", stopping)
    try:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    except Stop:
        pass
    finally:
        plt.close("all")
    text = capsys.readouterr().out
    numbers = re.findall(r"(?<![\w.])-?\d+\.\d+(?:e[-+]\d+)?", text)
    if name not in ("lstm", "rnn"):  # which draw letters by probabilities
        same(numpy.array(list(map(float, numbers))), rtol=1e-3, atol=1e-4)
