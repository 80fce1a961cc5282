"""An interrupted fit resumes: what was requested, and the folder that holds it with its checkpoints."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from safetensors.torch import save as save_tensors

from forecaster.config import Config, FitConfig, parse_config
from forecaster.errors import ArtifactError, ConfigError, DataError, OutputError
from forecaster.files import atomic_file
from forecaster.forecast.artifact import Artifact
from forecaster.panel.panel import Panel
from forecaster.runs.checkpoints import Checkpoints, checkpoints_in, step_of
from forecaster.runs.tracking import TrackedRun, open_run
from forecaster.runs.versions import versions

_IN_MEMORY = "(in memory)"
_OF_A_PLACE = ("resolved", "folder", "uri", "run")  # processes that train together may differ
_SOURCES = {"data": "DATA", "future": "--future", "covariates": "--covariates", "start": "--from"}


@dataclass(frozen=True)
class FitRequest:
    """What a fit is asked for."""

    config: Config
    """Before anything was left to the data."""
    data: object = None
    """Path, glob, address or frame."""
    future: object = None
    """A table of what is known in advance."""
    covariates: object = None
    """A second table."""
    until: str | None = None
    """A date; later rows are a holdout."""
    start: object = None
    """A model whose weights come first, or its folder."""


@dataclass(frozen=True)
class Record:
    """A fit that was begun, as `run.json` holds it."""

    version: str
    """Of this package."""
    config: dict[str, Any]
    """As asked for."""
    resolved: dict[str, Any]
    """With what was left to the data and to the machine."""
    sources: dict[str, str | None]
    """Path of each table and of the weights to start from; None = there is none."""
    until: str | None
    folder: str
    """The working folder, which relative paths start from."""
    fingerprint: str
    """Of the table."""
    weights: str | None
    """Of the model it started from."""
    uri: str
    """The MLflow store."""
    run: str
    """Key of the MLflow run; empty = there is none."""

    @property
    def identity(self) -> str:
        """What all checkpoints of this fit, and of no other, have in common."""
        own = {name: value for name, value in asdict(self).items() if name not in _OF_A_PLACE}
        return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:32]

    def asked(self, told: FitRequest) -> FitRequest:
        """Returns what was asked for at the beginning.

        Args:
            told: now, beside it; what is left out there is taken from here.

        Raises:
            ConfigError: something is told otherwise, or a table in memory is missing; all at once.
        """
        if self.version != _version():
            raise ConfigError(
                f"the fit to resume was begun by version {self.version}, this is {_version()}: "
                "resume it there, or begin anew with --restart"
            )
        faults = [*self._settings_told_otherwise(told.config)]
        tables = {}
        for name, flag in _SOURCES.items():
            given, had = getattr(told, name), self.sources[name]
            if given is None and had == _IN_MEMORY:
                faults.append(f"{flag}: the fit to resume was given it in memory; give it again")
            elif given is not None and _place(given, os.getcwd()) != _place(had, self.folder):
                faults.append(f"{flag} {_word(given)}: the fit to resume has {had or 'none'}")
            tables[name] = self._reached(had) if given is None else given
        if told.until not in (None, self.until):
            faults.append(f"--until {told.until}: the fit to resume has {self.until or 'none'}")
        if faults:
            raise ConfigError(
                "\n".join(
                    [
                        *faults,
                        "a resumed fit keeps what it was begun with: leave this out, "
                        "or begin anew with --restart",
                    ]
                )
            )
        # What was measured on the machine then, as the precision, is not measured again.
        settings = self.config | {"fit": self.resolved["fit"]}
        return FitRequest(config=parse_config(settings, "run.json"), until=self.until, **tables)

    def check(self, now: Record) -> None:
        """Raises when the table, what follows from it, or the model it started from is another now."""
        for what, then, found in (
            ("table", self.fingerprint, now.fingerprint),
            ("model it started from", self.weights, now.weights),
        ):
            if then != found:
                raise DataError(
                    f"the {what} has changed since the fit was begun: fingerprint {_short(then)} "
                    f"then, {_short(found)} now; bring the old one back, or begin anew with --restart"
                )
        faults = [
            f"{name} {value}: the fit to resume has {had}"
            for (name, value), (_, had) in zip(_flat(now.resolved), _flat(self.resolved), strict=True)
            if value != had and not name.startswith("tracking.")
        ]
        if faults:
            raise ConfigError("\n".join([*faults, "begin anew with --restart"]))

    def _settings_told_otherwise(self, told: Config) -> Iterator[str]:
        had = dict(_flat(self.config))
        for name, value in _flat(told.model_dump(mode="json", exclude_unset=True)):
            if had[name] != value:
                yield f"{name} {value}: the fit to resume has {had[name]}"

    def _reached(self, path: str | None) -> str | None:
        """Returns a path as it was given or, from another working folder, whole."""
        if path is None or "://" in path or self.folder == os.getcwd():
            return path
        return os.path.join(self.folder, path)


def record_of(asked: FitRequest, resolved: Config, panel: Panel, start: Artifact | None) -> Record:
    """Returns the record of a fit that is about to begin, without its MLflow run.

    Args:
        asked: by the caller.
        resolved: from it.
        panel: of the table.
        start: whose weights come first.
    """
    sources: dict[str, str | None] = {}
    for name in _SOURCES:
        given = getattr(asked, name)
        sources[name] = None if given is None else _word(given)
    return Record(
        version=_version(),
        config=asked.config.model_dump(mode="json"),
        resolved=resolved.model_dump(mode="json"),
        sources=sources,
        until=asked.until,
        folder=os.getcwd(),
        fingerprint=panel.fingerprint(),
        weights=None if start is None else _digest(start),
        uri="",
        run="",
    )


def _version() -> str:
    return versions()["attention-forecaster"]


def _digest(model: Artifact) -> str:
    return hashlib.sha256(save_tensors(model.ensemble.state_dict())).hexdigest()


def _word(given: object) -> str:
    return str(given) if isinstance(given, str | Path) else _IN_MEMORY


def _place(given: object, folder: str) -> str | None:
    """Returns which table is meant, whatever folder it is named from."""
    if given is None:
        return None
    word = _word(given)
    return word if word == _IN_MEMORY or "://" in word else os.path.abspath(os.path.join(folder, word))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _short(fingerprint: str | None) -> str:
    return "none" if fingerprint is None else fingerprint[:16]


_SUFFIX = ".run"


class RunFolder:
    """Where one fit keeps what it needs to be continued."""

    def __init__(self, out: Path, is_main: bool = True):
        """Takes the folder that the model will be written to.

        Args:
            out: the model's.
            is_main: whether this process writes; of those that train together, one does.
        """
        self.out = out if out.name else out.resolve()
        self.path = self.out.with_name(self.out.name + _SUFFIX)
        self.is_main = is_main

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
        if self.is_main:
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
    out: Path, resumes: bool = False, restarts: bool = False, is_main: bool = True
) -> Iterator[RunFolder]:
    """Yields the folder of a fit, which no other fit may have meanwhile.

    Args:
        out: where the model goes.
        resumes: the fit goes on from what is there.
        restarts: what is there is given up.
        is_main: whether this process has the folder, for all that train together.

    Raises:
        OutputError: another fit writes there, or one has left checkpoints there.
    """
    folder = RunFolder(out, is_main)
    if not is_main:
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


@dataclass(frozen=True)
class Opened:
    """What a fit has while it runs."""

    run: TrackedRun
    """Of MLflow."""
    checkpoints: Checkpoints | None = None
    """Where they go; None = there are none."""
    settled: Callable[[FitConfig], None] = lambda fit: None
    """Keeps what this machine has decided, so that a fit that goes on does not measure it again."""


@dataclass(frozen=True)
class ResumableFit:
    """A fit with a folder of its own."""

    folder: RunFolder
    asked: FitRequest
    """What it is asked for, or was at the beginning."""
    record: Record | None = None
    """Of its beginning, where it goes on."""

    @contextmanager
    def opened(
        self, config: Config, panel: Panel, start: Artifact | None, say: Callable[[str], None]
    ) -> Iterator[Opened]:
        """Yields the run, and where checkpoints go.

        Args:
            config: resolved.
            panel: of the table.
            start: whose weights come first.
            say: where to say what is left when the fit is stopped.

        Raises:
            DataError: a fit that goes on finds another table.
            ConfigError: it finds other settings.
        """
        record = record_of(self.asked, config, panel, start)
        if self.record is not None:
            self.record.check(record)
            record = self.record
        # Its default is a file in the working folder, which may be another one now.
        tracking = config.tracking.model_copy(update={"uri": record.uri} if record.uri else {})
        if not self.folder.is_main:
            tracking = tracking.model_copy(update={"enabled": False})
        fit = config.fit
        wanted = fit.checkpoint_minutes is not None or fit.checkpoint_every is not None
        try:
            with open_run(tracking, self.folder.out.name, record.run) as run:
                uri = run.uri if run.uri.startswith("sqlite:") else ""  # others may hold a password
                record = replace(record, uri=uri, run=run.run_id)
                self.folder.write(record)

                def keep(fit: FitConfig) -> None:
                    told = record.resolved | {"fit": fit.model_dump(mode="json")}
                    self.folder.write(replace(record, resolved=told))

                files = Checkpoints(self.folder.path, record.identity, say) if wanted else None
                yield Opened(run, files, keep)
        except BaseException as error:
            self._say_what_is_left(error, say)
            raise

    def _say_what_is_left(self, error: BaseException, say: Callable[[str], None]) -> None:
        step, folder = self.folder.step, self.folder
        if step is None:
            return
        if isinstance(error, Exception):
            say(f"the checkpoint after {step} is kept in {folder.path}")
        else:
            say(f"stopped after {step}; go on with: forecaster fit --resume {folder.out}")


@contextmanager
def under_way(
    told: FitRequest, out: Path | None, resume: Path | None, restarts: bool, is_main: bool = True
) -> Iterator[ResumableFit]:
    """Yields a fit whose folder no other one may have meanwhile.

    Args:
        told: by the caller.
        out: where the model goes.
        resume: the model's folder, or the fit's own, of a fit that goes on; None = a new one.
        restarts: a fit that was stopped there is given up.
        is_main: whether this process writes, for all that train together.

    Raises:
        ConfigError: there is nothing to resume, or something is told otherwise than at the beginning.
        OutputError: another fit writes there, or one was stopped there.
    """
    if resume is None:
        assert out is not None
        with claimed(out, restarts=restarts, is_main=is_main) as folder:
            yield ResumableFit(folder, told)
        return
    if restarts:
        raise ConfigError("--resume goes on, --restart begins anew: give one of them")
    found = find_run(resume)
    if out is not None and out.resolve() != found.resolve():
        raise ConfigError(f"--out {out}: the fit to resume writes {found}; leave --out away")
    with claimed(found, resumes=True, is_main=is_main) as folder:
        record = folder.record()
        if record is None:  # it has just been finished
            raise ConfigError(f"--resume {resume}: this fit is finished, there is nothing to resume")
        yield ResumableFit(folder, record.asked(told), record)
