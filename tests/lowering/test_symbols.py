"""Slopes in the graph give what they give on arrays, at special numbers and with strong zeros."""

from __future__ import annotations

import importlib.util
import itertools
import math

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.differentiation.slopes import SLOPES
from tapegraph.lowering import LOWERINGS
from tapegraph.testing import check_parity
from tests.cases import OF_COMPLEX
from tests.quick import thinned

pytestmark = [
    pytest.mark.parity,
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"),
]

inf, nan = math.inf, math.nan
SPECIAL = (nan, inf, -inf, 0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, 30.0, -30.0, 1e8)
# At poles and far out TensorFlow's lgamma leaves another infinity, or a NaN.
FINITE = {"gamma": (0.5, 1.0, 2.0, 3.0, -0.5), "beta": (0.5, 1.0, 2.0, 3.0, nan)}
WITH_ATTRIBUTES = {"where", "astype", "round", "round_to", "polygamma", "bessel_i", "bessel_j"}


@pytest.mark.parametrize(
    "op", thinned(sorted(SLOPES.keys() & LOWERINGS.keys() - WITH_ATTRIBUTES - OF_COMPLEX), 2)
)
@pytest.mark.one_in(8)
def test_special_values_agree_where_half_of_them_is_masked(op, graph_engine):
    f = getattr(tg, op, None) or getattr(tg.special, op)
    points = np.array(list(itertools.product(FINITE.get(op, SPECIAL), repeat=len(SLOPES[op])))).T
    mask = np.concatenate([np.arange(points.shape[1]) % 2 == k for k in (0, 1)])
    with np.errstate(all="ignore"):
        report = check_parity(lambda *xs: tg.where(mask, f(*xs), 0.0), *np.tile(points, 2))
    assert report.backend == "tensorflow"
