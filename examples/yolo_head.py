"""Find digits on a canvas: one look, a box and a confidence for every cell of a grid.

You learn a detection head in the manner of YOLO: each cell sees its surroundings, the cell that
holds a digit's centre answers for it, and `tg.where` keeps the box error of all other cells out of
the loss. The canvases are made of scikit-learn's digits, in two sizes; the yardstick puts a box of
mean size at the middle of the right cell.
"""

from __future__ import annotations

import numpy as np
from _common import arguments, descend, parameters, print_engine, pyplot, save, sgd_step
from _data import digits
from matplotlib.patches import Rectangle

import tapegraph as tg
from tapegraph.optim import schedules

CELLS, CELL, MARGIN = 4, 12, 8
CANVAS, VIEW = CELLS * CELL, CELL + 2 * MARGIN
DIGITS, HIDDEN = 3, 128
BATCH = 16


def paint(images, rng: np.random.Generator):
    """A canvas with digits that do not overlap, and the (x, y, w, h) of each one's ink."""
    canvas = np.zeros((CANVAS, CANVAS), dtype=np.float32)
    boxes = []
    while len(boxes) < DIGITS:
        size = rng.integers(1, 3)
        digit = np.kron(images[rng.integers(len(images))].reshape(8, 8), np.ones((size, size)))
        top, left = rng.integers(CANVAS - len(digit) + 1, size=2)
        place = canvas[top : top + len(digit), left : left + len(digit)]
        if not place.any():
            place[:] = digit
            rows, columns = np.nonzero(digit > 0.2)
            y, x = top + rows.min(), left + columns.min()
            boxes.append((x, y, np.ptp(columns) + 1, np.ptp(rows) + 1))
    return canvas, np.array(boxes, dtype=np.float32)


def views(canvases):
    """What each cell sees: itself and a margin around it, one row a cell."""
    padded = np.pad(canvases, [(0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (VIEW, VIEW), axis=(1, 2))
    return windows[:, ::CELL, ::CELL].reshape(-1, VIEW * VIEW)


def encode(boxes):
    """What the cells of one canvas should say: (x, y, w, h) as shares, and 1 in the right cells."""
    target = np.zeros((CELLS, CELLS, 5), dtype=np.float32)
    for x, y, w, h in boxes:
        (column, dx), (row, dy) = (divmod(c / CELL, 1) for c in (x + w / 2, y + h / 2))
        target[int(row), int(column)] = dx, dy, w / VIEW, h / VIEW, 1
    return target.reshape(-1, 5)


def decode(said):
    """The boxes in pixels that the cells of all canvases speak of, one row a cell."""
    row, column = np.divmod(np.arange(len(said)) % CELLS**2, CELLS)
    x, y, w, h, _ = said.T
    w, h = w * VIEW, h * VIEW
    return np.stack([(column + x) * CELL - w / 2, (row + y) * CELL - h / 2, w, h], axis=1)


def scenes(images, count: int, rng: np.random.Generator):
    canvases, boxes = zip(*(paint(images, rng) for _ in range(count)), strict=True)
    return np.stack(canvases), np.concatenate([encode(b) for b in boxes])


def head(model, seen):
    hidden = tg.relu(seen @ model.W1 + model.b1)
    return tg.sigmoid(hidden @ model.W2 + model.b2)


def loss(model, seen, target):
    """The squared error of the confidence everywhere, and of the box where there is one."""
    said = head(model, seen)
    here = target[:, 4:]
    box = tg.where(here, (said[:, :4] - target[:, :4]) ** 2, 0.0)
    return tg.mean((said[:, 4:] - here) ** 2) + 5 * tg.sum(box) / here.sum()


def overlap(a, b):
    """Intersection over union of boxes, row by row."""
    low = np.maximum(a[:, :2], b[:, :2])
    high = np.minimum(a[:, :2] + a[:, 2:], b[:, :2] + b[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    return common / (a[:, 2:].prod(axis=1) + b[:, 2:].prod(axis=1) - common)


def draw(canvases, said, target):
    figure, cells = pyplot.subplots(2, 4, figsize=(13, 7), layout="constrained")
    figure.suptitle("found (green, with its confidence); true (white)")
    each = CELLS**2
    for i, axis in enumerate(cells.flat):
        axis.imshow(canvases[i], cmap="gray", extent=(0, CANVAS, CANVAS, 0))
        axis.set(xticks=range(0, CANVAS, CELL), yticks=range(0, CANVAS, CELL))
        axis.tick_params(length=0, labelbottom=False, labelleft=False)
        axis.grid(color="gray", linewidth=0.3)
        part = slice(i * each, (i + 1) * each)
        for color, guess in (("white", target[part]), ("lime", said[part])):
            for (x, y, w, h), sure in zip(decode(guess), guess[:, 4], strict=True):
                if sure > 0.5:
                    style = ":" if color == "white" else "-"
                    axis.add_patch(Rectangle((x, y), w, h, fill=False, color=color, ls=style))
                    if color == "lime":
                        # Below, where it covers no digit, and inside the picture.
                        place = max(x, 0.5), min(y + h + 0.5, CANVAS - 2)
                        axis.text(*place, f"{sure:.0%}", color=color, fontsize=8, va="top")
    return figure


def main() -> None:
    args = arguments(__doc__, picture="yolo_head.png")
    rng = np.random.default_rng(args.seed)
    (train_images, _), (test_images, _) = digits(rng)
    model = parameters(rng, W1=(VIEW**2, HIDDEN), b1=(HIDDEN,), W2=(HIDDEN, 5), b2=(5,))

    def draw_batch():
        canvases, target = scenes(train_images, BATCH, rng)
        return views(canvases), target

    steps = 60 if args.quick else 2500
    step = sgd_step(loss, model, schedules.cosine(0.7, steps), compile=args.compile)
    descend(step, draw_batch, steps)

    canvases, target = scenes(test_images, 200, rng)
    with tg.no_grad():
        said = head(model, views(canvases)).data
    save(draw(canvases, said, target), args.out)
    true = target[:, 4] == 1
    mean = np.concatenate([[0.5, 0.5], target[true, 2:4].mean(axis=0), [1]])
    yardstick = overlap(decode(np.where(true[:, None], mean, 0))[true], decode(target)[true])
    found = overlap(decode(said), decode(target))
    claimed = said[:, 4] > 0.5
    good = (true & claimed & (found > 0.5)).sum()
    overlaps = f"{found[true].mean():.1%} with the true box; {yardstick.mean():.1%} by a mean box"
    print(f"overlap   {overlaps}")
    print(f"found     {good / true.sum():.1%} of {true.sum()} digits on {len(canvases)} canvases")
    print(f"right     {good / claimed.sum():.1%} of {claimed.sum()} boxes claimed")
    print_engine(step)


if __name__ == "__main__":
    main()
