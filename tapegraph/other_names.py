"""Names of other libraries and their counterparts here: the tables, and the errors.

On tensors each name is a descriptor: a ``__getattr__`` of the class would slow every other
attribute down.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from tapegraph.errors import message, sentence

_NUMPYS = "x itself, whose array is NumPy's"
_IN_PLACE = "x.assign(value) for a parameter, under tg.no_grad() also x -= step; or x = x + y"
_PARTS = "np.split(x, n, axis), where n is the number of parts, or the places to cut at"
_MEMORY = "x.numpy() for an array of its own memory"
# Attributes of PyTorch's tensors, of TensorFlow's and JAX's arrays, and of NumPy's.
ON_TENSORS = {
    **dict.fromkeys(
        ("add_", "assign_add", "assign_sub", "copy_", "div_", "fill_", "mul_", "sub_", "zero_"),
        _IN_PLACE,
    ),
    **dict.fromkeys(("base", "byteswap", "ctypes", "flags", "strides"), _MEMORY),
    **dict.fromkeys(("block_until_ready", "contiguous", "cpu", "cuda"), _NUMPYS),
    **dict.fromkeys(("bmm", "matmul", "mm"), "x @ y"),
    **dict.fromkeys(("chunk", "split"), _PARTS),
    **dict.fromkeys(("clamp", "clamp_"), "x.clip(low, high)"),
    **dict.fromkeys(("masked_fill", "masked_fill_", "scatter_"), "np.where(mask, value, x)"),
    **dict.fromkeys(("nelement", "numel"), "x.size"),
    **dict.fromkeys(
        ("index_add", "index_add_", "scatter_add", "scatter_add_"), "tg.add_at(x, indices, y)"
    ),
    "_id": "tg.grad(f), or result.backward(): a tf.GradientTape knows TensorFlow's tensors alone",
    "at": "np.where(mask, value, x) for x.at[mask].set(value), tg.add_at(x, i, y) for .add(y)",
    "clone": "x.copy()",
    "detach_": "x.detach()",
    "dim": "x.ndim",
    "double": 'x.astype("float64")',
    "expand": "np.broadcast_to(x, shape)",
    "expand_as": "np.broadcast_to(x, y.shape)",
    "float": 'x.astype("float32")',
    "gather": "np.take_along_axis(x, indices, axis)",
    "get_shape": "x.shape",
    "grad_fn": "x.op and x.inputs",
    "half": 'x.astype("float16"), which rounds: float32 holds the result',
    "index_select": "x.take(indices, axis)",
    "is_leaf": "not x.inputs",
    "log_softmax": "tg.log_softmax(x, axis)",
    "long": 'x.astype("int64")',
    "logsumexp": "tg.logsumexp(x, axis)",
    "narrow": "x[start:stop]",
    "norm": "tg.norm(x)",
    "permute": "x.transpose(axes)",
    "pow": "x ** y",
    "register_hook": "x.retain_grad(), and x.grad after backward(); tg.custom_vjp changes it",
    "requires_gradient": "x.requires_grad",
    "t": "x.T",
    "to": 'x.astype("float32") for a dtype; ' + _NUMPYS,
    "tile": "np.tile(x, counts)",
    "tobytes": "x.numpy().tobytes()",
    "tofile": "x.numpy().tofile(file)",
    "trainable": "x.requires_grad",
    "type": "x.astype(dtype)",
    "unbind": "list(x)",
    "unsqueeze": "np.expand_dims(x, axis), or x[:, None]",
    "view": "x.reshape(shape)",
    "view_as": "x.reshape(y.shape)",
}
_STEP = "loss.backward(), and then optimizer.step()"
# Attributes of Keras's, PyTorch's and optax's optimizers.
ON_OPTIMIZERS = {
    **dict.fromkeys(("apply", "apply_gradients", "minimize", "update_step"), _STEP),
    **dict.fromkeys(("learning_rate", "get_lr", "set_lr"), "optimizer.lr"),
    **dict.fromkeys(("trainable_variables", "variables"), "optimizer.params"),
    "add_param_group": "a new optimizer of all parameters: its groups are fixed",
    "get_config": "optimizer.state_dict()",
    "iterations": "optimizer.steps",
    "param_groups": "optimizer.lr, or optimizer.groups, each with its own lr",
}
_ARRAY = "tg.param(array) for a parameter, tg.tensor(array) for a constant"
_HALF = 'float32 parameters, and x.astype("float16") to round: nothing computes in half precision'
_LAYERS = "tg.param for weights, in functions, dicts or classes of your own"
_FUNCTIONS = "functions such as tg.relu, which stand in tapegraph itself"
_HERE = "the array itself, which lies in NumPy's memory"
# Names at the top of PyTorch, TensorFlow, JAX and micrograd.
AT_THE_TOP = {
    **dict.fromkeys(("Embedding", "Layer", "Linear", "MLP", "Module", "Neuron"), _LAYERS),
    **dict.fromkeys(("F", "functional"), _FUNCTIONS),
    **dict.fromkeys(("Parameter", "Variable"), "tg.param(array)"),
    **dict.fromkeys(("amp", "autocast"), _HALF),
    **dict.fromkeys(("as_tensor", "asarray", "from_numpy"), _ARRAY),
    **dict.fromkeys(("bmm", "mm"), "tg.matmul"),
    **dict.fromkeys(("device_put", "devices"), _HERE),
    **dict.fromkeys(("inference_mode", "set_grad_enabled"), "tg.no_grad()"),
    "DataLoader": "tg.data.batches(x, y, size=n, shuffle=True)",
    "GradientTape": "tg.grad(f), or result.backward()",
    "arange": f"np.arange; {_ARRAY}",
    "boolean_mask": "x[mask]",
    "cast": "x.astype(dtype)",
    "cat": "tg.concat",
    "chunk": "tg.split, which takes the number of parts",
    "clamp": "tg.clip",
    "clip_by_global_norm": "tg.clip_grad_norm",
    "clip_by_value": "tg.clip",
    "clip_grad_norm_": "tg.clip_grad_norm",
    "clip_grad_value_": "tg.clip_grad_value",
    "constant": "tg.tensor(array)",
    "convert_to_tensor": _ARRAY,
    "cross_entropy": "tg.softmax_crossentropy(logits, labels)",
    "custom_gradient": "tg.custom_vjp",
    "detect_anomaly": "tg.anomaly()",
    "draw_dot": "tg.draw(result)",
    "embedding": "tg.gather(table, indices), whose gradient is row-sparse",
    "enable_grad": "code outside tg.no_grad()",
    "eval_shape": "f(x).shape",
    "flatten": "tg.ravel",
    "func": "tg.grad, tg.vjp, tg.jvp, tg.jacobian, tg.hessian",
    "full": f"np.full; {_ARRAY}",
    "gather_nd": "x[i, j], with arrays of places",
    "identity": "x, or x.copy()",
    "jit": "tg.compile",
    "keras": _LAYERS,
    "lax": "NumPy's functions; tg.scan, tg.while_loop, tg.cond and the like for loops and branches",
    "layers": _LAYERS,
    "linear": "x @ w + b, with w of shape (in, out)",
    "losses": "functions such as tg.softmax_crossentropy",
    "lr_scheduler": "lr=, a number or a function of the step; tg.optim.schedules has some",
    "manual_seed": "tg.random.seed",
    "map_fn": "tg.vmap(f)(xs)",
    "masked_fill": "tg.where(mask, value, x)",
    "nll_loss": "tg.softmax_crossentropy(logits, classes)",
    "nn": f"{_FUNCTIONS}, and tg.param for weights",
    "numel": "x.size",
    "ones": f"np.ones; {_ARRAY}",
    "optimizers": "tg.SGD, tg.Adam and the like",
    "permute": "tg.transpose(x, axes)",
    "pmap": "tg.distributed, which averages gradients over processes",
    "profiler": "tg.profile()",
    "rand": "tg.random.uniform",
    "randint": "tg.random.integers",
    "randn": "tg.random.normal",
    "randperm": "tg.random.permutation",
    "recompute_grad": "tg.checkpoint(f)",
    "reduce_logsumexp": "tg.logsumexp",
    "reduce_max": "tg.max",
    "reduce_mean": "tg.mean",
    "reduce_min": "tg.min",
    "reduce_prod": "tg.prod",
    "reduce_sum": "tg.sum",
    "remat": "tg.checkpoint(f)",
    "saved_model": "tg.export(f, path, x)",
    "segment_sum": "tg.add_at(np.zeros(n), segments, x)",
    "switch_case": "tg.switch",
    "tree_map": "tg.tree.map",
    "unsqueeze": "tg.expand_dims",
    "utils": "tg.clip_grad_norm, tg.data.batches",
    "vectorized_map": "tg.vmap(f)(xs)",
    "view": "tg.reshape",
    "zeros": f"np.zeros; {_ARRAY}",
}
# Names of random functions in PyTorch, JAX and NumPy.
AT_RANDOM = {
    **dict.fromkeys(("PRNGKey", "key"), "tg.random.seed(n), once: draws take no key"),
    **dict.fromkeys(("rand", "random"), "tg.random.uniform"),
    **dict.fromkeys(("randn", "standard_normal"), "tg.random.normal"),
    "bernoulli": "tg.random.uniform(size=shape) < p, or tg.random.dropout_mask",
    "default_rng": "tg.random.seed(n), or tg.random.generator()",
    "manual_seed": "tg.random.seed",
    "randint": "tg.random.integers",
    "shuffle": "tg.random.permutation",
    "split": "the same functions again: draws take no key",
}
_BY_MINIMUM = "tg.optim.minimize(lambda x: np.sum(f(x) ** 2), x0)"
_BY_ROOT = "tg.optim.root(f, x0)"
_SOLUTION = "tg.integrate.odeint(f, y0, t), whose f takes y before t"
# Names of SciPy, PyTorch, optax and JAX in the modules of these names.
IN_MODULES = {
    "random": AT_RANDOM,
    "optim": {
        "LBFGS": 'tg.optim.minimize(f, x0, method="L-BFGS-B")',
        "adam": "tg.optim.Adam",
        "adamw": "tg.optim.AdamW",
        "clip_by_global_norm": "tg.optim.clip_grad_norm",
        "clip_grad_norm_": "tg.optim.clip_grad_norm",
        "clip_grad_value_": "tg.optim.clip_grad_value",
        "curve_fit": "tg.optim.minimize(lambda p: np.sum((f(x, *p) - y) ** 2), p0)",
        "fsolve": _BY_ROOT,
        "least_squares": _BY_MINIMUM,
        "leastsq": _BY_MINIMUM,
        "lr_scheduler": "lr=, a number or a function of the step; tg.optim.schedules has some",
        "minimize_scalar": "tg.optim.minimize(f, x0)",
        "newton": _BY_ROOT,
        "root_scalar": _BY_ROOT,
        "sgd": "tg.optim.SGD",
    },
    "integrate": {
        "RK45": _SOLUTION,
        "ode": _SOLUTION,
        "odeint_adjoint": "tg.integrate.odeint(f, y0, t, adjoint=True)",
        "solve_ivp": _SOLUTION,
        "trapezoid": "np.trapezoid, which takes tensors",
    },
}

_STATIC = "the argument alone: numbers but floats, strings and None are static"
# Keywords of PyTorch, TensorFlow, Keras and JAX; functions that other code calls often name none.
KEYWORDS = {
    **dict.fromkeys(("beta_1", "beta_2"), "betas=(beta_1, beta_2)"),
    **dict.fromkeys(("clipnorm", "global_clipnorm"), "tg.clip_grad_norm before optimizer.step()"),
    **dict.fromkeys(("generator", "seed"), "rng="),
    **dict.fromkeys(("static_argnames", "static_argnums"), _STATIC),
    "clipvalue": "tg.clip_grad_value before optimizer.step()",
    "create_graph": "tg.gradients(y, xs, create_graph=True)",
    "drop_remainder": "drop_last=",
    "epsilon": "eps=",
    "gradient": "seed=",
    "inputs": "tg.gradients(y, inputs)",
    "jit_compile": "xla=",
    "learning_rate": "lr=",
    "retain_graph": "y.backward(), as often as you like: a recording lives as long as its results",
    "rho": "alpha=",
}


def unexpected(op: str, names: Iterable[str]) -> TypeError:
    """Return the error of keywords that a function does not take, by the first of them."""
    name = next(iter(names))
    hint = f" Did you mean {KEYWORDS[name]}?" if name in KEYWORDS else ""
    return TypeError(sentence(op, f"unexpected keyword argument {name!r}.{hint}"))


class Elsewhere:
    """Stands in a class for a name of another library; reading it is an AttributeError."""

    def __init__(self, name: str, ours: str) -> None:
        self._name = name
        self._ours = ours
        self.__doc__ = None  # pages of the API omit names without one

    def __get__(self, x: object, owner: type) -> NoReturn:
        text = _hint(owner.__name__, self._name, self._ours)
        raise AttributeError(text, name=self._name, obj=x)


class NeverSet(Elsewhere):
    """One whose assignment, which would have no effect, is an AttributeError too."""

    def __set__(self, x: object, value: object) -> NoReturn:
        self.__get__(x, type(x))


class OtherArrays:
    """The names of other libraries' arrays, as a base class; ``dir`` does not show them."""

    __slots__ = ()

    def __dir__(self) -> Iterable[str]:
        return [name for name in super().__dir__() if name not in ON_TENSORS]


class OtherOptimizers:
    """The names of other libraries' optimizers, as a base class; ``dir`` does not show them."""

    def __dir__(self) -> Iterable[str]:
        return [name for name in super().__dir__() if name not in ON_OPTIMIZERS]


for _kind, _names in ((OtherArrays, ON_TENSORS), (OtherOptimizers, ON_OPTIMIZERS)):
    for _name, _ours in _names.items():
        made = NeverSet if _name == "learning_rate" else Elsewhere
        setattr(_kind, _name, made(_name, _ours))


def missing(name: str, numpys: str = "") -> AttributeError:
    """Return the error of a name that the library lacks, but ``numpys`` may have."""
    ours = AT_THE_TOP.get(name) or numpys
    if not ours:
        return AttributeError(f"module 'tapegraph' has no attribute {name!r}")
    return AttributeError(_hint("tapegraph", name, ours))


def _hint(where: str, name: str, ours: str) -> str:
    received, fix = f"{name!r}, a name of another library's", f"Did you mean {ours}?"
    return message(where, received, f"an attribute of {where}", fix)


def missing_in(module: str, name: str) -> AttributeError:
    """Return the error of a name that a module of the library lacks."""
    where, ours = f"tapegraph.{module}", IN_MODULES[module].get(name)
    if ours is None:
        return AttributeError(f"module {where!r} has no attribute {name!r}")
    return AttributeError(_hint(where, name, ours))
