"""Train a small transformer on scanned digits: a whole training script, to copy and change.

You learn what stands around a training step: validation, early stopping, a learning rate that warms
up and decays, clipped gradients, batches in parts that fit into memory, curves, and checkpoints.
Stop it with Ctrl-C whenever you like; `--resume` goes on from the last whole epoch, and natively
ends with the bits of a run that was not stopped. It needs no other file of this folder.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

import tapegraph as tg
from tapegraph.optim import schedules

try:
    from matplotlib.figure import Figure
    from sklearn.datasets import load_digits
    from tqdm import tqdm
except ModuleNotFoundError as error:
    sys.exit(f"This script needs {error.name}: pip install matplotlib scikit-learn tqdm")

CLASSES, PATCH, WIDTH, HEADS, LAYERS = 10, 2, 32, 4, 2
BATCH, DROPOUT, RATE = 64, 0.1, 4e-3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--folder", type=Path, default="training", help="for checkpoints and curves (%(default)s)")
    add("--resume", action="store_true", help="go on from the folder's last checkpoint")
    add("--epochs", type=int, default=40, help="at most (%(default)s)")
    add("--patience", type=int, default=10, help="epochs without progress (%(default)s)")
    add("--parts", type=int, default=1, help="of a batch, which are added up (%(default)s)")
    add("--dtype", choices=["float32", "float64"], default="float32")
    add("--compile", action=argparse.BooleanOptionalAction, default=True)
    add("--backend", choices=["native", "tensorflow", "auto"], default="native")
    add("--seed", type=int, default=0)
    add("--tensorboard", action="store_true", help="write curves for TensorBoard, too")
    add("--out", type=Path, default="training.png", help="the picture's file (%(default)s)")
    add("--quick", action="store_true", help="two epochs, to see that it works")
    args = parser.parse_args()
    if args.out.is_dir():
        parser.error(f"--out: {args.out} is a folder; expected a file such as {args.out}/loss.png")
    args.epochs = 2 if args.quick else args.epochs
    return args


def data(seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Images and labels to train on, to stop by, and to test with in the end."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    images = images.reshape(-1, 8, 8).astype(tg.get_default_dtype()) / 16
    return [(images[rows], labels[rows]) for rows in np.split(order, [1197, 1497])]


def new_model() -> dict:
    def weights(*shape):
        return tg.param(tg.random.glorot_uniform(shape))

    def norm():
        return tg.param([1.0] * WIDTH), tg.param([0.0] * WIDTH)

    def layer():
        attend = {"norm": norm(), "qkv": weights(WIDTH, 3 * WIDTH), "mix": weights(WIDTH, WIDTH)}
        think = {"up": weights(WIDTH, 4 * WIDTH), "down": weights(4 * WIDTH, WIDTH)}
        return attend | {"norm2": norm()} | think

    layers = [layer() for _ in range(LAYERS)]
    place = tg.param(0.1 * tg.random.normal(size=((8 // PATCH) ** 2, WIDTH)))
    ends = {"in": weights(PATCH**2, WIDTH), "norm": norm(), "out": weights(WIDTH, CLASSES)}
    return {"place": place, "layers": layers, **ends}


def scores(model: dict, images, dropout: float = 0.0):
    """Scores of the classes, by a transformer that reads an image in patches."""
    n, side = len(images), 8 // PATCH
    patches = images.reshape(n, side, PATCH, side, PATCH).transpose(0, 1, 3, 2, 4)
    x = patches.reshape(n, side**2, PATCH**2) @ model["in"] + model["place"]
    for layer in model["layers"]:
        heads = (tg.layer_norm(x, *layer["norm"]) @ layer["qkv"]).reshape(n, side**2, 3, HEADS, -1)
        seen = tg.scaled_dot_product_attention(*heads.transpose(2, 0, 3, 1, 4))
        x = x + tg.dropout(seen.transpose(0, 2, 1, 3).reshape(x.shape) @ layer["mix"], dropout)
        hidden = tg.gelu(tg.layer_norm(x, *layer["norm2"]) @ layer["up"])
        x = x + tg.dropout(hidden @ layer["down"], dropout)
    return tg.mean(tg.layer_norm(x, *model["norm"]), axis=1) @ model["out"]


def new_steps(model: dict, optimizer: tg.Optimizer, compile: bool):
    """The step that trains, and the one that measures."""

    def step(images, labels):  # of shape (parts, rows, ...)
        optimizer.zero_grad()
        losses = []
        for x, y in zip(images, labels, strict=True):
            losses.append(tg.softmax_crossentropy(scores(model, x, DROPOUT), y) / len(images))
            losses[-1].backward()  # which adds up
        norm = tg.clip_grad_norm(model, 1.0)
        optimizer.step()
        return sum(losses), norm

    @tg.no_grad()
    def measure(images, labels):
        found = scores(model, images)
        right = np.mean(np.argmax(found, axis=1) == labels)
        return tg.softmax_crossentropy(found, labels), right

    return (tg.compile(step), tg.compile(measure)) if compile else (step, measure)


def draw(history: list[dict], best: int) -> Figure:
    curves = {name: np.array([row[name] for row in history]) for name in history[0]}
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    epochs = np.arange(1, len(history) + 1)
    left.semilogy(epochs, curves["train_loss"], label="training, with dropout")
    left.semilogy(epochs, curves["valid_loss"], label="validation")
    left.plot(best, curves["valid_loss"][best - 1], "o", color="tab:orange", label="the best")
    left.set(xlabel="epoch", ylabel="loss")
    left.legend(frameon=False)
    middle.plot(epochs, 100 * (1 - curves["valid_right"]), color="tab:orange")
    middle.set(xlabel="epoch", ylabel="validation images wrong, %", ylim=(0, None))
    right.plot(epochs, curves["rate"], color="tab:green")
    right.set(xlabel="epoch", ylabel="learning rate", ylim=(0, None))
    return figure


def main() -> None:
    args = arguments()
    tg.set_backend(args.backend)
    tg.set_default_dtype(args.dtype)
    tg.random.seed(args.seed)
    for folder in (args.folder, args.out.parent):
        folder.mkdir(parents=True, exist_ok=True)
    best_file, last_file = args.folder / "best.npz", args.folder / "last.npz"
    if args.tensorboard:
        try:
            from tensorboard.summary import Writer
        except ModuleNotFoundError:
            sys.exit("--tensorboard needs a package: pip install tensorboard")
        board = Writer(str(args.folder / "tensorboard"))

    train, valid, test = data(args.seed)
    batches = tg.data.batches(*train, size=BATCH, shuffle=True, drop_last=True)
    model, steps = new_model(), args.epochs * len(batches)
    rate = schedules.warmup(steps // 10, schedules.cosine(RATE, steps - steps // 10))
    optimizer = tg.AdamW(model, lr=rate)
    step, measure = new_steps(model, optimizer, args.compile)

    history, best = [], 0  # the number of the best epoch
    run = {name: getattr(args, name) for name in ("epochs", "parts", "seed")}
    if args.resume and last_file.exists():
        saved = tg.load(last_file, into={"model": model, "optimizer": optimizer})
        if saved["run"] != run:
            sys.exit(f"--resume: received {run}; expected {saved['run']}, as in {last_file}")
        tg.random.set_state(saved["random"])
        history, best = saved["history"], saved["best"]

    bar = tqdm(initial=len(history), total=args.epochs, desc="training", unit="epoch")
    while len(history) < args.epochs and len(history) - best < args.patience:
        losses = []
        for images, labels in batches:
            parts = images.reshape(args.parts, -1, 8, 8), labels.reshape(args.parts, -1)
            losses.append([x.item() for x in step(*parts)])
        loss, norm = np.mean(losses, axis=0).tolist()
        lost, right = (x.item() for x in measure(*valid))
        row = {"train_loss": loss, "valid_loss": lost, "valid_right": right, "gradient": norm}
        history.append(row | {"rate": rate(optimizer.steps - 1)})
        if not best or lost < history[best - 1]["valid_loss"]:
            best = len(history)
            tg.save(best_file, {"model": model})
        whole = {"model": model, "optimizer": optimizer, "random": tg.random.get_state()}
        tg.save(last_file, {**whole, "history": history, "best": best, "run": run})
        with open(args.folder / "curves.csv", "w", newline="") as file:
            table = csv.DictWriter(file, history[0])
            table.writeheader()
            table.writerows(history)
        for name, number in history[-1].items() if args.tensorboard else ():
            board.add_scalar(name, number, step=len(history))
        bar.update()
        bar.set_postfix(loss=f"{loss:.3f}", validation=f"{lost:.3f}")
    bar.close()

    tg.load(best_file, into={"model": model})
    right = measure(*test)[1].item()
    print(f"test      {100 * right:.1f} % right, after epoch {best}, the best of {len(history)}")
    if ran := tg.last_backward():  # none where all epochs had run before
        times = "once" if not args.compile or step.traces == 1 else f"{step.traces} times"
        compiled = f"; the training step was compiled {times}" if args.compile else ""
        print(f"engine    {ran.backend}{compiled}")
    draw(history, best).savefig(args.out, dpi=120)
    print(f"picture   {args.out}; checkpoints and curves in {args.folder}/")


if __name__ == "__main__":
    main()
