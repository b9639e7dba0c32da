"""The folder in which the clients live: their sources, their tests, and a virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

from .suites import REQUIREMENTS, Client

OWN = Path(__file__).parent / "own"


class Environment:
    """The clients in a cache folder, fetched from the package index where they are missing.

    :param folder: The cache. What it holds already is used again.
    :param say: Called with a line for each step of the work.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder = folder.resolve()
        self._say = say
        self._sources = self.folder / "sources"
        environment = self.folder / "environment"
        scripts = "Scripts" if os.name == "nt" else "bin"
        self.python = environment / scripts / "python"
        self._sources.mkdir(parents=True, exist_ok=True)
        if not self.python.exists():
            say(f"a virtual environment in {environment}")
            venv.create(environment, with_pip=True)
            self._pip("install", *REQUIREMENTS)

    def add(self, client: Client) -> Path:
        """Install a client, unless it came with the environment; return the folder of its tests."""
        suite = self.folder / "suites" / client.label
        if client.wheel:
            suite.mkdir(parents=True, exist_ok=True)
        elif not suite.exists():
            source = self._source(client)
            self._say(f"{client.name} {client.version}: installing it")
            self._pip("install", "--no-deps", str(source))
            _unpack_tests(source, suite, client.folders)
        if client.own:
            shutil.copytree(OWN, suite / OWN.name, dirs_exist_ok=True)
        return suite

    def versions(self) -> dict[str, str]:
        """Return the version of every installed package, by name."""
        listed = self._pip("freeze", "--all").splitlines()
        pairs = (line.split("==") for line in listed if "==" in line)
        return {name.lower(): version for name, version in pairs}

    def _source(self, client: Client) -> Path:
        name = f"{client.name}-{client.version}.tar.gz"
        # A file's name may have the package's spelled in another way.
        names = {name, name.replace("-", "_", client.name.count("-"))}
        found = [path for path in self._sources.iterdir() if path.name in names]
        if not found:
            self._say(f"{client.name} {client.version}: fetching its source distribution")
            wanted = f"{client.name}=={client.version}"
            target = str(self._sources)
            self._pip("download", "--no-deps", "--no-binary", ":all:", "--dest", target, wanted)
            found = [path for path in self._sources.iterdir() if path.name in names]
        return found[0]

    def _pip(self, command: str, *arguments: str) -> str:
        """Run pip in the environment, and return what it printed.

        :raises RuntimeError: It failed.
        """
        call = [str(self.python), "-m", "pip", "--disable-pip-version-check", command, *arguments]
        ran = subprocess.run(call, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"pip {command} {' '.join(arguments)} failed:\n{ran.stderr[-2000:]}")
        return ran.stdout


def _unpack_tests(source: Path, suite: Path, folders: Sequence[str] = ("tests",)) -> None:
    """Unpack the folders of tests of a source distribution, if it has them."""
    suite.mkdir(parents=True)
    with tarfile.open(source) as archive:
        for member in archive.getmembers():
            inside = member.name.partition("/")[2]
            if inside.partition("/")[0] in folders and member.isfile():
                file = archive.extractfile(member)
                assert file is not None
                target = suite / inside
                if suite.resolve() not in target.resolve().parents:
                    raise RuntimeError(f"{source.name}: {member.name} would leave its folder")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read())


def default_cache() -> Path:
    """Return a folder of the user's for what can be fetched again."""
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA")
    else:
        root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "tapegraph-clients"
