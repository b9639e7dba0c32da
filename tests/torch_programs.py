"""Random programs in PyTorch: every operation that `programs` draws, in its terms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from programs import Program
from torch.nn import functional


def _axes(axis: Any, x: Any) -> tuple[int, ...]:
    return tuple(range(x.ndim)) if axis is None else axis


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, *, axis: Any, keepdims: bool) -> Any:
        axes = _axes(axis, x)
        return function(x, dim=axes, keepdim=keepdims) if axes else x

    return run


def _reshape(x: Any, *, shape: Any) -> Any:
    return x.reshape(shape)


def _tensor_slice(x: Any, *, begin: Any, size: Any) -> Any:
    for axis, (start, length) in enumerate(zip(begin, size, strict=True)):
        x = x.narrow(axis, start, x.shape[axis] - start if length == -1 else length)
    return x


def _getitem(x: Any, *, key: Any) -> Any:
    # By the places that NumPy takes: PyTorch has no steps below zero.
    places = np.asarray(np.arange(x.numel()).reshape(x.shape)[key])
    flat = torch.tensor(places.reshape(-1).tolist(), dtype=torch.int64)
    return x.reshape(-1)[flat].reshape(places.shape)


def _gather(x: Any, *, indices: Any, axis: int) -> Any:
    axis %= x.ndim
    index = np.asarray(indices)
    taken = x.index_select(axis, torch.from_numpy(index.reshape(-1)))
    return taken.reshape((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))


def _where(a: Any, b: Any, *, cond: Any) -> Any:
    return torch.where(torch.tensor(cond, dtype=torch.bool), a, b)


def _layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * gamma + beta


def _softmax_crossentropy(logits: Any, soft: Any = None, *, targets: Any = None) -> Any:
    logs = torch.log_softmax(logits, -1)
    if soft is None:
        soft = functional.one_hot(torch.tensor(targets), logits.shape[-1]).to(logits)
    return -(soft * logs).sum(-1).mean()


def _conv2d(x: Any, k: Any, *, stride: int, pad: int, dilation: int) -> Any:
    return functional.conv2d(x, k, stride=stride, padding=pad, dilation=dilation)


def _pool(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    def run(x: Any, *, ksize: int, stride: int | None, pad: int) -> Any:
        return function(x, ksize, stride=stride, padding=pad, **options)

    return run


CALLS: dict[str, Callable[..., Any]] = {
    **{name: getattr(torch, name) for name in "sin cos tan exp log sqrt tanh sigmoid abs".split()},
    "neg": torch.neg,
    "relu": torch.relu,
    "gelu": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "matmul": torch.matmul,
    "sum": _reduced(torch.sum),
    "mean": _reduced(torch.mean),
    "softmax": lambda x, *, axis=-1: torch.softmax(x, axis),
    "transpose": lambda x, *, axes: x.permute(axes),
    "reshape": _reshape,
    "tensor_slice": _tensor_slice,
    "getitem": _getitem,
    "gather": _gather,
    "concat": lambda *parts, axis: torch.cat(parts, axis),
    "where": _where,
    "layer_norm": _layer_norm,
    "softmax_crossentropy": _softmax_crossentropy,
    "mse_loss": lambda a, b: ((a - b) ** 2).mean(),
    "conv2d": _conv2d,
    "max_pool2d": _pool(functional.max_pool2d),
    "avg_pool2d": _pool(functional.avg_pool2d, count_include_pad=False),
}


def run(program: Program, *inputs: Any) -> Any:
    """Replay a program on PyTorch's tensors: what no step reads, in one vector."""
    pool = list(inputs)
    for step in program.steps:
        operands = [pool[x] if isinstance(x, int) else x for x in step.operands]
        made = CALLS[step.op](*operands, **step.options)
        pool.append(torch.as_tensor(made, dtype=torch.float64))
    read = {x for step in program.steps for x in step.operands if isinstance(x, int)}
    unread = [pool[i] for i in range(len(inputs), len(pool)) if i not in read]
    return torch.cat([value.reshape(-1) for value in unread])


def weighted(x: Any, start: float) -> np.ndarray:
    """Weights of both signs, of a shape."""
    size = math.prod(x.shape)
    return np.cos(start + 1.3 * np.arange(size)).reshape(tuple(x.shape))


def second_derivatives(program: Program) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The gradients of a weighted sum of a program's results, and of those along a direction."""
    leaves = [torch.tensor(x, requires_grad=True) for x in program.inputs]
    y = run(program, *leaves)
    if not y.requires_grad:
        return [np.zeros_like(x) for x in program.inputs], [
            np.zeros_like(x) for x in program.inputs
        ]
    loss = (y * torch.from_numpy(weighted(y, 0.3))).sum()
    options = {"allow_unused": True, "materialize_grads": True}
    first = torch.autograd.grad(loss, leaves, create_graph=True, **options)
    along = sum((g * torch.from_numpy(weighted(g, 0.7))).sum() for g in first)
    second = [torch.zeros_like(x) for x in leaves]
    if along.requires_grad:
        second = torch.autograd.grad(along, leaves, **options)
    return [g.detach().numpy(force=True) for g in first], [
        g.detach().numpy(force=True) for g in second
    ]
