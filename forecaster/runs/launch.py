"""The other processes of a training on several devices of a machine: started, handed work, watched.

What comes in: a panel, then one training after the other. What goes out: the same trainings, begun in
further processes. Promised: it makes no difference where it is started from, be it a shell, a script or
a notebook; nothing that was started outlives this process; one that dies ends all with one line.

Each process is a fresh Python that runs `worker.py`. The other ways do not fit everywhere: starting the
caller's command again does its reading, asking and printing twice, and there is none in a notebook; a
fork stops for ever in the threads of polars; spawning runs the caller's script from its top.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from forecaster.config import Config
from forecaster.errors import FitError
from forecaster.model.learner import Learner
from forecaster.panel.panel import Panel
from forecaster.panel.store import writing
from forecaster.runs.checkpoints import Checkpoints
from forecaster.runs.distributed import DistributedContext
from forecaster.windows.split import Split

READY = b"ready\n"
LENGTH_BYTES = 8
"""That go before each thing handed to a process."""
_REFUSED = 2  # the exit code of a process that met the same fault as this one
_GRACE_SECONDS = 30.0


@dataclass(frozen=True)
class Work:
    """What a process begins with; arrays with a row per row lie in a store that all of them map."""

    distributed: DistributedContext
    config: Config
    store: Path
    checkpoints: tuple[Path, str] | None
    """Folder and identity of the checkpoints, where there are any."""


@dataclass(frozen=True)
class Training:
    """What a process is handed next."""

    learner: Learner
    split: Split
    config: Config
    name: str | None
    """Of the training, and of the folder of its checkpoints; None = it has none."""


@dataclass(frozen=True)
class _Worker:
    process: subprocess.Popen[bytes]
    name: str
    log: Path

    def fate(self) -> str | None:
        """Returns how it died; None where it lives, is done, or met the same fault as this process."""
        code = self.process.poll()
        if code in (None, 0, _REFUSED):
            return None
        lines = self.log.read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"{self.name} {how}" + (f": {last}" if last else "")


@contextmanager
def workers(
    distributed: DistributedContext, panel: Panel, config: Config, checkpoints: Checkpoints | None
) -> Iterator[Callable[[Training], None]]:
    """Keeps the other processes of a fit running for the length of a block, and hands them work.

    Args:
        distributed: of this process; nothing is started where a launcher has.
        panel, config: what is trained on.
        checkpoints: of the fit.

    Raises:
        FitError: one of them died.
    """
    if not distributed.launches:
        yield lambda training: None
        return
    with tempfile.TemporaryDirectory(prefix="forecaster-") as scratch:
        files = checkpoints and (checkpoints.folder, checkpoints.identity)
        work = Work(distributed, config, Path(scratch) / "panel", files)
        with writing(work.store) as store:
            store.append(panel)
            store.finish(config.data, ())
        started = [
            _start(replace(work, distributed=_other(distributed, n)))
            for n in range(1, distributed.world)
        ]
        done = threading.Event()
        try:
            for worker in started:
                _require_ready(worker)
            threading.Thread(target=_watch, args=(started, done), daemon=True).start()
            yield partial(_hand, started)
        except FitError as error:
            fate = _fate(started, seconds=2)
            if fate is None:
                raise
            raise FitError(f"{fate}; the training has ended") from error
        finally:
            done.set()
            for worker in started:
                _end(worker.process)


def _other(distributed: DistributedContext, rank: int) -> DistributedContext:
    return replace(distributed, rank=rank, local_rank=rank, launches=False)


def _start(work: Work) -> _Worker:
    name = f"process {work.distributed.rank + 1} of {work.distributed.world}"
    log = work.store.with_name(f"{work.distributed.rank}.log")
    # -P: a file in the working folder must not stand in for a module of Python's own.
    here = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "forecaster.runs.train_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | {"PYTHONPATH": paths},
        )
    worker = _Worker(process, name, log)
    _hand([worker], work)
    return worker


def _hand(started: list[_Worker], work: Work | Training) -> None:
    """Writes to each of them: the length, then the thing."""
    content = pickle.dumps(work)
    for worker in started:
        assert worker.process.stdin is not None
        with suppress(BrokenPipeError):  # it died, which is told where its answer is waited for
            worker.process.stdin.write(len(content).to_bytes(LENGTH_BYTES) + content)
            worker.process.stdin.flush()


def _require_ready(worker: _Worker) -> None:
    assert worker.process.stdout is not None
    if worker.process.stdout.readline() != READY:
        worker.process.wait()
        raise FitError(f"{worker.fate() or worker.name + ' has ended'}; the training has not begun")


def _fate(started: list[_Worker], seconds: float) -> str | None:
    """Returns how the first one died, if one does within a while."""
    until = time.monotonic() + seconds
    while True:
        for worker in started:
            if fate := worker.fate():
                return fate
        if time.monotonic() > until:
            return None
        time.sleep(0.05)


def _watch(started: list[_Worker], done: threading.Event) -> None:
    """Ends this process where another one died and the call that waits for it never returns.

    Over gloo it returns at once; a GPU may wait for its lost neighbour until someone gives up.
    """
    while not done.wait(1.0):
        if fate := _fate(started, seconds=0):
            if done.wait(_GRACE_SECONDS):
                return
            sys.stderr.write(f"error: {fate}; the training has ended\n")
            sys.stderr.flush()
            os._exit(_REFUSED)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Lets a process that has finished leave by itself, and ends one that has not."""
    assert process.stdin is not None and process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.close()  # it ends with this
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
