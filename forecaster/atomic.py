"""Files and folders that appear whole or not at all.

What comes in: a path. What goes out: a temporary name beside it to write to; the finished file or
folder then takes the name, or there is an `OutputError` and nothing. Promised: a reader never sees
half a result, a failed write leaves what was there before.
"""

from __future__ import annotations

import glob
import os
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
        partial.mkdir()
        yield partial
        for file in partial.iterdir():
            _flush(file)
        if path.exists():
            old = path.with_name(f".{path.name}.{os.getpid()}.old")
            path.rename(old)
            try:
                partial.rename(path)
            except BaseException:
                old.rename(path)
                raise
            shutil.rmtree(old)
        else:
            partial.rename(path)
    except OSError as error:
        raise OutputError(_explain(path, error)) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


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


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _explain(path: Path, error: OSError) -> str:
    return f"{path}: cannot be written: {error.strerror or error}"
