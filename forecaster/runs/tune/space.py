"""The search space: dotted config paths, and the values that each may take.

fit.learning_rate: {float: [0.0005, 0.02], log: true}   between two ends, evenly in the logarithm
model.encoder_layers: {int: [1, 4]}           whole numbers; `step: 2` takes every second
model.patch: {choice: [null, 8, 24]}          one of these; null as in a config
model.attention_size: {choice: [16, 64], when: {model.attention: local}}   only where an entry above
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from forecaster.config import Config, read_yaml
from forecaster.errors import ConfigError, nearest

if TYPE_CHECKING:
    from optuna import Trial

KINDS = ("float", "int", "choice")
_OPTIONS = {"float": ("log", "when"), "int": ("step", "log", "when"), "choice": ("when",)}
_SEARCHED = ("model", "fit")
_FIXED = {
    "model.quantile_levels": "scores over other levels cannot be compared",
    "fit.freeze_encoder": "a search starts from random weights",
    "fit.adapters": "a search starts from random weights",
}
_LOSS = ("model.head",)
"""Settings that change the meaning of a loss, so that losses of trials cannot be compared."""

Value = float | int | str | bool | None
Values = dict[str, Value]


@dataclass(frozen=True)
class Entry:
    """The values of one path."""

    path: str
    kind: Literal["float", "int", "choice"]
    low: float = 0
    high: float = 0
    step: int = 1
    """Between neighbouring whole numbers."""
    log: bool = False
    choices: tuple[Value, ...] = ()
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """By path of an entry above: the values with which this one is searched."""

    def holds(self, value: object) -> bool:
        """Whether this entry could propose a value."""
        if self.kind == "choice":
            return _among(value, self.choices)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        inside = self.low <= value <= self.high
        on_grid = self.kind == "float" or (value == int(value) and (value - self.low) % self.step == 0)
        return inside and on_grid

    def applies(self, chosen: Mapping[str, Value]) -> bool:
        """Whether this entry is searched with the values already chosen."""
        return all(
            path in chosen and _among(chosen[path], wanted) for path, wanted in self.when.items()
        )

    def suggest(self, trial: Trial) -> Value:
        """Returns the value that a trial proposes."""
        value: Value
        if self.kind == "choice":
            value = trial.suggest_categorical(self.path, self.choices)
        elif self.kind == "int":
            low, high = int(self.low), int(self.high)
            value = trial.suggest_int(self.path, low, high, step=self.step, log=self.log)
        else:
            value = trial.suggest_float(self.path, self.low, self.high, log=self.log)
        return value


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
                has[entry.path] = _at(config, entry.path)
        return {
            entry.path: has[entry.path]
            for entry in self.entries
            if entry.path in has and entry.holds(has[entry.path])
        }


def load_space(space: str | Path | Mapping[str, Any] | None = None) -> Space:
    """Returns a search space from a YAML file or a mapping; None = the one in the package.

    Raises:
        ConfigError: the file cannot be read, or contradicts the schema; all faults at once.
    """
    if isinstance(space, Mapping):
        return Space(space)
    file = _packaged() if space is None else Path(space)
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


def _read_entries(yaml: Mapping[str, Any], faults: list[str]) -> Iterator[Entry]:
    """Yields the valid entries; faults of the others are appended to `faults`."""
    above: dict[str, Entry | None] = {}
    for path, form in yaml.items():
        wrong = _path_faults(str(path)) or _form_faults(form)
        entry = None
        if not wrong:
            kind = next(kind for kind in KINDS if kind in form)
            wrong = _range_faults(kind, form[kind], form) + _condition_faults(form, above)
            entry = None if wrong else _entry(str(path), kind, form)
            wrong += [] if entry is None else _schema_faults(entry)
        faults.extend(f"{path}: {fault}" for fault in wrong)
        # A faulty entry is known, so that conditions on it are no faults of their own.
        above[str(path)] = None if wrong else entry
        if entry is not None and not wrong:
            yield entry


def _path_faults(path: str) -> list[str]:
    known = [
        f"{section}.{name}"
        for section, info in Config.model_fields.items()
        for name in getattr(info.annotation, "model_fields", {})
    ]
    section = path.partition(".")[0]
    if path in _FIXED:
        return [f"cannot be searched: {_FIXED[path]}"]
    if section in _SEARCHED and path in known:
        return []
    if path in known or path == "horizon":
        return [f"cannot be searched: only settings of {' and '.join(_SEARCHED)} are"]
    searched = [name for name in known if name.startswith(_SEARCHED) and name not in _FIXED]
    near = nearest(path, searched)
    if near is None:
        # A bare name, or one under another section, still says which setting is meant.
        ends = {name.partition(".")[2]: name for name in searched}
        end = nearest(path.rpartition(".")[2], ends)
        near = ends[end] if end else None
    hint = f", did you mean '{near}'?" if near else ""
    return [f"unknown setting{hint}"]


def _form_faults(form: object) -> list[str]:
    if not isinstance(form, Mapping) or sum(kind in form for kind in KINDS) != 1:
        return [
            "expected one of {float: [low, high]}, {int: [low, high]}, {choice: [a, b]}, "
            f"found {form!r}"
        ]
    kind = next(kind for kind in KINDS if kind in form)
    extra = [str(name) for name in form if name not in (kind, *_OPTIONS[kind])]
    return [
        f"unknown option '{name}' beside {kind}; known are {', '.join(_OPTIONS[kind])}"
        for name in extra
    ]


def _range_faults(kind: str, given: object, form: Mapping[str, Any]) -> list[str]:
    if kind == "choice":
        if not isinstance(given, list) or not given:
            return [f"choice: expected a list of values, found {given!r}"]
        nested = [value for value in given if isinstance(value, list | Mapping)]
        twice = [value for place, value in enumerate(given) if _among(value, given[:place])]
        return [f"choice: {value!r} is not a single value" for value in nested] + [
            f"choice: {value!r} is there twice" for value in twice
        ]
    log, step = form.get("log", False), form.get("step", 1)
    wanted = int if kind == "int" else (int, float)
    ends = given if isinstance(given, list) else []
    if len(ends) != 2 or any(isinstance(end, bool) or not isinstance(end, wanted) for end in ends):
        hint = "; YAML takes 5e-4 for text, write 0.0005" if any(map(_like_number, ends)) else ""
        word = "two whole numbers" if kind == "int" else "two numbers"
        return [f"{kind}: expected {word}, [low, high], found {given!r}{hint}"]
    faults = []
    low, high = ends
    if not low < high:
        faults.append(f"{kind}: low {low} is not below high {high}")
    if not isinstance(log, bool):
        faults.append(f"log: expected true or false, found {log!r}")
    elif log and low <= 0:
        faults.append(f"log: there is no logarithm of {low}; start above 0, or leave log out")
    if isinstance(step, bool) or not isinstance(step, int) or step < 1:
        faults.append(f"step: expected a whole number of at least 1, found {step!r}")
    elif step > 1 and log is True:
        faults.append(f"step {step} and log exclude each other: leave one out")
    return faults


def _condition_faults(form: Mapping[str, Any], above: Mapping[str, Entry | None]) -> list[str]:
    when = form.get("when", {})
    if not isinstance(when, Mapping):
        return [f"when: expected values by path, as {{model.head: binned}}, found {when!r}"]
    faults = []
    for path, wanted in when.items():
        if path not in above:
            near = nearest(str(path), above, cutoff=0.8)
            hint = f", did you mean '{near}'?" if near else ""
            faults.append(f"when: '{path}' is no entry above this one{hint}")
            continue
        parent = above[path]
        never = [v for v in _listed(wanted) if parent is not None and not parent.holds(v)]
        faults += [f"when: '{path}' is never {value!r}" for value in never]
    return faults


def _schema_faults(entry: Entry) -> list[str]:
    """Returns the faults that the schema finds in the ends, or in each choice, one value at a time."""
    section, _, name = entry.path.partition(".")
    faults = []
    for value in entry.choices if entry.kind == "choice" else (entry.low, entry.high):
        try:
            Config.model_validate({section: {name: value}}, strict=True)
        except ValidationError as error:
            # Contradictions between settings are no fault of one value: they have no path so long.
            own = [fault["msg"] for fault in error.errors() if fault["loc"][:2] == (section, name)]
            faults += [f"{message} (got {value!r})" for message in own]
    return faults


def _entry(path: str, kind: Any, form: Mapping[str, Any]) -> Entry:
    when = {name: _listed(wanted) for name, wanted in form.get("when", {}).items()}
    if kind == "choice":
        return Entry(path, kind, choices=tuple(form[kind]), when=when)
    low, high = form[kind]
    step = form.get("step", 1)
    high = low + (high - low) // step * step if kind == "int" else high
    return Entry(path, kind, low, high, step, form.get("log", False), when=when)


def _listed(wanted: object) -> tuple[Any, ...]:
    return tuple(wanted) if isinstance(wanted, list) else (wanted,)


def _among(value: object, values: Any) -> bool:
    """Whether a value is there, true and 1 being two."""
    return any(
        value == other and isinstance(value, bool) == isinstance(other, bool) for other in values
    )


def _like_number(value: object) -> bool:
    try:
        return isinstance(value, str) and float(value) == float(value)
    except ValueError:
        return False
