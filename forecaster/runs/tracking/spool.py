"""What a store could not take, kept beside it until it can: `mlflow-pending/` in the working directory.

What comes in: entries of one run, in their order. What goes out: a folder per run and process that
`forecaster runs sync` sends and removes. Promised: an entry is in the file, or it is not; a folder that
a living process still writes to is known as such.

    mlflow-pending/20261121T061500-3f2a…/
    ├── run.json          the store's address and the run's identity
    ├── entries.jsonl     one entry a line; locked while its process lives
    ├── sent              how many of them have arrived, once some have
    └── files/0, files/1  copies of the folders that entries name
"""

from __future__ import annotations

import fcntl
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from uuid import uuid4

from forecaster.files import atomic_file
from forecaster.runs.tracking.entries import Entry
from forecaster.runs.tracking.identity import Identity

FOLDER = "mlflow-pending"
"""Of the working directory."""


def spool_folder() -> Path:
    """Returns where runs wait for their store."""
    return Path.cwd() / FOLDER


class Spool:
    """The entries of one run that wait; written by one process."""

    def __init__(self, base: Path, identity: Identity, uri: str):
        """Makes the folder.

        Raises:
            OSError: there is no room or no permission.
        """
        self.folder = base / f"{time.strftime('%Y%m%dT%H%M%S')}-{uuid4().hex[:12]}"
        partial = base / f".{self.folder.name}.partial"
        partial.mkdir(parents=True)
        told = {"uri": uri, "identity": identity.to_dict()}
        (partial / "run.json").write_text(json.dumps(told), encoding="utf-8")
        self._entries: IO[str] = (partial / "entries.jsonl").open("a", encoding="utf-8")
        fcntl.flock(self._entries, fcntl.LOCK_EX)
        partial.rename(self.folder)
        self._folders = 0

    def add(self, entry: Entry) -> None:
        """Keeps an entry, and copies of the files that it names.

        Raises:
            OSError: there is no room left.
        """
        if "files" in entry:
            copy = self.folder / "files" / str(self._folders)
            shutil.copytree(entry["files"], copy)
            entry = {**entry, "files": str(copy.relative_to(self.folder))}
            self._folders += 1
        self._entries.write(json.dumps(entry) + "\n")
        self._entries.flush()

    def close(self) -> None:
        """Lets `forecaster runs sync` have it."""
        self._entries.close()


@dataclass(frozen=True)
class Waiting:
    """A run that waits, as found."""

    folder: Path
    """Of its spool."""
    uri: str
    """The store it was meant for."""
    identity: Identity
    """Which run."""

    @contextmanager
    def claimed(self) -> Iterator[bool]:
        """Yields False while the process that writes it lives, or another one sends it."""
        try:
            file = (self.folder / "entries.jsonl").open("r+", encoding="utf-8")
        except FileNotFoundError:  # sent and removed meanwhile
            yield False
            return
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield self.folder.exists()

    def entries(self) -> list[Entry]:
        """Returns what waits, in its order; a line that was cut off when its process died is none."""
        found: list[Entry] = []
        for line in (self.folder / "entries.jsonl").read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                break
            if "files" in entry:
                entry["files"] = str(self.folder / entry["files"])
            found.append(entry)
        return found

    def sent(self) -> int:
        """Returns how many entries have arrived."""
        try:
            return int((self.folder / "sent").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return 0

    def note_sent(self, count: int) -> None:
        """Notes how many entries have arrived."""
        with atomic_file(self.folder / "sent") as partial:
            partial.write_text(str(count), encoding="utf-8")

    def remove(self) -> None:
        """Takes the folder away, all at once: half of it would be taken for a run."""
        gone = self.folder.with_name(f".{self.folder.name}.sent")
        self.folder.rename(gone)
        shutil.rmtree(gone)


def waiting(base: Path) -> list[Waiting]:
    """Returns the runs that wait in a folder, oldest first."""
    found = []
    for file in sorted(base.glob("[0-9]*/run.json")):
        told = json.loads(file.read_text(encoding="utf-8"))
        found.append(Waiting(file.parent, told["uri"], Identity.read(told["identity"])))
    return found
