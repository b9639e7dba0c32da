"""Answer requests with a SavedModel, by TensorFlow and the standard library alone.

`python _server.py FOLDER` prints the port that it listens on, on this machine alone. A request is
`POST /v1/models/<any name>:predict` with `{"inputs": {name: values}}`, as TensorFlow Serving takes
it; the answer is `{"outputs": {name: values}}`. A number that is not finite is `null` there, for
JSON has none. A request that cannot be answered gets `{"error": why}` and the status 400.
"""

from __future__ import annotations

import json
import math
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import tensorflow as tf

LARGEST = 64 << 20  # bytes of a request
# What a request may raise, of hostile JSON too: a depth of 100,000, an integer of 10,000 digits.
WRONG = (
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
    MemoryError,
    tf.errors.OpError,
)


def array_of(values, spec):
    """What a request has for an input; an empty list is a batch of none."""
    shape = [0, *spec.shape[1:]] if values == [] and spec.shape.rank else None
    return tf.constant(values, spec.dtype, shape)


def finite(value):
    """Nested lists with None for each number that JSON has not."""
    if isinstance(value, list):
        return [finite(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def handler(model):
    """The class that answers for a model."""
    predict = model.signatures["serving_default"]
    _, specs = predict.structured_input_signature

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps the connection
        wbufsize = -1  # head and body of an answer in one piece
        timeout = 60  # seconds that a request may keep a thread waiting

        def do_GET(self):
            self.answer(200, {"tapegraph": "tapegraph" in sys.modules})

        def do_POST(self):
            try:
                body = self.body()
            except ValueError as error:
                self.close_connection = True  # nobody knows where the next request begins
                self.answer(400, {"error": f"ValueError: {error}"})
                return
            try:
                given = json.loads(body)["inputs"]
                inputs = {name: array_of(given[name], spec) for name, spec in specs.items()}
                outputs = predict(**inputs)
                content = {k: finite(np.asarray(y).tolist()) for k, y in outputs.items()}
            except WRONG as error:
                self.answer(400, {"error": f"{type(error).__name__}: {error}"})
                return
            self.answer(200, {"outputs": content})

        def body(self):
            """What was sent, as long as the head says."""
            length = int(self.headers.get("Content-Length", "none"))
            if not 0 <= length <= LARGEST:
                raise ValueError(f"Content-Length is {length}; expected 0 to {LARGEST}")
            return self.rfile.read(length)

        def answer(self, status, content):
            body = json.dumps(content, allow_nan=False).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            """Stay quiet."""

    return Handler


def main() -> None:
    model = tf.saved_model.load(sys.argv[1])
    with ThreadingHTTPServer(("127.0.0.1", 0), handler(model)) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
