"""An interrupted fit resumes from the folder `models/sales.run`, beside the model that it will write.

The folder holds `run.json` (what is fitted), checkpoints, and a lock that ends with its process. The same
command resumes; the folder is removed when the model is saved. Another fit is refused there while it
holds a checkpoint, unless with --restart.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from safetensors.torch import save as save_tensors

from forecaster.config import Config, FitPlan, Plan, flatten
from forecaster.errors import ArtifactError, ConfigError
from forecaster.files import linked, only_writer, write_text
from forecaster.fitting.checkpoints import Checkpoints, checkpoints_in, step_of
from forecaster.fitting.versions import versions
from forecaster.forecast.artifact import Artifact
from forecaster.panel.panel import Panel

_SUFFIX = ".run"
_RESOLVED = "resolved "
_OPTIONS = ("until", "precision", "compile", "checkpoint_every")
_TABLES = {"--future": "future", "--covariates": "covariates", "--from": "start"}


@dataclass(frozen=True)
class FitRequest:
    """What the caller of a fit requested."""

    config: Config
    data: object = None
    """Path, glob, address or frame."""
    future: object = None
    """Table of the covariates known in advance."""
    covariates: object = None
    """Second table."""
    until: str | None = None
    """Date; later rows are held out."""
    start: object = None
    """Model, or its folder, whose weights the training starts from."""
    precision: Literal["full", "bf16"] | None = None
    """Of matrix products in training; None = full."""
    compile: bool = False
    """Compile the training loss with torch."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; None = a fixed number of minutes."""

    def command(self, out: Path) -> str:
        """Returns the words of the shell for this fit: tables, options, settings that are no defaults."""
        words = ["forecaster", "fit", _source(self.data) or ""]
        given = [(flag, _source(getattr(self, name))) for flag, name in _TABLES.items()]
        settings = self.config.model_dump(mode="json", exclude_defaults=True, exclude={"tracking"})
        own = {f"--{name}": getattr(self, name) for name in ("precision", "compile")}
        horizon = settings.pop("horizon", None)
        for flag, value in (("--horizon", horizon), *given, ("--until", self.until), *own.items()):
            words += [] if value in (None, False) else [flag] if value is True else [flag, str(value)]
        for name, value in flatten(settings).items():
            words += ["--set", f"{name}={json.dumps(value, ensure_ascii=False)}"]
        return shlex.join([*words, "--out", str(out)])


class FitRecord(BaseModel, frozen=True, extra="forbid"):
    """A fit as `run.json` holds it."""

    version: str
    options: dict[str, Any]
    """Holdout, precision, compilation and interval of checkpoints."""
    weights: str | None
    """Digest of the model it started from."""
    config: dict[str, Any]
    """As requested: no part of the identity, but names the cause of a difference."""
    fingerprint: str
    """Of the table."""
    plan: dict[str, Any]
    """As resolved, before a time budget is measured."""
    budgeted: FitPlan | None = None
    """Settings of the training that the time budget allowed; they are not measured again."""
    run: str = ""
    """Id of the MLflow run; its store is that of the call that resumes."""

    @property
    def identity(self) -> str:
        """Digest that the checkpoints of this fit, and of no other, carry."""
        parts = (self.version, self.options, self.weights, self.fingerprint, self.plan)
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]

    def words(self) -> dict[str, str]:
        """Returns each part in words, causes before consequences."""
        words = {"version": f"version {self.version}"}
        for name, value in self.options.items():
            flag = f"--{name.replace('_', '-')}"
            words[name] = f"no {flag}" if value in (None, False) else f"{flag} {value}"
        words["from"] = f"--from weights {self.weights[:16]}" if self.weights else "no --from"
        words |= _settings(self.config, "requested ")
        words["table"] = f"a table of fingerprint {self.fingerprint[:16]}"
        return words | _settings(self.plan, _RESOLVED)


class RunFolder:
    """The folder of one fit; only rank 0 writes to it."""

    def __init__(self, out: Path, request: FitRequest, restarts: bool, is_main: bool):
        self.out = linked(out) if out.name else out.resolve()
        self.path = self.out.with_name(self.out.name + _SUFFIX)
        self.request, self.restarts, self.is_main = request, restarts, is_main
        self.record: FitRecord
        """Of the fit that is `opened`: that of the interrupted one, if it is the same."""

    @property
    def step(self) -> str | None:
        """Step of the newest checkpoint, as "step 120 of member-01"; None = there is none."""
        # The names of trainings rise in the order in which they run.
        inside = sorted(path.name for path in self.path.glob("*/")) if self.path.exists() else []
        for name in (*reversed(inside), ""):
            if found := checkpoints_in(self.path / name):
                return f"step {step_of(found[-1])}" + f" of {name}" * bool(name)
        return None

    def recorded(self) -> FitRecord | None:
        """Returns what `run.json` holds; None if there is none.

        Raises:
            ArtifactError: it cannot be read.
        """
        path = self.path / "run.json"
        try:
            return FitRecord.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ArtifactError(
                f"{path}: damaged, or of another version: discard it with --restart"
            ) from error

    def update(self, **changes: Any) -> None:
        """Writes `run.json` with changes of the record, as the MLflow run."""
        self.record = self.record.model_copy(update=changes)
        if self.is_main:
            write_text(self.path / "run.json", self.record.model_dump_json(indent=1) + "\n")

    def remove(self) -> None:
        """Removes the folder; `run.json` first, without which the rest is not resumed."""
        (self.path / "run.json").unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def clear(self) -> None:
        """Removes all but the lock; `run.json` first, without which the rest is not resumed."""
        (self.path / "run.json").unlink(missing_ok=True)
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()

    @contextmanager
    def opened(
        self, plan: Plan, panel: Panel, start: Artifact | None, notice: Callable[[str], None]
    ) -> Iterator[tuple[Plan, Checkpoints]]:
        """Yields the plan of a fit, with the steps that its budget allowed, and its checkpoints.

        Prints by `notice` how to resume a fit that is stopped.

        Raises:
            ConfigError: another fit was interrupted here; names the first difference.
        """
        request = self.request
        weights = None if start is None else save_tensors(start.ensemble.state_dict())
        record = FitRecord(
            version=versions()["attention-forecaster"],
            options={name: getattr(request, name) for name in _OPTIONS},
            weights=None if weights is None else hashlib.sha256(weights).hexdigest(),
            config=request.config.model_dump(mode="json", exclude={"tracking"}),
            fingerprint=panel.fingerprint(),
            plan=plan.model_dump(mode="json"),
        )
        self.record = self._continued(record)
        plan = plan.model_copy(update={"fit": self.record.budgeted or plan.fit})
        files = Checkpoints(self.path, self.record.identity, request.checkpoint_every, notice)
        try:
            yield plan, files
        except BaseException as error:
            if (step := self.step) is not None:
                if isinstance(error, Exception):
                    notice(f"the checkpoint after {step} is kept in {self.path}")
                else:
                    without = " without --restart" if self.restarts else ""
                    notice(f"stopped at {step}; rerun the command{without} to continue")
            raise

    def _continued(self, record: FitRecord) -> FitRecord:
        """Returns the record of the interrupted fit, if it is this fit, else the one of a new fit."""
        # All ranks are refused alike: one that waits for rank 0 in vain hears no signal for half a minute.
        before = None if self.restarts else self.recorded()
        if before is None:
            return record
        if before.identity == record.identity:
            return before
        if (step := self.step) is None:  # nothing to lose
            return record
        old, new = before.words(), record.words()
        name = next(name for name in new if old.get(name) != new[name])
        if not self.is_main and name.startswith(
            _RESOLVED
        ):  # rounding of another machine: rank 0 decides
            return record
        raise ConfigError(
            f"{self.path}: the fit that was interrupted there at {step} has {old.get(name)}, this one "
            f"{new[name]}: rerun its command to continue it, or discard it with --restart"
        )


@contextmanager
def claimed(
    out: Path, request: FitRequest, restarts: bool = False, is_main: bool = True
) -> Iterator[RunFolder]:
    """Locks and yields the folder of a fit; removes it when the fit succeeds.

    Args:
        out: folder of the model.
        request: of the caller.
        restarts: discard an interrupted fit.
        is_main: whether this is rank 0, which alone writes.

    Raises:
        ArtifactError: the record of an interrupted fit cannot be read.
        OutputError: another fit writes there.
    """
    folder = RunFolder(out, request, restarts, is_main)
    if not is_main:
        yield folder
        return
    with only_writer(folder.out, folder.path / "lock", "fit"):
        if restarts or folder.recorded() is None:
            folder.clear()
        try:
            yield folder
        except BaseException:
            if folder.step is None:
                folder.remove()
            raise
        folder.remove()


def _settings(settings: Mapping[str, Any], kind: str) -> dict[str, str]:
    return {
        f"{kind}{name}": f"{name} {json.dumps(value, ensure_ascii=False)}"
        for name, value in flatten(settings).items()
    }


def _source(given: object) -> str | None:
    if given is None:
        return None
    return str(given) if isinstance(given, str | Path) else "(in memory)"
