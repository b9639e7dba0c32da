"""What mypy tells users of their programs, and that it is true when they run."""

import inspect
import operator
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.ops import elementwise
from tapegraph.tensors import value

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "typed_program.py"
LINES = PROGRAM.read_text().splitlines()
# Beside a line stands its type, or the code of the error that it is.
REVEALED = {n: line.split("  # ")[1] for n, line in enumerate(LINES, 1) if "reveal_type(" in line}
MISTAKES = {n: line.split("# error: ")[1] for n, line in enumerate(LINES, 1) if "# error: " in line}

# The public functions that say Any, each with the reason.
ANY = {
    "tg.jvp": "a number, an array or a tensor, or a tuple of them: as what the function gives",
    "tg.hvp": "as its primals are: numbers, arrays, tensors, and dicts, lists and tuples of them",
    "tg.vjp": "the same, and what the function gives",
    "tg.linearize": "the same, and its derivative along a direction",
    **dict.fromkeys(
        ("tg.scan", "tg.fori_loop", "tg.while_loop", "tg.cond", "tg.switch"),
        "trees of tensors, as what the functions give",
    ),
    "tg.stop_gradient": "as what it takes: dicts, lists and tuples too",
    "tg.ravel_pytree": "of a tree: a tensor, or an array where it has none",
    "tg.gradient": "a tensor, or a tuple of one for each of several axes",
    "tg.linspace": "a tensor, or with ``retstep`` its distance too",
    "tg.load": "what the file holds",
    "tg.function": "a `tf.function`, which has no types",
    "x.tolist": "a list as deep as the tensor has axes, which its type does not tell",
    "dual.tolist": "the same",
}
FUNCTIONS = (
    *(f"tg.{name}" for name in tg.__all__),
    *(f"tg.special.{name}" for name in tg.special.__all__),
    *(f"tg.random.{name}" for name in tg.random.__all__),
    *(f"tg.testing.{name}" for name in ("check_gradients", "check_parity")),
    *(f"tg.lowering.{name}" for name in ("cache_clear", "cache_info", "lower", "set_cache_limit")),
)
METHODS = tuple(
    f"{variable}.{name}"
    for variable, cls in (("x", tg.Tensor), ("dual", tg.Dual), ("value", tg.Value))
    for name in dir(cls)
    if hasattr(cls, name)  # and not a name of another library's, which says what to write
    if not name.startswith("_") and name not in ("fill", "partition", "put", "resize", "sort")
)  # without those that are refused
NAMES = (*FUNCTIONS, *METHODS)


@pytest.fixture(scope="module")
def told(tmp_path_factory, pytestconfig) -> dict[str, dict[int, list[str]]]:
    """What mypy says of each line of the program, and of a file that names all that is public."""
    pytest.importorskip("mypy", reason="mypy is in the extra `test`")
    folder = tmp_path_factory.mktemp("types")
    installed = folder / "installed" / "tapegraph"
    for source in ("", "fallback", "lowering"):  # as they are when installed
        shutil.copytree(ROOT / (source or "tapegraph"), installed / source)
    shutil.copy(PROGRAM, folder / "program.py")
    names = "from program import dual, tg, value, x\n\n"
    lines = [f"reveal_type({name})" for name in NAMES]
    calls = [f"reveal_type({name}.__call__)" for name in NAMES]
    (folder / "names.py").write_text(names + "\n".join(lines))
    (folder / "calls.py").write_text(names + "\n".join(calls))
    files = ("program.py", "names.py", "calls.py")
    kept = getattr(pytestconfig, "cache", None)  # which a run may do without
    cache = folder / "cache" if kept is None else kept.mkdir("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", "--no-error-summary"]
        # The library's own errors are for .ci/types: here the bodies of its functions are skipped.
        + ["--follow-imports=silent", "--config-file", "", "--cache-dir", cache, *files],
        cwd=folder,
        env={"MYPYPATH": str(installed.parent), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=600,
    )
    said: dict[str, dict[int, list[str]]] = {name: {} for name in files}
    for file, line, message in re.findall(r"^(\w+\.py):(\d+): (.*)$", done.stdout, re.MULTILINE):
        said[file].setdefault(int(line), []).append(message)
    assert said["program.py"], done.stdout + done.stderr
    return said


def short(revealed: str) -> str:
    """Write a type without its modules, as the program does."""
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", revealed)
    text = re.sub(r"signedinteger\[[^]]*\]", "intp", text)
    text = re.sub(r"\bbool\[bool\]", "bool", text)
    text = re.sub(
        r"ndarray\[(?:tuple\[(?:Any|int), \.\.\.\]|Any), dtype\[(\w+)\]\]", r"NDArray[\1]", text
    )
    text = re.sub(r"^tuple\[.*, fallback=(.*)\]$", r"\1", text)
    return re.sub(r"Literal\[('\w+')\]", r"\1", text)


def revealed(messages: list[str]) -> str:
    (found,) = (m for m in messages if m.startswith("note: Revealed type is "))
    return short(found.removeprefix('note: Revealed type is "').removesuffix('"'))


# One test for all lines and one for all names: each process that runs one waits for mypy.

# To be struck when the oldest NumPy allowed is later.
NAMES_OF_NUMPY = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0",
    reason="the stubs of NumPy 2.0 name no function for a star import, which the drop-in is",
)


# mypy takes seven seconds; .ci/run asks for all that wait for it.


@pytest.mark.thorough
@NAMES_OF_NUMPY
def test_mypy_knows_the_types(told):
    assert {line: revealed(told["program.py"][line]) for line in REVEALED} == REVEALED


@pytest.mark.thorough
@NAMES_OF_NUMPY
def test_mypy_finds_the_mistakes_and_nothing_else(told):
    errors = {
        line: [message for message in messages if message.startswith("error: ")][-1]
        for line, messages in told["program.py"].items()
        if any(message.startswith("error: ") for message in messages)
    }
    codes = {line: message.rpartition("[")[2].removesuffix("]") for line, message in errors.items()}
    assert codes == MISTAKES, errors


def test_values_are_of_the_types_they_are_said_to_be():
    seen = {}

    def reveal_type(value):
        line = sys._getframe(1).f_lineno
        seen[line] = fits(value, REVEALED[line]), type(value)
        return value

    code = compile(PROGRAM.read_text(), PROGRAM, "exec")
    exec(code, {"__name__": "program", "reveal_type": reveal_type})
    assert {line: kind for line, (right, kind) in seen.items() if not right} == {}
    assert len(seen) > 150  # all but those for the type checker alone


def fits(value: object, text: str) -> bool:
    """Tell whether a value is of a type, written as the program writes them."""
    options = parts(text, " | ")
    if len(options) > 1:
        return any(fits(value, option) for option in options)
    name, _, inner = text.partition("[")
    items = parts(inner[:-1], ", ") if inner else []
    if name == "NDArray":  # of no axes it may be NumPy's scalar
        kind = {"bool": np.bool_, "intp": np.intp, "Any": np.generic}[items[0]]
        return isinstance(value, (np.ndarray, np.generic)) and issubclass(value.dtype.type, kind)
    if name == "tuple" and items[-1] == "...":
        return type(value) is tuple and all(fits(v, items[0]) for v in value)
    if name == "tuple":
        return (
            type(value) is tuple and [fits(*p) for p in zip(value, items, strict=True)].count(0) < 1
        )
    if name == "list":
        return type(value) is list and all(fits(v, items[0]) for v in value)
    if name == "Iterator":
        return isinstance(value, Iterator)
    if name.endswith("Result"):
        return type(value).__name__ == name and all(fits(v, items[0]) for v in value)
    if text.startswith("def "):
        return isinstance(value, Callable)
    if text.startswith("'"):
        return value == text.strip("'")
    return {"None": "NoneType", "intp": "int64"}.get(text, text) == type(value).__name__


def parts(text: str, separator: str) -> list[str]:
    """Split a type where it is not inside brackets."""
    found, depth = [""], 0
    for piece in re.split(f"({re.escape(separator)})", text):
        if piece == separator and not depth:
            found.append("")
            continue
        depth += sum(map(piece.count, "[(")) - sum(map(piece.count, "])"))
        found[-1] += piece
    return found


def forms(text: str) -> Iterator[tuple[str, str]]:
    """Yield the first parameter's type and the result's, of each form of a callable."""
    if text.startswith("Overload("):
        text = text[len("Overload(") : -1]
    for form in parts(text, ", def "):
        form = form.removeprefix("def ")
        if form.startswith("["):  # type variables
            form = form[closing(form) + 2 :]
        end = closing(form)
        first = parts(form[1:end], ", ")[0].rpartition(": ")[2].removesuffix(" =")
        yield first, form[end + 1 :].removeprefix(" -> ")


def closing(text: str) -> int:
    """Return where the bracket that a text begins with is closed."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character in "[(") - (character in "])")
        if not depth:
            return place
    raise ValueError(text)


@pytest.mark.thorough
def test_what_is_public_has_a_type(told):
    vague = {}
    for line, name in enumerate(NAMES, 3):
        text = revealed(told["names.py"][line])
        if not text.startswith(("def ", "Overload(")):
            call = revealed(told["calls.py"][line])  # where its type is a class that can be called
            text = text if call == "Any" else call
        said = [text]
        if text.startswith(("def ", "Overload(")):
            said = [part for form in forms(text) for part in form]
        if any(map(is_vague, said)):
            vague[name] = said
    assert vague.keys() == ANY.keys(), vague


def is_vague(text: str) -> bool:
    return text == "Any" or (text.startswith("tuple[") and "Any" in parts(text[6:-1], ", "))


def test_help_says_it_too():
    vague = {}
    for name in FUNCTIONS:
        function = operator.attrgetter(name.removeprefix("tg."))(tg)
        if inspect.isfunction(function):
            signature = inspect.signature(function)
            said = {p.annotation for p in signature.parameters.values()}
            if {"Any", inspect.Signature.empty} & {signature.return_annotation, *said}:
                vague[name] = signature
    # Decorators: they give what they were given, or a scope. A file's reader: what the file holds.
    # TensorFlow's own functions have no types, and of two functions of NumPy's an option decides
    # whether they give one tensor or more.
    known = {"tg.no_grad", "tg.compile", "tg.load", "tg.function", "tg.gradient", "tg.linspace"}
    assert vague.keys() == known, vague


def test_values_have_what_is_said_of_them():
    functions = {name: getattr(elementwise, name) for name in elementwise.__all__}
    said = {f.__name__ for f in functions.values() if f.__annotations__["return"] == "AnyKind"}
    assert said == value._OPERATIONS.keys()
