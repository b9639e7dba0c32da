"""Let a gradient design a mirror: where to put glass so that light of one colour does not pass.

You learn to differentiate through a solver of waves: Helmholtz's equation by finite differences,
in complex numbers, because the edges of the grid swallow what arrives there (a perfectly matched
layer stretches the coordinate into the complex plane). The design is a permittivity for each cell,
between air and glass; the loss is the logarithm of the transmitted power, and one `backward()`
through `np.linalg.solve` differentiates it for all cells. The yardsticks are closed forms: the
plane wave in empty space, and the stack of quarter waves, which is how mirrors are made.
"""

from __future__ import annotations

import numpy as np
from _common import arguments, descend, print_engine, pyplot, save

import tapegraph as tg

WAVELENGTH = 48  # in cells
AIR, GLASS = 1.0, 4.0  # permittivities: the glass has index 2
LAYERS = 4  # of glass in the stack of quarter waves, with air between them
MARGIN, EDGE = 24, 32  # cells of air on either side, and of the layer that swallows
QUARTERS = {AIR: WAVELENGTH // 4, GLASS: WAVELENGTH // 8}
CELLS = LAYERS * QUARTERS[GLASS] + (LAYERS - 1) * QUARTERS[AIR]  # that are designed
GRID = CELLS + 2 * (MARGIN + EDGE)
SOURCE, PROBE = EDGE + 5, GRID - EDGE - 5
FIRST = EDGE + MARGIN
WAVENUMBER = 2 * np.pi / WAVELENGTH
LR = 0.1
# Where logits start: so that as many half waves fit into the design as into the stack, where air
# and glass make a mean index of 4/3. Elsewhere the descent ends in mirrors that are not as good.
START = np.log(7 / 20)


def laplacian() -> np.ndarray:
    """The second derivative along the stretched coordinate, zero beyond the grid."""

    def stretch(places):
        depth = np.maximum(EDGE - places, places - (GRID - 1 - EDGE)).clip(0) / EDGE
        # The strength that lets e**-16 of the power return from an edge.
        strength = 16 * 3 / (4 * WAVENUMBER * EDGE)
        return 1 + 1j * strength * depth**2

    at, between = stretch(np.arange(GRID)), stretch(np.arange(GRID + 1) - 0.5)
    return (
        np.diag(-(1 / between[:-1] + 1 / between[1:]) / at)
        + np.diag(1 / (between[1:-1] * at[:-1]), 1)
        + np.diag(1 / (between[1:-1] * at[1:]), -1)
    )


# What the grid makes of the wave number: cos k = 1 - k0**2 / 2.
ON_GRID = np.arccos(1 - WAVENUMBER**2 / 2)
LAPLACIAN = laplacian()
CURRENT = np.where(np.arange(GRID) == SOURCE, 2j * np.sin(ON_GRID), 0)  # sends waves of size one


def field(design):
    """The wave on the whole grid with the design in its middle."""
    air = np.full(FIRST, AIR)
    permittivity = np.concatenate([air, design, air])
    return np.linalg.solve(LAPLACIAN + WAVENUMBER**2 * np.diag(permittivity), CURRENT)


def transmission(design):
    """The share of the power that passes."""
    return np.abs(field(design)[PROBE]) ** 2


def permittivity(logits):
    """Between air and glass, whatever the numbers that are trained."""
    return AIR + (GLASS - AIR) * tg.sigmoid(logits)


def loss(logits):
    return np.log(transmission(permittivity(logits)))


def plane_wave() -> np.ndarray:
    """What empty space holds, to either side of the source."""
    return np.exp(1j * ON_GRID * np.abs(np.arange(GRID) - SOURCE))


def stack() -> np.ndarray:
    """Quarter waves of glass, with quarter waves of air between them."""
    pair = [np.full(QUARTERS[kind], kind) for kind in (GLASS, AIR)]
    return np.concatenate(pair * LAYERS)[:CELLS]


def stack_transmission() -> float:
    """In closed form: each quarter wave inverts the admittance, in units of its own."""
    admittance = (GLASS / AIR) ** LAYERS
    return 4 * admittance / (1 + admittance) ** 2


def gradient_error(logits: np.ndarray, rng: np.random.Generator) -> float:
    """How far, relatively, the slope along some direction is from that of two losses."""
    way, h = rng.normal(size=CELLS), 1e-5
    slope = tg.grad(loss)(logits) @ way
    return abs((loss(logits + h * way) - loss(logits - h * way)) / (2 * h) / slope - 1)


def new_step(logits: tg.Tensor, compile: bool):
    optimizer = tg.Adam([logits], lr=LR)

    def step():
        value = loss(logits)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return value

    return tg.compile(step) if compile else step


def draw(losses, designs):
    figure, axes = pyplot.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    axes[0].semilogy(np.exp(losses), label="design")
    axes[0].axhline(stack_transmission(), color="tab:gray", ls="--", label="quarter-wave stack")
    axes[0].set(xlabel="step", ylabel="transmitted power", title="descent")
    axes[0].legend()
    inside = np.arange(EDGE, GRID - EDGE)
    for axis, (title, design) in zip(axes[1:], designs.items(), strict=True):
        axis.fill_between(
            np.arange(FIRST, FIRST + CELLS), AIR, design, step="mid", color="tab:blue", alpha=0.3
        )
        axis.set(xlabel="cell", ylim=(AIR, 1.5 * GLASS), title=title)
        axis.set_ylabel("permittivity", color="tab:blue")
        waves = axis.twinx()
        waves.spines.right.set_visible(True)
        waves.plot(inside, np.abs(field(design))[inside], color="tab:red")
        waves.axvline(SOURCE, color="tab:gray", ls=":")
        waves.text(SOURCE + 1, 2.1, "source", color="tab:gray")
        waves.set_ylabel("size of the wave", color="tab:red")
        waves.set_ylim(0, 2.2)
    return figure


def main() -> None:
    args = arguments(__doc__, picture="inverse_design.png", compile=True)
    rng = np.random.default_rng(args.seed)
    start = rng.normal(START, 0.1, CELLS)
    inside = slice(EDGE, GRID - EDGE)
    empty = np.abs(field(np.full(CELLS, AIR)) - plane_wave())[inside].max()
    apart = gradient_error(start, rng)

    logits = tg.param(start, name="logits")
    step = new_step(logits, args.compile)
    losses = descend(step, lambda: (), 40 if args.quick else 300)
    before, after = (permittivity(x).numpy() for x in (start, logits.numpy()))
    save(draw(losses, {"before": before, "after": after}), args.out)
    middle = (AIR + GLASS) / 2
    alike = np.mean((after > middle) == (stack() > middle))
    print(f"found     {transmission(after):.5f} of the power passes")
    print(f"          {transmission(before):.5f} at the start")
    print(f"          {stack_transmission():.5f} through {LAYERS} quarter waves, closed form")
    print(f"          {transmission(stack()):.5f} through the same, on this grid")
    print(f"alike     {alike:.0%} of the cells as in that stack")
    print(f"empty     {empty:.1e} at most between the solved and the plane wave")
    print(f"gradient  {apart:.1e} relative to finite differences")
    print_engine(step)


if __name__ == "__main__":
    main()
