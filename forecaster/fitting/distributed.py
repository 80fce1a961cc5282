"""Training on several devices: ranks, world size, broadcast, and the processes of one machine.

torchrun started this process    its variables say which rank this is
otherwise, several devices       this process is rank 0 and starts the others (`launch_ranks`)
otherwise                        one process
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from forecaster.config import Plan
from forecaster.errors import ConfigError, FitError, ForecasterError, check_count, first_line, number_of
from forecaster.fitting.processes import REFUSED, Child

if TYPE_CHECKING:
    import torch

    from forecaster.fitting.checkpoints import Checkpoints
    from forecaster.panel.panel import Panel

Value = TypeVar("Value")

_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_TIMEOUT = timedelta(minutes=10)  # machines open their tables at different speeds
_GRACE_SECONDS = 30.0


@dataclass(frozen=True)
class DistributedContext:
    """The rank of this process among those that train together."""

    rank: int = 0
    local_rank: int = 0
    """Rank on this machine; the number of its device."""
    devices: int = 1
    """Processes on each machine."""
    nodes: int = 1
    """Machines."""
    launches: bool = False
    """Whether this process starts the others."""

    @property
    def world_size(self) -> int:
        """Processes on all machines."""
        return self.devices * self.nodes

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which logs and writes."""
        return self.rank == 0


SINGLE_PROCESS = DistributedContext()
"""One device."""


def find_distributed_context(devices: int | None, nodes: int | None) -> DistributedContext:
    """Returns the rank of this process.

    Args:
        devices: on each machine; None = one, or as many as torchrun has started.
        nodes: machines; None = one, or as many as torchrun has started.

    Raises:
        ConfigError: torchrun has started another number, or there are fewer devices.
    """
    check_count(devices, "devices")
    check_count(nodes, "nodes")
    if all(name in os.environ for name in _TORCHRUN):
        rank, place, world = map(_number, ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
        local = _number("LOCAL_WORLD_SIZE", devices or 1)
        found = DistributedContext(rank, place, local, max(1, world // local))
        wanted = (devices or found.devices, nodes or found.nodes)
        if found.world_size != world or wanted != (found.devices, found.nodes):
            raise ConfigError(
                f"--devices {wanted[0]} --nodes {wanted[1]} are {wanted[0] * wanted[1]} processes, but "
                f"torchrun started {found.nodes} x {local} processes; give the numbers that were "
                "started, or none"
            )
    elif (nodes or 1) > 1:
        raise ConfigError(
            f"--nodes {nodes}: this command runs on one machine; start it on each of the {nodes}, "
            "with torchrun"
        )
    else:
        found = DistributedContext(devices=devices or 1, launches=(devices or 1) > 1)
    if found.world_size > 1:
        from forecaster.model.hardware import cuda_count

        if 0 < (there := cuda_count()) < found.devices:
            raise ConfigError(
                f"--devices {found.devices}: this machine has {number_of(there, 'CUDA device')}; "
                "ask for as many, or train on the processor (--device cpu)"
            )
    return found


def windows_per_step(config: Plan, channels: int, distributed: DistributedContext) -> int:
    """Returns how many windows each process takes per step; the batch size counts channel-windows.

    Raises:
        ConfigError: the batch cannot be divided evenly.
    """
    size, together = config.fit.batch_size, channels if config.model.channel_attention else 1
    windows = max(1, size // together)
    if windows % distributed.world_size:
        of = f" ({windows} windows of {together} channels)" if together > 1 else ""
        raise ConfigError(
            f"fit.batch_size {size}{of} cannot be shared evenly by {distributed.world_size} devices: "
            f"take a multiple of {distributed.world_size * together}"
        )
    return windows // distributed.world_size


@contextmanager
def process_group(distributed: DistributedContext) -> Iterator[None]:
    """Holds the process group of a training.

    Raises:
        FitError: a rank did not join, or was lost.
    """
    if distributed.world_size == 1:
        yield
        return
    import torch

    device = _device(distributed)
    who = f"rank {distributed.rank} of {distributed.world_size}"
    try:
        torch.distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            timeout=_TIMEOUT,
            device_id=device if device.type == "cuda" else None,
        )
    except (RuntimeError, ValueError) as error:  # torch's own errors are of these kinds
        raise FitError(f"{who}: process group not initialised: {first_line(error)}") from error
    try:
        yield
    except RuntimeError as error:
        if not _is_loss(error):
            raise
        lost = FitError(
            f"{who} lost the connection to another rank; training has stopped: {first_line(error)}"
        )
        lost.reported_elsewhere = False  # the lost rank cannot report it
        raise lost from error
    finally:
        torch.distributed.destroy_process_group()


def broadcast_from_rank_zero(value: Value, distributed: DistributedContext) -> Value:
    """Returns the value of rank 0; ranks that this process has started do not take part."""
    if distributed.world_size == 1 or distributed.launches:
        return value
    import torch

    sent = [value]
    torch.distributed.broadcast_object_list(sent, device=_device(distributed))
    return sent[0]


@contextmanager
def only_rank_zero_prints(distributed: DistributedContext) -> Iterator[None]:
    """Marks errors of the other ranks of this machine, so that only local rank 0 prints them."""
    try:
        yield
    except ForecasterError as error:
        if error.reported_elsewhere is None:
            error.reported_elsewhere = distributed.local_rank > 0
        raise


@contextmanager
def launch_ranks(
    distributed: DistributedContext, panel: Panel, config: Plan, checkpoints: Checkpoints | None
) -> Iterator[Callable[[object], None]]:
    """Runs the other ranks of a fit on this machine; yields a function that sends them a message.

    Raises:
        FitError: a rank died.
    """
    if not distributed.launches:
        yield lambda message: None
        return
    from forecaster.model.hardware import environment
    from forecaster.panel.store import write_store

    with (
        tempfile.TemporaryDirectory(prefix="forecaster-") as scratch,
        environment(_environment(distributed)),
    ):
        # The panel lies in a store that all ranks map.
        write_store(panel, store := Path(scratch) / "panel", config.data)
        files = checkpoints and (checkpoints.folder, checkpoints.identity, checkpoints.every)
        size, done = distributed.world_size, threading.Event()
        ranks = [
            Child(
                "forecaster.fitting.train:train_rank",
                f"rank {rank} of {size}",
                {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(1, size)
        ]

        def send(message: object) -> None:
            for rank in ranks:
                rank.send(message)

        try:
            send((config, store, files))
            for rank in ranks:
                try:
                    rank.receive()
                except EOFError:
                    reason = rank.failure() or f"{rank.name} has ended"
                    raise FitError(f"{reason}; training has not started") from None
            threading.Thread(target=_watch, args=(ranks, done), daemon=True).start()
            yield send
        except FitError as error:
            failure = _failure(ranks, seconds=2)
            if failure is None:
                raise
            raise FitError(f"{failure}; training has stopped") from error
        finally:
            done.set()
            for rank in ranks:
                rank.end()


def _environment(distributed: DistributedContext) -> dict[str, str]:
    """Returns the variables that torchrun would set; torch and Lightning read them."""
    from lightning_fabric.plugins.environments.lightning import find_free_network_port

    port, size = find_free_network_port(), str(distributed.world_size)
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    return variables | {"GROUP_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def _failure(ranks: list[Child], seconds: float) -> str | None:
    """Returns how the first rank failed, if one does within some seconds."""
    until = time.monotonic() + seconds
    while True:
        for rank in ranks:
            if failure := rank.failure():
                return failure
        if time.monotonic() > until:
            return None
        time.sleep(0.05)


def _watch(ranks: list[Child], done: threading.Event) -> None:
    """Ends this process when a rank died and the collective that waits for it never returns.

    Over gloo it returns at once; NCCL may wait until its timeout.
    """
    while not done.wait(1.0):
        if failure := _failure(ranks, seconds=0):
            if done.wait(_GRACE_SECONDS):
                return
            sys.stderr.write(f"error: {failure}; training has stopped\n")
            sys.stderr.flush()
            os._exit(REFUSED)


def _device(distributed: DistributedContext) -> torch.device:
    import torch

    from forecaster.model.hardware import device

    return torch.device(device(distributed.local_rank))


def _number(name: str, default: int | None = None) -> int:
    text = os.environ.get(name, "" if default is None else str(default))
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name}: expected a number from torchrun, found '{text}'") from None


def _is_loss(error: RuntimeError) -> bool:
    """Whether an error says that another rank is gone; gloo's own are plain RuntimeErrors."""
    import torch

    words = ("gloo", "closed by peer", "reset by peer", "NCCL", "timed out", "Broken pipe")
    return isinstance(error, torch.distributed.DistError) or any(word in str(error) for word in words)
