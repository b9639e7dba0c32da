"""`check_gradients` finds wrong gradients, names them, and passes right ones."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.fallback import VJPS
from tapegraph.testing import check_gradients


@pytest.fixture(autouse=True)
def native():
    tg.set_backend("native")


X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])


def test_the_report_holds_both_gradients_and_the_worst_difference():
    report = check_gradients(lambda a, b: tg.sin(a) * b, X, X[0])
    np.testing.assert_allclose(report.gradients[0], np.cos(X) * X[0], rtol=1e-12)
    np.testing.assert_allclose(report.gradients[1], np.sin(X).sum(axis=0), rtol=1e-12)
    errors = [np.abs(a - n) for a, n in zip(report.gradients, report.numeric, strict=True)]
    assert report.checked == 9
    assert 0.0 < max(e.max() for e in errors) <= report.max_abs_error < 1e-8
    assert 0.0 < report.max_rel_error < 1e-7


@pytest.mark.parametrize(
    ("f", "inputs"),
    [
        (lambda x: tg.softmax(x), [X]),
        (lambda x: x * x, [3]),
        (lambda x: x[0], [X.tolist()]),
        (lambda x, w: x @ w, [X.astype(np.float32), X.T]),
        (lambda x: tg.sum(x * 0.0), [X]),
        (lambda x: tg.tensor(X) * 2.0, [X]),
        (lambda x: x * 2.0, [np.zeros((0, 3))]),
        (lambda x: tg.exp(x), [[10.0, -10.0]]),
    ],
)
def test_right_gradients_pass(f, inputs):
    assert check_gradients(f, *inputs).checked == sum(np.size(x) for x in inputs)


def wrong(monkeypatch, rule):
    monkeypatch.setitem(VJPS, "sin", (rule,))


def test_a_wrong_gradient_names_input_index_and_both_numbers(monkeypatch):
    wrong(monkeypatch, lambda g, y, x: g * np.where(x == 2.0, 0.5, np.cos(x)))
    with pytest.raises(AssertionError, match=r"inputs\[1\] at index \(0, 2\)") as caught:
        check_gradients(lambda a, b: a * tg.sin(b), np.ones(3), X)
    numbers = re.search(r"autograd gives (\S+), finite differences give (\S+) ", str(caught.value))
    got, expected = (float(re.sub(r"np\.float64\(|\)", "", n)) for n in numbers.groups())
    np.testing.assert_allclose(got, 0.5, rtol=1e-12)
    np.testing.assert_allclose(expected, np.cos(2.0), rtol=1e-8)


@pytest.mark.parametrize(
    "rule",
    [
        lambda g, y, x: -g * np.cos(x),
        lambda g, y, x: g * np.cos(x) * 1.0001,
        lambda g, y, x: g * np.cos(x) + 1e-4,
        lambda g, y, x: g * np.nan,
        lambda g, y, x: np.broadcast_to(np.mean(g * np.cos(x)), x.shape),
        lambda g, y, x: np.zeros_like(g),
        lambda g, y, x: np.ones_like(g) * np.cos(x),
        lambda g, y, x: np.maximum(g, 0.0) * np.cos(x),
        lambda g, y, x: np.abs(g) * np.cos(x),
        lambda g, y, x: g * g * np.cos(x),
        lambda g, y, x: g * np.inf,
    ],
    ids=[
        "sign",
        "factor",
        "offset",
        "NaN",
        "mean",
        "zero",
        "seed ignored",
        "positive seeds alone",
        "sign of the seed dropped",
        "square of the seed",
        "infinite",
    ],
)
def test_every_kind_of_wrong_gradient_is_found(monkeypatch, rule):
    wrong(monkeypatch, rule)
    with pytest.raises(AssertionError, match=r"check_gradients: inputs\[0\]"):
        check_gradients(tg.sin, X)


@pytest.mark.parametrize("rule", [lambda g, y, x: np.maximum(g, 0.0), lambda g, y, x: np.abs(g)])
def test_a_rule_that_is_right_for_positive_seeds_alone_is_found_on_one_number(monkeypatch, rule):
    wrong(monkeypatch, lambda g, y, x: rule(g, y, x) * np.cos(x))
    with pytest.raises(AssertionError, match=r"check_gradients: inputs\[0\]"):
        check_gradients(tg.sin, 0.5)


@pytest.mark.parametrize("given", [np.inf, 5.0, 0.0])
def test_where_the_difference_quotient_is_infinite_not_everything_passes(monkeypatch, given):
    wrong(monkeypatch, lambda g, y, x: np.full_like(x, given))
    edge = np.log(np.finfo(np.float64).max)  # exp overflows right of it, and not left
    with (
        np.errstate(over="ignore"),
        pytest.raises(AssertionError, match="finite differences give .*inf"),
    ):
        check_gradients(lambda x: tg.sin(x) * 0.0 + tg.exp(x), edge)


def test_tolerances_are_the_callers(monkeypatch):
    wrong(monkeypatch, lambda g, y, x: g * np.cos(x) * 1.001)
    with pytest.raises(AssertionError):
        check_gradients(tg.sin, X)
    report = check_gradients(tg.sin, X, rtol=0.01)
    assert 5e-4 < report.max_rel_error < 2e-3
    assert check_gradients(tg.sin, X, atol=0.1, rtol=0.0).checked == 6


def test_the_step_is_the_callers():
    coarse = check_gradients(tg.exp, [1.0], eps=1e-2, rtol=1e-3)
    # The error of a two-sided difference is h**2 / 6 of the third derivative.
    np.testing.assert_allclose(coarse.max_rel_error, 1e-4 / 6, rtol=1e-2)


def test_the_random_cotangent_is_the_callers(monkeypatch):
    seen = []
    wrong(monkeypatch, lambda g, y, x: seen.append(g.copy()) or g * np.cos(x))
    for seed in (1, 1, 2):
        check_gradients(tg.sin, X, seed=seed)
    ones, first, _, again, _, other = seen
    np.testing.assert_array_equal(ones, 1.0)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert (first < 0).any() and (first > 0).any()


def test_the_backend_is_the_callers():
    tg.set_backend("auto")
    check_gradients(tg.sin, X, backend="native")
    assert tg.last_backward().backend == "native"
    assert tg.get_backend() == "auto"


def test_nothing_is_left_behind():
    x = tg.param(X)
    check_gradients(tg.sin, x)
    assert x.grad is None
    assert [e.op for e in tg.tape()] == ["param"]


def test_a_gradient_cut_short_is_found():
    def stopped(x):
        return x * x.detach()

    with pytest.raises(AssertionError, match=r"inputs\[0\] at index \(\)"):
        check_gradients(stopped, 3.0)


@dataclass
class Layer:
    w: object
    b: object


def layers(model, x):
    return tg.tanh(x @ model[0]["w"]) @ model[1].w + model[1].b


def test_a_structure_is_checked_leaf_by_leaf(monkeypatch):
    model = [{"w": tg.param(X.T)}, Layer(tg.param(X[0, :2]), b=0.5)]
    report = check_gradients(layers, model, X)
    assert [g.shape for g in report.gradients] == [(3, 2), (2,), (), (2, 3)]
    assert report.checked == 15
    np.testing.assert_allclose(report.gradients[1], np.tanh(X @ X.T).sum(axis=0), rtol=1e-12)
    assert check_gradients(lambda p: p["w"] * p["b"], {"w": X, "b": 2.0}).checked == 7
    assert check_gradients(lambda p: p[0] @ p[1], [tg.param(X), tg.param(X.T)]).checked == 12
    assert check_gradients(lambda x: x[0] * x[1], [tg.tensor(X), X]).checked == 12  # an array
    monkeypatch.setitem(VJPS, "sin", (lambda g, y, x: 2.0 * g,))
    with pytest.raises(AssertionError, match=r"inputs\[1\]\['w'\] at index \(0,\)"):
        check_gradients(lambda x, p: x * tg.sin(p["w"]), 1.0, {"w": np.array([0.5])})


@pytest.mark.parametrize("inputs", [(), ({},)])
def test_a_check_of_nothing_is_an_error(inputs):
    w = tg.param(2.0)
    with pytest.raises(TypeError, match=r"check_gradients: .*Pass the parameters: .*lambda w: "):
        check_gradients(lambda *_: w * w, *inputs)
