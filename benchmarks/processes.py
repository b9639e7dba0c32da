"""Work in processes of their own, which is asked for through pipes.

A process calls one function, and then the methods of what that gave, as they are asked for. In
between it sleeps in a read: while one works, no other library's threads, allocator or settings
touch its time. Run as a script, this file is such a process.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, BinaryIO

ROOT = Path(__file__).resolve().parents[1]


class Failed(Exception):
    """What was asked raised an error.

    :ivar kind: The error's class, by name: the process may know classes that this one does not.
    """

    def __init__(self, kind: str, message: str, trace: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.trace = trace


class Process:
    """A process that holds one object, and calls its methods.

    :param make: ``"module:function"``, which gives the object.
    :param *given: What the function takes.
    :param checkout: Where the process finds ``tapegraph``; ``benchmarks`` is always this one.
    """

    def __init__(self, make: str, *given: Any, checkout: Path = ROOT) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(checkout)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._send(make, *given)
        self._made = False

    def made(self) -> None:
        """Wait until the object is there: processes that were started together start together."""
        if not self._made:
            self._made = True
            self._receive()

    def ask(self, method: str, *given: Any) -> Any:
        """Return what a method of the object gives."""
        self.made()
        self._send(method, *given)
        return self._receive()

    def end(self) -> None:
        """Let the process end, and wait for that."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:  # it ended by itself
                    continue
        self._process.wait()

    def _send(self, *question: Any) -> None:
        try:
            _write(self._process.stdin, question)
        except BrokenPipeError:
            self._ended()

    def _receive(self) -> Any:
        try:
            right, answer = pickle.load(self._process.stdout)  # type: ignore[arg-type]
        except EOFError:
            self._ended()
        if right:
            return answer
        raise Failed(*answer)

    def _ended(self) -> None:
        status = self._process.wait()
        raise Failed("Ended", f"its process ended with status {status}", "") from None


def serve(checkout: str) -> None:
    """Answer until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks decides when it ends
    # What libraries print goes to the standard error stream: the pipes are ours alone.
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.path[0] = str(ROOT)
    importlib.import_module("benchmarks")
    sys.path[0] = checkout
    # An editable install would give another checkout's folders in the place of this one's.
    sys.meta_path[:] = [f for f in sys.meta_path if not f.__module__.startswith("__editable__")]
    held: Any = None
    while True:
        try:
            name, *given = pickle.load(questions)
        except EOFError:
            return
        try:
            if held is None:
                module, _, function = name.partition(":")
                held = getattr(importlib.import_module(module), function)(*given)
                answer: tuple[bool, Any] = True, None
            else:
                answer = True, getattr(held, name)(*given)
        except Exception as error:
            answer = False, (type(error).__name__, str(error), traceback.format_exc())
        try:
            _write(answers, answer)
        except BrokenPipeError:  # nobody waits for it any more
            return


def _write(pipe: BinaryIO | Any, message: Any) -> None:
    pickle.dump(message, pipe, pickle.HIGHEST_PROTOCOL)
    pipe.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
