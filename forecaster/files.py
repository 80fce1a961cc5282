"""Files and folders that appear whole or not at all.

A result is written under a temporary name beside its final one and then renamed. What a killed process
leaves there is removed by the next that writes the same name.
"""

from __future__ import annotations

import errno
import glob
import os
import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from forecaster.errors import OutputError

_LOCK = ".lock"
"""In a folder that is being written: held by its process."""
_LOCK_SECONDS = 0.1  # a file that was removed while it was locked takes a second attempt


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path; on success it is flushed and renamed to `path`, or to what that links to.

    Raises:
        OutputError: the folder cannot be written to, or the disk is full.
    """
    with _partial(path := linked(path)) as partial:
        partial.touch()
        with _locked(partial):
            yield partial
            _flush(partial)
            partial.replace(path)


def write_text(path: Path, text: str) -> None:
    """Writes a text as UTF-8, whole or not at all; see `atomic_file`."""
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def atomic_folder(
    path: Path, replaces: str, kind: str = "saved model", holds: str = ".*"
) -> Iterator[Path]:
    """Yields a temporary folder; on success it is renamed to `path`, or to what that links to.

    Args:
        path: the final folder; an existing one is replaced only if it is of the same kind.
        replaces: a file that every folder of this kind holds.
        kind: its name in messages.
        holds: pattern of the names in such a folder; one that holds anything else is not replaced.

    Raises:
        OutputError: `path` is something else, cannot be written, or the disk is full.
    """
    check_replaceable(path, replaces, kind, holds)
    with _partial(path := linked(path)) as partial:
        partial.mkdir()
        with _locked(partial / _LOCK):
            yield partial
            for file in partial.iterdir():
                _flush(file)
            # Renamed with its lock, which no other process may find free in a partial folder.
            _rename(partial, path)
            (path / _LOCK).unlink(missing_ok=True)


@contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """Yields a free name beside a path; what is left under it in the end is removed."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_left(path)
        yield partial
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {reason_of(error)}") from error
    finally:
        _remove(partial)


def reason_of(error: OSError) -> str:
    """Returns why a write failed and, where the disk is full, what to do about it."""
    reason = re.sub(r" \(os error \d+\)$", "", str(error.strerror or error))  # of Rust's libraries
    full = [os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT)]
    return f"{reason}; make room there, or choose another place" if reason in full else reason


@contextmanager
def only_writer(out: Path, held: Path, work: str) -> Iterator[None]:
    """Locks a result against a second process that would write it; the lock ends with its process.

    Args:
        out: the result, named in the message.
        held: the lock file, made with its folder and removed in the end, as is the folder if empty.
        work: what writes, as "fit".

    Raises:
        OutputError: another process is writing the result, or the lock cannot be written.
    """
    new_folders = [folder for folder in held.parents if not folder.exists()]
    with ExitStack() as stack:
        stack.callback(_remove_empty, new_folders)
        try:
            held.parent.mkdir(parents=True, exist_ok=True)
            acquired = lock(held)
            if acquired is None:
                owner = held.read_text(encoding="utf-8") if held.exists() else ""
                raise OutputError(
                    f"{out}: another {work} is writing it ({owner or 'just begun'}): "
                    "wait for it, or choose another --out"
                )
            stack.callback(acquired.release)
            held.write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"{held.parent}: cannot be written: {reason_of(error)}") from error
        # Before the release: whoever comes after it makes a file of its own.
        stack.callback(held.unlink, missing_ok=True)
        yield


def check_writable(path: Path, *inputs: object, overwrite: bool = True) -> None:
    """Raises before long work what writing a file would raise after it.

    Args:
        inputs: tables; `path` must be none of those that are paths or globs.
        overwrite: whether a file that is there may be replaced.

    Raises:
        OutputError: the nearest existing parent is not a writable folder, or `path` is a folder, an
            input, or there already.
    """
    _check_place(path, inputs)
    if path.is_dir():
        raise OutputError(f"{path}: cannot be written: it is a directory; choose another name")
    if path.exists() and not overwrite:
        raise _exists(path)


def check_replaceable(
    path: Path,
    replaces: str,
    kind: str = "saved model",
    holds: str = ".*",
    inputs: Sequence[object] = (),
    overwrite: bool = True,
) -> None:
    """Does for a folder what `check_writable` does for a file; other arguments as `atomic_folder`."""
    _check_place(path, inputs)
    inside = sorted(os.listdir(path)) if path.is_dir() else []
    if path.exists() and not (path / replaces).is_file() and (inside or not path.is_dir()):
        raise OutputError(f"{path}: exists and is not a {kind}; choose another name")
    own = re.compile(rf"{holds}|\..+\.\d+\.partial|{re.escape(_LOCK)}")
    others = [name for name in inside if not own.fullmatch(name)]
    if others:
        more = f" and {len(others) - 3:,} more" if len(others) > 3 else ""
        raise OutputError(
            f"{path}: holds what is not part of a {kind} and would be deleted: "
            f"{', '.join(map(ascii, others[:3]))}{more}; move it, or choose another name"
        )
    if inside and not overwrite:
        raise _exists(path)


def _exists(path: Path) -> OutputError:
    return OutputError(f"{path}: exists; replace it with --overwrite, or choose another name")


def _check_place(path: Path, inputs: Sequence[object]) -> None:
    patterns = [str(given) for given in inputs if isinstance(given, str | Path)]
    read = [name for pattern in patterns for name in (pattern, *glob.glob(pattern))]
    if path.resolve() in [Path(name).resolve() for name in read]:
        raise OutputError(f"{path}: is an input of this command; choose another name")
    parent = linked(path).parent
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir():
        raise OutputError(f"{path}: cannot be written: {parent} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: cannot be written: no permission in {parent}")


def linked(path: Path) -> Path:
    """Returns what a symbolic link leads to, which may not exist yet; any other path as it is."""
    return path.resolve() if path.is_symlink() else path


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _rename(partial: Path, path: Path) -> None:
    """Renames a folder; the one that had the name is removed, or has it again after a failure."""
    if not path.exists():
        partial.rename(path)
        return
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    path.rename(old)
    try:
        partial.rename(path)
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def lock(path: Path) -> BaseFileLock | None:
    """Locks a file until the lock is released or its process dies; None: another process has it.

    A file that another process removed meanwhile is made and locked anew.
    """
    file_lock = FileLock(path, timeout=_LOCK_SECONDS)
    try:
        file_lock.acquire()
    except Timeout:
        return None
    return file_lock


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    acquired = None
    with suppress(OSError):  # a file system without locks
        acquired = lock(path)
    try:
        yield
    finally:
        if acquired is not None:
            acquired.release()


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # not empty
            folder.rmdir()


def _remove_left(path: Path) -> None:
    """Removes what dead processes were writing under this name."""
    own = re.compile(rf"\.{re.escape(path.name)}\.\d+\.(partial|old)")
    for name in os.listdir(path.parent):
        left, found = path.parent / name, own.fullmatch(name)
        if found is None or not _is_left(left):
            continue
        if found[1] == "old" and not path.exists():
            left.rename(path)  # killed between the two renames
        else:
            _remove(left)


def _is_left(left: Path) -> bool:
    """Whether no living process holds its lock; a process id says nothing across containers."""
    folder = left.is_dir()
    try:
        acquired = lock(left / _LOCK if folder else left)
        if acquired is None:
            return False
        if folder:
            (left / _LOCK).unlink(missing_ok=True)
        acquired.release()
        return True
    except OSError:
        return False


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def shipped(name: str, checkout: str, installed: str) -> Path:
    """Returns a file of this checkout, or of the installed package, by the folder it has in each."""
    package = Path(__file__).parent
    file = package / installed / name  # first: site-packages may hold anybody's folder of that name
    return file if file.is_file() else package.parent / checkout / name
