"""The search space: dotted config paths, and what each of them may be.

What comes in: YAML, one entry per path. What goes out: a `Space` that proposes settings and puts them
into a config. Promised: whatever contradicts the schema is refused before the first trial, all faults
at once, unknown paths with the nearest known one.

    fit.learning_rate: {float: [0.0005, 0.02], log: true}   between two ends, evenly in the logarithm
    model.encoder_layers: {int: [1, 4]}           whole numbers; `step: 2` takes every second
    model.patch: {choice: [null, 8, 24]}          one of these; null as in a config
    model.attention_size: {choice: [16, 64], when: {model.attention: local}}   conditional
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.config import Config, read_yaml
from forecaster.errors import ConfigError
from forecaster.runs.tune.entries import Entry, Value, Values, read_entries

if TYPE_CHECKING:
    from optuna import Trial

_LOSS = ("model.head",)
"""Settings that change what a loss means, so that trials cannot be compared before their end."""


class Space:
    """A search space, checked against the schema."""

    def __init__(self, told: Mapping[str, Any], source: str = "space"):
        """Takes what the YAML says.

        Args:
            told: an entry by dotted path.
            source: what to call it in messages.

        Raises:
            ConfigError: all faults at once.
        """
        self.told = dict(told)
        faults: list[str] = []
        self.entries: tuple[Entry, ...] = tuple(read_entries(told, faults))
        if not told:
            faults.append("no entry: name at least one path, as fit.learning_rate")
        if faults:
            raise ConfigError("\n".join(f"{source}: {fault}" for fault in faults))

    @property
    def identity(self) -> str:
        """A short text that is the same for the same entries in the same order."""
        text = json.dumps(list(self.told.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def losses_differ(self) -> str | None:
        """The first path that changes what a loss means; None = losses of all trials compare."""
        return next((entry.path for entry in self.entries if entry.path in _LOSS), None)

    def suggest(self, trial: Trial, only: Collection[str] | None = None) -> Values:
        """Returns the settings that a trial proposes, by path, of the entries that apply.

        Args:
            trial: asked for each setting.
            only: paths that are asked for; None = all.
        """
        chosen: Values = {}
        for entry in self.entries:
            if entry.path in only if only is not None else entry.applies(chosen):
                chosen[entry.path] = entry.suggest(trial)
        return chosen

    def preset(self, config: Config) -> Values:
        """Returns the settings of a config, by path, where the space holds them.

        What lies outside is left out: the config is tried as it is, and a sampler learns from the
        settings that it could have proposed itself.
        """
        has: Values = {}
        for entry in self.entries:
            if entry.applies(has):
                has[entry.path] = _at(config, entry.path)
        return {
            entry.path: has[entry.path]
            for entry in self.entries
            if entry.path in has and entry.holds(has[entry.path])
        }


def load_space(told: str | Path | Mapping[str, Any] | None = None) -> Space:
    """Returns a search space.

    Args:
        told: a YAML file, or what it would say; None = the file that comes with the package.

    Raises:
        ConfigError: the file cannot be read, or contradicts the schema; all faults at once.
    """
    if isinstance(told, Mapping):
        return Space(told)
    file = _packaged() if told is None else Path(told)
    return Space(read_yaml(file, "space"), source=f"space {file}")


def apply(config: Config, values: Mapping[str, Value]) -> Config:
    """Returns a config with some settings replaced.

    Args:
        config: all other settings.
        values: by dotted path.

    Raises:
        ConfigError: the settings contradict each other.
    """
    sections: dict[str, dict[str, Value]] = {}
    for path, value in values.items():
        section, _, name = path.partition(".")
        sections.setdefault(section, {})[name] = value
    return config.replaced(**sections)


def _at(config: Config, path: str) -> Value:
    section, _, name = path.partition(".")
    value: Value = getattr(getattr(config, section), name)
    return value


def _packaged() -> Path:
    """Returns the default space of this checkout, or of the installed package."""
    package = Path(__file__).parents[2]
    for folder in (package.parent / "configs" / "sweeps", package / "sweeps"):
        if (folder / "default.yaml").is_file():
            return folder / "default.yaml"
    raise ConfigError("the default search space is missing from this installation: give --space FILE")
