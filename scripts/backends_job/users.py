"""Who Postgres runs as: us, or someone with fewer rights if we are root, whom it refuses."""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CANDIDATES = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: int
    gid: int

    def arguments(self) -> dict[str, Any]:
        """What makes `subprocess` run as this user."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def can_enter(self, folder: Path) -> bool:
        tried = subprocess.run(["/bin/sh", "-c", f'cd "{folder}"'], cwd="/", check=False, stderr=-3, **self.arguments())
        return tried.returncode == 0


def unprivileged() -> User | None:
    """The user for what refuses root; None if we aren't root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = next(known[name] for name in CANDIDATES if name in known)
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid)


def closed_folder(folder: Path, user: User) -> Path | None:
    """The first folder on the way down that the user can't enter, if any."""
    way = [*reversed(folder.parents), folder]
    return next((step for step in way if not user.can_enter(step)), None)
