"""`install()` patches PyIceberg once, takes itself back, and only touches versions that it was tested with."""

import os
import subprocess
import sys
from pathlib import Path

import pyiceberg.manifest
import pytest
from pyiceberg.table import Transaction
from pyiceberg.table.update.snapshot import _SnapshotProducer

from duckicelake.pyiceberg_v3.installation import (
    TESTED_VERSIONS,
    UntestedVersionError,
    install,
    load_patches,
    uninstall,
)

REPOSITORY = Path(__file__).parents[2]


def attributes():
    return [vars(patch.owner)[patch.name] for patch in load_patches()]


def test_installed_twice_is_installed_once_and_goes_with_one_uninstall():
    uninstall()
    before = attributes()
    install()
    once = attributes()
    install()
    assert all(now is then for now, then in zip(attributes(), once, strict=True))
    assert not any(now is then for now, then in zip(once, before, strict=True))
    uninstall()
    assert all(now is then for now, then in zip(attributes(), before, strict=True))


def test_uninstall_without_install_does_nothing():
    uninstall()
    before = attributes()
    uninstall()
    assert all(now is then for now, then in zip(attributes(), before, strict=True))


def test_no_attribute_is_patched_twice():
    names = [(patch.owner, patch.name) for patch in load_patches()]
    assert len(names) == len(set(names))
    assert (Transaction, "upsert") in names
    assert (_SnapshotProducer, "_commit") in names


def test_every_patch_says_what_pyiceberg_lacks():
    assert all((patch.replace.__doc__ or "").startswith("PyIceberg") for patch in load_patches())


def test_install_refuses_a_version_that_it_was_not_tested_with(tmp_path, monkeypatch):
    uninstall()
    before = attributes()
    described = tmp_path / "pyiceberg-0.99.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: pyiceberg\nVersion: 0.99.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UntestedVersionError, match=r"PyIceberg 0\.11\.1 and 0\.12\.0, installed is 0\.99\.0"):
        install()
    assert all(now is then for now, then in zip(attributes(), before, strict=True))


def test_this_pyiceberg_is_one_of_the_tested():
    assert pyiceberg.__version__ in TESTED_VERSIONS


def test_without_pyiceberg_the_package_imports_and_only_install_fails():
    """`-S` leaves site-packages out; only the repository is on the path."""
    script = (
        "import duckicelake.pyiceberg_v3 as v3\n"
        "try:\n    v3.install()\n"
        "except v3.UntestedVersionError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-S", "-c", script]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout == "tested with PyIceberg 0.11.1 and 0.12.0, installed is none\n"
