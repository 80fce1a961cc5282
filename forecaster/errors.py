"""Errors that a caller can mend.

    ForecasterError          one clear line: what was expected, what was found, where, what to do
    ├── DataError            a table cannot be understood, or does not hold what the task needs
    ├── ConfigError          a setting is unknown, of the wrong kind, or contradicts another
    ├── ArtifactError        a saved model is missing, damaged, or of a format this version cannot read
    ├── FitError             training cannot go on (a loss that is not finite)
    └── OutputError          a result cannot be written; nothing half-written is left

The command line prints the message as one line and exits with code 2. Anything else that is raised
is a bug and keeps its traceback.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex


class ForecasterError(Exception):
    """Base of every error that the caller can mend."""

    reported_elsewhere: bool | None = None
    """Whether another process of the same run prints it; None = not settled yet."""
    in_shell: str | None = None
    """The message with options as the shell spells them, where a Python function has raised it."""

    def spell_for_python(self) -> None:
        """Spells the options in the message as Python does; the shell's message stays in `in_shell`."""
        self.in_shell = self.in_shell or str(self)
        self.args = (python_spelling(self.in_shell), *self.args[1:])


class DataError(ForecasterError):
    """A table cannot be understood, or does not hold what the task needs.

    `findings` holds the reasons one by one (`panel.findings.Finding`) where several were found.
    """

    def __init__(self, message: str, findings: Sequence[Any] = ()):
        super().__init__(message)
        self.findings = tuple(findings)


class ConfigError(ForecasterError):
    """A setting is unknown, of the wrong kind, or contradicts another."""


class ArtifactError(ForecasterError):
    """A saved model is missing, damaged, or of a format this version cannot read."""


class FitError(ForecasterError):
    """Training cannot go on."""


class OutputError(ForecasterError):
    """A result cannot be written."""


_COMMAND = r"(forecaster (?:fit|predict|backtest|tune|check|convert|export|ui|runs)\b[^;,)]*)"
_BEFORE_VALUE = r"( (?=[A-Z0-9'\"]|[^\s,]+:|[^;]+: expected))"
_OPTION = re.compile(rf"{_COMMAND}|(?<![\w-])--([a-z][a-z-]*){_BEFORE_VALUE}?")
_PYTHON_NAMES = {"from": "warm_start", "metric": "metrics", "set": "config", "mlflow": "export"}


def python_spelling(message: str) -> str:
    """Returns a message with options as Python spells them; commands of the shell stay.

    >>> python_spelling("leave out --on-duplicates, or fit with --horizon 28")
    'leave out `on_duplicates`, or fit with horizon=28'
    """

    def spelled(found: re.Match[str]) -> str:
        command, option, has_value = found.groups()
        if command:
            return command
        name = _PYTHON_NAMES.get(option, option.replace("-", "_"))
        return f"{name}=" if has_value else f"`{name}`"

    return _OPTION.sub(spelled, message)


def is_count(value: Any, least: int = 1) -> bool:
    """Whether an option is a whole number of 1 or more, or of `least` or more."""
    whole = isinstance(value, SupportsIndex) and not isinstance(value, bool)
    return whole and value.__index__() >= least


def check_count(count: object, name: str, unit: str = "") -> None:
    """Raises ConfigError unless an option is None or a whole number of 1 or more."""
    if count is not None and not is_count(count):
        raise ConfigError(f"{name} {count!r}: expected 1 or more{unit}")


def visible(text: str) -> str:
    """Returns text for a terminal: control characters, and those that turn text around, as escapes."""
    hidden = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
    return re.sub(hidden, lambda found: ascii(found[0])[1:-1], text)


def number_of(count: int, word: str, several: str = "") -> str:
    """Returns a count with its noun.

    >>> number_of(1, "window"), number_of(1200, "window"), number_of(2, "series", "series")
    ('1 window', '1,200 windows', '2 series')
    """
    return f"{count:,} {word if count == 1 else several or word + 's'}"


def natural(name: str) -> list[tuple[int, str]]:
    """Returns the key that sorts names with numbers in them by value: store_2 before store_10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Returns the known name that was probably meant, whatever the case of its letters, or None.

    Args:
        name: as given.
        known: names there are; of two that differ in case alone, the first.
        cutoff: how alike they must be, 0 to 1.
    """
    lowered: dict[str, str] = {}
    for other in known:
        lowered.setdefault(other.lower(), other)
    near = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=cutoff)
    return lowered[near[0]] if near else None


def first_line(error: object) -> str:
    """Returns the first line of an error's message."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return re.sub(r"^\((?:\w+\.)+\w+\) (?=.)", "", line)  # SQLAlchemy names the class of the cause
