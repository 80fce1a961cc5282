"""What the JSON files of an artifact must hold: read, checked, and then trusted.

What comes in: a folder that anybody may have written. What goes out: a `Contract` that agrees with its
config, or an `ArtifactError` of one line. Promised: nothing is read that is not a plain file of a
sensible size inside the folder; no number makes memory be taken before it has been checked.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, TypeAdapter, ValidationError

from forecaster.config import Config, ModelConfig
from forecaster.errors import ArtifactError
from forecaster.model.embedding import Shape
from forecaster.panel.calendar import Calendar
from forecaster.panel.schema import Schema

CONTRACT = "contract.json"
_MOST_BYTES = 1 << 28
_OBJECT = TypeAdapter(dict[str, Any])
_SHAPE = TypeAdapter(Shape)
_Number = StrictFloat | StrictInt


class _Stored(BaseModel):
    """Unknown keys are passed over: a later version wrote them."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class Member(_Stored):
    """The weights of one network."""

    file: str = Field(pattern=r"^[\w-][\w.-]*$", max_length=255)
    """A plain name inside the folder."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Of the file."""
    attention_length: int | None = Field(None, ge=1)
    """Its own; None = that of the config."""

    def model(self, config: Config) -> ModelConfig:
        """Returns what its network is made of."""
        own = {} if self.attention_length is None else {"attention_length": self.attention_length}
        return config.model.model_copy(update=own)


class Calibration(_Stored):
    """What is added to quantiles so that they hold what they say."""

    method: Literal["additive"]
    """additive: widths [H, C, Q] in scaled units, added to the blended quantiles."""
    file: str = Field(pattern=r"^[\w-][\w.-]*$", max_length=255)
    """A plain name inside the folder."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Of the file."""


class Parent(_Stored):
    """What is kept of an artifact whose weights a training started from."""

    data: str
    fingerprint: str
    freq: str
    until: str
    parent: Parent | None = None


class Contract(_Stored):
    """All of contract.json but columns and shape, which have types of their own."""

    members: tuple[Member, ...] = Field(min_length=1, max_length=1000)
    """At least one."""
    weights: tuple[Annotated[float, Field(ge=0)], ...] | None = None
    """How much each member counts; None = all alike."""
    calibration: Calibration | None = None
    """None = quantiles are as the members say them."""
    trained_until: int = Field(ge=-(1 << 62), le=1 << 62)
    """Time of the last target that was seen."""
    data: str = "unknown"
    """What the table was called."""
    fingerprint: str = "unknown"
    """Of its panel."""
    versions: dict[str, str] = {}
    """Of the packages that trained it."""
    parent: Parent | None = None
    """What it started from."""


class _Validation(BaseModel):
    scores: dict[str, dict[str, _Number]] = {}


class _Quality(BaseModel):
    coverage: _Number
    width: _Number
    pinball: _Number


class _Calibrated(BaseModel):
    cutoffs: StrictInt
    strength: _Number
    before: _Quality
    after: _Quality


class _Metrics(BaseModel):
    share: _Number | None = None
    attention_share: _Number | None = None
    calibration: _Calibrated | None = None
    curves: dict[str, list[list[_Number]]] = {}
    validation: _Validation = _Validation()


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """Returns the object that a file of an artifact holds.

    Raises:
        ArtifactError: there is none, it cannot be read, or it is no object.
    """
    path = folder / name
    try:
        if path.exists() and not path.is_file():
            raise ArtifactError(f"{path}: expected a file, found something else")
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        found = f"{name} is missing" if folder.is_dir() else "there is no such folder"
        raise ArtifactError(
            f"{folder}: not a saved model: {found}; expected a folder written by forecaster fit --out"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise ArtifactError(
            f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})"
        ) from error
    if len(content) > _MOST_BYTES:
        raise ArtifactError(f"{path}: damaged, larger than {_MOST_BYTES >> 20} MB")
    try:
        return _OBJECT.validate_json(content)
    except ValidationError as error:
        fault = error.errors()[0]
        if fault["type"] == "json_invalid":
            raise ArtifactError(f"{path}: damaged, not JSON ({fault['ctx']['error']})") from None
        found = type(fault["input"]).__name__
        raise ArtifactError(f"{path}: damaged, expected an object, found {found}") from None


def read_contract(stored: Mapping[str, Any], config: Config) -> tuple[Contract, Schema, Shape]:
    """Returns the parts of a contract, which agree with each other and with the config.

    Args:
        stored: contract.json.
        config: config.json.

    Raises:
        ValueError: they do not; `first_fault` makes a line of it.
        DataError: the step of the time axis is none.
    """
    contract = Contract.model_validate(dict(stored))
    schema = Schema.from_dict(stored["columns"])
    shape = _SHAPE.validate_python(stored["shape"])
    count = len(contract.members)
    if contract.weights is not None and len(contract.weights) != count:
        raise ValueError(f"{len(contract.weights)} weights for {count} members")
    if contract.weights is not None and abs(sum(contract.weights) - 1) > 1e-3:
        raise ValueError(f"weights of members sum to {sum(contract.weights):g}, not 1")
    if None in (config.model.context_length, config.model.patch, config.model.decoder_patch):
        raise ValueError("config.json: context_length, patch and decoder_patch must be numbers")
    if config.model.linear == "blend":
        if not config.model.lookbacks:
            raise ValueError("config.json: a linear forecast needs lookbacks")
        if (config.model.linear_phases or 1) > 1 and not shape.cycles:
            raise ValueError(f"linear_phases {config.model.linear_phases}, and no calendar cycle")
    _require_equal("horizon", shape.horizon, config.horizon)
    for member in contract.members:
        if (member.attention_length or 0) > (config.model.context_length or 0):
            raise ValueError(
                f"{member.file} reads {member.attention_length:,} steps, the context has "
                f"{config.model.context_length:,}"
            )
    integer = schema.time_dtype == "integer"
    calendar = Calendar(schema.freq, schema.time_zone, integer, *schema.cycles(config.data))
    for name, count in asdict(counts(schema, calendar, shape.horizon)).items():
        _require_equal(name, getattr(shape, name), count)
    return contract, schema, shape


def counts(schema: Schema, calendar: Calendar, horizon: int) -> Shape:
    """Returns the counts that a network for these columns is built from."""

    def sizes(names: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(len(schema.categories[name]) for name in names)

    return Shape(
        horizon=horizon,
        channels=len(schema.target),
        past=len(schema.past_numeric),
        known=len(schema.known_numeric),
        static=len(schema.static_numeric),
        past_categories=sizes(schema.past_category),
        known_categories=sizes(schema.known_category),
        static_categories=sizes(schema.static_category),
        cycles=len(calendar.cycles),
        regular=schema.regular,
    )


def checked_metrics(stored: dict[str, Any]) -> dict[str, Any]:
    """Returns metrics.json as it is, its curves and scores being numbers.

    Raises:
        ValueError: they are not.
    """
    _Metrics.model_validate(stored)
    return stored


def first_fault(error: Exception) -> str:
    """Returns in one line what is wrong with a file."""
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        text = f"{place}: {fault['msg']}, found {reprlib.repr(fault['input'])}"
    elif isinstance(error, KeyError):
        text = f"{error.args[0]!r} is missing"
    else:
        text = str(error)
    return " ".join(text.split())[:300]


def _require_equal(name: str, found: object, expected: object) -> None:
    if found != expected:
        raise ValueError(f"shape.{name} is {found}, columns and config say {expected}")
