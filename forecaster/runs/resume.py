"""An interrupted fit resumes from the folder `models/sales.run`, beside the model that it will write.

The folder holds `run.json` (what was requested), checkpoints, and a lock that ends with its process. It
is removed when the model is saved; checkpoints in it are never overwritten without --restart.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from safetensors.torch import save as save_tensors

from forecaster.config import Config, FitPlan, Plan, TrackingConfig, flatten, parse_config
from forecaster.errors import ArtifactError, ConfigError, DataError, OutputError
from forecaster.files import linked, only_writer, write_text
from forecaster.fitting.checkpoints import Checkpoints, checkpoints_in, step_of
from forecaster.fitting.train import TrainingContext
from forecaster.fitting.versions import versions
from forecaster.forecast.artifact import Artifact
from forecaster.panel.panel import Panel
from forecaster.runs.tracking import TrackedRun, open_run

_SUFFIX = ".run"
_IN_MEMORY = "(in memory)"
_NOT_IDENTITY = ("resolved", "folder", "run")  # may differ between ranks
_SOURCES = {"data": "DATA", "future": "--future", "covariates": "--covariates", "start": "--from"}
_OPTIONS = ("until", "precision", "compile", "checkpoint_every")
_RESTART = "begin anew with --restart"


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
        given = [(flag, _source(getattr(self, name))) for name, flag in _SOURCES.items()][1:]
        settings = self.config.model_dump(mode="json", exclude_defaults=True, exclude={"tracking"})
        own = {f"--{name}": getattr(self, name) for name in ("precision", "compile")}
        horizon = settings.pop("horizon", None)
        for flag, value in (("--horizon", horizon), *given, ("--until", self.until), *own.items()):
            words += [] if value in (None, False) else [flag] if value is True else [flag, str(value)]
        for name, value in flatten(settings).items():
            words += ["--set", f"{name}={json.dumps(value, ensure_ascii=False)}"]
        return shlex.join([*words, "--out", str(out)])


@dataclass(frozen=True)
class FitRecord:
    """A fit as `run.json` holds it."""

    version: str
    config: dict[str, Any]
    """As requested."""
    resolved: dict[str, Any]
    """With what was chosen from the data."""
    sources: dict[str, str | None]
    """Path of each table and of the model to start from; None = none."""
    folder: str
    """Working folder, which relative paths start from."""
    fingerprint: str
    """Of the table."""
    weights: str | None
    """Digest of the model it started from."""
    options: dict[str, Any]
    """Holdout, precision, compilation and interval of checkpoints."""
    run: str = ""
    """Id of the MLflow run; its store is that of the call that resumes."""

    @property
    def identity(self) -> str:
        """Digest that the checkpoints of this fit, and of no other, carry."""
        own = {name: value for name, value in asdict(self).items() if name not in _NOT_IDENTITY}
        return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:32]

    def request(self, now: FitRequest) -> FitRequest:
        """Returns the request of the interrupted fit; `now` may repeat parts of it.

        Raises:
            ConfigError: `now` contradicts it, or a table in memory is missing; all faults at once.
        """
        if self.version != _version():
            raise ConfigError(
                f"the fit to resume was begun by version {self.version}, this is {_version()}: "
                f"resume it there, or {_RESTART}"
            )
        asked = now.config.model_dump(mode="json", exclude_unset=True, exclude={"tracking"})
        faults = _differences(asked, self.config)
        tables: dict[str, Any] = {}
        for name, flag in _SOURCES.items():
            given, before = getattr(now, name), self.sources[name]
            if given is None and before == _IN_MEMORY:
                faults.append(f"{flag}: the fit to resume was given it in memory; give it again")
            elif given is not None and _absolute(given, os.getcwd()) != _absolute(before, self.folder):
                faults.append(f"{flag} {_source(given)}: the fit to resume has {before or 'none'}")
            tables[name] = self._path(before) if given is None else given
        for name, before in self.options.items():
            given = getattr(now, name)
            if given and given != before:
                flag = f"--{name.replace('_', '-')}" + f" {given}" * (given is not True)
                faults.append(f"{flag}: the fit to resume has {before or 'none'}")
        if faults:
            hint = f"a resumed fit keeps what it was begun with: leave this out, or {_RESTART}"
            raise ConfigError("\n".join([*faults, hint]))
        # The number of steps that the budget allowed is not measured again.
        budgeted = self.config["fit"]["budget_seconds"] is not None
        settings = self.config | ({"fit": self.resolved["fit"]} if budgeted else {})
        config = parse_config(settings, "run.json")
        # Where it is recorded is up to this call; the folder may be anybody's.
        tracking = now.config.tracking.model_dump()
        tracking["enabled"] = tracking["enabled"] and config.tracking.enabled
        config = config.replaced(tracking=tracking)
        return FitRequest(config, **tables, **self.options)

    def check(self, now: FitRecord) -> None:
        """Raises if the table, the settings chosen from it, or the model to start from has changed."""
        for what, before, found in (
            ("table", self.fingerprint, now.fingerprint),
            ("model it started from", self.weights, now.weights),
        ):
            if before != found:
                old, new = (text[:16] if text else "none" for text in (before, found))
                raise DataError(
                    f"the {what} has changed since the fit was begun: fingerprint {old} then, {new} "
                    f"now; bring the old one back, or {_RESTART}"
                )
        if faults := _differences(now.resolved, self.resolved):
            raise ConfigError("\n".join([*faults, _RESTART]))

    def _path(self, path: str | None) -> str | None:
        """Returns a path as it was given or, from another working folder, an absolute one."""
        if path is None or "://" in path or self.folder == os.getcwd():
            return path
        return os.path.join(self.folder, path)


class RunFolder:
    """The folder of one fit; `is_main`: only rank 0 writes to it."""

    def __init__(self, out: Path, is_main: bool = True):
        self.out = linked(out) if out.name else out.resolve()
        self.path = self.out.with_name(self.out.name + _SUFFIX)
        self.is_main = is_main
        self.request: FitRequest | None = None
        """Of the caller or, merged with it, of the interrupted fit."""
        self.interrupted: FitRecord | None = None

    @property
    def step(self) -> str | None:
        """Step of the newest checkpoint, as "step 120 of member-01"; None = there is none."""
        # The names of trainings rise in the order in which they run.
        inside = sorted(path.name for path in self.path.glob("*/")) if self.path.exists() else []
        for name in (*reversed(inside), ""):
            if found := checkpoints_in(self.path / name):
                return f"step {step_of(found[-1])}" + f" of {name}" * bool(name)
        return None

    def record(self) -> FitRecord | None:
        """Returns what `run.json` holds; None if there is none.

        Raises:
            ArtifactError: it cannot be read.
        """
        path = self.path / "run.json"
        try:
            return FitRecord(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise ArtifactError(f"{path}: damaged ({error}); {_RESTART}") from error

    def write(self, record: FitRecord) -> None:
        """Writes `run.json`."""
        if self.is_main:
            write_text(self.path / "run.json", json.dumps(asdict(record), indent=1) + "\n")

    def remove(self) -> None:
        """Removes the folder; `run.json` first, without which the rest cannot be resumed."""
        with suppress(FileNotFoundError):
            (self.path / "run.json").unlink()
        shutil.rmtree(self.path, ignore_errors=True)

    def clear(self) -> None:
        """Removes all but the lock."""
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()

    @contextmanager
    def opened(
        self,
        plan: Plan,
        tracking: TrackingConfig,
        name: str,
        panel: Panel,
        start: Artifact | None,
        context: TrainingContext,
    ) -> Iterator[tuple[TrackedRun, TrainingContext]]:
        """Yields the MLflow run, and the context with checkpoints; prints how to resume a stopped fit.

        Raises:
            DataError: the table differs from that of the interrupted fit.
            ConfigError: the settings differ.
        """
        request = self.request
        assert request is not None
        weights = None if start is None else save_tensors(start.ensemble.state_dict())
        record = FitRecord(
            version=_version(),
            config=request.config.model_dump(mode="json", exclude={"tracking": {"uri", "experiment"}}),
            resolved=plan.model_dump(mode="json"),
            sources={name: _source(getattr(request, name)) for name in _SOURCES},
            folder=os.getcwd(),
            fingerprint=panel.fingerprint(),
            weights=None if weights is None else hashlib.sha256(weights).hexdigest(),
            options={name: getattr(request, name) for name in _OPTIONS},
        )
        if self.interrupted is not None:
            self.interrupted.check(record)
            record = self.interrupted
        files = Checkpoints(self.path, record.identity, request.checkpoint_every, context.say)
        try:
            with open_run(tracking, name, record.run) as run:
                record = replace(record, run=run.run_id)
                self.write(record)

                def settle(fit: FitPlan) -> None:
                    resolved = record.resolved | {"fit": fit.model_dump(mode="json")}
                    self.write(replace(record, resolved=resolved))

                yield run, replace(context, checkpoints=files, settled=settle)
        except BaseException as error:
            if (step := self.step) is not None:
                if isinstance(error, Exception):
                    context.say(f"the checkpoint after {step} is kept in {self.path}")
                else:
                    command = f"forecaster fit --resume {self.out}"
                    context.say(f"stopped after {step}; go on with: {command}")
            raise


@contextmanager
def resumable_fit(
    request: FitRequest, out: Path | None, resume: Path | None, restarts: bool, is_main: bool = True
) -> Iterator[RunFolder]:
    """Holds the folder of a fit, which no other fit can use meanwhile; its `request` is set.

    Args:
        request: of the caller.
        out: folder of the model.
        resume: folder of the model, or the run folder, of a fit to resume; None = a new fit.
        restarts: discard an interrupted fit in `out`.
        is_main: whether this is rank 0.

    Raises:
        ConfigError: there is nothing to resume, or the request contradicts the interrupted fit.
        OutputError: another fit writes there, or an interrupted one is there.
    """
    if resume is not None:
        if restarts:
            raise ConfigError("--resume goes on, --restart begins anew: give one of them")
        found = _find_run(resume)
        if out is not None and out.resolve() != found.resolve():
            raise ConfigError(f"--out {out}: the fit to resume writes {found}; leave --out away")
        out = found
    assert out is not None
    with claimed(out, resume is not None, restarts, is_main) as folder:
        folder.request = request
        if resume is not None:
            folder.interrupted = folder.record()
            if folder.interrupted is None:
                raise ConfigError(
                    f"--resume {resume}: this fit is finished, there is nothing to resume"
                )
            folder.request = folder.interrupted.request(request)
        yield folder


def _find_run(run: Path) -> Path:
    """Returns the model's folder of a run that is named by it or by its run folder."""
    own = run.name.endswith(_SUFFIX) and (run / "run.json").is_file()
    out = run.with_name(run.name.removesuffix(_SUFFIX)) if own else run
    folder = RunFolder(out)
    if not (folder.path / "run.json").is_file() and not (out / "contract.json").is_file():
        raise ConfigError(
            f"--resume {run}: no fit was begun there: {folder.path} is missing; "
            "name the folder that was given as --out"
        )
    return out


@contextmanager
def claimed(
    out: Path, resumes: bool = False, restarts: bool = False, is_main: bool = True
) -> Iterator[RunFolder]:
    """Locks and yields the folder of a fit; removes it when the fit succeeds."""
    folder = RunFolder(out, is_main)
    if not is_main:
        yield folder
        return
    with only_writer(folder.out, folder.path / "lock", "fit"):
        step = folder.step
        if step is not None and not resumes and not restarts:
            raise OutputError(
                f"{folder.path}: an unfinished fit, stopped after {step}: go on with "
                f"forecaster fit --resume {folder.out}, or discard it with --restart"
            )
        if not resumes:
            folder.clear()
        try:
            yield folder
        except BaseException:
            if not resumes and folder.step is None:
                folder.remove()
            raise
        folder.remove()


def _differences(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    had = flatten(before)
    new = {name: value for name, value in flatten(now).items() if value != had[name]}
    return [f"{name} {value}: the fit to resume has {had[name]}" for name, value in new.items()]


def _version() -> str:
    return versions()["attention-forecaster"]


def _source(given: object) -> str | None:
    if given is None:
        return None
    return str(given) if isinstance(given, str | Path) else _IN_MEMORY


def _absolute(given: object, folder: str) -> str | None:
    """Returns the same text for the same table, from whatever folder it is named."""
    name = _source(given)
    if name is None or name == _IN_MEMORY or "://" in name:
        return name
    return os.path.abspath(os.path.join(folder, name))
