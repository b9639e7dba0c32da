"""NumPy's warnings name the user's line and the operation, whichever function gave them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.numpy_warnings import FORWARDS
from tapegraph.recording.op import OPS

inf, nan, big = np.inf, np.nan, 1e308
X32 = np.ones(2, np.float32)
LARGE = np.ones(20_000, np.float32)  # large enough to be chosen from by its bits


def param(*numbers):
    return tg.param(np.array(numbers))


def both(number):
    return tg.param(np.eye(2) * number)


# What each call is warned of, by family.
WARNED = {
    # elementwise
    "log": (lambda: tg.log(param(0.0)), "divide by zero encountered in log"),
    "div": (lambda: param(1.0) / [0.0], "divide by zero encountered in div"),
    "pow": (lambda: param(big) ** 2, "overflow encountered in pow"),
    "add": (lambda: param(big) + big, "overflow encountered in add"),
    "exp": (lambda: np.exp(param(1000.0)), "overflow encountered in exp"),
    "silu": (lambda: tg.silu(param(-inf)), "invalid value encountered in silu"),
    "log of a small integer": (
        lambda: tg.log(np.array([0], np.int8)),
        "divide by zero encountered in log",
    ),
    # reduce, statistics
    "sum": (lambda: tg.sum(param(big, big)), "overflow encountered in sum"),
    "mean": (lambda: np.mean(param(big, big)), "overflow encountered in mean"),
    "mean of nothing": (lambda: np.mean(param()), "invalid value encountered in mean"),
    "softmax": (lambda: tg.softmax(param(inf, 1.0)), "invalid value encountered in softmax"),
    "prod": (lambda: tg.prod(param(big, big)), "overflow encountered in prod"),
    "cumsum": (lambda: tg.cumsum(param(big, big)), "overflow encountered in cumsum"),
    "var": (lambda: np.var(param(1.0), ddof=1), "invalid value encountered in div"),
    "median of nothing": (lambda: np.median(param()), "invalid value encountered in mean"),
    "nanmean": (lambda: np.nanmean(param(nan)), "invalid value encountered in div"),
    "logsumexp": (
        lambda: tg.logsumexp(param(1.0), b=-1.0),
        "invalid value encountered in log",
    ),
    # linalg, products, decompositions
    "matmul": (lambda: param(big) @ [10.0], "overflow encountered in matmul"),
    "batch_matmul": (
        lambda: tg.param([[[big]]]) @ [[[10.0]]],
        "overflow encountered in batch_matmul",
    ),
    "det": (lambda: np.linalg.det(both(1e200)), "overflow encountered in det"),
    "norm": (lambda: np.linalg.norm(param(big, big), 1), "overflow encountered in norm"),
    "nuclear norm": (lambda: np.linalg.norm(both(big), "nuc"), "overflow encountered in sum"),
    # nn
    "layer_norm": (
        lambda: tg.layer_norm(both(big), 1.0, 0.0),
        "overflow encountered in layer_norm",
    ),
    "layer_norm of nothing": (
        lambda: tg.layer_norm(np.zeros((2, 0)), 1.0, 0.0),
        "invalid value encountered in layer_norm",
    ),
    "conv2d": (
        lambda: tg.conv2d(np.full((1, 1, 1, 1), big), np.full((1, 1, 1, 1), 10.0)),
        "overflow encountered in conv2d",
    ),
    "avg_pool2d": (
        lambda: tg.avg_pool2d(np.full((1, 1, 2, 2), big), 2),
        "overflow encountered in avg_pool2d",
    ),
    "crossentropy": (
        lambda: tg.softmax_crossentropy(param(inf, 1.0), 0),
        "invalid value encountered in softmax_crossentropy",
    ),
    "crossentropy of no rows": (
        lambda: tg.softmax_crossentropy(np.zeros((0, 2)), np.zeros((0, 2))),
        "invalid value encountered in softmax_crossentropy",
    ),
    "crossentropy of wide targets": (
        lambda: tg.softmax_crossentropy(tg.param(X32), [1e300, 0.0]),
        "overflow encountered in softmax_crossentropy",
    ),
    "mse_loss": (lambda: tg.mse_loss(param(), param()), "invalid value encountered in mse_loss"),
    "mse_loss of wide targets": (
        lambda: tg.mse_loss(tg.param(X32), [1e300, 0.0]),
        "overflow encountered in mse_loss",
    ),
    # transcendental, comparison, special
    "arctanh": (lambda: np.arctanh(param(1.0)), "divide by zero encountered in arctanh"),
    "sinc": (lambda: np.sinc(param(inf)), "invalid value encountered in sinc"),
    "mod": (lambda: param(1.0) % 0.0, "invalid value encountered in mod"),
    "clip": (lambda: np.clip(tg.param(X32), None, 1e300), "overflow encountered in clip"),
    "nan_to_num": (
        lambda: np.nan_to_num(tg.param(X32), posinf=1e300),
        "overflow encountered in nan_to_num",
    ),
    "xlogy": (lambda: tg.special.xlogy(param(1.0), 0.0), "divide by zero encountered in xlogy"),
    # creation, index, select, arrange
    "astype": (lambda: tg.astype(param(1e300), "float32"), "overflow encountered in astype"),
    "astype to integers": (
        lambda: tg.astype(param(nan), int),
        "invalid value encountered in astype",
    ),
    "full_like": (lambda: np.full_like(tg.param(X32), 1e300), "overflow encountered in full_like"),
    "round": (lambda: np.round(param(1e308), 5), "overflow encountered in round"),
    "where": (
        lambda: np.where([True, False], tg.param(X32), 1e300),
        "overflow encountered in where",
    ),
    "where, large": (
        lambda: np.where(LARGE > 0, tg.param(LARGE), 1e300),
        "overflow encountered in where",
    ),
    "select": (
        lambda: np.select([np.array([True, False])], [tg.param(X32)], 1e300),
        "overflow encountered in select",
    ),
    "pad": (lambda: np.pad(tg.param(X32), 1, constant_values=1e300), "overflow encountered in pad"),
}
# Where the result is infinite or NaN as it should be, or is not infinite though a part of it is.
QUIET = {
    "sigmoid": lambda: tg.sigmoid(param(-1000.0, -inf, 1000.0)),
    "silu": lambda: tg.silu(param(-1000.0, -1e308)),
    "gelu": lambda: tg.gelu(param(-1e308, 1e308)),
    "logsumexp": lambda: tg.logsumexp(param(-inf, 1000.0)),
    "log_softmax": lambda: tg.special.log_softmax(param(-inf, 1000.0)),
    "xlogy": lambda: tg.special.xlogy(param(0.0, 0.0), [0.0, -1.0]),
    "entr": lambda: tg.special.entr(param(0.0, -1.0)),
    "fmax": lambda: np.fmax(param(nan, 1.0), nan),
    "copysign": lambda: np.copysign(param(nan, 1.0), [1.0, nan]),
    "max": lambda: tg.max(param(nan, inf)),
    "sort": lambda: np.sort(param(nan, inf)),
    "exp of a small integer": lambda: tg.exp(np.array([100], np.int8)),  # NumPy's float16 overflows
}


def _numpys_einsum_warns() -> bool:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        np.einsum("i,i,i->", [big], [10.0], [1.0])
    return bool(found)


if _numpys_einsum_warns():  # that of NumPy 2.0 is silent
    WARNED["einsum"] = (
        lambda: np.einsum("i,i,i->", param(big), param(10.0), param(1.0)),
        "overflow encountered in einsum",
    )


def caught(call):
    """Return the warnings of two runs, by the filters that stand: once a line by Python's."""
    with warnings.catch_warnings(record=True) as found:
        for _ in range(2):
            call()
    return [(w.filename, w.lineno, w.category.__name__, str(w.message)) for w in found]


def told():
    """Return the warnings of every call, by name: of those that warn, and of those that do not."""
    calls = {name: call for name, (call, _) in WARNED.items()}
    return [{name: caught(call) for name, call in table.items()} for table in (calls, QUIET)]


@pytest.fixture(scope="module")
def as_imported():
    """What the calls warn of in a process that has no filters but Python's and the library's."""
    code = (
        "import json; from tests.arrays import test_numpy_warnings as t; "
        "print(json.dumps(t.told()))"
    )
    root = Path(__file__).parents[2]
    out = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=True)
    return json.loads(out.stdout)


@pytest.mark.parametrize("name", WARNED)
def test_numpys_warnings_name_the_line_of_the_call_once(name, as_imported):
    call, message = WARNED[name]
    last_line = max(number for _, _, number in call.__code__.co_lines() if number)
    found = [tuple(warning) for warning in as_imported[0][name]]
    assert [w for w in found if w[3] == message] == [
        (__file__, last_line, "RuntimeWarning", message)
    ]
    assert {(file, category) for file, _, category, _ in found} == {(__file__, "RuntimeWarning")}


@pytest.mark.parametrize("name", QUIET)
def test_what_is_well_defined_does_not_warn(name, as_imported):
    assert as_imported[1][name] == []


def test_the_modules_whose_warnings_are_raised_are_those_there_are():
    for name in FORWARDS:
        assert importlib.util.find_spec(name) is not None, name
    # What computes a forward is in one of them: the functions of the table of operations.
    modules = {getattr(op.forward, "__module__", None) for op in OPS.values()}
    ours = {name for name in modules if name is not None and name.startswith("tapegraph.")}
    assert {name for name in ours if not name.startswith(FORWARDS)} == set()


def test_a_probability_out_of_range_is_refused_before_it_is_converted():
    with pytest.raises(ValueError, match="quantile: .*numbers from 0 to 1"):
        np.quantile(tg.param(X32), 1e300)
