"""Train on digits, export the model, and let another process answer requests with it.

You learn how a model leaves tapegraph: `tg.export` writes a TensorFlow SavedModel, which takes
batches of any size; a second process, with TensorFlow alone, loads it and answers over HTTP, in the
form of TensorFlow Serving. Its answers are compared with the eager numbers. It needs TensorFlow.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from _common import arguments, print_engine, save
from _data import digits
from digits import draw, logits, new_layers, train

import tapegraph as tg

SERVER = Path(__file__).with_name("_server.py")


@contextlib.contextmanager
def served(folder: str) -> Iterator[http.client.HTTPConnection]:
    """Start a server for a SavedModel; return a connection, and end it when all is done."""
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, str(SERVER), folder]
    with subprocess.Popen(command, env=os.environ | quiet, stdout=subprocess.PIPE) as server:
        try:
            port = server.stdout.readline()
            if not port:
                sys.exit("The server did not start.")
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", int(port))) as there:
                yield there
        finally:
            server.terminate()


def ask(there: http.client.HTTPConnection, images: np.ndarray) -> dict[str, np.ndarray]:
    """What the server answers for a batch of images, by name."""
    body = json.dumps({"inputs": {"images": images.tolist()}})
    there.request("POST", "/v1/models/digits:predict", body)
    response = there.getresponse()
    answer = json.loads(response.read())
    if response.status != 200:
        sys.exit(f"The server refused a request: {answer['error']}")
    return {name: np.array(values) for name, values in answer["outputs"].items()}


def main() -> None:
    args = arguments(__doc__, picture="serve.png", compile=True)
    try:
        tg.lowering.tensorflow()  # at once, not when all is trained
    except tg.lowering.Unavailable as error:
        sys.exit(f"This example exports to TensorFlow. {error}")
    rng = np.random.default_rng(args.seed)
    train_set, test_set = digits(rng)
    layers = new_layers(rng)
    epochs = 5 if args.quick else 40
    losses, accuracies, step = train(layers, train_set, test_set, epochs, rng, args.compile)

    def predict(images):
        odds = tg.softmax(logits(layers, images))
        return {"odds": odds, "digit": np.argmax(odds, axis=1)}

    images, labels = test_set
    with tempfile.TemporaryDirectory() as folder:
        tg.export(predict, folder, images[:8])
        size = sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file())
        with served(folder) as there:
            answers = ask(there, images)
            start = time.perf_counter()
            singly = [ask(there, images[i : i + 1])["odds"] for i in range(50)]
            taken = (time.perf_counter() - start) / len(singly)
            there.request("GET", "/")
            has_tapegraph = json.loads(there.getresponse().read())["tapegraph"]

    eager = predict(images)["odds"].detach().numpy()
    worst = max(
        np.abs(answers["odds"] - eager).max(),
        np.abs(np.concatenate(singly) - eager[: len(singly)]).max(),
    )
    save(draw(losses, accuracies, images, labels, answers["digit"]), args.out)
    print(f"model     {size / 1000:.0f} kB, tapegraph in the server: {has_tapegraph}")
    print(f"accuracy  {np.mean(answers['digit'] == labels):.2%} of {len(labels)} test digits")
    print(f"apart     {worst:.1e} at most from the eager numbers")
    print(f"a request {1000 * taken:.1f} ms for one image")
    print_engine(step)


if __name__ == "__main__":
    main()
