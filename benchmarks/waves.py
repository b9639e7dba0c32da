"""Functions through complex numbers, to be timed: each is made in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.contenders import Remote, Serving, quiet
from benchmarks.processes import Process
from benchmarks.protocol import Trainer

WAYS = ("native", "compiled native", "tensorflow", "compiled tensorflow")
PEERS = ("autograd", "jax", "torch")
SPINS, CELLS, GRID = 6, 60, 172

# Functions in the NumPy of a library, which also makes constants its own; and where they start.


def mirror(xp: Any, own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The transmitted power of `examples/inverse_design.py`, by its logits; plain absorbing air."""
    k = 2 * np.pi / 48
    side = (GRID - CELLS) // 2
    place = np.arange(GRID)
    loss = np.maximum(32 - place, place - (GRID - 33)).clip(0) / 32
    waves = np.diag(-2 + k**2 * 3j * loss**2)
    waves = own(waves + np.diag(np.ones(GRID - 1), 1) + np.diag(np.ones(GRID - 1), -1))
    current, air = own(np.where(place == 37, 2j * k, 0)), own(np.ones(side))

    def power(logits):
        design = 1 + 3 / (1 + xp.exp(-logits))
        permittivity = xp.concatenate([air, design, air])
        field = xp.linalg.solve(waves + k**2 * xp.diag(permittivity), current)
        return xp.log(xp.abs(field[GRID - 37]) ** 2)

    return power


def circuit(xp: Any, own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The energy of `examples/quantum_circuit.py`, by its angles."""
    flip = np.array([[0.0, 1.0], [1.0, 0.0]])
    states = np.arange(2**SPINS)
    spins = 1 - 2.0 * ((states >> np.arange(SPINS)[::-1, None]) & 1)
    pairs = spins * np.roll(spins, -1, axis=0)
    flips = [np.kron(np.kron(np.eye(2**i), flip), np.eye(2 ** (5 - i))) for i in range(SPINS)]
    energies = own((-np.diag(pairs.sum(axis=0)) - sum(flips)).astype(np.complex128))
    pairs, one, turn = own(pairs), own(np.eye(2)), own(1j * flip)
    start = own(np.full(2**SPINS, 2 ** (-SPINS / 2), dtype=np.complex128))

    def energy(angles):
        state = start
        for layer in range(SPINS // 2):
            state = xp.exp(-0.5j * (angles[layer, 0] @ pairs)) * state
            half = angles[layer, 1][:, None, None] / 2
            gates = xp.cos(half) * one - xp.sin(half) * turn
            for spin in range(SPINS):
                state = (gates[spin] @ state.reshape(2**spin, 2, -1)).reshape(-1)
        return xp.real(xp.conj(state) @ (energies @ state))

    return energy


def phases(xp: Any, own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The loss of `examples/phase_retrieval.py`, by 128 pictures."""
    rng = np.random.default_rng(0)
    measured = own(np.abs(np.fft.fft2(rng.random((8, 8)), s=(16, 16), norm="ortho")))

    def loss(pictures):
        waves = xp.fft.fft2(pictures, s=(16, 16), norm="ortho")
        strengths = xp.sqrt(xp.real(waves) ** 2 + xp.imag(waves) ** 2 + 1e-12)
        return xp.sum((strengths - measured) ** 2) / 256

    return loss


def fft(xp: Any, own: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A weighted sum of powers of the transform of 2^20 complex numbers."""
    weights = own(np.random.default_rng(0).random(2**20))
    return lambda z: xp.sum(weights * xp.abs(xp.fft.fft(z)) ** 2)


FUNCTIONS = {"mirror": mirror, "circuit": circuit, "phases": phases, "fft": fft}
SHAPES = {"mirror": (60,), "circuit": (3, 2, SPINS), "phases": (128, 8, 8), "fft": (2**20,)}


def start_of(name: str) -> Any:
    """Where a function is evaluated."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=SHAPES[name])
    return x + 1j * rng.normal(size=x.shape) if name == "fft" else x


def value_and_gradient(name: str, how: str) -> Callable[[], list[Any]]:
    """Return a function's value and its gradient, the way of steepest ascent, to be called."""
    make, start = FUNCTIONS[name], start_of(name)
    if how == "autograd":
        import autograd
        import autograd.numpy as anp

        theirs = autograd.value_and_grad(make(anp, np.asarray))
        return lambda: _conjugate(*theirs(start))
    if how == "jax":
        import jax
        import jax.numpy as jnp

        compiled = jax.jit(jax.value_and_grad(make(jnp, jnp.asarray)))
        there = jnp.asarray(start)
        return lambda: _conjugate(*map(np.asarray, compiled(there)))
    if how == "torch":
        import torch

        function, leaf = make(torch, torch.tensor), torch.tensor(start, requires_grad=True)

        def of_torch():
            leaf.grad = None
            value = function(leaf)
            value.backward()
            return [value.detach().numpy(), leaf.grad.numpy()]

        return of_torch
    import tapegraph as tg

    tg.set_backend(how.split()[-1])
    ours = tg.value_and_grad(make(np, np.asarray))
    if how.startswith("compiled"):
        ours = tg.compile(ours)
    return lambda: [np.asarray(found) for found in ours(start)]


def _conjugate(value: Any, gradient: Any) -> list[Any]:
    return [value, np.conj(gradient) if np.iscomplexobj(gradient) else gradient]


def serving(name: str, how: str) -> Serving:
    """Make what runs again and again in this process."""
    quiet()
    if how in peers.PEERS:
        peers.prepare(1, (how,))
    elif how.endswith("tensorflow"):
        peers.prepare(1, ("tf.function",))
    run = value_and_gradient(name, how)
    found: list[Any] = []

    def step() -> float:
        found[:] = run()
        return 0.0

    return Serving(f"{name} {how}", partial(Trainer, step, lambda: found))


# In the process that measures


class Timed(Remote):
    """What one such process runs."""

    def __init__(self, name: str, how: str) -> None:
        self.name = f"{name} {how}"
        self._process = Process(f"{__name__}:serving", name, how)
