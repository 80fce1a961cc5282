"""The folder of a fit that is under way: `models/sales.run`, beside the model it will write.

What comes in: where the model goes. What goes out: `run.json`, which says what the fit was asked for,
checkpoints, and a lock. Promised: two fits never write one model; the lock is gone when its process is,
however it ends; the folder goes when the model is there; checkpoints that were left are never replaced
unasked.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from forecaster.atomic import atomic_file
from forecaster.errors import ArtifactError, ConfigError, OutputError
from forecaster.runs.resume.asked import Record
from forecaster.runs.resume.checkpoints import checkpoints_in, step_of

_SUFFIX = ".run"


class RunFolder:
    """Where one fit keeps what it needs to be continued."""

    def __init__(self, out: Path, leads: bool = True):
        """Takes the folder that the model will be written to.

        Args:
            out: the model's.
            leads: whether this process writes; of those that train together, one does.
        """
        self.out = out if out.name else out.resolve()
        self.path = self.out.with_name(self.out.name + _SUFFIX)
        self.leads = leads

    @property
    def step(self) -> str | None:
        """Where the newest checkpoint was written, as "step 120 of member-01"; None = there is none."""
        # The names of trainings rise in the order in which they come.
        inside = sorted(path.name for path in self.path.glob("*/")) if self.path.exists() else []
        for name in (*reversed(inside), ""):
            if found := checkpoints_in(self.path / name):
                return f"step {step_of(found[-1])}" + f" of {name}" * bool(name)
        return None

    def record(self) -> Record | None:
        """Returns what the fit was asked for; None where none was begun.

        Raises:
            ArtifactError: it cannot be read.
        """
        path = self.path / "run.json"
        try:
            return Record(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise ArtifactError(f"{path}: damaged ({error}); begin anew with --restart") from error

    def write(self, record: Record) -> None:
        """Keeps what the fit was asked for."""
        if self.leads:
            with atomic_file(self.path / "run.json") as partial:
                partial.write_text(json.dumps(asdict(record), indent=1) + "\n", encoding="utf-8")

    def remove(self) -> None:
        """Removes everything: the model is there, or nothing is worth keeping."""
        with suppress(FileNotFoundError):
            (self.path / "run.json").unlink()  # without it the rest is nothing to go on from
        shutil.rmtree(self.path, ignore_errors=True)


def find_run(run: Path) -> Path:
    """Returns the folder of the model of a run that is named by it or by its own folder.

    Raises:
        ConfigError: there is nothing to resume.
    """
    own = run.name.endswith(_SUFFIX) and (run / "run.json").is_file()
    out = run.with_name(run.name.removesuffix(_SUFFIX)) if own else run
    folder = RunFolder(out)
    if (folder.path / "run.json").is_file():
        return out
    if (out / "contract.json").is_file():
        raise ConfigError(f"--resume {run}: this fit is finished, there is nothing to resume")
    raise ConfigError(
        f"--resume {run}: no fit was begun there: {folder.path} is missing; "
        "name the folder that was given as --out"
    )


@contextmanager
def claimed(
    out: Path, resumes: bool = False, restarts: bool = False, leads: bool = True
) -> Iterator[RunFolder]:
    """Yields the folder of a fit, which no other fit may have meanwhile.

    Args:
        out: where the model goes.
        resumes: the fit goes on from what is there.
        restarts: what is there is given up.
        leads: whether this process has the folder, for all that train together.

    Raises:
        OutputError: another fit writes there, or one has left checkpoints there.
    """
    folder = RunFolder(out, leads)
    if not leads:
        yield folder
        return
    with ExitStack() as stack:
        made = [path for path in (folder.path, *folder.path.parents) if not path.exists()]
        stack.callback(_remove_empty, made)
        _lock(folder, stack)
        step = folder.step
        if step is not None and not resumes and not restarts:
            raise OutputError(
                f"{folder.path}: an unfinished fit, stopped after {step}: go on with "
                f"forecaster fit --resume {folder.out}, or give it up with --restart"
            )
        if not resumes:
            _clear(folder)
        try:
            yield folder
        except BaseException:
            if not resumes and folder.step is None:
                folder.remove()
            raise
        folder.remove()


def _lock(folder: RunFolder, stack: ExitStack) -> None:
    """Holds a lock until the stack ends. The kernel releases it if the process does."""
    while True:
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            file: IO[Any] = stack.enter_context((folder.path / "lock").open("a+"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise OutputError(
                f"{folder.out}: another fit is writing it ({file.read().strip() or 'just begun'}): "
                "wait for it, or choose another --out"
            ) from None
        except OSError as error:
            raise OutputError(f"{folder.path}: cannot be written: {error.strerror}") from error
        with suppress(FileNotFoundError):  # a fit that ended just now has taken the folder with it
            if os.path.samestat(os.stat(file.name), os.fstat(file.fileno())):
                break
    file.truncate(0)
    file.write(f"process {os.getpid()} on {os.uname().nodename}")
    file.flush()


def _clear(folder: RunFolder) -> None:
    for path in folder.path.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()


def _remove_empty(made: list[Path]) -> None:
    for path in made:
        with suppress(OSError):  # not empty: something was written
            path.rmdir()
