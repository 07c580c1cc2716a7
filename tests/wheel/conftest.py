"""The wheel that hatchling builds of this checkout, and environments that have nothing but it and what it asks for."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.documents import ROOT


@dataclass(frozen=True, slots=True)
class Installation:
    """An environment with the wheel. library: its `site-packages`."""

    programs: Path
    library: Path

    def run(self, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.programs / "duckicelake"), *arguments],
            cwd=cwd,
            env=clean_environment() | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def clean_environment() -> dict[str, str]:
    kept = ("PATH", "LANG", "TMPDIR", "HOME")
    return {name: os.environ[name] for name in kept if name in os.environ}


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with wheel and sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def wheel(distributions: Path) -> Path:
    (found,) = distributions.glob("*.whl")
    return found


def find_python(version: str) -> str | None:
    """The program of a version: on the path, or kept by pyenv."""
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for program in (shutil.which(f"python{version}"), *map(str, pyenv)):
        if program and subprocess.run([program, "-c", "import venv, ensurepip"], check=False).returncode == 0:
            return program
    return None


@pytest.fixture(scope="session")
def install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Installation]:
    """Install the wheel with what it asks for, from the package index, into an environment of a Python."""
    made: dict[str, Installation] = {}

    def install_for(version: str) -> Installation:
        if version not in made:
            program = find_python(version)
            if program is None:
                pytest.skip(f"this machine has no Python {version}")
            folder = tmp_path_factory.mktemp(f"python{version}-")
            subprocess.run([program, "-m", "venv", str(folder)], check=True)
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile", str(wheel)]
            subprocess.run(pip, check=True, env=clean_environment() | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"})
            (library,) = (folder / "lib").glob("python3*/site-packages")
            made[version] = Installation(folder / "bin", library)
        return made[version]

    return install_for


@pytest.fixture(scope="session")
def base(install: Callable[[str], Installation]) -> Installation:
    """The base installation for the Python that runs the tests."""
    return install(f"3.{sys.version_info.minor}")
