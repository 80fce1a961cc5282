"""The parts of a batch prediction made on a Ray cluster, with the same bytes as on one machine.

Each block is an item of a Ray dataset; actors make the parts. A node that dies costs the blocks it was
working on, which others make again. Every node must reach the folders of result, model and store.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from forecaster.errors import ConfigError, ForecasterError, OutputError
from forecaster.forecast.parts import PartitionJob, PartRecord, write_part
from forecaster.runs.batch_predict import Engine

_LONGEST_FOLDER = 40
"""Characters: Ray keeps sockets below its folder, whose path may have 107 in all."""


def ray_engine(address: str | None = None) -> Engine:
    """Returns the engine that makes parts on a Ray cluster.

    Args:
        address: of a running cluster; "auto" = that of this machine; None = start one here, and stop it
            afterwards.

    Raises:
        ConfigError: Ray is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("engine ray: Ray is not installed: pip install 'ray[data]'")
    return partial(_made_by_ray, address)


class Maker:
    """An actor with the model and the panel open."""

    def __init__(self, job: PartitionJob):
        self._job = job
        # One lane per actor: Ray gives each actor one core.
        self._predict, self._panel = job.opened("cpu", 1)

    def __call__(self, block: dict[str, Any]) -> dict[str, Any]:
        """Makes the part of a block, and returns its record."""
        number = int(block["number"])
        return {"number": number} | asdict(write_part(self._predict, self._panel, number, self._job))


def _made_by_ray(
    address: str | None, job: PartitionJob, todo: list[int]
) -> Iterator[tuple[int, PartRecord]]:
    with _connected(address) as ray:
        most = max(1, min(int(ray.cluster_resources().get("CPU", 1)), len(todo)))
        blocks = ray.data.from_items(
            [{"number": number} for number in todo], override_num_blocks=len(todo)
        )
        made = blocks.map(
            Maker,
            fn_constructor_args=(job,),
            num_cpus=1,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=most, initial_size=most),
        )
        try:
            for row in made.iter_rows():
                number = row.pop("number")
                yield number, PartRecord(**row)
        except ray.exceptions.RayError as error:
            raise _fault(error) from error


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Yields the module, connected and quiet; an existing connection stays as it was."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray
    import ray.data

    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    if ray.is_initialized():
        yield ray
        return
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        own = {"address": "local", "include_dashboard": False}
        if len(folder) <= _LONGEST_FOLDER:
            own["_temp_dir"] = folder
        try:
            ray.init(**quiet, **(own if address is None else {"address": address}))
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConfigError(
                f"engine ray: no cluster at {address or 'this machine'} ({_last_line(error)}): start "
                "one with ray start --head, or leave out --address"
            ) from error
        try:
            yield ray
        finally:
            ray.shutdown()


def _fault(error: Exception) -> ForecasterError:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ForecasterError):
        cause = getattr(cause, "cause", None) or cause.__cause__
    reason = str(cause) if cause is not None else _last_line(error)
    return OutputError(
        f"engine ray: a worker failed ({reason}); finished parts are kept; rerun the command to continue"
    )


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1].strip()[:300]
