"""What a fit was asked for, in words that a later process understands.

What comes in: tables, settings, weights to start from. What goes out: the same again, from a record on
disk, or all that was told differently beside it. Promised: a resumed fit is the fit that was begun —
another setting, table or version is refused with both values.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save as save_tensors

from forecaster.config import Config, parse_config
from forecaster.errors import ConfigError, DataError
from forecaster.forecast.artifact import Artifact
from forecaster.panel.panel import Panel
from forecaster.runs.versions import versions

_IN_MEMORY = "(in memory)"
_OF_A_PLACE = ("resolved", "folder", "uri", "run")  # processes that train together may differ
_SOURCES = {"data": "DATA", "future": "--future", "covariates": "--covariates", "start": "--from"}


@dataclass(frozen=True)
class Asked:
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

    def asked(self, told: Asked) -> Asked:
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
        return Asked(config=parse_config(settings, "run.json"), until=self.until, **tables)

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


def record_of(asked: Asked, resolved: Config, panel: Panel, start: Artifact | None) -> Record:
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
