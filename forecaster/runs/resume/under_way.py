"""A fit that can be continued: its folder claimed, its record kept, its MLflow run open.

What comes in: what was asked for and, for a fit that goes on, what is told now. What goes out: where
checkpoints go, and a run. Promised: whatever ends a fit, what it leaves is named, and how to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from forecaster.config import Config, FitConfig
from forecaster.errors import ConfigError
from forecaster.forecast.artifact import Artifact
from forecaster.panel.panel import Panel
from forecaster.runs.resume.asked import Asked, Record, record_of
from forecaster.runs.resume.checkpoints import Checkpoints
from forecaster.runs.resume.folder import RunFolder, claimed, find_run
from forecaster.runs.tracking import TrackedRun, open_run


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
class UnderWay:
    """A fit with a folder of its own."""

    folder: RunFolder
    asked: Asked
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
        if not self.folder.leads:
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
    told: Asked, out: Path | None, resume: Path | None, restarts: bool, leads: bool = True
) -> Iterator[UnderWay]:
    """Yields a fit whose folder no other one may have meanwhile.

    Args:
        told: by the caller.
        out: where the model goes.
        resume: the model's folder, or the fit's own, of a fit that goes on; None = a new one.
        restarts: a fit that was stopped there is given up.
        leads: whether this process writes, for all that train together.

    Raises:
        ConfigError: there is nothing to resume, or something is told otherwise than at the beginning.
        OutputError: another fit writes there, or one was stopped there.
    """
    if resume is None:
        assert out is not None
        with claimed(out, restarts=restarts, leads=leads) as folder:
            yield UnderWay(folder, told)
        return
    if restarts:
        raise ConfigError("--resume goes on, --restart begins anew: give one of them")
    found = find_run(resume)
    if out is not None and out.resolve() != found.resolve():
        raise ConfigError(f"--out {out}: the fit to resume writes {found}; leave --out away")
    with claimed(found, resumes=True, leads=leads) as folder:
        record = folder.record()
        if record is None:  # it has just been finished
            raise ConfigError(f"--resume {resume}: this fit is finished, there is nothing to resume")
        yield UnderWay(folder, record.asked(told), record)
