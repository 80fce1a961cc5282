"""The GPUs and the cores that torch uses.

A CUDA GPU computes wherever there is one, unless `on_device("cpu")` holds. The choice is kept in the
environment, so that child processes make the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from forecaster.errors import ConfigError

Item = TypeVar("Item")
Result = TypeVar("Result")


DEVICES = ("cpu", "cuda")
_DEVICE = "FORECASTER_DEVICE"


@contextmanager
def on_device(name: str) -> Iterator[None]:
    """Computes on the processor ("cpu") or on a GPU ("cuda").

    Raises:
        ConfigError: another name, or this machine has no CUDA GPU.
    """
    if name not in DEVICES:
        raise ConfigError(f"device {name!r}: expected one of {', '.join(DEVICES)}")
    if name == "cuda" and not torch.cuda.device_count():
        raise ConfigError("device cuda: torch finds no CUDA GPU on this machine; take cpu, or none")
    with environment({_DEVICE: name}):
        yield


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets variables of the environment, and puts the former ones back."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def cuda_count() -> int:
    """Returns the number of GPUs to compute on; 0 = the processor computes."""
    return 0 if os.environ.get(_DEVICE) == "cpu" else torch.cuda.device_count()


def device(rank: int = 0) -> str:
    """Returns the device of a process: "cuda:0", "cuda:1", … or "cpu"."""
    return f"cuda:{rank}" if cuda_count() else "cpu"


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Runs torch on so many threads.

    One beside numpy: the threads of its products wait spinning, for 25 ms each time, and hold up those of torch.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def spare_threads(processes: int = 1) -> Iterator[None]:
    """Runs torch on half the cores, divided among processes, unless OMP_NUM_THREADS is set.

    OpenMP threads spin while they wait for each other: one that must share its core with anything else
    holds up all the others. On two shared cores a training step of the default network takes 72 ms on
    one thread, and between 48 and 1,160 ms on two.
    """
    threads = torch.get_num_threads()
    if "OMP_NUM_THREADS" not in os.environ:
        threads = max(1, min(threads, (os.cpu_count() or 2) // 2 // processes))
    with torch_threads(threads):
        yield


def cores() -> int:
    """Returns the number of cores to use: OMP_NUM_THREADS, or all that this process may run on."""
    declared = os.environ.get("OMP_NUM_THREADS", "")
    if declared.isdigit() and int(declared) > 0:
        return int(declared)
    allowed = getattr(os, "sched_getaffinity", None)  # where the system has it
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def run_parallel(work: Callable[[Item], Result], items: Sequence[Item], lanes: int) -> Iterator[Result]:
    """Yields `work(item)` for each item in order, `lanes` at a time, without gradients.

    Each runs on a single torch thread: how a sum is split over threads changes its last bits, so only
    this gives the same numbers on any number of cores. Nor do threads then wait for each other.
    """

    def alone(item: Item) -> Result:
        with torch.inference_mode():  # holds for one thread only
            return work(item)

    with torch_threads(1):  # those of the pool begin with it
        if min(lanes, len(items)) < 2:
            yield from map(alone, items)
        else:
            with ThreadPoolExecutor(lanes) as pool:
                yield from pool.map(alone, items)
