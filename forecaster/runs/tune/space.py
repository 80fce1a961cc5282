"""The search space: dotted config paths, and the values that each may take.

fit.learning_rate: {float: [0.0005, 0.02], log: true}   between two ends, evenly in the logarithm
model.encoder_layers: {int: [1, 4]}           whole numbers; `step: 2` takes every second
model.patch: {choice: [null, 8, 24]}          one of these; null as in a config
model.attention_size: {choice: [16, 64], when: {model.attention: local}}   only where an entry above
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import (
    BaseModel,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    field_validator,
    model_validator,
)

from forecaster.config import Config, read_yaml, setting
from forecaster.errors import ConfigError, nearest
from forecaster.files import shipped

if TYPE_CHECKING:
    from optuna import Trial

_SEARCHED = ("model", "fit")
_FIXED = {
    "model.quantile_levels": "scores over other levels cannot be compared",
    "fit.freeze_encoder": "a search starts from random weights",
    "fit.adapters": "a search starts from random weights",
}
_LOSS = ("model.head",)
"""Settings that change the meaning of a loss, so that losses of trials cannot be compared."""

Value = StrictBool | StrictInt | float | str | None
Values = dict[str, Value]


class Entry(BaseModel, frozen=True, extra="forbid"):
    """The values of one path."""

    path: str
    floats: tuple[float, float] | None = Field(None, alias="float")
    ints: tuple[int, int] | None = Field(None, alias="int")
    step: int = Field(1, ge=1)
    """Between neighbouring whole numbers."""
    log: bool = False
    choices: tuple[Value, ...] = Field((), alias="choice")
    when: dict[str, tuple[Value, ...]] = {}
    """By path of an entry above: the values with which this one is searched."""

    @field_validator("when", mode="before")
    @classmethod
    def _listed(cls, when: Any) -> Any:
        if not isinstance(when, Mapping):
            return when
        return {path: value if isinstance(value, list) else [value] for path, value in when.items()}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if sum(map(bool, (self.floats, self.ints, self.choices))) != 1:
            raise ValueError(
                "expected one of {float: [low, high]}, {int: [low, high]}, {choice: [a, b]}"
            )
        low, high = self.floats or self.ints or (1, 2)
        if not low < high:
            raise ValueError(f"low {low} is not below high {high}")
        if self.log and low <= 0:
            raise ValueError(f"log: there is no logarithm of {low}; start above 0, or leave log out")
        if self.step > 1 and (self.log or not self.ints):
            raise ValueError(f"step {self.step}: only whole numbers without log have steps")
        return self

    def holds(self, value: object) -> bool:
        """Whether this entry could propose a value."""
        if self.choices:
            return value in self.choices
        low, high = self.floats or self.ints or (0, 0)
        number = isinstance(value, int | float) and low <= value <= high
        return number and (self.ints is None or (value - low) % self.step == 0)  # type: ignore[operator]

    def applies(self, chosen: Mapping[str, Value]) -> bool:
        """Whether this entry is searched with the values already chosen."""
        return all(path in chosen and chosen[path] in wanted for path, wanted in self.when.items())

    def suggest(self, trial: Trial) -> Value:
        """Returns the value that a trial proposes."""
        if self.ints:
            low, high = self.ints
            high -= (high - low) % self.step
            return trial.suggest_int(self.path, low, high, step=self.step, log=self.log)
        if self.floats:
            return trial.suggest_float(self.path, *self.floats, log=self.log)
        return trial.suggest_categorical(self.path, self.choices)


class Space:
    """A search space, checked against the schema of the config."""

    def __init__(self, entries: Mapping[str, Any], source: str = "space"):
        """Checks the entries of a YAML file; `source` names it in messages.

        Raises:
            ConfigError: all faults at once.
        """
        self.yaml = dict(entries)
        faults: list[str] = []
        self.entries: tuple[Entry, ...] = tuple(_read_entries(entries, faults))
        if not entries:
            faults.append("no entry: name at least one path, as fit.learning_rate")
        if faults:
            raise ConfigError("\n".join(f"{source}: {fault}" for fault in faults))

    def without(self, *paths: str) -> Space:
        """Returns the space without some entries."""
        return Space({path: entry for path, entry in self.yaml.items() if path not in paths})

    @property
    def losses_differ(self) -> str | None:
        """The first path that changes the meaning of a loss; None = losses of all trials compare."""
        return next((entry.path for entry in self.entries if entry.path in _LOSS), None)

    def suggest(self, trial: Trial) -> Values:
        """Returns the settings that a trial proposes, by path, of the entries that apply."""
        chosen: Values = {}
        for entry in self.entries:
            if entry.applies(chosen):
                chosen[entry.path] = entry.suggest(trial)
        return chosen

    def suggest_preset(self, trial: Trial, config: Config) -> Values:
        """Returns the settings of a trial that was enqueued with `preset(config)`."""
        inside = self.preset(config)
        return {entry.path: entry.suggest(trial) for entry in self.entries if entry.path in inside}

    def preset(self, config: Config) -> Values:
        """Returns the settings of a config, by path, that a sampler could have proposed itself."""
        has: Values = {}
        for entry in self.entries:
            if entry.applies(has):
                has[entry.path] = setting(config, entry.path)
        asked = (entry for entry in self.entries if entry.path in has)
        return {entry.path: has[entry.path] for entry in asked if entry.holds(has[entry.path])}


def load_space(space: str | Path | Mapping[str, Any] | None = None) -> Space:
    """Returns a search space from a YAML file or a mapping; None = the one in the package.

    Raises:
        ConfigError: the file cannot be read, or contradicts the schema; all faults at once.
    """
    if isinstance(space, Mapping):
        return Space(space)
    file = shipped("default.yaml", "configs/sweeps", "sweeps") if space is None else Path(space)
    return Space(read_yaml(file, "space"), source=f"space {file}")


def apply(config: Config, values: Mapping[str, Value]) -> Config:
    """Returns a config with settings replaced by dotted path.

    Raises:
        ConfigError: the settings contradict each other.
    """
    sections: dict[str, dict[str, Value]] = {}
    for path, value in values.items():
        section, _, name = path.partition(".")
        sections.setdefault(section, {})[name] = value
    return config.replaced(**sections)


def _read_entries(yaml: Mapping[str, Any], faults: list[str]) -> Iterator[Entry]:
    """Yields the valid entries; faults of the others are appended to `faults`."""
    above: dict[str, Entry | None] = {}
    for path, form in yaml.items():
        entry, wrong = None, _path_faults(str(path))
        if not wrong:
            try:
                given = form if isinstance(form, Mapping) else {}
                entry = Entry.model_validate({**given, "path": path})
            except ValidationError as error:
                wrong = [": ".join((*map(str, one["loc"][:1]), one["msg"])) for one in error.errors()]
            else:
                wrong = _condition_faults(entry, above) or _schema_faults(entry)
        faults.extend(f"{path}: {fault}" for fault in wrong)
        # A faulty entry is known, so that conditions on it are no faults of their own.
        above[str(path)] = None if wrong else entry
        if entry is not None and not wrong:
            yield entry


def _path_faults(path: str) -> list[str]:
    if path in _FIXED:
        return [f"cannot be searched: {_FIXED[path]}"]
    known = [
        f"{section}.{name}"
        for section, info in Config.model_fields.items()
        for name in getattr(info.annotation, "model_fields", {})
    ]
    if path in known or path == "horizon":
        if path.startswith(_SEARCHED):
            return []
        return [f"cannot be searched: only settings of {' and '.join(_SEARCHED)} are"]
    # By name alone: a bare name, or one under another section, still says which setting is meant.
    searched = {
        name.partition(".")[2]: name
        for name in known
        if name.startswith(_SEARCHED) and name not in _FIXED
    }
    near = nearest(path.rpartition(".")[2], searched)
    hint = f", did you mean '{searched[near]}'?" if near else ""
    return [f"unknown setting{hint}"]


def _condition_faults(entry: Entry, above: Mapping[str, Entry | None]) -> list[str]:
    faults = []
    for path, wanted in entry.when.items():
        if path not in above:
            near = nearest(path, above, cutoff=0.8)
            hint = f", did you mean '{near}'?" if near else ""
            faults.append(f"when: '{path}' is no entry above this one{hint}")
        elif (parent := above[path]) is not None:
            never = [value for value in wanted if not parent.holds(value)]
            faults += [f"when: '{path}' is never {value!r}" for value in never]
    return faults


def _schema_faults(entry: Entry) -> list[str]:
    """Returns the faults that the schema finds in the ends, or in each choice, one value at a time."""
    section, _, name = entry.path.partition(".")
    faults = []
    for value in entry.choices or entry.floats or entry.ints or ():
        try:
            Config.model_validate({section: {name: value}}, strict=True)
        except ValidationError as error:
            # Contradictions between settings are no fault of one value: they have no path so long.
            own = [fault["msg"] for fault in error.errors() if fault["loc"][:2] == (section, name)]
            faults += [f"{message} (got {value!r})" for message in own]
    return faults
