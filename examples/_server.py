"""Answer requests with a SavedModel, by TensorFlow and the standard library alone.

`python _server.py FOLDER` prints the port that it listens on, on this machine alone. A request is
`POST /v1/models/<any name>:predict` with `{"inputs": {name: values}}`, as TensorFlow Serving takes
it; the answer is `{"outputs": {name: values}}`.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import tensorflow as tf


def handler(model):
    """The class that answers for a model."""
    predict = model.signatures["serving_default"]
    _, specs = predict.structured_input_signature

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps the connection
        wbufsize = -1  # head and body of an answer in one piece

        def do_GET(self):
            self.answer(200, {"tapegraph": "tapegraph" in sys.modules})

        def do_POST(self):
            try:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                given = json.loads(body)["inputs"]
                inputs = {
                    name: tf.constant(given[name], spec.dtype) for name, spec in specs.items()
                }
                outputs = predict(**inputs)
            except (KeyError, TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
                self.answer(400, {"error": f"{type(error).__name__}: {error}"})
                return
            self.answer(200, {"outputs": {k: np.asarray(y).tolist() for k, y in outputs.items()}})

        def answer(self, status, content):
            body = json.dumps(content).encode()
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
