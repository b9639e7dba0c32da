"""Names of other libraries, and what to write here: the tables, and the errors that say so.

A name costs only who asks for it and finds none. On tensors each is a descriptor, for a
``__getattr__`` of the class would make every other attribute slower.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from tapegraph.errors import explain

_NUMPYS = "x itself, whose array is NumPy's"
_IN_PLACE = "x.assign(value) for a parameter, under tg.no_grad() also x -= step; or x = x + y"
# Attributes of PyTorch's tensors, of TensorFlow's and of JAX's arrays.
ON_TENSORS = {
    "add_": _IN_PLACE,
    "assign_add": _IN_PLACE,
    "assign_sub": _IN_PLACE,
    "at": "np.where(mask, value, x) for x.at[mask].set(value), tg.add_at(x, i, y) for .add(y)",
    "bmm": "x @ y",
    "chunk": "np.split(x, n)",
    "clamp": "x.clip(low, high)",
    "clone": "x.copy()",
    "contiguous": _NUMPYS,
    "copy_": _IN_PLACE,
    "cpu": _NUMPYS,
    "cuda": _NUMPYS,
    "device": _NUMPYS,
    "dim": "x.ndim",
    "div_": _IN_PLACE,
    "double": 'x.astype("float64")',
    "expand": "np.broadcast_to(x, shape)",
    "expand_as": "np.broadcast_to(x, y.shape)",
    "fill_": _IN_PLACE,
    "float": 'x.astype("float32")',
    "gather": "np.take_along_axis(x, indices, axis)",
    "grad_fn": "x.op and x.inputs",
    "half": 'x.astype("float32"): half precision has no gradient here',
    "index_select": "x.take(indices, axis)",
    "is_leaf": "not x.inputs",
    "log_softmax": "tg.log_softmax(x, axis)",
    "long": 'x.astype("int64")',
    "logsumexp": "tg.logsumexp(x, axis)",
    "masked_fill": "np.where(mask, value, x)",
    "matmul": "x @ y",
    "mm": "x @ y",
    "mul_": _IN_PLACE,
    "narrow": "x[start:stop]",
    "nelement": "x.size",
    "norm": "tg.norm(x)",
    "numel": "x.size",
    "permute": "x.transpose(axes)",
    "pow": "x ** y",
    "register_hook": "x.retain_grad(), and x.grad after backward()",
    "requires_gradient": "x.requires_grad",
    "scatter_": "np.where(mask, value, x)",
    "index_add": "tg.add_at(x, indices, y)",
    "index_add_": "tg.add_at(x, indices, y)",
    "scatter_add": "tg.add_at(x, indices, y)",
    "scatter_add_": "tg.add_at(x, indices, y)",
    "split": "np.split(x, n)",
    "sub_": _IN_PLACE,
    "t": "x.T",
    "to": 'x.astype("float32") for a dtype; ' + _NUMPYS,
    "tile": "np.tile(x, counts)",
    "type": "x.astype(dtype)",
    "unbind": "list(x)",
    "unsqueeze": "np.expand_dims(x, axis), or x[:, None]",
    "view": "x.reshape(shape)",
    "view_as": "x.reshape(y.shape)",
    "zero_": _IN_PLACE,
}
_ARRAY = "tg.param(array) for what is learned, tg.tensor(array) for a constant"
_FUNCTIONS = "functions such as tg.relu, which stand in tapegraph itself"
# Names at the top of PyTorch, TensorFlow and JAX.
AT_THE_TOP = {
    "GradientTape": "tg.grad(f), or result.backward()",
    "Parameter": "tg.param(array)",
    "Variable": "tg.param(array)",
    "arange": f"np.arange; {_ARRAY}",
    "array": _ARRAY,
    "as_tensor": _ARRAY,
    "asarray": _ARRAY,
    "bmm": "tg.matmul",
    "cat": "tg.concat",
    "chunk": "tg.split",
    "clamp": "tg.clip",
    "constant": "tg.tensor(array)",
    "cross_entropy": "tg.softmax_crossentropy(logits, labels)",
    "embedding": "table[indices]",
    "eye": f"np.eye; {_ARRAY}",
    "flatten": "tg.ravel",
    "from_numpy": _ARRAY,
    "functional": _FUNCTIONS,
    "full": f"np.full; {_ARRAY}",
    "jit": "tg.compile",
    "manual_seed": "tg.random.seed",
    "masked_fill": "tg.where(mask, value, x)",
    "mm": "tg.matmul",
    "nn": f"{_FUNCTIONS}, and tg.param for weights",
    "numel": "x.size",
    "ones": f"np.ones; {_ARRAY}",
    "permute": "tg.transpose(x, axes)",
    "rand": "tg.random.uniform",
    "randint": "tg.random.integers",
    "randn": "tg.random.normal",
    "randperm": "tg.random.permutation",
    "reduce_max": "tg.max",
    "reduce_mean": "tg.mean",
    "reduce_sum": "tg.sum",
    "unsqueeze": "tg.expand_dims",
    "view": "tg.reshape",
    "vmap": "broadcasting over a leading axis",
    "zeros": f"np.zeros; {_ARRAY}",
}
# Keywords of PyTorch's functions.
KEYWORDS = {"dim": "axis", "dims": "axes", "keepdim": "keepdims", "correction": "ddof"}


class Elsewhere:
    """Stands in a class for a name of another library: to ask for it is an AttributeError."""

    def __init__(self, name: str, ours: str) -> None:
        self._name = name
        self._ours = ours
        self.__doc__ = None  # pages of the API leave out what has none

    def __get__(self, x: Any, owner: type) -> NoReturn:
        received = f"{self._name!r}, a name of another library's"
        fix = f"Did you mean {self._ours}?"
        text = explain(owner.__name__, received, f"an attribute of {owner.__name__}", fix)
        raise AttributeError(text, name=self._name, obj=x)


class OtherLibraries:
    """The names that other libraries' arrays have, as a base class; ``dir`` does not show them."""

    __slots__ = ()

    def __dir__(self) -> Iterable[str]:
        return [name for name in super().__dir__() if name not in ON_TENSORS]


for _name, _ours in ON_TENSORS.items():
    setattr(OtherLibraries, _name, Elsewhere(_name, _ours))


def missing(name: str, numpys: str = "") -> AttributeError:
    """Return the error of a name that is not at the top of the library.

    - numpys: The text to write where NumPy has a function of the name that takes tensors.
    """
    ours = AT_THE_TOP.get(name) or numpys
    if not ours:
        return AttributeError(f"module 'tapegraph' has no attribute {name!r}")
    received = f"{name!r}, a name of another library's"
    fix = f"Did you mean {ours}?"
    return AttributeError(explain("tapegraph", received, "an attribute of tapegraph", fix))


@functools.cache  # two names of one function stay one
def translated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that says which keyword another library's is here."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if not options:
            return function(*args)
        try:
            return function(*args, **options)
        except TypeError as error:
            trace = error.__traceback__
            if trace is None or trace.tb_next is not None:  # it was called
                raise
            for theirs in options.keys() & KEYWORDS.keys():
                raise _keyword(function, theirs, options[theirs]) from None
            raise

    return call


def takes_other_keywords(function: Any) -> bool:
    """Return whether a function takes one of our keywords that other libraries call otherwise."""
    if not inspect.isfunction(function):
        return False
    code = function.__code__  # a signature would take ten times as long, at every import
    taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return any(ours in taken for ours in KEYWORDS.values())


def _keyword(function: Callable[..., Any], theirs: str, value: Any) -> TypeError:
    name = function.__name__
    taken = list(inspect.signature(function).parameters)
    expected = f"arguments among {', '.join(n for n in taken if n != 'self')}"
    fix = f"Did you mean {KEYWORDS[theirs]}={value!r}?"
    return TypeError(explain(name, f"{theirs}={value!r}", expected, fix))
