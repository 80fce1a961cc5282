"""Where a process stands among those that train together, and how they meet.

What comes in: how many devices and machines were asked for, and what a launcher has put into the
environment. What goes out: a `DistributedContext`, and a process group for as long as the training
lasts. Promised:
numbers that contradict each other are refused; a process that dies ends the others with one line.

    torchrun, and whatever sets its variables   joined, always
    SLURM's srun                                joined where several devices are asked for
    neither                                     one process, which starts the others (`launch.py`)
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from forecaster.config import Config
from forecaster.errors import ConfigError, FitError, ForecasterError

if TYPE_CHECKING:
    import torch

Value = TypeVar("Value")

_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_PATIENCE = timedelta(minutes=10)  # for machines that open their tables at different speeds
_SLURM_PORT = 29500


@dataclass(frozen=True)
class DistributedContext:
    """One process among all that train together."""

    rank: int = 0
    """Number among all processes; 0 is the one that speaks and writes."""
    local_rank: int = 0
    """Number among those of this machine, and of its device."""
    devices: int = 1
    """Processes on each machine."""
    nodes: int = 1
    """Machines."""
    meeting: str = ""
    """Where they meet, as `torch.distributed` is told it."""
    launches: bool = False
    """Whether this process has to start the others."""

    @property
    def world(self) -> int:
        """Processes on all machines together."""
        return self.devices * self.nodes

    @property
    def is_main(self) -> bool:
        """Whether this process speaks and writes."""
        return self.rank == 0


SINGLE_PROCESS = DistributedContext()
"""One device, nobody else."""


def find_distributed_context(devices: int | None, nodes: int | None) -> DistributedContext:
    """Returns where this process stands.

    Args:
        devices: on each machine; None = one, or as many as a launcher has started.
        nodes: machines; None = one, or as many as a launcher has started.

    Raises:
        ConfigError: a launcher has started another number, or there are fewer devices.
    """
    asked = (devices or 1) * (nodes or 1)
    if all(name in os.environ for name in _TORCHRUN):
        world, local = _number("WORLD_SIZE"), _number("LOCAL_WORLD_SIZE", devices or 1)
        found = DistributedContext(
            _number("RANK"), _number("LOCAL_RANK"), local, max(1, world // local), meeting="env://"
        )
        by = f"torchrun started {found.nodes} x {local} processes"
    elif asked > 1 and _number("SLURM_NTASKS", 1) > 1 and "SLURM_PROCID" in os.environ:
        world, machines = _number("SLURM_NTASKS"), _number("SLURM_NNODES", 1)
        distributed = _number("SLURM_PROCID"), _number("SLURM_LOCALID", 0)
        found = DistributedContext(
            *distributed, max(1, world // machines), machines, meeting=_slurm_meeting()
        )
        by = f"SLURM started {world} tasks on {machines} nodes"
    elif (nodes or 1) > 1:
        raise ConfigError(
            f"--nodes {nodes}: this command runs on one machine; start it on each of the {nodes}, "
            "with torchrun or srun"
        )
    else:
        found = DistributedContext(devices=asked, meeting=_meeting(asked), launches=asked > 1)
        by, world = "", asked
    told = (devices or found.devices, nodes or found.nodes)
    if found.world != world or told != (found.devices, found.nodes):
        raise ConfigError(
            f"--devices {told[0]} --nodes {told[1]} are {told[0] * told[1]} processes, but {by}; "
            "give the numbers that were started, or none"
        )
    _require_devices(found)
    return found


def windows_per_step(config: Config, channels: int, distributed: DistributedContext) -> int:
    """Returns how many windows a process takes at each step.

    Args:
        config: its batch size counts channel-windows, of all processes together.
        channels: of a series.
        distributed: of this process.

    Raises:
        ConfigError: they cannot be shared out evenly.
    """
    size, together = config.fit.batch_size, channels if config.model.channel_attention else 1
    windows = max(1, size // together)
    if windows % distributed.world:
        of = f" ({windows} windows of {together} channels)" if together > 1 else ""
        raise ConfigError(
            f"fit.batch_size {size}{of} cannot be shared evenly by {distributed.world} devices: "
            f"take a multiple of {distributed.world * together}"
        )
    return windows // distributed.world


@contextmanager
def joined(distributed: DistributedContext) -> Iterator[None]:
    """Lets the processes of a training meet for the length of a block.

    Raises:
        FitError: not all of them came, or one of them went away.
    """
    if distributed.world == 1:
        yield
        return
    import torch

    device = _device(distributed)
    who = f"process {distributed.rank + 1} of {distributed.world}"
    try:
        torch.distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method=distributed.meeting,
            rank=distributed.rank,
            world_size=distributed.world,
            timeout=_PATIENCE,
            device_id=device if device.type == "cuda" else None,
        )
    except (RuntimeError, ValueError) as error:  # torch's own errors are of these kinds
        raise FitError(f"{who} did not meet the others: {_line(error)}") from error
    try:
        yield
    except RuntimeError as error:
        if not _is_loss(error):
            raise
        lost = FitError(f"{who} lost another one, so the training has ended: {_line(error)}")
        lost.told_elsewhere = False  # the other one cannot
        raise lost from error
    finally:
        torch.distributed.destroy_process_group()


def broadcast_from_rank_zero(value: Value, distributed: DistributedContext) -> Value:
    """Returns the value that the first of the processes has; all of them have met.

    Those that this process has started are handed what they need.
    """
    if distributed.world == 1 or distributed.launches:
        return value
    import torch

    sent = [value]
    torch.distributed.broadcast_object_list(sent, device=_device(distributed))
    return sent[0]


@contextmanager
def only_rank_zero_prints(distributed: DistributedContext) -> Iterator[None]:
    """Marks faults that another process of this machine meets too, so that it alone tells them."""
    try:
        yield
    except ForecasterError as error:
        if error.told_elsewhere is None:
            error.told_elsewhere = distributed.local_rank > 0
        raise


def _device(distributed: DistributedContext) -> torch.device:
    import torch

    return (
        torch.device("cuda", distributed.local_rank)
        if torch.cuda.is_available()
        else torch.device("cpu")
    )


def _number(name: str, default: int | None = None) -> int:
    text = os.environ.get(name, "" if default is None else str(default))
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name}: expected a number from the launcher, found '{text}'") from None


def _meeting(processes: int) -> str:
    if processes == 1:
        return ""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{free.getsockname()[1]}"


def _slurm_meeting() -> str:
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment

    host = os.environ.get("MASTER_ADDR")
    if host is None:
        nodes = os.environ.get("SLURM_JOB_NODELIST", "127.0.0.1")
        host = SLURMEnvironment.resolve_root_node_address(nodes)
    # Jobs that share a machine get ports of their own.
    port = _number("MASTER_PORT", _SLURM_PORT + _number("SLURM_JOB_ID", 0) % 1000)
    return f"tcp://{host}:{port}"


def _require_devices(distributed: DistributedContext) -> None:
    if distributed.world == 1:
        return
    import torch

    there = torch.cuda.device_count() if torch.cuda.is_available() else distributed.devices
    if there < distributed.devices:
        raise ConfigError(
            f"--devices {distributed.devices}: this machine has {there} CUDA "
            f"device{'s' * (there != 1)}; ask for as many, or hide them "
            "(CUDA_VISIBLE_DEVICES='') to train on the processor"
        )


def _is_loss(error: RuntimeError) -> bool:
    """Whether an error says that another process is gone; gloo's own are plain RuntimeErrors."""
    import torch

    words = ("gloo", "closed by peer", "reset by peer", "NCCL", "timed out", "Broken pipe")
    return isinstance(error, torch.distributed.DistError) or any(word in str(error) for word in words)


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
