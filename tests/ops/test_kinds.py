"""An operation's kind says how its result depends on its operands: the cases prove it."""

from __future__ import annotations

import numpy as np
import pytest

from tapegraph.recording.op import OPS, OpKind
from tests.entries import entries

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # at singular points


def of_kind(*kinds: OpKind) -> list[str]:
    return sorted(name for name, op in OPS.items() if op.kind in kinds)


def result(name, operands, attrs):
    op = OPS[name]
    out = op.forward(*operands, **attrs)
    return np.asarray(out[0] if op.saves else out)


@pytest.mark.parametrize("name", of_kind(OpKind.ELEMENTWISE))
def test_an_element_depends_on_those_in_its_place(name):
    for out, operands, attrs in entries(name):
        spread = np.broadcast_arrays(*operands)
        assert out.shape == spread[0].shape
        for place in (slice(0, 1), slice(1, None)):
            alone = result(name, [np.atleast_1d(x)[place] for x in spread], attrs)
            np.testing.assert_allclose(alone, np.atleast_1d(out)[place], rtol=1e-13)


@pytest.mark.parametrize("name", of_kind(OpKind.SHAPE, OpKind.INDEX))
def test_every_element_is_one_of_the_operands(name):
    for out, operands, _ in entries(name):
        if name == "scatter":  # adds where places repeat
            assert np.sum(out) == pytest.approx(np.sum(operands[0]))
        else:
            taken = operands if OPS[name].kind is OpKind.SHAPE else operands[:1]
            given = np.concatenate([np.ravel(x) for x in taken])
            assert np.isin(out[~np.isnan(out)], given).all()


@pytest.mark.parametrize("name", of_kind(OpKind.REDUCTION))
def test_the_axes_go_or_become_of_length_one(name):
    for out, operands, attrs in entries(name):
        kept = {k: v for k, v in attrs.items() if k in ("axis", "keepdims")}
        assert out.shape == np.sum(operands[0], **kept).shape


@pytest.mark.parametrize("name", of_kind(OpKind.ALONG))
def test_the_axes_stay(name):
    for out, operands, _ in entries(name):
        assert out.ndim == operands[0].ndim


@pytest.mark.parametrize("name", of_kind(OpKind.CONTRACTION))
def test_the_result_is_linear_in_each_operand(name):
    for out, operands, attrs in entries(name):
        for i, x in enumerate(operands):
            doubled = [*operands[:i], 2.0 * x, *operands[i + 1 :]]
            np.testing.assert_array_equal(result(name, doubled, attrs), 2.0 * out)


def test_operands_are_compared_in_their_common_dtype():
    single, integer, double = map(np.dtype, ("f4", "i8", "f8"))
    assert OPS["less"].converts([single, integer], np.dtype(bool)) == (double, double)
    assert OPS["less"].converts([single, 2.0], np.dtype(bool)) == (single, single)
    assert OPS["add"].converts([single, integer], double) == (double, double)
    assert OPS["where"].converts([np.dtype(bool), single, 0.0], single) == (None, None, single)
    assert OPS["sum"].converts([single], single) == (None,)
    assert OPS["sum"].converts([np.dtype(bool)], integer) == (integer,)
    assert OPS["gather"].converts([single, integer], single) == (None, None)
    assert OPS["abs"].converts([np.dtype("c8")], single) == (None,)
    assert OPS["rfft"].converts([single], np.dtype("c8")) == (None,)
