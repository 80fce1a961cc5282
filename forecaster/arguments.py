"""Arguments of public functions: their names and types, checked at the call.

The types are those of the annotations, resolved at the first call, so that an import stays light.
"""

from __future__ import annotations

import os
import re
import reprlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import date
from decimal import Decimal
from functools import cache, wraps
from inspect import Parameter, signature
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, InstanceOf, Strict, TypeAdapter, ValidationError

from forecaster.errors import ConfigError, ForecasterError, nearest

if TYPE_CHECKING:
    from numpy import datetime64

    Date = date | datetime64 | str | int
    SeriesName = str | int | float | date
else:  # a datetime64 is checked as the date that it is
    Date = InstanceOf[date] | str | int
    SeriesName = str | int | float | InstanceOf[date]

Shard = str | Annotated[tuple[int, int], Strict(False)]
"""K/N or (K, N), as a list too."""
Function = TypeVar("Function", bound=Callable[..., Any])

_STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True)
_LARGEST = 1 << 63
"""A whole number that no array holds is neither a count nor a seed."""
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "True or False",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "callable_type": "a function",
    "tuple_type": "a tuple",
}


def typed(function: Function) -> Function:
    """Refuses unknown arguments and those of a wrong type, all at once, before a public function does anything.

    Nothing is converted that would change its meaning: "3" and True are no numbers.
    """
    parameters = signature(function).parameters
    positional = [name for name, part in parameters.items() if part.kind is not Parameter.KEYWORD_ONLY]

    @cache
    def arguments() -> dict[str, _Argument]:
        declared = {name: part.annotation for name, part in parameters.items() if name != "self"}
        module = vars(sys.modules[function.__module__])
        hints = get_type_hints(SimpleNamespace(__annotations__=declared), module, include_extras=True)
        return {name: _Argument(name, hint) for name, hint in hints.items()}

    @wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        faults = [_unknown(name, function, parameters) for name in named if name not in parameters]

        def settled(name: str, value: Any) -> Any:
            try:
                argument = arguments().get(name)  # none of `self`, nor of unknown names
                return argument.settled(value) if argument else value
            except ConfigError as error:
                faults.append(str(error))

        try:
            args = tuple(map(settled, chain(positional, repeat("")), args))
            named = {name: settled(name, value) for name, value in named.items()}
            if faults:
                raise ConfigError("\n".join(faults))
            return function(*args, **named)
        except ForecasterError as error:
            error.spell_for_python()
            raise

    return run  # type: ignore[return-value]


def _unknown(name: str, function: Callable[..., Any], parameters: Collection[str]) -> str:
    """Returns the error of an argument that a function does not have."""
    where = function.__qualname__ if "self" in parameters else f"fc.{function.__name__}"
    known = [other for other in parameters if other != "self"]
    near = nearest(name, known)
    hint = f"did you mean '{near}'?" if near else f"expected {', '.join(known)}"
    return f"{where}: unknown argument {name!r}; {hint}"


class _Argument:
    """The name and the type of an argument."""

    def __init__(self, name: str, hint: Any):
        self._option = f"--{name.replace('_', '-')}"
        self._adapter = TypeAdapter(hint, config=_STRICT)
        kinds = [*kinds_in(hint)]
        self._is_path = Path in kinds
        self._is_any = object in kinds or hint is Any

    def settled(self, value: Any) -> Any:
        """Returns a value of the type; raises ConfigError where it has another."""
        if self._is_any:
            # The name of a table: its reader refuses one that is no text.
            if isinstance(value, str | Path) and str(value).isprintable():
                self._check_path(value)
            return value
        try:
            settled = self._adapter.validate_python(_plain(value))
        except ValidationError as error:
            faults = error.errors(include_url=False)
            # A function says by itself which words it knows, and the nearest of them.
            if isinstance(value, str) and any(fault["type"] == "literal_error" for fault in faults):
                return value
            expected = " or ".join(dict.fromkeys(map(_expected, faults)))
            raise self._refusal(value, f"{expected}, found {type(value).__name__}") from None
        if isinstance(settled, int) and abs(settled) >= _LARGEST:
            raise self._refusal(value, "a number of at most 18 digits")
        if self._is_path and isinstance(settled, str | Path):
            self._check_path(settled)
        elif isinstance(settled, str) and re.search("[\ud800-\udfff]", settled):
            raise self._refusal(value, "whole characters")
        return settled

    def _check_path(self, path: str | Path) -> None:
        """Raises ConfigError where no file can have this path; nothing is opened."""
        if not str(path).strip():
            raise self._refusal(path, "a path, found an empty text")
        try:
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                os.lstat(path)
        except OSError as error:
            if "://" not in str(path):
                raise self._refusal(path, f"a path: {error.strerror}") from None
        except ValueError as error:  # a NUL, or half of a character
            raise self._refusal(path, f"a path: {error}") from None

    def _refusal(self, value: Any, expected: str) -> ConfigError:
        return ConfigError(
            f"{self._option} {' '.join(reprlib.repr(value).split())}: expected {expected}"
        )


def kinds_in(hint: Any) -> Iterator[Any]:
    """Yields a type and those it is made of: of `list[int] | None` also list[int], int and None."""
    yield hint
    for part in get_args(hint):
        yield from kinds_in(part)


def _expected(fault: Any) -> str:
    """Returns the type that a fault of pydantic names, in words."""
    if fault["type"] == "is_instance_of":
        return f"a {fault['ctx']['class'].lower()}"
    return _EXPECTED.get(fault["type"], fault["msg"].removeprefix("Input should be "))


def _plain(value: Any) -> Any:
    """Returns what Python has for scalars of other libraries, and a list for columns, sets and generators."""
    dimensions = getattr(value, "ndim", None)
    if dimensions == 0 and getattr(value.dtype, "kind", "") == "M":
        with suppress(ValueError):  # 5, of no unit
            moment = value.astype("M8[us]").item()
            return moment if isinstance(moment, date) else value  # else NaT, or beyond year 9999
    elif dimensions == 0:
        return value.item()
    elif isinstance(value, Decimal):
        return float(value)
    elif isinstance(value, os.PathLike):
        with suppress(TypeError):  # one of bytes
            return Path(value)
    elif isinstance(value, str | bytes | bytearray | Mapping | BaseModel):
        return value
    elif isinstance(value, Collection | Iterator) and dimensions in (None, 1):
        return [_plain(part) for part in value]
    return value
