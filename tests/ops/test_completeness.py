"""Every operation and every public name has all its parts; a new one that lacks a part fails."""

from __future__ import annotations

import inspect

import numpy as np

import tapegraph as tg
from tapegraph.differentiation.jvps import JVPS
from tapegraph.fallback import VJPS
from tapegraph.lowering import GAPS, LOWERINGS
from tapegraph.ops import elementwise, index, special
from tapegraph.recording.numpy_functions import COUNTERPARTS, PLAIN
from tapegraph.recording.op import OPS, PART
from tests.cases import CASES, COMPLEX_CASES, WITHOUT_GRADIENT

# Operations that users reach by indexing, or by another name.
UNNAMED = {
    "from_parts": elementwise.from_parts,
    "getitem": index.getitem,
    "index": index.getitem,
    "round_to": elementwise.astype,
    "scatter": index.scatter,
    "bessel_i": special.i0,
    "bessel_j": special.j0,
}

PUBLIC = """
    param tensor Tensor backward no_grad zero_grad tape tape_reset SGD Value vsum grad Dual jvp
    set_backend get_backend use_backend set_forward get_forward use_forward last_backward
    testing.check_gradients
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

DIFFERENTIABLE = {name for name, op in OPS.items() if op.differentiable != ()}


def found(owner, path):
    """What an owner has under a dotted name, or None."""
    for part in path.split("."):
        owner = getattr(owner, part, None)
    return owner


def documented(value):
    return value is not None and bool(value.__doc__)


def test_every_operation_is_public_and_documented_with_an_example():
    functions = {
        op: UNNAMED.get(op) or found(tg.fft, op) or found(tg, op) or found(tg.special, op)
        for op in DIFFERENTIABLE
        if OPS[op].plain is None  # derivatives alone record those with strong zeros
    }
    assert [op for op, f in functions.items() if not documented(f) or ">>> " not in f.__doc__] == []


def test_every_operation_has_a_gradient_for_each_differentiable_input():
    flows = {
        op: (OPS[op].differentiable or (True,) * len(row), tuple(rule is not None for rule in row))
        for op, row in VJPS.items()
        if isinstance(row, tuple)
    }
    assert {op: both for op, both in flows.items() if both[0] != both[1]} == {}


def test_rules_are_for_the_operations_that_exist():
    assert set(VJPS) == DIFFERENTIABLE
    assert set(JVPS) < DIFFERENTIABLE


def test_every_operation_has_a_lowering_or_a_gap_that_says_why():
    assert set(LOWERINGS) | set(GAPS) == {*OPS, PART.name}
    assert set(LOWERINGS) & set(GAPS) == set()
    of_complex = {name for name, row in LOWERINGS.items() if row.complex} - {PART.name}
    assert {name for name in of_complex if not (OPS[name].takes_complex or name == "rfft")} == set()
    assert all(GAPS.values())


def test_cases_have_names_of_their_own_and_name_an_operation():
    every = (*CASES, *WITHOUT_GRADIENT)
    assert len({case.id for case in every}) == len(every)
    assert {case.op for case in (*CASES, *COMPLEX_CASES)} == DIFFERENTIABLE
    assert {case.op for case in WITHOUT_GRADIENT} == set(OPS) - DIFFERENTIABLE


def test_public_names_exist_and_are_documented():
    assert [name for name in PUBLIC if not documented(found(tg, name))] == []


def test_only_public_names_are_shown():
    assert dir(tg) == sorted([*tg.__all__, "lowering"])
    assert all(hasattr(tg, name) for name in dir(tg))


def test_tensors_have_what_the_contract_names():
    assert [name for name in ON_TENSORS if not hasattr(tg.Tensor, name)] == []


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


def test_numpy_functions_are_recorded_and_have_cases():
    names = {path: path.rpartition(".")[2] for path in NUMPY}
    assert [path for path in NUMPY if found(np, path) not in COUNTERPARTS] == []
    assert [name for name in names.values() if not documented(found(tg, name))] == []
    # What an empty array holds is nobody's to say, so there is nothing to compare.
    without = [name for name in names.values() if not has_case(SAME.get(name, name))]
    assert without == ["empty_like"]


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
        if theirs not in COUNTERPARTS or numpys(theirs) is None:
            continue
        known = numpys(theirs) | BESIDE.get(name, set())
        different[name] = inspect.signature(ours).parameters.keys() - known
    assert {name: other for name, other in different.items() if other} == {}


def test_special_functions_are_public_and_have_cases():
    assert [name for name in SPECIAL if not documented(found(tg.special, name))] == []
    assert [name for name in SPECIAL if not has_case(name)] == []


def test_positions_are_plain():
    positions = ("argsort", "argmax", "argmin", "searchsorted")
    assert [name for name in positions if getattr(np, name) not in PLAIN] == []
