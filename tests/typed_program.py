"""A user's program for `test_types`: what mypy says of each line, and of which type the value is.

Beside a ``reveal_type`` stands the type; beside a mistake, mypy's code for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import tapegraph as tg
import tapegraph.autograd as ag
import tapegraph.autograd.numpy as anp
from tapegraph.autograd.extend import primitive
from tapegraph.autograd.scipy.stats import norm

Floats = npt.NDArray[np.float64]

x = tg.param([[1.0, 2.0], [3.0, 4.5]])
vector = tg.tensor([1.0, 2.0])
dual = tg.Dual([1.0, 2.0], [1.0, 0.0])
value = tg.Value(2.0)
array: Floats = np.array([1.0, 2.0])
numbers = np.array([1.0, 2.0])  # of any type, says NumPy
mask = array > 1.0

# Element by element

reveal_type(tg.exp(x))  # Tensor
reveal_type(tg.exp(dual))  # Dual
reveal_type(tg.exp(value))  # Value
reveal_type(tg.exp(array))  # Tensor
reveal_type(tg.exp(1.0))  # Tensor
reveal_type(tg.exp([1, 2]))  # Tensor
reveal_type(tg.exp([[1, 2.0], (3, 4)]))  # Tensor
reveal_type(tg.exp(np.float32(1.0)))  # Tensor
reveal_type(tg.log1p(x))  # Tensor
reveal_type(tg.sign(dual))  # Tensor
reveal_type(tg.special.erf(dual))  # Dual
reveal_type(tg.special.polygamma(1, x))  # Tensor
reveal_type(tg.add(x, 1))  # Tensor
reveal_type(tg.add(x, dual))  # Dual
reveal_type(tg.add(1.0, dual))  # Dual
reveal_type(tg.add(value, 1))  # Value
reveal_type(tg.add(1, value))  # Value
reveal_type(tg.add(1.0, 2.0))  # Tensor
reveal_type(tg.multiply(x, array))  # Tensor
reveal_type(tg.maximum(vector, dual))  # Dual
reveal_type(tg.clip(x, 0.0, 1.0))  # Tensor
reveal_type(tg.clip(dual, max=1.0))  # Dual
reveal_type(tg.clip(x, numbers, None))  # Tensor
reveal_type(tg.clip(x, dual, None))  # Dual
reveal_type(tg.nan_to_num(dual, nan=1.0))  # Dual
reveal_type(tg.copysign(array, dual))  # Tensor

# Operators

reveal_type(x * 2)  # Tensor
reveal_type(2 * x)  # Tensor
reveal_type(2.0 - x)  # Tensor
reveal_type(2**x)  # Tensor
reveal_type(x / array)  # Tensor
reveal_type(array / x)  # Tensor
reveal_type(array @ x)  # Tensor
reveal_type(x @ numbers)  # Tensor
reveal_type(np.float64(2.0) * x)  # Tensor
reveal_type(x + [1.0, 2.0])  # Tensor
reveal_type([1.0, 2.0] - x)  # Tensor
reveal_type(x @ x)  # Tensor
reveal_type(x * dual)  # Dual
reveal_type(dual * x)  # Dual
reveal_type(2 * dual)  # Dual
reveal_type(-x)  # Tensor
reveal_type(+dual)  # Dual
reveal_type(abs(x))  # Tensor
reveal_type(round(x))  # Tensor
reveal_type(x % 2)  # Tensor
reveal_type(x > 0)  # NDArray[bool]
reveal_type(x == x)  # NDArray[bool]
reveal_type(dual != 0)  # NDArray[bool]
total = x.sum()
total += 1
reveal_type(total)  # Tensor
total *= 2.0
reveal_type(total)  # Tensor
reveal_type(total < 1.0 or total > 2.0)  # NDArray[bool]

# Elements

reveal_type(x[0])  # Tensor
reveal_type(x[..., None, 0])  # Tensor
reveal_type(x[1:, -1])  # Tensor
reveal_type(x[[0, 1]])  # Tensor
reveal_type(x[mask])  # Tensor
reveal_type(x[x > 1.0])  # Tensor
reveal_type(dual[np.array([0, 0])])  # Dual
reveal_type(iter(x))  # Iterator[Tensor]
for row in x:
    reveal_type(row)  # Tensor
first, second = dual
reveal_type(first)  # Dual
reveal_type(tg.take(x, [0, 1], axis=1))  # Tensor
reveal_type(tg.take(a=dual, indices=[0, 1]))  # Dual
reveal_type(tg.compress([True, False], dual))  # Dual
reveal_type(tg.where(x > 1.0, x, 0.0))  # Tensor
reveal_type(tg.where(mask, 0.0, dual))  # Dual
reveal_type(tg.where(mask))  # tuple[NDArray[intp], ...]
reveal_type(tg.select([mask], [array], 0.0))  # Tensor
reveal_type(tg.choose([0, 1], [dual, dual]))  # Dual

# Shapes

reveal_type(x.T)  # Tensor
reveal_type(dual.T)  # Dual
reveal_type(x.reshape(2, -1))  # Tensor
reveal_type(x.reshape((4,)))  # Tensor
reveal_type(x.transpose(1, 0))  # Tensor
reveal_type(x.ravel())  # Tensor
reveal_type(x.ravel(order="F"))  # Tensor
reveal_type(x.astype(np.float32))  # Tensor
reveal_type(tg.reshape(dual, (1, 2)))  # Dual
reveal_type(tg.concatenate([x, x], axis=1))  # Tensor
reveal_type(tg.concatenate((array, [1.0])))  # Tensor
reveal_type(tg.stack([dual, dual]))  # Dual
reveal_type(tg.block([[x, x], [x, x]]))  # Tensor
reveal_type(tg.split(x, 2))  # list[Tensor]
reveal_type(tg.split(dual, [1]))  # list[Dual]
reveal_type(tg.atleast_1d(1.0))  # Tensor
reveal_type(tg.atleast_1d(1.0, x))  # tuple[Tensor, ...]
reveal_type(tg.broadcast_arrays(x, 1.0))  # tuple[Tensor, ...]
reveal_type(tg.pad(x, 1, mode="edge"))  # Tensor
reveal_type(tg.insert(vector, 1, dual))  # Dual
reveal_type(tg.zeros_like(dual))  # Tensor
reveal_type(tg.full_like(vector, dual))  # Dual

# Reductions, products and decompositions

reveal_type(tg.sum(x, axis=0, keepdims=True))  # Tensor
reveal_type(tg.sum(dual))  # Dual
reveal_type(tg.mean([1.0, 2.0]))  # Tensor
reveal_type(x.sum(axis=0))  # Tensor
reveal_type(dual.sum())  # Dual
reveal_type(x.max(axis=(0, 1), keepdims=True))  # Tensor
reveal_type(x.softmax())  # Tensor
reveal_type(x.clip(0.0, 1.0))  # Tensor
reveal_type(x.dot(dual))  # Dual
reveal_type(x.dot(array))  # Tensor
reveal_type(x.argmax())  # intp
reveal_type(x.argmax(axis=0))  # NDArray[intp]
reveal_type(x.all())  # bool
reveal_type(tg.average(x))  # Tensor
reveal_type(tg.average(vector, weights=dual))  # Dual
reveal_type(tg.average(x, 0, numbers))  # Tensor
reveal_type(tg.average(x, returned=True))  # tuple[Tensor, Tensor]
reveal_type(tg.logsumexp(dual, axis=0))  # Dual
reveal_type(tg.einsum("ij,j->i", x, numbers))  # Tensor
reveal_type(tg.einsum("i,i", numbers, dual))  # Dual
reveal_type(tg.einsum(x, [0, 1], numbers, [1]))  # Tensor
reveal_type(tg.layer_norm(x, 1.0, dual))  # Dual
reveal_type(tg.mse_loss(x, [[0.0, 1.0], [1.0, 0.0]]))  # Tensor
reveal_type(tg.dropout(x, 0.1, training=False))  # Tensor
reveal_type(tg.dropout([1.0, 2.0]))  # Tensor
reveal_type(tg.dropout(dual, p=1))  # Dual
reveal_type(tg.eigh(x))  # EighResult[Tensor]
reveal_type(tg.eigh(x).eigenvalues)  # Tensor
u, s, vh = tg.svd(x)
reveal_type(vh)  # Tensor
reveal_type(tg.svd(x, compute_uv=False))  # Tensor
reveal_type(tg.lstsq(x, numbers))  # tuple[Tensor, Tensor, int, Tensor]

# Random numbers

reveal_type(tg.random.normal(0, 1, size=(2, 2), dtype=np.float32))  # NDArray[Any]
reveal_type(x + tg.random.uniform(size=2))  # Tensor
reveal_type(x[tg.random.permutation(2)])  # Tensor
reveal_type(tg.random.integers(3, size=[2]))  # NDArray[Any]
reveal_type(tg.random.dropout_mask(3, 0.5))  # NDArray[Any]
reveal_type(tg.random.generator())  # Generator
reveal_type(tg.random.set_state(tg.random.get_state()))  # None

# Tensors and their gradients

reveal_type(tg.param([1.0], dtype=np.float32, name="w"))  # Tensor
reveal_type(x.data)  # NDArray[Any]
reveal_type(x.grad)  # NDArray[Any] | None
reveal_type(x.shape)  # tuple[int, ...]
reveal_type(x.numpy())  # NDArray[Any]
reveal_type(x.detach())  # Tensor
reveal_type(vector.sum().item())  # float
reveal_type((x * 2).sum().backward())  # None
reveal_type(tg.backward(x.sum(), 1.0))  # None
reveal_type(tg.last_backward())  # Report | None
reveal_type(tg.SGD([x], lr=0.1).params)  # list[Tensor | Value]
reveal_type(tg.Adam({"x": x}, lr=lambda step: 0.1).lr)  # float
reveal_type(tg.Lion([{"params": [x], "lr": 0.1}]).groups)  # tuple[Group, ...]
reveal_type(tg.SGD([x], lr=tg.optim.schedules.cosine(0.1, 10), momentum=0.9).momentum)  # float
reveal_type(tg.clip_grad_norm([x], 1.0))  # Tensor
reveal_type(tg.parameters({"w": x}))  # Parameters
reveal_type(tg.parameters([x]).tied.get("a"))  # str | None
reveal_type(tg.tape())  # Tape
reveal_type([entry.op for entry in tg.tape()])  # list[str]
reveal_type(tg.get_backend())  # 'auto' | 'tensorflow' | 'native'
reveal_type(tg.lowering.cache_info().hits)  # int
x.data = [[1.0, 2.0], [3.0, 4.0]]
x.grad = None

# Values

reveal_type(value * 2)  # Value
reveal_type(2 * value)  # Value
reveal_type(value**2)  # Value
reveal_type(np.float64(2.0) * value)  # Value
reveal_type(value.exp())  # Value
reveal_type(value < 3)  # bool
reveal_type(value == 3)  # bool
reveal_type(value.grad)  # float
reveal_type(tg.vsum([value, 1.0]))  # Value
value += 1
reveal_type(value)  # Value

# Functions of functions


def power(base: float | tg.Tensor, exponent: int = 3) -> tg.Tensor:
    """Raise to a power."""
    return tg.pow(base, exponent)


def energy(state: tg.Tensor | tg.Dual) -> tg.Tensor | tg.Dual:
    """Compute on whatever comes, as `grad` and `jvp` pass duals."""
    reveal_type(2 * state)  # Tensor | Dual
    reveal_type(state.exp())  # Tensor | Dual
    reveal_type(state + 1.0)  # Tensor | Dual
    reveal_type(state.sum(axis=0))  # Tensor | Dual
    reveal_type(state[0])  # Tensor | Dual
    return (state**2).sum()


reveal_type(energy(x))  # Tensor | Dual
reveal_type(tg.grad(power)(2.0))  # float
reveal_type(tg.grad(power)(2.0, exponent=4))  # float
reveal_type(tg.grad(tg.grad(power))(2.0))  # float
reveal_type(tg.grad(energy)(array))  # NDArray[Any]
reveal_type(tg.grad(energy)(x))  # Tensor
reveal_type(tg.grad(tg.sin)(1.0))  # float
reveal_type(tg.testing.check_gradients(energy, [1.0, 2.0]))  # GradientReport
reveal_type(dual.tangent)  # Tensor | Dual


# The drop-in for autograd


def bowl(x: Floats, scale: float = 2.0) -> npt.NDArray[Any]:
    """Square, and sum."""
    total: npt.NDArray[Any] = anp.sum(scale * x**2, axis=0)
    return total


@primitive
def halved(x: Floats) -> Floats:
    """Divide by two, as an operation of its own."""
    return 0.5 * x


reveal_type(anp.tanh(array))  # NDArray[Any]
reveal_type(anp.concatenate([array, array]))  # NDArray[Any]
stacked: Floats = anp.row_stack([array, array])  # NumPy 2.5 tells its dtype, those before do not
reveal_type(anp.pi)  # float
reveal_type(ag.grad(bowl)(array))  # NDArray[Any]
reveal_type(ag.grad(bowl)(array, scale=3.0))  # NDArray[Any]
reveal_type(ag.grad(anp.tanh)(1.0))  # float64
reveal_type(ag.grad(ag.grad(anp.tanh))(1.0))  # float64
reveal_type(ag.elementwise_grad(anp.tanh)(array))  # NDArray[Any]
reveal_type(ag.jacobian(anp.tanh)(array))  # NDArray[Any]
reveal_type(ag.hessian(bowl)(array))  # NDArray[Any]
reveal_type(ag.checkpoint(bowl))  # def (x: NDArray[float64], scale: float =) -> NDArray[Any]
reveal_type(halved)  # def (x: NDArray[float64]) -> NDArray[float64]
reveal_type(norm.logpdf)  # def (x: object, loc: object =, scale: object =) -> Any


@tg.no_grad()
def called(n: int) -> str:
    """Count without recording."""
    return str(n)


@tg.no_grad
def bare(n: int) -> str:
    """Count without recording."""
    return str(n)


@tg.use_backend("native")
def native(n: int) -> str:
    """Count natively."""
    return str(n)


@tg.defop(vjp=lambda g, y, x, *, rate: g * y * rate)
def compound(x: Floats, *, rate: float) -> Floats:
    """Grow at a rate."""
    grown: Floats = np.exp(rate * x)
    return grown


reveal_type(called)  # def (n: int) -> str
reveal_type(bare)  # def (n: int) -> str
reveal_type(native)  # def (n: int) -> str
reveal_type(tg.no_grad(called))  # def (n: int) -> str
with tg.no_grad(), tg.use_backend("auto"):
    reveal_type(compound(x, rate=0.5))  # Tensor
    reveal_type(compound(numbers, rate=0.5))  # Tensor

if TYPE_CHECKING:
    reveal_type(compound(dual, rate=0.5))  # Dual
    reveal_type(tg.lowering.lower(x))  # Lowered
    reveal_type(tg.lowering.lower(x).node_types)  # list[list[str]]

    # Mistakes

    tg.exp("a")  # error: arg-type
    tg.exp(None)  # error: arg-type
    tg.exp({1j})  # error: arg-type
    tg.sum(x, axis="a")  # error: arg-type
    tg.sum(x, axes=0)  # error: call-arg
    tg.sum(value)  # error: arg-type
    tg.log1p(value)  # error: arg-type
    tg.ravel(x, order="Z")  # error: arg-type
    tg.softmax(x, axis=1.5)  # error: arg-type
    tg.special.polygamma("a", x)  # error: arg-type
    tg.dropout(x, "a")  # error: arg-type
    tg.random.normal(x)  # error: arg-type
    tg.random.normal(size=1.5)  # error: arg-type
    tg.random.seed(1.5)  # error: arg-type
    x + value  # error: arg-type
    x + "a"  # error: arg-type
    x["a"]  # error: index
    x[0] = 1.0  # error: index
    x.sort()  # error: attr-defined
    x.requires_grad = True  # error: misc
    x.shape = (4,)  # error: misc
    x.backward("a")  # error: arg-type
    float(dual)  # error: arg-type
    tg.param("a")  # error: arg-type
    tg.use_backend("torch")  # error: arg-type
    tg.SGD(x, lr="fast")  # error: arg-type
    tg.Adam([x], betas=0.9)  # error: arg-type
    tg.clip_grad_norm([x], "a")  # error: arg-type
    tg.backward(array)  # error: arg-type
    tg.grad(power)("a")  # error: call-overload
    tg.grad(power)(2.0, exponent="a")  # error: call-overload
    bare("a")  # error: arg-type
    value + "a"  # error: operator
    anp.no_such_name  # error: attr-defined
    ag.grad(3)  # error: call-overload
    ag.grad(bowl)(array, scale="a")  # error: call-overload
    value.data = "a"  # error: assignment
