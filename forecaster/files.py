"""Files and folders that appear whole or not at all.

What comes in: a path. What goes out: a temporary name beside it to write to; the finished file or
folder then takes the name, or there is an `OutputError` and nothing. Promised: a reader never sees
half a result, a failed write leaves what was there before, and what a killed process left beside its
output is removed by the next that writes the same name.
"""

from __future__ import annotations

import fcntl
import glob
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from forecaster.errors import OutputError


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yields a temporary name beside `path`; on success it is flushed and takes the name.

    Raises:
        OutputError: the folder cannot be written to, or the disk is full.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_left(path)
        with _held(partial, os.O_CREAT | os.O_WRONLY):
            yield partial
            _flush(partial)
            partial.replace(path)
    except OSError as error:
        raise OutputError(_explain(path, error)) from error
    finally:
        with suppress(OSError):  # there may be no folder to hold one
            partial.unlink()


@contextmanager
def atomic_folder(path: Path, replaces: str, kind: str = "saved model") -> Iterator[Path]:
    """Yields a temporary folder beside `path`; on success it takes the name.

    Args:
        path: the final folder. One that is there already is replaced only if it is of the same kind.
        replaces: a file that every folder of this kind holds.
        kind: its name in messages.

    Raises:
        OutputError: `path` is something else, cannot be written, or the disk is full.
    """
    check_replaceable(path, replaces, kind)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_left(path)
        partial.mkdir()
        with _held(partial, os.O_RDONLY):
            yield partial
            for file in partial.iterdir():
                _flush(file)
            _take_name(partial, path)
    except OSError as error:
        raise OutputError(_explain(path, error)) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _take_name(partial: Path, path: Path) -> None:
    """Gives a folder its name; the one that had it goes, or has it again."""
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


def check_writable(path: Path, *inputs: str | None) -> None:
    """Raises before long work what writing to `path` would raise after it.

    Args:
        path: the file or folder to be written.
        inputs: paths and globs that are read, and must not be written over.

    Raises:
        OutputError: the nearest existing parent is not a folder that can be written to, or `path`
            is an input.
    """
    read = [name for pattern in inputs if pattern for name in (pattern, *glob.glob(pattern))]
    if path.resolve() in [Path(name).resolve() for name in read]:
        raise OutputError(f"{path}: is an input of this command; choose another name")
    parent = path.parent
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir():
        raise OutputError(f"{path}: cannot be written: {parent} is not a folder")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: cannot be written: no permission in {parent}")


def check_replaceable(path: Path, replaces: str, kind: str = "saved model") -> None:
    """Raises `OutputError` when `path` is there and is not a folder that holds the file `replaces`."""
    if path.exists() and not (path / replaces).is_file() and not _is_empty_folder(path):
        raise OutputError(f"{path}: exists and is not a {kind}; choose another name")


@contextmanager
def _held(partial: Path, flags: int) -> Iterator[None]:
    """Holds a lock on what is being written, so that others know; the kernel lets go for the dead."""
    handle = os.open(partial, flags, 0o666)
    try:
        with suppress(OSError):  # a file system that knows no locks
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _remove_left(path: Path) -> None:
    """Removes what was being written under a name by processes that are no more."""
    own = re.compile(rf"\.{re.escape(path.name)}\.(\d+)\.(partial|old)")
    for name in os.listdir(path.parent):
        found = own.fullmatch(name)
        if found is None or not _is_left(path.parent / name, int(found[1])):
            continue
        left = path.parent / name
        if found[2] == "old" and not path.exists():
            left.rename(path)  # killed between the two names: it is what was there before
        elif left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def _is_left(left: Path, process: int) -> bool:
    """Whether nobody writes it: no such process here, and none elsewhere that holds its lock."""
    if process != os.getpid():  # in a container a number comes again
        try:
            os.kill(process, 0)
            return False
        except PermissionError:  # it lives, and is somebody else's
            return False
        except (ProcessLookupError, OverflowError):
            pass
    try:
        handle = os.open(left, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _explain(path: Path, error: OSError) -> str:
    said = re.sub(r" \(os error \d+\)$", "", str(error.strerror or error))  # as Rust's libraries say it
    return f"{path}: cannot be written: {said}"
