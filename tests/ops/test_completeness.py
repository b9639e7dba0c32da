"""Every operation and every public name has all its parts; a new one that lacks a part fails."""

from __future__ import annotations

import functools
import inspect

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.differentiation.jvps import JVPS
from tapegraph.fallback import VJPS
from tapegraph.lowering import GAPS, LOWERINGS
from tapegraph.ops import index, special
from tapegraph.recording.numpy_functions import PLAIN, RECORDED
from tapegraph.recording.op import OPS
from tests.cases import CASES, WITHOUT_GRADIENT

# Operations that users reach by indexing, or by another name.
UNNAMED = {
    "getitem": index.getitem,
    "index": index.getitem,
    "scatter": index.scatter,
    "bessel_i": special.i0,
    "bessel_j": special.j0,
}

PUBLIC = """
    param tensor Tensor backward no_grad zero_grad tape tape_reset SGD Value vsum grad Dual jvp
    set_backend get_backend use_backend last_backward testing.check_gradients
    testing.check_parity add subtract multiply divide power sub mul div pow neg sin cos tan exp
    log sqrt tanh sigmoid relu abs gelu silu softplus log_softmax matmul batch_matmul transpose
    sum mean softmax reshape tensor_slice concat gather where layer_norm conv2d max_pool2d
    avg_pool2d softmax_crossentropy mse_loss dropout random.normal random.uniform
    random.dropout_mask random.integers random.permutation random.seed random.get_state
    random.set_state random.generator Optimizer Adam AdamW RMSprop Adagrad Lion clip_grad_norm
    clip_grad_value optim.SGD optim.schedules compile compile_disabled
""".split()

ON_TENSORS = """
    data grad shape dtype ndim size T name op inputs requires_grad item numpy detach assign
    zero_grad retain_grad backward sum mean reshape transpose __len__ __iter__ __getitem__
""".split()

every_op = pytest.mark.parametrize("op", sorted(OPS))
DIFFERENTIABLE = {name for name, op in OPS.items() if op.differentiable != ()}
every_differentiable_op = pytest.mark.parametrize("op", sorted(DIFFERENTIABLE))


@every_op
def test_has_cases(op):
    labels = [case.label for case in (*CASES, *WITHOUT_GRADIENT) if case.op == op]
    assert labels, f"add rows for {op!r} to tests/cases/"


@every_differentiable_op
def test_is_public_and_documented_with_an_example(op):
    function = UNNAMED.get(op) or getattr(tg, op, None) or getattr(tg.special, op)
    assert ">>> " in function.__doc__


@every_differentiable_op
def test_has_a_gradient_for_each_differentiable_input(op):
    row = VJPS[op]
    if isinstance(row, tuple):
        flows = OPS[op].differentiable or (True,) * len(row)
        assert tuple(rule is not None for rule in row) == flows


@every_op
def test_has_a_lowering_or_is_a_named_gap(op):
    assert (op in LOWERINGS) != (op in GAPS), "a lowering, or a gap with its reason, and not both"


@pytest.mark.parametrize("rules", [VJPS, JVPS], ids=["gradients", "tangents"])
def test_rules_are_for_the_operations_that_exist(rules):
    assert set(rules) == DIFFERENTIABLE


def test_every_gap_says_why():
    assert set(LOWERINGS) | set(GAPS) == set(OPS)
    assert all(GAPS.values())


def test_cases_have_names_of_their_own_and_name_an_operation():
    every = (*CASES, *WITHOUT_GRADIENT)
    assert len({case.id for case in every}) == len(every)
    assert {case.op for case in CASES} == DIFFERENTIABLE
    assert {case.op for case in WITHOUT_GRADIENT} == set(OPS) - DIFFERENTIABLE


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_exists_and_is_documented(name):
    value = tg
    for part in name.split("."):
        value = getattr(value, part)
    assert value.__doc__


def test_only_public_names_are_shown():
    assert dir(tg) == sorted([*tg.__all__, "lowering"])
    assert all(hasattr(tg, name) for name in dir(tg))


@pytest.mark.parametrize("name", ON_TENSORS)
def test_tensor_has_what_the_contract_names(name):
    assert hasattr(tg.Tensor, name)


# ------------------------------------------------------------------ NumPy's functions

NUMPY = """
maximum minimum fmax fmin clip square cbrt reciprocal sign log1p expm1 log2 log10 exp2 sinh cosh
arcsin arccos arctan arcsinh arccosh arctanh arctan2 hypot logaddexp logaddexp2 fabs absolute
positive negative float_power true_divide mod remainder floor ceil rint trunc sinc deg2rad
rad2deg heaviside nan_to_num where select sum mean prod max amax min amin var std cumsum cumprod
nansum nanmean ptp average median trapezoid diff dot vdot inner outer matmul tensordot einsum
kron cross trace diagonal linalg.norm linalg.inv linalg.solve linalg.det linalg.slogdet
linalg.cholesky linalg.eigh linalg.svd linalg.pinv linalg.matrix_power linalg.multi_dot
linalg.lstsq reshape ravel transpose swapaxes moveaxis rollaxis squeeze expand_dims broadcast_to
broadcast_arrays atleast_1d atleast_2d atleast_3d concatenate stack vstack hstack dstack
column_stack split array_split tile repeat pad roll flip fliplr flipud rot90 take
take_along_axis compress diag diagflat tril triu extract sort partition choose zeros_like
ones_like full_like empty_like copy real imag
""".split()
SPECIAL = """
erf erfc erfcx erfinv gamma gammaln gammasgn loggamma digamma polygamma beta betaln expit logit
log_expit xlogy xlog1py entr ndtr log_ndtr i0 i1 j0 j1 softplus log_softmax logsumexp
""".split()
# NumPy's second names, by the one that the cases use.
SAME = {"absolute": "abs", "amax": "max", "amin": "min", "fabs": "abs", "true_divide": "div"}


def has_case(name):
    return any(case.op == name or name in case.label for case in CASES)


@pytest.mark.parametrize("path", NUMPY)
def test_numpy_function_is_recorded_and_has_cases(path):
    name = path.rpartition(".")[2]
    assert functools.reduce(getattr, path.split("."), np) in RECORDED
    assert getattr(tg, name).__doc__
    # What an empty array holds is nobody's to say, so there is nothing to compare.
    assert has_case(SAME.get(name, name)) or name == "empty_like"


# Parameters that NumPy's function takes without naming them, or not before 2.1.
BESIDE = {
    "clip": {"max", "min"},
    "pad": {"constant_values", "reflect_type"},
    "reshape": {"shape"},
}


def numpys(function):
    """The names of the parameters of NumPy's function; None where it does not tell them."""
    if isinstance(function, np.ufunc):
        return {"x"} if function.nin == 1 else {"x1", "x2", "axis"}  # of vectors
    try:
        return set(inspect.signature(function).parameters)
    except ValueError:  # written in C
        return None


def test_parameters_have_numpys_names():
    different = {}
    for name in tg.__all__:
        theirs = getattr(np, name, None) or getattr(np.linalg, name, None)
        ours = getattr(tg, name)
        if theirs not in RECORDED or numpys(theirs) is None:
            continue
        known = numpys(theirs) | BESIDE.get(name, set())
        different[name] = inspect.signature(ours).parameters.keys() - known
    assert {name: other for name, other in different.items() if other} == {}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_function_is_public_and_has_cases(name):
    assert getattr(tg.special, name).__doc__
    assert has_case(name)


@pytest.mark.parametrize("name", ["argsort", "argmax", "argmin", "searchsorted"])
def test_positions_are_plain(name):
    assert getattr(np, name) in PLAIN
