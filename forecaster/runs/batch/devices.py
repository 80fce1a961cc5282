"""Parts made by several processes of one machine, each on a device of its own.

What comes in: a plan and the numbers of blocks. What goes out: their records, as parts appear.
Promised: device j takes the blocks at places j, j + n, ... of the list; when one process dies, all end,
and what is finished stays; when this process dies, so do they.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import IO

from forecaster.errors import ConfigError, ForecasterError, OutputError
from forecaster.forecast.batch.parts import Record
from forecaster.forecast.batch.plan import Plan
from forecaster.model.threads import cores

_WORKER = "forecaster.runs.batch.worker"


def devices_of(count: int | None) -> list[str]:
    """Returns the names of devices, one per process: GPUs where the machine has any, else CPUs.

    Args:
        count: how many; None = the CPU, in this process.

    Raises:
        ConfigError: there are fewer GPUs.
    """
    import torch

    if count is None:
        return ["cpu"]
    if count < 1:
        raise ConfigError(f"devices {count}: expected 1 or more")
    gpus = torch.cuda.device_count()
    if not gpus:
        return ["cpu"] * count
    if count > gpus:
        raise ConfigError(f"devices {count}: this machine has {gpus} GPUs")
    return [f"cuda:{number}" for number in range(count)]


def made_by_devices(plan: Plan, todo: list[int], devices: list[str]) -> Iterator[tuple[int, Record]]:
    """Yields the number and record of every block as its part appears.

    Args:
        plan: with a model and a store that other processes can open.
        todo: numbers of the blocks to make.
        devices: of the processes.

    Raises:
        ForecasterError: a process ended before its work.
    """
    told: queue.Queue[tuple[int, str]] = queue.Queue()
    with ExitStack() as stack:
        workers = []
        for place, device in enumerate(devices):
            mine = todo[place :: len(devices)]
            if mine:
                errors = stack.enter_context(tempfile.TemporaryFile("w+"))
                worker = _started(plan, mine, device, len(devices), errors)
                stack.callback(_ended, worker)
                workers.append((worker, errors))
                number = len(workers) - 1
                threading.Thread(target=_listen, args=(worker, number, told), daemon=True).start()
        left = len(todo)
        while left:
            which, line = told.get()
            if not line:
                raise _fault(*workers[which], which)
            number, record = json.loads(line)
            yield number, Record(**record)
            left -= 1


def _started(
    plan: Plan, mine: list[int], device: str, shares: int, errors: IO[str]
) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, "-m", _WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )
    assert worker.stdin is not None
    order = {
        "plan": plan.to_json(),
        "blocks": mine,
        "device": device,
        "lanes": max(1, cores() // shares),
    }
    with suppress(BrokenPipeError):  # it died at once: whoever listens to it says so
        worker.stdin.write(json.dumps(order) + "\n")
        worker.stdin.flush()  # and left open: its end tells the worker that this process is gone
    return worker


def _listen(worker: subprocess.Popen[str], number: int, told: queue.Queue[tuple[int, str]]) -> None:
    assert worker.stdout is not None
    for line in worker.stdout:
        told.put((number, line))
    told.put((number, ""))


def _fault(worker: subprocess.Popen[str], errors: IO[str], which: int) -> ForecasterError:
    code = worker.wait()
    errors.seek(0)
    lines = errors.read().strip().splitlines()
    reason = lines[-1] if lines else f"exit status {code}"
    return OutputError(
        f"device {which}: its process ended ({reason}); finished parts stay: the same command goes on"
    )


def _ended(worker: subprocess.Popen[str]) -> None:
    worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):  # of what a dead worker never read
                pipe.close()
