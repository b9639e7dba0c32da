"""Find the ground state of a ring of quantum spins with a small circuit whose angles are trained.

You learn that complex numbers need nothing special: the state is a vector of complex128, gates are
`np.exp` and products, the energy is real, and its gradient for the real angles is real. The ring
is Ising's with a transverse field at its critical point; circuits of half as many layers as spins
are known to hold its ground state exactly. The yardstick is NumPy's diagonalisation; and each
derivative is checked against the parameter-shift rule, which measures it on a quantum computer.
"""

from __future__ import annotations

import numpy as np
from _common import arguments, descend, print_engine, pyplot, save

import tapegraph as tg

SPINS = 6
LAYERS = SPINS // 2
FIELD = 1.0  # in units of the coupling
LR = 0.05
X = np.array([[0.0, 1.0], [1.0, 0.0]])


def couplings() -> np.ndarray:
    """By neighbours, whether they agree (1) or not (-1) in each of the basis states."""
    states = np.arange(2**SPINS)
    spins = 1 - 2 * ((states >> np.arange(SPINS)[::-1, None]) & 1)
    return spins * np.roll(spins, -1, axis=0)


def flip(spin: int) -> np.ndarray:
    """The matrix that turns one spin around."""
    return np.kron(np.kron(np.eye(2**spin), X), np.eye(2 ** (SPINS - 1 - spin)))


NEIGHBOURS = couplings()
HAMILTONIAN = -np.diag(NEIGHBOURS.sum(axis=0)) - FIELD * sum(map(flip, range(SPINS)))


def rotations(angles):
    """The gates that turn spins about the x-axis, exp(-i angle X / 2), stacked."""
    half = angles[:, None, None] / 2
    return np.cos(half) * np.eye(2) - 1j * np.sin(half) * X


def circuit(angles):
    """The state after all layers; ``angles`` is (layers, 2, spins)."""
    state = np.full(2**SPINS, 2 ** (-SPINS / 2), dtype=np.complex128)  # all along the field
    for layer in range(LAYERS):
        # Gates between neighbours commute and are diagonal: one product has them all.
        state = np.exp(-0.5j * (angles[layer, 0] @ NEIGHBOURS)) * state
        for spin, gate in enumerate(rotations(angles[layer, 1])):
            state = (gate @ state.reshape(2**spin, 2, -1)).reshape(-1)
    return state


def energy(angles):
    state = circuit(angles)
    return np.real(np.conj(state) @ (HAMILTONIAN @ state))


def by_parameter_shift(angles: np.ndarray) -> np.ndarray:
    """Each derivative as half the difference of two energies, a quarter turn to either side."""
    slopes = np.empty_like(angles)
    for place in np.ndindex(angles.shape):
        turn = np.zeros_like(angles)
        turn[place] = np.pi / 2
        slopes[place] = (energy(angles + turn) - energy(angles - turn)) / 2
    return slopes


def new_step(angles: tg.Tensor, compile: bool):
    optimizer = tg.Adam([angles], lr=LR)

    def step():
        loss = energy(angles)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return tg.compile(step) if compile else step


def draw(losses, levels, found, ground):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    left.semilogy(np.maximum(np.array(losses) - levels[0], 1e-15))
    left.axhline(levels[1] - levels[0], color="tab:gray", label="first excited state")
    left.set(xlabel="step", ylabel="energy above the ground state", title="descent")
    left.legend()
    right.bar(np.arange(len(ground)), ground, color="tab:gray", alpha=0.5, label="diagonalised")
    right.plot(found, ".", label="circuit")
    right.set(xlabel="basis state", ylabel="probability", title="ground state")
    right.legend()
    return figure


def main() -> None:
    args = arguments(__doc__, picture="quantum_circuit.png", compile=True)
    rng = np.random.default_rng(args.seed)
    start = rng.normal(0.5, 0.1, (LAYERS, 2, SPINS))
    apart = np.abs(tg.grad(energy)(start) - by_parameter_shift(start)).max()

    angles = tg.param(start, name="angles")
    step = new_step(angles, args.compile)
    losses = descend(step, lambda: (), 60 if args.quick else 400)
    levels, states = np.linalg.eigh(HAMILTONIAN)
    state = circuit(angles.numpy())
    save(draw(losses, levels, np.abs(state) ** 2, states[:, 0] ** 2), args.out)
    print(f"error     {energy(angles.numpy()) - levels[0]:.6f} above {levels[0]:.6f}, the exact")
    print(f"          energy; {losses[0] - levels[0]:.6f} at the start")
    print(f"overlap   {np.abs(states[:, 0] @ state) ** 2:.6f} with the exact ground state")
    print(f"shifts    {apart:.1e} at most between gradient and parameter-shift rule")
    print_engine(step)


if __name__ == "__main__":
    main()
