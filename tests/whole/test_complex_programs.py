"""Random programs of complex numbers agree with PyTorch, in every engine and to second order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from optional import optional

import tapegraph as tg

torch = optional("torch")
N = 3
EYE, MASK = 4.0 * np.eye(N), np.tri(N, dtype=bool)


class Call(NamedTuple):
    """One statement: a function by its name, the values that it reads, and what it is scaled by."""

    name: str
    reads: tuple[int, ...]
    scale: float


def _constant(x: Any) -> Any:
    return torch.tensor(x)


# By name: of NumPy's functions, of PyTorch's, and how many values they take.
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], int]] = {
    "add": (np.add, lambda *a: torch.add(*a), 2),
    "mul": (np.multiply, lambda *a: torch.mul(*a), 2),
    "turned": (lambda a: a * (0.6 - 0.8j), lambda a: a * (0.6 - 0.8j), 1),
    "div": (lambda a, b: a / (b + 3.0), lambda a, b: a / (b + 3.0), 2),
    "power": (lambda a: (a + 3.0) ** (0.5 + 0.25j), lambda a: (a + 3.0) ** (0.5 + 0.25j), 1),
    "square": (lambda a: a**2, lambda a: a**2, 1),
    "sin": (np.sin, lambda *a: torch.sin(*a), 1),
    "cosh": (np.cosh, lambda *a: torch.cosh(*a), 1),
    "tanh": (lambda a: np.tanh(0.5 * a), lambda a: torch.tanh(0.5 * a), 1),
    "exp": (np.exp, lambda *a: torch.exp(*a), 1),
    "log": (lambda a: np.log(a + 3.0), lambda a: torch.log(a + 3.0), 1),
    "sqrt": (lambda a: np.sqrt(a + 3.0), lambda a: torch.sqrt(a + 3.0), 1),
    "arctan": (lambda a: np.arctan(0.3 * a), lambda a: torch.atan(0.3 * a), 1),
    "conj": (np.conj, lambda *a: torch.conj(*a), 1),
    "parts": (lambda a: a.real + 2j * a.imag, lambda a: torch.complex(a.real, 2 * a.imag), 1),
    "size": (lambda a: np.abs(a + 3.0) + 0j, lambda a: (a + 3.0).abs() + 0j, 1),
    "angle": (lambda a: np.angle(a + 3.0) * 1j, lambda a: (a + 3.0).angle() * 1j, 1),
    "matmul": (np.matmul, lambda *a: torch.matmul(*a), 2),
    "adjoint": (lambda a, b: a @ np.conj(b.T), lambda a, b: a @ b.mH, 2),
    "einsum": (
        lambda a, b: np.einsum("ij,kj->ki", a, b),
        lambda a, b: torch.einsum("ij,kj->ki", a, b),
        2,
    ),
    "inv": (lambda a: np.linalg.inv(a + EYE), lambda a: torch.linalg.inv(a + _constant(EYE)), 1),
    "solve": (
        lambda a, b: np.linalg.solve(a + EYE, b),
        lambda a, b: torch.linalg.solve(a + _constant(EYE), b),
        2,
    ),
    "det": (
        lambda a, b: np.linalg.det(a + EYE) * b,
        lambda a, b: torch.linalg.det(a + _constant(EYE)) * b,
        2,
    ),
    "fft": (lambda a: np.fft.fft(a, axis=0), lambda a: torch.fft.fft(a, dim=0), 1),
    "ifft2": (np.fft.ifft2, lambda *a: torch.fft.ifft2(*a), 1),
    "rfft": (
        lambda a, b: np.fft.rfft(a.real, n=4) + b,
        lambda a, b: torch.fft.rfft(a.real, n=4) + b,
        2,
    ),
    "irfft": (
        lambda a: np.fft.irfft(a, n=N, norm="ortho") + 0j,
        lambda a: torch.fft.irfft(a, n=N, norm="ortho") + 0j,
        1,
    ),
    "sum": (
        lambda a, b: np.sum(a, axis=0, keepdims=True) * b,
        lambda a, b: a.sum(0, keepdim=True) * b,
        2,
    ),
    "cumsum": (lambda a: np.cumsum(a, axis=1), lambda a: torch.cumsum(a, 1), 1),
    "prod": (
        lambda a, b: np.prod(a, axis=0) + b,
        lambda a, b: torch.prod(a, 0) + b,
        2,
    ),
    "where": (
        lambda a, b: np.where(MASK, a, b),
        lambda a, b: torch.where(_constant(MASK), a, b),
        2,
    ),
    "rolled": (lambda a: np.roll(a, 1, 0), lambda a: torch.roll(a, 1, 0), 1),
    "rows": (lambda a: a[[2, 0, 2]], lambda a: a[[2, 0, 2]], 1),
}


def drawn(seed: int) -> tuple[list[np.ndarray], list[Call]]:
    """Return the inputs of a random program, one of them real, and its statements."""
    rng = np.random.default_rng(seed)
    inputs = [rng.normal(size=(N, N)) + 1j * rng.normal(size=(N, N)) for _ in range(2)]
    inputs.append(rng.normal(size=(N, N)) + 0.0)
    values: list[Any] = list(inputs)
    calls = []
    for _ in range(int(rng.integers(3, 12))):
        name = str(rng.choice(list(FUNCTIONS)))
        count = FUNCTIONS[name][2]
        # The last one is read more often than not, so that programs are deep.
        reads = [len(values) - 1 if rng.random() < 0.6 else int(rng.integers(len(values)))]
        reads += [int(rng.integers(len(values))) for _ in range(count - 1)]
        out = FUNCTIONS[name][0](*(values[i] + 0j for i in reads))
        scale = float(1.0 / max(1.0, np.abs(out).max()))
        calls.append(Call(name, tuple(reads), scale))
        values.append(out * scale)
    return inputs, calls


def value(inputs: list[Any], calls: list[Call], library: int) -> Any:
    """Return the sum of the squared sizes of what the statements give: a real number."""
    values = list(inputs)
    for name, reads, scale in calls:
        values.append(FUNCTIONS[name][library](*(values[i] + 0j for i in reads)) * scale)
    total: Any = 0.0
    for out in values[len(inputs) :]:
        total = total + (np.sum(np.abs(out) ** 2) if library == 0 else out.abs().pow(2).sum())
    return total


def pytorchs(inputs: list[np.ndarray], calls: list[Call], order: int) -> list[np.ndarray]:
    leaves = [torch.tensor(x, requires_grad=True) for x in inputs]
    options = {"create_graph": order == 2, "allow_unused": True}
    grads = torch.autograd.grad(value(leaves, calls, 1), leaves, **options)
    if order == 2:
        grads = torch.autograd.grad(_number(grads, 1), leaves, allow_unused=True)
    return [
        np.zeros_like(x) if g is None else g.resolve_conj().numpy()
        for x, g in zip(inputs, grads, strict=True)
    ]


def _number(grads: Any, library: int) -> Any:
    """Return a number of the first gradients, by which they are differentiated again."""
    total: Any = 0.0
    for g in grads:
        if g is not None:
            parts = (
                (g.real, g.imag) if (g.is_complex() if library else g.dtype.kind == "c") else (g,)
            )
            for part in parts:
                total = total + (torch.sin(part).sum() if library else np.sum(np.sin(part)))
    return total


def ours(inputs: list[np.ndarray], calls: list[Call], order: int) -> list[np.ndarray]:
    leaves = list(map(tg.param, inputs))
    found = tg.gradients(
        value(leaves, calls, 0), leaves, create_graph=order == 2, allow_unused=True
    )
    if order == 2:
        found = tg.gradients(_number(found, 0), leaves, allow_unused=True)
    return [
        np.zeros_like(x) if g is None else g.numpy() for x, g in zip(inputs, found, strict=True)
    ]


def compiled(inputs: list[np.ndarray], calls: list[Call]) -> list[np.ndarray]:
    step = tg.compile(
        lambda *leaves: tg.grad(lambda *x: value(list(x), calls, 0), (0, 1, 2))(*leaves)
    )
    for _ in range(3):
        found = step(*inputs)
    return [np.asarray(g) for g in found]


def compare(seed: int, run: Callable[..., list[np.ndarray]], order: int = 1) -> None:
    inputs, calls = drawn(seed)
    want = pytorchs(inputs, calls, order)
    got = run(inputs, calls) if order == 1 else ours(inputs, calls, order)
    size = max(1.0, *(np.abs(g).max() for g in want))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-8 * size, err_msg=f"seed {seed}: {calls}")
        assert a.dtype == b.dtype


def seeds(thorough: bool, many: int, few: int) -> range:
    return range(many if thorough else few)


def test_natively(thorough):
    with tg.use_backend("native"):
        for seed in seeds(thorough, 2000, 60):
            compare(seed, lambda inputs, calls: ours(inputs, calls, 1))


def test_in_tensorflow(thorough):
    pytest.importorskip("tensorflow")
    with tg.use_backend("tensorflow"):
        for seed in seeds(thorough, 300, 3):
            compare(seed, lambda inputs, calls: ours(inputs, calls, 1))


@pytest.mark.parametrize("engine", ["native", "tensorflow"])
def test_compiled(engine, thorough):
    if engine == "tensorflow":
        pytest.importorskip("tensorflow")
    with tg.use_backend(engine):
        for seed in seeds(thorough, 300, 8 if engine == "native" else 4):
            compare(seed, compiled)


def test_second_derivatives(thorough):
    with tg.use_backend("native"):
        for seed in seeds(thorough, 300, 15):
            compare(seed, ours, order=2)
