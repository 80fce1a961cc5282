"""The journal: a study as one file to which many processes, and machines on a shared disk, append.

What comes in: a path. What goes out: what Optuna's `JournalStorage` writes to. Promised: an entry is
there whole or not at all, whatever kills the writer or fills the disk; a lock whose process was killed
holds nobody up on its own machine, and other machines for half a minute.

The lock is a symbolic link, which every file system makes at most once, NFS included. It names its
process.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from forecaster.runs.tune.owner import Owner

_HEAD = b'{"op_code":'
_FOREIGN_SECONDS = 30.0
"""A lock that another machine keeps for longer is broken: appending takes milliseconds."""


def journal_backend(path: Path) -> Any:
    """Returns the backend of a journal file, which is made if it is not there.

    Raises:
        OSError: the file cannot be read or written.
    """
    from optuna.storages.journal import BaseJournalBackend, JournalFileBackend

    class Journal(BaseJournalBackend):
        """Optuna's own reader, and a writer that leaves no half entry."""

        def __init__(self) -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._reader = JournalFileBackend(str(path))

        def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
            return self._reader.read_logs(log_number_from)  # type: ignore[no-any-return]

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            _append(path, "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs))

    return Journal()


def is_foreign(path: Path) -> bool:
    """Whether there is a file that is no journal, and must not be written to."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        head = file.read(len(_HEAD))
    return not _HEAD.startswith(head)


def _append(path: Path, lines: str) -> None:
    """Appends lines so that they outlive the machine; after a fault the file is as it was."""
    with locked(path.with_name(f"{path.name}.lock")), path.open("r+b") as file:
        end = _whole(file)
        file.truncate(end)  # what a writer left that the machine's end, or a full disk, cut short
        try:
            file.seek(end)
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                os.ftruncate(file.fileno(), end)
            raise


def _whole(file: Any) -> int:
    """Returns where the last whole line of a file ends."""
    end: int = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 4096)
        file.seek(start)
        newline: int = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock file while the block runs, and waits for it before.

    Args:
        path: of the lock, beside what it guards.
    """
    mine = str(Owner.this())
    held: tuple[str, int] | None = None
    since = 0.0
    while True:
        try:
            path.symlink_to(mine)
            break
        except FileExistsError:
            found = _holder(path)
        if found is None:
            continue
        if found != held:
            held, since = found, time.monotonic()
        owner = Owner.read(found[0])
        if owner is not None and owner.is_here:
            is_left = owner.is_gone
        else:
            is_left = time.monotonic() - since > _FOREIGN_SECONDS
        if is_left:
            _break(path, found)
        else:
            time.sleep(0.002)
    try:
        yield
    finally:
        found = _holder(path)
        if found is not None and found[0] == mine:
            path.unlink()


def _holder(path: Path) -> tuple[str, int] | None:
    """Returns who holds a lock, and since when by the file system's clock."""
    with suppress(OSError):
        return os.readlink(path), path.lstat().st_mtime_ns
    return None


def _break(path: Path, holder: tuple[str, int]) -> None:
    """Removes the lock of a holder that is gone, unless somebody else has done so by now."""
    with path.with_name(f"{path.name}.guard").open("w") as guard:
        # Else two that saw the same dead holder would remove it, and then each other's.
        fcntl.flock(guard, fcntl.LOCK_EX)
        if _holder(path) == holder:
            path.unlink()
