"""Names of other libraries and their counterparts here: the tables, and the errors.

Tensors have descriptors: a ``__getattr__`` of the class would slow every other attribute down.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from tapegraph.errors import message, sentence

_NUMPYS = "x itself, whose array is NumPy's"
_AT = (
    "np.where(np.arange(len(x)) == i, value, x) for x.at[i].set(value), np.where(mask, value, x) "
    "for a mask, tg.add_at(x, i, y) for x.at[i].add(y)"
)
_IN_PLACE = "x.assign(value) for a parameter, under tg.no_grad() also x -= step; or x = x + y"
_PARTS = "np.split(x, n, axis), where n is the number of parts, or the indices to split at"
_MEMORY = "x.numpy() for an array of its own memory"
# Attributes of PyTorch's tensors, of TensorFlow's and JAX's arrays, and of NumPy's.
ON_TENSORS = {
    **dict.fromkeys(
        ("add_", "assign_add", "assign_sub", "copy_", "div_", "fill_", "mul_", "sub_", "zero_"),
        _IN_PLACE,
    ),
    **dict.fromkeys(("base", "byteswap", "ctypes", "strides"), _MEMORY),
    **dict.fromkeys(("block_until_ready", "contiguous", "cpu", "cuda"), _NUMPYS),
    **dict.fromkeys(("bmm", "matmul", "mm"), "x @ y"),
    **dict.fromkeys(("chunk", "split"), _PARTS),
    **dict.fromkeys(("clamp", "clamp_"), "x.clip(low, high)"),
    **dict.fromkeys(("masked_fill", "masked_fill_", "scatter_"), "np.where(mask, value, x)"),
    **dict.fromkeys(("nelement", "numel"), "x.size"),
    **dict.fromkeys(("read_value", "value"), "x itself, or x.numpy()"),
    **dict.fromkeys(("requires_gradient", "trainable"), "x.requires_grad"),
    **dict.fromkeys(
        ("index_add", "index_add_", "scatter_add", "scatter_add_"), "tg.add_at(x, indices, y)"
    ),
    "_id": "tg.grad(f), or result.backward(): a tf.GradientTape knows only TensorFlow's tensors",
    "at": _AT,
    "clone": "x.copy()",
    "detach_": "x.detach()",
    "dim": "x.ndim",
    "double": 'x.astype("float64")',
    "expand": "np.broadcast_to(x, shape)",
    "expand_as": "np.broadcast_to(x, y.shape)",
    "flags": f"{_MEMORY}; scipy.fft takes tensors under scipy.fft.set_backend(tg.fft)",
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
    "t": "x.T",
    "to": 'x.astype("float32") for a dtype; ' + _NUMPYS,
    "tile": "np.tile(x, counts)",
    "tobytes": "x.numpy().tobytes()",
    "tofile": "x.numpy().tofile(file)",
    "topk": "tg.topk(x, k, axis)",
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
_DTYPES = ("bool_", "complex128", "complex64", "float32", "float64", "int32", "int64")
_REDUCTIONS = ("logsumexp", "max", "mean", "min", "prod", "sum")
_SCHEDULES = "lr=, a number or a function of the step; tg.optim.schedules has some"
_LOGITS = "tg.binary_crossentropy(logits, targets), of logits"
_PROCESSES = "tg.distributed.DataParallel, which averages gradients over processes"
_NAN = "tg.anomaly(), which finds the first NaN"
_HERE = "the array itself, which lies in NumPy's memory"
# Names at the top of PyTorch, TensorFlow, JAX and micrograd.
AT_THE_TOP = {
    **dict.fromkeys(
        ("Embedding", "Layer", "Linear", "MLP", "Module", "Neuron", "keras", "layers"), _LAYERS
    ),
    **dict.fromkeys(("F", "functional"), _FUNCTIONS),
    **dict.fromkeys(("Function", "pure_callback"), "tg.defop, for a function of arrays"),
    **dict.fromkeys(("Parameter", "Variable"), "tg.param(array)"),
    **dict.fromkeys(("amp", "autocast"), _HALF),
    **dict.fromkeys(("as_tensor", "asarray", "convert_to_tensor", "from_numpy"), _ARRAY),
    **dict.fromkeys(("binary_cross_entropy", "binary_cross_entropy_with_logits"), _LOGITS),
    **dict.fromkeys(("bmm", "mm"), "tg.matmul"),
    **dict.fromkeys(("checkify", "debug_nans", "debugging", "detect_anomaly"), _NAN),
    **dict.fromkeys(("device", "device_put", "devices"), _HERE),
    **dict.fromkeys(("inference_mode", "set_grad_enabled"), "tg.no_grad()"),
    **dict.fromkeys(("map", "map_fn", "vectorize", "vectorized_map"), "tg.vmap(f)(xs)"),
    **dict.fromkeys(("pmap", "pmean", "psum", "shard_map"), _PROCESSES),
    **dict.fromkeys(("recompute_grad", "remat"), "tg.checkpoint(f)"),
    **dict.fromkeys(("clamp", "clip_by_value"), "tg.clip"),
    **dict.fromkeys(("clip_by_global_norm", "clip_grad_norm_"), "tg.clip_grad_norm"),
    **dict.fromkeys(("manual_seed", "set_seed"), "tg.random.seed"),
    **{name: f"np.{name}" for name in _DTYPES},
    **{name: f"np.{name}; {_ARRAY}" for name in ("arange", "full", "ones", "zeros")},
    **{f"reduce_{name}": f"tg.{name}" for name in _REDUCTIONS},
    "DataLoader": "tg.data.batches(x, y, size=n, shuffle=True)",
    "GradientTape": "tg.grad(f), or result.backward()",
    "TensorArray": "a list of results and np.stack(results); tg.scan stacks its own",
    "adaptive_avg_pool2d": "np.mean(x, axis=(2, 3)) for an output of 1, else tg.avg_pool2d",
    "associative_scan": "tg.scan(f, init, xs), or np.cumsum for sums",
    "autograd": "tg.gradients(y, xs) for grad, tg.defop for Function",
    "boolean_mask": "x[mask]",
    "cast": "x.astype(dtype)",
    "cat": "tg.concat",
    "chunk": "tg.split, which takes the number of parts",
    "clip_grad_value_": "tg.clip_grad_value",
    "config": "tg.set_default_dtype, tg.set_backend, and the environment's TAPEGRAPH_ variables",
    "constant": "tg.tensor(array)",
    "cross_entropy": "tg.softmax_crossentropy(logits, labels)",
    "cuda": 'tg.set_backend("tensorflow"), which runs on the devices that TensorFlow sees',
    "custom_gradient": "tg.custom_vjp",
    "custom_root": "tg.optim.root(f, x0)",
    "debug": "print, in eager code; tg.anomaly(), which finds the first NaN",
    "device_get": "x.numpy()",
    "disable_jit": "tg.compile_disabled()",
    "draw_dot": "tg.draw(result)",
    "dynamic_slice": "np.take(x, start + np.arange(size), axis)",
    "dynamic_update_slice": "np.concatenate((x[:i], y, x[i + len(y) :]))",
    "embedding": "tg.gather(table, indices), whose gradient is row-sparse",
    "enable_grad": "code outside tg.no_grad()",
    "enable_x64": 'tg.set_default_dtype("float64"), the default',
    "eval_shape": "f(x).shape",
    "flatten": "tg.ravel",
    "func": "tg.grad, tg.vjp, tg.jvp, tg.jacobian, tg.hessian, tg.vmap",
    "functional_call": "a function of the parameters: tg.grad(f)(params, x)",
    "gather_nd": "x[i, j], with arrays of indices",
    "gradcheck": "tg.testing.check_gradients",
    "huber_loss": "tg.smooth_l1",
    "identity": "x, or x.copy()",
    "index_select": "np.take(x, indices, axis)",
    "interpolate": "np.repeat(np.repeat(x, 2, axis=2), 2, axis=3), for the nearest",
    "is_tensor": "isinstance(x, tg.Tensor)",
    "jit": "tg.compile",
    "kl_div": "np.sum(p * (np.log(p) - log_q))",
    "l1_loss": "np.mean(np.abs(a - b))",
    "lax": "NumPy's functions; tg.scan, tg.while_loop, tg.cond and the like for loops and branches",
    "linear": "x @ w + b, with w of shape (in, out)",
    "linear_transpose": "tg.vjp(f, x)[1]",
    "load_state_dict": "tg.load(path, into=model)",
    "logsigmoid": "tg.special.log_expit",
    "losses": "functions such as tg.softmax_crossentropy",
    "lr_scheduler": _SCHEDULES,
    "make_jaxpr": "tg.draw(f(x)), or the explain() of a compiled step",
    "masked_fill": "tg.where(mask, value, x)",
    "math": "functions such as tg.exp, which stand in tapegraph itself",
    "metrics": "np.mean(np.argmax(logits, axis=1) == labels), and the like",
    "nll_loss": "tg.softmax_crossentropy(logits, classes)",
    "nn": f"{_FUNCTIONS}, and tg.param for weights",
    "numel": "x.size",
    "numpy": "NumPy itself: its functions take tensors",
    "optimizers": "tg.SGD, tg.Adam and the like",
    "permute": "tg.transpose(x, axes)",
    "profiler": "tg.profile()",
    "ragged": "one array, padded by np.pad, and a mask",
    "rand": "tg.random.uniform",
    "randint": "tg.random.integers",
    "randn": "tg.random.normal",
    "randperm": "tg.random.permutation",
    "saved_model": "tg.export(f, path, x)",
    "scipy": "tg.special, tg.linalg, tg.fft, tg.optim, tg.integrate",
    "segment_max": (
        "np.max(np.where(segments == np.arange(n)[:, None], x.T[..., None, :], -np.inf), axis=-1).T"
    ),
    "segment_sum": "tg.add_at(np.zeros((n, *x.shape[1:])), segments, x)",
    "switch_case": "tg.switch",
    "tensor_scatter_nd_add": "tg.add_at(x, indices, y)",
    "tensor_scatter_nd_update": "np.where(mask, values, x)",
    "top_k": "tg.topk",
    "train": "tg.save and tg.load for checkpoints, tg.Adam and the like for optimizers",
    "tree_map": "tg.tree.map",
    "tree_util": "tg.tree",
    "unsqueeze": "tg.expand_dims",
    "utils": "tg.clip_grad_norm, tg.data.batches",
    "view": "tg.reshape",
}
_INITIAL = ("kaiming_normal", "kaiming_uniform", "orthogonal", "xavier_normal", "xavier_uniform")
_NO_KEY = "tg.random.seed(n) once, and draws without a key"
_UNIFORM = "tg.random.uniform(size=shape)"
_BY_PLACE = "x[tg.random.integers(len(x), size=n)], or x[tg.random.permutation(len(x))[:n]]"
# Names of random functions in PyTorch, JAX and NumPy.
AT_RANDOM = {
    **dict.fromkeys(("PRNGKey", "fold_in", "key", "split"), _NO_KEY),
    **dict.fromkeys(("manual_seed", "set_seed"), "tg.random.seed"),
    **dict.fromkeys(("rand", "random"), "tg.random.uniform"),
    **dict.fromkeys(("randn", "standard_normal"), "tg.random.normal"),
    **{f"{name}_": f"w = tg.param(tg.random.{name}(shape))" for name in _INITIAL},
    "bernoulli": f"{_UNIFORM} < p, or tg.random.dropout_mask",
    "categorical": f"np.argmax(logits - np.log(-np.log({_UNIFORM})), axis=-1), of that shape",
    "choice": _BY_PLACE,
    "default_rng": "tg.random.seed(n), and tg.random.normal, uniform or integers",
    "exponential": f"-np.log1p(-{_UNIFORM})",
    "gamma": "tg.random.generator().gamma, outside compiled steps",
    "gumbel": f"-np.log(-np.log({_UNIFORM}))",
    "multivariate_normal": "mean + np.linalg.cholesky(cov) @ tg.random.normal(size=n)",
    "randint": "tg.random.integers",
    "randperm": "tg.random.permutation",
    "shuffle": "tg.random.permutation",
}
_SOLUTION = "tg.integrate.odeint(f, y0, t), whose f takes y before t"
# Names of SciPy, PyTorch, optax and JAX in the modules of these names.
IN_MODULES = {
    "data": dict.fromkeys(
        ("DataLoader", "Dataset", "TensorDataset"),
        "tg.data.batches(x, y, size=n, shuffle=True)",
    ),
    "random": AT_RANDOM,
    "optim": {
        **dict.fromkeys(("fsolve", "newton", "root_scalar"), "tg.optim.root(f, x0)"),
        **dict.fromkeys(
            ("least_squares", "leastsq"), "tg.optim.minimize(lambda x: np.sum(f(x) ** 2), x0)"
        ),
        "LBFGS": 'tg.optim.minimize(f, x0, method="L-BFGS-B")',
        "adam": "tg.optim.Adam",
        "adamw": "tg.optim.AdamW",
        "apply_updates": "optimizer.step(), which changes the parameters",
        "chain": "tg.optim.clip_grad_norm(params, n), and then optimizer.step()",
        "clip_by_global_norm": "tg.optim.clip_grad_norm",
        "clip_grad_norm_": "tg.optim.clip_grad_norm",
        "clip_grad_value_": "tg.optim.clip_grad_value",
        "curve_fit": "tg.optim.minimize(lambda p: np.sum((f(x, *p) - y) ** 2), p0)",
        "lr_scheduler": _SCHEDULES,
        "minimize_scalar": "tg.optim.minimize(f, x0)",
        "sgd": "tg.optim.SGD",
    },
    "integrate": {
        **dict.fromkeys(("RK45", "ode", "solve_ivp"), _SOLUTION),
        "odeint_adjoint": "tg.integrate.odeint(f, y0, t, adjoint=True)",
        "quad": "x, w = np.polynomial.legendre.leggauss(n), and w @ f(x) for [-1, 1]",
        "trapezoid": "np.trapezoid, which takes tensors",
    },
    "tree": {
        **dict.fromkeys(
            ("register_dataclass", "register_pytree_node", "register_pytree_node_class"),
            "a @dataclass, which is a tree as it stands",
        ),
        "map_with_path": "tg.parameters(tree), a dict of paths to parameters",
        "transpose": "tg.tree.map(lambda *parts: parts, *trees)",
    },
}

_WITHOUT = "the call without it"
_STATIC = "the argument alone: numbers but floats, strings and None are static"
# Keywords of PyTorch, TensorFlow, Keras and JAX; functions that other code calls often name none.
KEYWORDS = {
    **dict.fromkeys(("beta_1", "beta_2"), "betas=(beta_1, beta_2)"),
    **dict.fromkeys(("backend", "mode"), "tg.set_backend, which chooses the engine"),
    **dict.fromkeys(("clipnorm", "global_clipnorm"), "tg.clip_grad_norm before optimizer.step()"),
    **dict.fromkeys(("autograph", "donate_argnums", "unroll", "use_reentrant"), _WITHOUT),
    **dict.fromkeys(("back_prop", "parallel_iterations", "swap_memory"), _WITHOUT),
    **dict.fromkeys(("generator", "seed"), "rng="),
    **dict.fromkeys(("input_signature", "reduce_retracing"), 'on_retrace="raise"'),
    **dict.fromkeys(("stddev", "std"), "scale="),
    **dict.fromkeys(("grad_outputs", "gradient"), "seed="),
    **dict.fromkeys(("static_argnames", "static_argnums"), _STATIC),
    "axis_name": _PROCESSES,
    "axis_size": "tg.vmap(lambda _: f(x))(np.arange(n)) for n examples",
    "clipvalue": "tg.clip_grad_value before optimizer.step()",
    "create_graph": "tg.gradients(y, xs, create_graph=True)",
    "device": _HERE,
    "drop_remainder": "drop_last=",
    "epsilon": "eps=",
    "fullgraph": "the call without it: a step is one program",
    "in_dims": "in_axes=",
    "initializer": "tg.scan(f, init, xs)",
    "inputs": "tg.gradients(y, inputs)",
    "jit_compile": "xla=",
    "key": _NO_KEY,
    "learning_rate": "lr=",
    "maximum_iterations": "max_steps=",
    "maxval": "high=",
    "mean": "loc=",
    "minval": "low=",
    "operand": "the operands by position, after the functions",
    "out_dims": "out_axes=",
    "policy": "tg.checkpoint(g) for each part g that is to run again",
    "requires_grad": "tg.param(array), or x.requires_grad_()",
    "retain_graph": "y.backward(), as often as you like: a recording lives as long as its results",
    "rho": "alpha=",
    "shape": "size=",
    "trainable": "tg.tensor(array) for a constant",
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
    where, ours = f"tapegraph.{module}", IN_MODULES[module].get(name)
    if ours is None:
        return AttributeError(f"module {where!r} has no attribute {name!r}")
    return AttributeError(_hint(where, name, ours))
