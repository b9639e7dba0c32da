"""Solve the heat equation with a network that knows the equation, and no solution.

You learn that derivatives of a network in its inputs are results like any other: `tg.jvp` twice
gives the curvature in space, the loss is how far the network is from ``u_t = k u_xx``, and
`backward()` differentiates that once more, for the weights. A bar, hot in two waves, cools with its
ends held at zero. The yardstick is the closed form.
"""

from __future__ import annotations

import numpy as np
from _common import arguments, descend, plot_noisy, print_engine, pyplot, save

import tapegraph as tg
from tapegraph.optim import schedules

CONDUCTIVITY = 0.05
WAVES = {1: 1.0, 3: 0.5}  # half-waves along the bar, and how hot they are at first
WIDTHS = [2, 32, 32, 1]
POINTS = 256


def new_model(rng: np.random.Generator) -> dict[str, tg.Tensor]:
    model = {}
    for i, (n, m) in enumerate(zip(WIDTHS, WIDTHS[1:], strict=False), start=1):
        model[f"W{i}"] = tg.param(rng.normal(0, 1 / np.sqrt(n), (n, m)), name=f"W{i}")
        model[f"b{i}"] = tg.param(np.zeros(m), name=f"b{i}")
    return model


def at_first(x):
    return sum(hot * np.sin(n * np.pi * x) for n, hot in WAVES.items())


def closed_form(x, t):
    """Each wave by itself, which fades the sooner the shorter it is."""
    fading = {n: np.exp(-CONDUCTIVITY * (n * np.pi) ** 2 * t) for n in WAVES}
    return sum(hot * fading[n] * np.sin(n * np.pi * x) for n, hot in WAVES.items())


def temperature(model, x, t):
    """What holds at first, and what the network adds: nothing then, and nothing at the ends."""
    h = np.stack([2 * x - 1, 2 * t - 1], axis=1)
    h = np.tanh(h @ model["W1"] + model["b1"])
    h = np.tanh(h @ model["W2"] + model["b2"])
    added = (h @ model["W3"] + model["b3"])[:, 0]
    return at_first(x) + t * x * (1 - x) * added


def slope(f, x):
    """The derivative of a function of each element."""
    return tg.jvp(f, (x,), (np.ones(len(x)),))[1]


def residual(model, x, t):
    """By how much the network breaks the law at some places and times."""
    u_t = slope(lambda t: temperature(model, x, t), t)
    u_xx = slope(lambda x: slope(lambda x: temperature(model, x, t), x), x)
    return u_t - CONDUCTIVITY * u_xx


def new_step(model, steps: int, compile: bool):
    optimizer = tg.Adam(model, lr=schedules.cosine(1e-2, steps))

    def step(x, t):
        loss = tg.mean(residual(model, x, t) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return tg.compile(step) if compile else step


def on_grid(function, n: int = 101) -> np.ndarray:
    """A function at places along the columns and times along the rows."""
    t, x = np.meshgrid(np.linspace(0, 1, n), np.linspace(0, 1, n), indexing="ij")
    return np.asarray(function(x.ravel(), t.ravel())).reshape(n, n)


def draw(losses, found, exact):
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    plot_noisy(left, losses)
    left.set(
        xlabel="step", ylabel="loss", title="mean square by which the law is broken", yscale="log"
    )
    places = np.linspace(0, 1, exact.shape[1])
    for row in range(0, len(exact), 20):
        time = row / (len(exact) - 1)
        color = pyplot.get_cmap("viridis")(0.9 * time)
        middle.plot(places, exact[row], color=color, label=f"t = {time:.1f}")
        middle.plot(places[::5], found[row, ::5], "o", markersize=3, color=color)
    middle.set(xlabel="place", ylabel="temperature", title="closed form, and network (dots)")
    middle.legend()
    limit = np.abs(found - exact).max()
    image = right.imshow(
        found - exact,
        origin="lower",
        extent=(0, 1, 0, 1),
        cmap="RdBu",
        vmin=-limit,
        vmax=limit,
        aspect="auto",
    )
    right.set(xlabel="place", ylabel="time", title="where and when the network errs")
    figure.colorbar(image, label="network less closed form")
    return figure


def main() -> None:
    args = arguments(__doc__, picture="physics_informed.png", compile=True)
    rng = np.random.default_rng(args.seed)
    model = new_model(rng)
    steps = 100 if args.quick else 3000
    step = new_step(model, steps, args.compile)
    losses = descend(step, lambda: rng.random((2, POINTS)), steps)
    with tg.no_grad():
        found = on_grid(lambda x, t: temperature(model, x, t))
    exact = on_grid(closed_form)
    save(draw(losses, found, exact), args.out)
    print(f"error     {np.abs(found - exact).max():.5f} at most, on a grid of {exact.size} points")
    untouched = np.abs(on_grid(lambda x, t: at_first(x)) - exact).max()
    print(f"          {untouched:.5f} if the bar stayed as it was")
    print_engine(step)


if __name__ == "__main__":
    main()
