"""Find where drops fell into a pond from what gauges at its rim saw of the waves.

You learn `tg.scan`: a thousand steps of a wave equation are one entry of the compiled step, with a
gradient for the loop's start. The unknown is the water's height everywhere as the drops fall; the
gradient of the misfit for that height is the same loop run backwards, which sends the waves back
to where they came from. ``checkpoint="sqrt"`` keeps every 32nd state and computes the others again.
The yardstick is how far from a drop the highest points of the picture are.
"""

from __future__ import annotations

import numpy as np
from _common import arguments, descend, print_engine, pyplot, save

import tapegraph as tg
from tapegraph.optim import schedules

SPEED = 0.5  # cells a step; beyond 0.7 the equation is unstable
DAMPING = 0.002
WIDTH = 2.0  # of a drop, in cells
GAUGES = 40


def waves(height, gauges, rounds: int):
    """The height at the gauges in each round, and everywhere after the last one."""

    def turn(state, _):
        now, before = state
        around = sum(np.roll(now, shift, axis) for axis in (0, 1) for shift in (1, -1))
        bent = SPEED**2 * (around - 4.0 * now)
        after = now + (1.0 - DAMPING) * (now - before) + bent
        return (after, now), after[gauges]

    (last, _), seen = tg.scan(turn, (height, height), length=rounds, checkpoint="sqrt")
    return last, seen


def pond(size: int, drops: np.ndarray) -> np.ndarray:
    """The height of the water as drops fall in."""
    rows, columns = np.mgrid[:size, :size]
    far = [(rows - r) ** 2 + (columns - c) ** 2 for r, c in drops]
    return np.exp(-np.array(far) / (2 * WIDTH**2)).sum(axis=0)


def rim(size: int) -> tuple[np.ndarray, np.ndarray]:
    """The places of the gauges, on a circle."""
    angles = np.linspace(0, 2 * np.pi, GAUGES, endpoint=False)
    places = size / 2 + 0.45 * size * np.array([np.sin(angles), np.cos(angles)])
    return tuple(places.astype(int))


def new_step(height: tg.Tensor, measured, gauges, steps: int, compile: bool):
    optimizer = tg.Adam([height], lr=schedules.cosine(0.05, steps))

    def step():
        _, seen = waves(height, gauges, len(measured))
        loss = np.mean((seen - measured) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return tg.compile(step) if compile else step


def peaks(height: np.ndarray, count: int) -> np.ndarray:
    """The highest points, none of them near a higher one."""
    left, found = height.copy(), []
    rows, columns = np.indices(height.shape)
    for _ in range(count):
        r, c = np.unravel_index(left.argmax(), left.shape)
        found.append((r, c))
        left[np.hypot(rows - r, columns - c) < 3 * WIDTH] = -np.inf
    return np.array(found)


def draw(losses, panels, gauges, drops):
    figure, axes = pyplot.subplots(
        1, 4, figsize=(14, 3.5), layout="constrained", width_ratios=[1, 1, 1, 1.3]
    )
    for axis, (title, picture) in zip(axes, panels.items(), strict=False):
        most = np.abs(picture).max()
        axis.imshow(picture, cmap="RdBu_r", vmin=-most, vmax=most)
        axis.plot(gauges[1], gauges[0], "k.", markersize=2)
        axis.set(title=title, xticks=[], yticks=[])
        axis.spines[:].set_visible(True)
    axes[2].plot(drops[:, 1], drops[:, 0], "k+", markersize=9)
    axes[-1].semilogy(losses)
    axes[-1].set(xlabel="step", ylabel="loss")
    return figure


def main() -> None:
    args = arguments(__doc__, picture="wave.png", compile=True)
    rng = np.random.default_rng(args.seed)
    size, rounds, steps = (32, 100, 60) if args.quick else (64, 1000, 100)
    angles = rng.uniform(0, 2 * np.pi) + np.array([0, 2, 4])
    far = size * rng.uniform(0.1, 0.3, 3)
    drops = size / 2 + np.stack([far * np.sin(angles), far * np.cos(angles)], axis=1)
    truth, gauges = pond(size, drops), rim(size)
    with tg.no_grad():
        last, measured = (x.numpy() for x in waves(truth, gauges, rounds))

    height = tg.param(np.zeros((size, size)), name="height")
    step = new_step(height, measured, gauges, steps, args.compile)
    losses = descend(step, lambda: (), steps)

    found = height.numpy()
    each = [min(np.hypot(*(drop - p)) for p in peaks(found, len(drops))) for drop in drops]
    panels = {"as the drops fell": truth, f"{rounds} steps later": last, "found": found}
    save(draw(losses, panels, gauges, drops), args.out)
    print(f"error     {max(each):.2f} cells at most, for {len(drops)} drops")
    print(f"loss      {losses[-1]:.1e}, {losses[0]:.1e} at the start")
    print_engine(step)


if __name__ == "__main__":
    main()
