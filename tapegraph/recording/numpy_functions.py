"""Map NumPy's functions to those that record them; on others, on tensors, raise errors."""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tapegraph.errors import message, sentence
from tapegraph.recording.lost_gradients import caller_of
from tapegraph.recording.node import Node
from tapegraph.recording.scopes import recorder
from tapegraph.typed import Fun

F = TypeVar("F", bound=Fun)
_POSITIONAL, _KEYWORD = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY
_BY_PLACE = (_POSITIONAL, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (_KEYWORD, inspect.Parameter.POSITIONAL_OR_KEYWORD)
# NumPy 2.0's names of parameters that were renamed in 2.1.
_RENAMED = {"newshape": "shape"}

_UFUNC_OPTIONS: dict[str, Any] = {
    "where": True,
    "casting": "same_kind",
    "order": "K",
    "dtype": None,
    "subok": True,
}
_EMPTY = inspect.Parameter.empty

# From NumPy's function or ufunc to the function that records it.
COUNTERPARTS: dict[Any, Fun] = {}
# The same for calls with one argument, which need no adapting and take half the time.
OF_ONE: dict[Any, Fun] = {}
# The functions that record SciPy's ufuncs, by name: SciPy itself is not imported for them.
SCIPY: dict[str, Fun] = {}
# Functions that return only shapes and dtypes.
DESCRIPTIONS: set[Any] = {
    *(np.shape, np.ndim, np.size, np.result_type, np.can_cast, np.min_scalar_type),
    *(np.array_repr, np.array_str, np.array2string, np.iscomplexobj, np.isrealobj),
}
# Functions without a gradient: they take and return plain arrays. `without_gradient` adds those
# that a compiled step records.
PLAIN: set[Any] = DESCRIPTIONS | {
    *(np.left_shift, np.right_shift, np.nanargmax, np.nanargmin, np.digitize),
    *(np.nonzero, np.flatnonzero, np.argwhere),
}
# Their recording functions in a compiled step, where there are any.
WITHOUT_GRADIENT: dict[Any, Fun] = {}
# A ufunc's method and the NumPy function that it is.
METHODS: dict[tuple[Any, str], Any] = {
    (np.add, "reduce"): np.sum,
    (np.multiply, "reduce"): np.prod,
    (np.maximum, "reduce"): np.max,
    (np.minimum, "reduce"): np.min,
    (np.add, "accumulate"): np.cumsum,
    (np.multiply, "accumulate"): np.cumprod,
}
# NumPy's in-place functions, and their alternatives.
IN_PLACE: dict[Any, str] = {
    np.copyto: "Write dst = np.where(mask, src, dst), or dst = src for all of it.",
    np.fill_diagonal: "Write x = np.where(np.eye(len(x), dtype=bool), value, x).",
    np.place: "Write x = np.where(mask, values, x).",
    np.put: "Write x = np.where(mask, values, x), or join the parts with np.concatenate.",
    np.put_along_axis: "Write x = np.where(mask, values, x).",
    np.putmask: "Write x = np.where(mask, values, x).",
}
# Functions that lose the origin of numbers, and their alternatives.
REFUSED: dict[Any, str] = {
    np.resize: "Write np.reshape(np.tile(x, n)[:size], shape), or np.pad.",
    np.save: "Write np.save(file, tensor.numpy()).",
    np.savetxt: "Write np.savetxt(file, tensor.numpy()).",
    np.savez: "Write np.savez(file, name=tensor.numpy()).",
    np.savez_compressed: "Write np.savez_compressed(file, name=tensor.numpy()).",
    np.unique: "Find the indices first, _, i = np.unique(x.detach().numpy(), return_index=True), "
    "and take them, np.ravel(x)[i].",
}
# The nearest differentiable function of one that is not.
NEAREST: dict[Any, str] = {
    **dict.fromkeys(
        (np.intersect1d, np.setdiff1d, np.union1d),
        "Find the indices first, of x.detach().numpy(), and take them, np.ravel(x)[i].",
    ),
    np.apply_along_axis: "Call the functions with axis=, or np.stack the results of a loop.",
    np.apply_over_axes: "Call the function with axis=(0, 1).",
    np.bincount: "Write tg.add_at(np.zeros(n), indices, weights).",
    np.correlate: "Write np.convolve(a, np.conj(v)[::-1], mode).",
    np.digitize: 'Write np.searchsorted(bins, x, side="right") for bins that rise.',
    np.ediff1d: "Write np.diff(np.ravel(x)).",
    np.fix: "Write np.trunc(x).",
    np.i0: "Call tg.special.i0(x).",
    np.lexsort: "Sort detached keys, i = np.lexsort(keys), and take x[i].",
    np.linalg.cond: "Write s = np.linalg.svd(x, compute_uv=False), and s[0] / s[-1].",
    np.linalg.matrix_rank: "It is a count: call it on tensor.detach().numpy().",
    np.linalg.tensorinv: "Reshape to a matrix and call np.linalg.inv.",
    np.linalg.tensorsolve: "Reshape to a matrix and call np.linalg.solve.",
    np.modf: "Write np.trunc(x), and x - np.trunc(x).",
    np.nancumprod: "Write np.cumprod(np.where(np.isnan(x), 1.0, x), axis).",
    np.nancumsum: "Write np.cumsum(np.where(np.isnan(x), 0.0, x), axis).",
    np.nanmedian: "Write np.median(x[~np.isnan(x.data)]).",
    np.nanpercentile: "Write np.percentile(x[~np.isnan(x.data)], q).",
    np.nanprod: "Write np.prod(np.where(np.isnan(x), 1.0, x), axis).",
    np.nanquantile: "Write np.quantile(x[~np.isnan(x.data)], q).",
    np.piecewise: "Write np.select(conditions, choices), or np.where.",
    np.poly: "Multiply by np.convolve, root by root.",
    np.polyfit: "Write np.linalg.lstsq(powers, y)[0], where powers = x[:, None] ** np.arange(n).",
    np.roots: "Write np.linalg.eigvals of the companion matrix.",
    np.trim_zeros: "Find the indices first, of x.detach().numpy(), and write x[start:stop].",
    np.unwrap: "Write x + 2 * np.pi * k, with whole numbers k found from x.detach().numpy().",
    np.vander: "Write x[:, None] ** np.arange(n)[::-1].",
}
# SciPy's ufuncs that `tapegraph.autograd.scipy.special` differentiates; jn is jv for SciPy.
WRAPPED = "betainc erfcinv gammainc gammaincc iv ive jv rgamma y0 y1 yn".split()
# The nearest of SciPy's, by name.
NEAREST_TO_SCIPY = {
    "scipy.special.exp10": "Write 10.0 ** x.",
    "scipy.special.kl_div": "Write tg.special.xlogy(x, x / y) - x + y.",
    "scipy.special.ndtri": "Write np.sqrt(2) * tg.special.erfinv(2 * p - 1).",
    "scipy.special.rel_entr": "Write tg.special.xlogy(x, x / y).",
    **{
        f"scipy.special.{name}": "Call tapegraph.autograd.scipy.special."
        f"{'jn' if name == 'jv' else name}, which records in eager code."
        for name in WRAPPED
    },
}
_AS_A_CHOICE = "Write np.where for a choice by numbers; shapes cannot depend on them."
# NumPy's assignment adds once at a place that is there twice.
ADD_AT = (
    "For a[i] += b write a = tg.add_at(a, i, b), which adds at repeated indices too, where += adds "
    "once; or np.where."
)
_SUM_AT = "Write x = tg.add_at(x, indices, values), which adds up at repeated indices too."
_FIX = "Write tensor.detach().numpy() to compute without a gradient, or register it with tg.defop."


def implements(*functions: object, table: dict[Any, Fun] = COUNTERPARTS) -> Callable[[F], F]:
    """Register the function that records NumPy's ``functions``.

    Parameters match by name, the first by place; one that it lacks must have NumPy's default.
    """

    def register(recording: F) -> F:
        for function in functions:
            table[function] = _adapted(function, recording)
            if table is COUNTERPARTS:
                OF_ONE[function] = recording
        return recording

    return register


def without_gradient(*functions: object) -> Callable[[F], F]:
    PLAIN.update(functions)
    return implements(*functions, table=WITHOUT_GRADIENT)


def array_ufunc(x: Any, called: Any, method: str, *inputs: Any, **options: Any) -> Any:
    if len(inputs) == 1 and called in OF_ONE and method == "__call__" and not options:
        return OF_ONE[called](inputs[0])  # the hot path
    if len(inputs) > 1 and any(map(wraps_arrays, inputs)):
        return NotImplemented
    if method == "__call__":
        if not options and called in COUNTERPARTS:
            return COUNTERPARTS[called](*inputs)
        return _run(called, _name(called), inputs, options)
    name = _name(called)
    if method == "outer" and len(inputs) == 2 and not options and _recording(called) is not None:
        a, b = inputs
        column = np.reshape(a, np.shape(a) + (1,) * np.ndim(b))
        return _run(called, name, (column, b), {})
    if (called, method) in METHODS:
        function = METHODS[called, method]
        if method == "reduce":  # a reduction's axis is 0 by default, a function's is all
            first = 0 if np.ndim(inputs[0]) else None
            options = {"axis": inputs[1] if len(inputs) > 1 else first, **options}
        else:
            options = {"axis": 0, **options}
        return _run(function, f"{name}.{method}", inputs[:1], options)
    fix = _FIX
    if method == "at":
        fix = _SUM_AT if called in (np.add, np.subtract) else "Write x = np.where(mask, values, x)."
    raise TypeError(sentence(f"{name}.{method}", f"the method has no gradient. {fix}"))


def array_function(
    x: object, called: Any, types: object, args: Any, options: dict[str, object]
) -> Any:
    if not options and called in COUNTERPARTS and recorder().capture is None:  # the hot path
        if len(args) == 1 and called in OF_ONE:
            return OF_ONE[called](*args)
        return COUNTERPARTS[called](*args)
    return _run(called, f"{called.__module__}.{called.__name__}", args, options)


def is_known(called: object) -> bool:
    return _recording(called) is not None or called in PLAIN


def is_float(value: object) -> bool:
    return hasattr(type(value), "__tapegraph_float__")


def promote_runtime_floats(value: Any, others: Iterable[object]) -> Any:
    """Convert per-call floats to tensors of the dtype that a plain number would take."""
    if isinstance(value, (list, tuple)):
        kind = list if isinstance(value, list) else tuple  # a named one takes its fields apart
        return kind(promote_runtime_floats(part, ()) for part in value)
    if not is_float(value):
        return value
    dtypes = [getattr(x, "dtype", None) for x in others if not is_float(x)]
    floats = [dtype for dtype in dtypes if getattr(dtype, "kind", "") == "f"]
    return value.__tapegraph_float__(np.result_type(*floats) if floats else np.dtype(np.float64))


def wraps_arrays(value: object) -> bool:
    """Return whether a value holds arrays and computes ufuncs itself, as xarray's do."""
    kind = type(value)
    if getattr(kind, "__array_ufunc__", None) is None or issubclass(kind, (np.ndarray, Node)):
        return False
    if hasattr(kind, "__arrow_c_stream__") and not hasattr(kind, "__array_priority__"):
        return False
    return not (hasattr(kind, "__tapegraph_apply__") or hasattr(kind, "__pandas_priority__"))


def _name(called: Any) -> str:
    name: str = called.__name__
    for library, module in (("numpy", np), ("scipy.special", sys.modules.get("scipy.special"))):
        if getattr(module, name, None) is called:
            return f"{library}.{name}"
    return name


def _recording(called: object) -> Fun | None:
    found = COUNTERPARTS.get(called)
    if found is None and isinstance(called, np.ufunc) and called.__name__ in SCIPY:
        if _name(called).startswith("scipy"):
            found = COUNTERPARTS[called] = _adapted(called, SCIPY[called.__name__])
    return found


def _run(called: Any, name: str, args: tuple[object, ...], options: dict[str, object]) -> Any:
    out = options.get("out")
    if any(o is not None for o in (out if isinstance(out, tuple) else (out,))):
        text = (
            "out= does not take tensors. Leave it out; for a += b write a = a + b. For w.data -= "
            f"step write with tg.no_grad(): w -= step, or give it step.numpy(). {ADD_AT}"
        )
        raise TypeError(sentence(name, text))
    args, options = recorder().met(args, options)
    recording = _recording(called)
    if recording is not None:
        return recording(*args, **options)
    if called in DESCRIPTIONS:
        return called(*map(_described, args), **{k: _described(v) for k, v in options.items()})
    if called in PLAIN:
        if called in WITHOUT_GRADIENT and recorder().records(*args, *options.values()):
            return WITHOUT_GRADIENT[called](*args, **options)
        plain = functools.partial(detached, fix=NEAREST.get(called) or _AS_A_CHOICE)
        return called(*map(plain, args), **{k: plain(v) for k, v in options.items()})
    given = (*args, *options.values())
    if called in IN_PLACE:
        raise TypeError(sentence(name, f"a tensor cannot change in place. {IN_PLACE[called]}"))
    if recorder().records(*given) or any(map(_needs_gradient, given)):
        if isinstance(called, np.ufunc) and name == called.__name__:  # SciPy's function calls it
            name = caller_of(sys._getframe(1)) or name
        nearest = NEAREST.get(called) or NEAREST_TO_SCIPY.get(name, "")
        fix = REFUSED.get(called) or f"{nearest} {_FIX}".strip()
        raise TypeError(sentence(name, f"the function has no gradient. {fix}"))
    return called(*map(_copied, args), **{k: _copied(v) for k, v in options.items()})


def _needs_gradient(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_needs_gradient, value))
    return bool(getattr(value, "requires_grad", False))


def _copied(value: object) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_copied, value))
    return np.array(value._array) if isinstance(value, Node) else value


def _described(value: Any) -> Any:
    if is_batched(value):
        return np.broadcast_to(np.zeros((), value.dtype), value.shape)
    return peek(value)


def detached(value: object, fix: str = _AS_A_CHOICE) -> Any:
    """Return a tensor's array, also in lists and tuples; raise if a captured program has it."""
    recorder().read(value, "a plain array", fix)
    return peek(value)


def under(value: object) -> Any:
    """Return the tensor under all levels of forward mode, and anything else unchanged."""
    while hasattr(value, "primal"):
        value = value.primal
    return value


def innermost(value: Any) -> Any:
    """Return the tensor under all levels: the value in forward mode, all examples of `vmap`."""
    while hasattr(value, "primal") or is_batched(value):
        value = value.primal if hasattr(value, "primal") else value.inner
    return value


def numbers(value: Any) -> Any:
    """Return a tensor's array for indices and masks; in a compiled step the detached tensor."""
    if hasattr(value, "primal"):
        value = under(value)
    if recorder().records(value):
        return value.detach() if value.requires_grad else value
    return detached(value)


def array_of(value: object) -> Any:
    """Return the same as `numbers`, and anything else as an array."""
    return numbers(value) if recorder().records(value) else np.asarray(detached(value))


def is_batched(value: Any) -> bool:
    """Return whether a value, or one in lists and tuples, is of many examples (`tg.vmap`)."""
    if isinstance(value, (list, tuple)):
        return any(map(is_batched, value))
    if hasattr(type(value), "primal"):
        return is_batched(value.primal)
    return hasattr(type(value), "__tapegraph_batched__")


def peek(value: object) -> Any:
    """Return a tensor's array only to check input; a compiled step does not repeat the check."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(peek, value))
    value = innermost(value)
    if isinstance(value, Node):
        return value._array
    detach = getattr(value, "detach", None)
    return np.asarray(detach().data) if detach is not None else value


class _Taken(NamedTuple):
    """How a call of NumPy's function maps to ours: the number of places, and the names."""

    signature: inspect.Signature
    places: int
    names: frozenset[str]
    takes: Mapping[str, inspect.Parameter]


@functools.cache
def _taken(called: Any, recording: Fun) -> _Taken | None:
    """Compare the arguments of two functions; None if ours takes any call."""
    try:
        ufunc = isinstance(called, np.ufunc)
        signature = _ufunc_signature(called) if ufunc else inspect.signature(called)
    except (TypeError, ValueError):  # written in C without one
        return None
    theirs, takes = signature.parameters, inspect.signature(recording).parameters
    if any(p.kind is p.VAR_POSITIONAL for p in takes.values()):
        return None
    pairs = zip([*theirs.values()][1:], [*takes.values()][1:], strict=False)  # after the first
    alike = itertools.takewhile(lambda pair: _is_one_place(*pair), pairs)
    shared = (n for n in theirs.keys() & takes.keys() if theirs[n].kind in _BY_NAME)
    # A keyword of ours may receive NumPy's word for no value, which is tested.
    names = frozenset(n for n in shared if takes[n].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return _Taken(signature, 1 + len(list(alike)), names, takes)


def _is_one_place(theirs: inspect.Parameter, ours: inspect.Parameter) -> bool:
    by_place = theirs.kind in _BY_PLACE and ours.kind in _BY_PLACE
    return by_place and (theirs.name == ours.name or theirs.kind is _POSITIONAL)


def _adapted(called: Any, recording: Fun) -> Fun:
    """Return ``recording`` with NumPy's own signature, which is read at the first call."""

    @functools.wraps(recording)
    def adapted(*args: object, **options: object) -> Any:
        if len(args) <= 1 and not options:
            return recording(*args)
        taken = _taken(called, recording)
        if taken is None or (len(args) <= taken.places and options.keys() <= taken.names):
            return recording(*args, **options)
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for name, value in taken.signature.bind(*args, **options).arguments.items():
            parameter = taken.signature.parameters[name]
            if parameter.kind is parameter.VAR_KEYWORD:
                default = _UFUNC_OPTIONS.get
                named |= {k: v for k, v in value.items() if not _is_default(v, default(k, _EMPTY))}
            elif parameter.kind is _POSITIONAL or not (positional or named):
                positional.append(value)
            elif (ours := _RENAMED.get(name, name)) in taken.takes and ours not in named:
                if value is not parameter.default:
                    named[ours] = value
            elif not _is_default(value, parameter.default):
                ufunc = isinstance(called, np.ufunc)
                title = _name(called) if ufunc else f"numpy.{called.__name__}"
                received, fix = f"{name}={value!r} with a tensor", f"Leave {name}= at its default."
                expected = f"the arguments of tg.{recording.__name__}"
                raise TypeError(message(title, received, expected, fix))
        return recording(*positional, **named)

    return adapted


def _ufunc_signature(called: np.ufunc) -> inspect.Signature:
    """Return a ufunc's signature, which NumPy has from 2.4 on."""
    defaults = dict(_UFUNC_OPTIONS)
    if called.signature is not None:  # of vectors and matrices
        del defaults["where"]
        defaults |= {"axes": None, "axis": None, "keepdims": False}
    arrays = [inspect.Parameter(f"x{i}", _POSITIONAL) for i in range(1, called.nin + 1)]
    options = [inspect.Parameter(k, _KEYWORD, default=v) for k, v in defaults.items()]
    return inspect.Signature([*arrays, inspect.Parameter("out", _KEYWORD, default=None), *options])


def _is_default(value: object, default: object) -> bool:
    """Return whether an argument is NumPy's default, or None, which means it."""
    if value is None or value is default:
        return True
    return type(value) is type(default) and bool(np.all(value == default))
