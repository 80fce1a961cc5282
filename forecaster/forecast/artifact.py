"""A saved model: data, never code.

What comes in: a trained ensemble and all that is needed to use it. What goes out: a folder of JSON and
safetensors, and the same ensemble back from it. Promised: loading runs no code; a damaged or foreign
folder is refused with the reason; older formats keep loading.

    contract.json   format, columns with roles, categories, frequency, members, weights, calibration,
                    trained_until, fingerprint of the data, versions
    config.json     the resolved config
    member-00.safetensors …
    calibration.safetensors   where quantiles are calibrated
    metrics.json    validation scores, loss curves
    card.md         the same for people
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import reprlib
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import torch
from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from forecaster.config import ModelPlan, Plan, parse_plan
from forecaster.errors import ArtifactError, ConfigError, DataError
from forecaster.files import atomic_folder, check_replaceable, check_writable
from forecaster.model.embedding import Shape
from forecaster.model.ensemble import Ensemble
from forecaster.model.network import Network
from forecaster.model.size import count_parameters
from forecaster.panel.calendar import Calendar
from forecaster.panel.panel import Panel
from forecaster.panel.schema import Schema

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONTRACT = "contract.json"
_MOST_BYTES = 1 << 28
_OBJECT = TypeAdapter(dict[str, Any])
_SHAPE = TypeAdapter(Shape)
_Number = StrictFloat | StrictInt


class _Stored(BaseModel):
    """Unknown keys are passed over: a later version wrote them."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class StoredMember(_Stored):
    """The weights of one network."""

    file: str = Field(pattern=r"^[\w-][\w.-]*$", max_length=255)
    """A plain name inside the folder."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Of the file."""
    attention_length: int | None = Field(None, ge=1)
    """Its own; None = that of the config."""

    def model(self, config: Plan) -> ModelPlan:
        """Returns what its network is made of."""
        own = {} if self.attention_length is None else {"attention_length": self.attention_length}
        return config.model.model_copy(update=own)


class StoredCalibration(_Stored):
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

    members: tuple[StoredMember, ...] = Field(min_length=1, max_length=1000)
    """At least one."""
    weights: tuple[Annotated[float, Field(ge=0)], ...] | None = None
    """How much each member counts; None = all alike."""
    calibration: StoredCalibration | None = None
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


def read_contract(stored: Mapping[str, Any], config: Plan) -> tuple[Contract, Schema, Shape]:
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
        if config.model.linear_phases > 1 and not shape.cycles:
            raise ValueError(f"linear_phases {config.model.linear_phases}, and no calendar cycle")
    _require_equal("horizon", shape.horizon, config.horizon)
    for member in contract.members:
        if (member.attention_length or 0) > (config.model.context_length or 0):
            raise ValueError(
                f"{member.file} reads {member.attention_length:,} steps, the context has "
                f"{config.model.context_length:,}"
            )
    for name, count in asdict(counts(schema, schema.calendar, shape.horizon)).items():
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


FORMAT = 2
"""The format that this version writes and reads."""
_WIDTHS = "calibration.safetensors"
_FLOAT, _MOST_HEADER = 4, 100_000_000


@dataclass(frozen=True, repr=False)
class Artifact:
    """A trained ensemble with its contract."""

    schema: Schema
    """Columns, categories and frequency the model was trained on."""
    config: Plan
    """The resolved config."""
    shape: Shape
    """Counts the networks were built for."""
    ensemble: Ensemble
    """Inputs → quantiles."""
    trained_until: int
    """Time of the last target that weights, scalers or early stopping have seen."""
    data: str
    """What the table that was trained on was called."""
    fingerprint: str
    """Of that table's panel."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Validation scores and loss curves."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of the packages that trained it, and the git commit if there was one."""
    parent: dict[str, Any] | None = None
    """What is known of the artifact whose weights the training started from; None = there was none."""

    @property
    def horizon(self) -> int:
        """Steps that one forecast reaches."""
        return self.shape.horizon

    @property
    def context_length(self) -> int:
        """The longest lookback of all members."""
        return max(member.config.context_length for member in self.ensemble.members)  # type: ignore[union-attr, type-var, return-value]

    def save(
        self,
        path: str | Path,
        figures: Mapping[str, Figure] | None = None,
        pages: Mapping[str, str] | None = None,
    ) -> None:
        """Writes the folder, whole or not at all; replaces an artifact that is there.

        Args:
            path: the folder.
            figures: pictures to keep beside the card, by file name.
            pages: texts to keep there, by file name.

        Raises:
            OutputError: the folder cannot be written, or holds something else.
        """
        with atomic_folder(Path(path), replaces=CONTRACT) as folder:
            members = []
            for number, member in enumerate(self.ensemble.members):
                name = f"member-{number:02d}.safetensors"
                weights = save_tensors({k: v.contiguous() for k, v in member.state_dict().items()})
                (folder / name).write_bytes(weights)
                entry: dict[str, Any] = {"file": name, "sha256": hashlib.sha256(weights).hexdigest()}
                length = member.config.attention_length  # type: ignore[union-attr]
                if length != self.config.model.attention_length:
                    entry["attention_length"] = length
                members.append(entry)
            widths = self.ensemble.conformal_offsets
            contract = {
                "format": FORMAT,
                "columns": self.schema.to_dict(),
                "shape": asdict(self.shape),
                "members": members,
                "weights": list(self.ensemble.weights),
                "calibration": None if widths is None else _write_widths(folder, widths),
                "trained_until": self.trained_until,
                "data": self.data,
                "fingerprint": self.fingerprint,
                "versions": self.versions,
                "parent": self.parent,
            }
            _write_json(folder / CONTRACT, contract)
            _write_json(folder / "config.json", self.config.model_dump(mode="json"))
            _write_json(folder / "metrics.json", self.metrics)
            (folder / "card.md").write_text(card_of(self), encoding="utf-8")
            for name, figure in (figures or {}).items():
                figure.savefig(folder / name)
            for name, page in (pages or {}).items():
                (folder / name).write_text(page, encoding="utf-8")


def check_target(path: Path) -> None:
    """Raises before a fit what saving to `path` would raise after it.

    Raises:
        OutputError: the folder cannot be written, or holds something else.
    """
    check_writable(path)
    check_replaceable(path, CONTRACT)


def load_artifact(path: str | Path) -> Artifact:
    """Returns the artifact of a folder.

    Raises:
        ArtifactError: there is none, it is damaged, or a newer version wrote it.
    """
    folder = Path(path)
    stored = read_json(folder, CONTRACT)
    found = stored.get("format")
    if found != FORMAT:
        earlier = "; commit 85b3fef is the last that reads format 1" if found == 1 else ""
        raise ArtifactError(
            f"{folder}: artifact format {found!r}, this version reads format {FORMAT}: fit the model "
            f"again (forecaster fit), or take the version that wrote it{earlier}"
        )
    _refuse_other_calibrations(folder, stored.get("calibration"))
    file = folder / "config.json"
    try:
        config = parse_plan(read_json(folder, file.name), source=str(file))
        file = folder / CONTRACT
        contract, schema, shape = read_contract(stored, config)
        file = folder / "metrics.json"
        metrics = checked_metrics(read_json(folder, file.name))
    except ConfigError as error:
        raise ArtifactError(str(error)) from error
    except (KeyError, TypeError, ValueError, DataError) as error:
        raise ArtifactError(f"{file}: damaged ({first_fault(error)}); save it again") from error
    members = [_load_member(folder, entry, config, shape) for entry in contract.members]
    widths = None
    if contract.calibration is not None:
        widths = _load_widths(folder, contract.calibration, config, shape)
    return Artifact(
        schema=schema,
        config=config,
        shape=shape,
        # As in the fit that wrote it: torch picks some products by whether weights learn.
        ensemble=Ensemble(
            members, contract.weights or [1 / len(members)] * len(members), widths, config.target
        )
        .eval()
        .requires_grad_(False),
        trained_until=contract.trained_until,
        data=contract.data,
        fingerprint=contract.fingerprint,
        metrics=metrics,
        versions=contract.versions,
        parent=stored.get("parent"),
    )


def shape_of(panel: Panel, horizon: int) -> Shape:
    """Returns the counts that a network for this panel is built from."""
    return replace(counts(panel.schema, panel.calendar, horizon), regular=panel.regular)


def _load_member(folder: Path, member: StoredMember, config: Plan, shape: Shape) -> Network:
    model = member.model(config)
    size = count_parameters(model, shape)
    weights = _load_tensors(folder, member, size, "a network of this config", "weights")
    try:
        network = Network(model, shape)
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ArtifactError(f"{folder / member.file}: does not fit its contract ({reason})") from error
    return network


def _load_widths(folder: Path, stored: StoredCalibration, config: Plan, shape: Shape) -> Tensor:
    expected = (shape.horizon, shape.channels, len(config.model.quantile_levels))
    loaded = _load_tensors(
        folder, stored, math.prod(expected), "a calibration of this config", "widths"
    )
    widths = loaded.get("widths")
    if widths is None or tuple(widths.shape) != expected or widths.dtype != torch.float32:
        raise ArtifactError(
            f"{folder / stored.file}: does not fit its contract (expected float32 widths of "
            f"{expected[0]} leads, {expected[1]} channels and {expected[2]} levels)"
        )
    if not bool(widths.isfinite().all()):
        raise ArtifactError(f"{folder / stored.file}: damaged (widths that are not finite)")
    return widths


def _write_widths(folder: Path, widths: Tensor) -> dict[str, str]:
    content = save_tensors({"widths": widths.contiguous()})
    (folder / _WIDTHS).write_bytes(content)
    return {"method": "additive", "file": _WIDTHS, "sha256": hashlib.sha256(content).hexdigest()}


def _refuse_other_calibrations(folder: Path, stored: Any) -> None:
    """Refuses what a later version has thought of, before it is called damaged."""
    known = get_args(StoredCalibration.model_fields["method"].annotation)
    if isinstance(stored, dict) and stored.get("method") not in known:
        raise ArtifactError(
            f"{folder}: holds a calibration by the method {reprlib.repr(stored.get('method'))}, which "
            f"this version cannot apply (it knows {', '.join(known)}): upgrade attention-forecaster"
        )


def _load_tensors(
    folder: Path, stored: StoredMember | StoredCalibration, numbers: int, owner: str, what: str
) -> dict[str, Tensor]:
    """Returns the tensors of a file whose size and checksum are what the contract says."""
    file, expected = folder / stored.file, _FLOAT * numbers
    try:
        size = os.stat(file)
        if not stat.S_ISREG(size.st_mode):
            raise ArtifactError(f"{file}: expected a file, found something else")
        # Asked before memory is taken, for the file or for the network: both come from strangers.
        if not expected <= size.st_size <= expected + _MOST_HEADER:
            raise ArtifactError(
                f"{file}: does not fit its contract ({size.st_size:,} bytes; {owner} "
                f"has {expected:,} bytes of {what})"
            )
        content = file.read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if found != stored.sha256:
            raise ArtifactError(
                f"{file}: damaged: expected sha256 {stored.sha256[:12]}…, found {found[:12]}…; "
                "copy the artifact again, or fit it again"
            )
        return load_tensors(content)
    except OSError as error:
        raise ArtifactError(f"{file}: cannot be read ({error.strerror})") from error
    except SafetensorError as error:
        reason = str(error).splitlines()[0]
        raise ArtifactError(f"{file}: does not fit its contract ({reason})") from error


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def card_of(artifact: Artifact) -> str:
    """Returns the text of card.md."""
    schema, config = artifact.schema, artifact.config
    scores = artifact.metrics.get("validation", {}).get("scores", {})
    lines = [
        "# Forecast model",
        "",
        f"Forecasts {', '.join(schema.target)} for {artifact.horizon} steps of {schema.freq} from the "
        f"last {artifact.context_length} steps.",
        "",
        f"- series: {', '.join(schema.series) or 'one'} · layout {schema.layout}",
        f"- known in advance: {', '.join(schema.known) or 'nothing'}",
        f"- past covariates: {', '.join(schema.past) or 'none'}",
        f"- static covariates: {', '.join(schema.static) or 'none'}",
        f"- decoder: {config.model.decoder}, mask {config.model.decoder_mask}"
        + (" (a forecast sees the covariates of later leads)" * (config.model.decoder_mask == "full"))
        + _patches_written(config),
        f"- head: {config.model.head}",
        f"- members: {len(artifact.ensemble.members)}",
        *([f"- {line}"] if (line := network_line(artifact)) else []),
        f"- data: {artifact.data}, fingerprint {artifact.fingerprint}",
        *_descent(artifact.parent),
        "",
        "## Validation",
        "",
    ]
    if line := calibration_line(artifact):
        lines += [line, ""]
    if scores:
        lines += [f"| | {' | '.join(scores)} |", "|---" * (1 + len(scores)) + "|"]
        for name in next(iter(scores.values())):
            lines.append(
                f"| {name} | {' | '.join(f'{s.get(name, math.nan):.4g}' for s in scores.values())} |"
            )
    else:
        lines.append("No rows were set aside for validation: no scores.")
    return "\n".join(lines) + "\n"


def calibration_line(artifact: Artifact) -> str:
    """Returns what calibration does to windows it was not learned from; empty where there is none."""
    found = artifact.metrics.get("calibration")
    if found is None:
        return ""
    levels = artifact.config.model.quantile_levels
    before, after = found["before"], found["after"]
    band = f"{100 * (levels[-1] - levels[0]):.0f} % band"
    held = f"the {band} held {100 * before['coverage']:.1f} % of the truth"
    learned = f"calibration ({found['cutoffs']:,} cutoffs, cross-fitted): {held} before"
    if not found["strength"]:
        return f"{learned}; no width helps, the quantiles stay"
    changes = " · ".join(
        f"{name} × {after[name] / before[name]:.3f}" if before[name] else f"{name} was 0"
        for name in ("width", "pinball")
    )
    return f"{learned}, {100 * after['coverage']:.1f} % after · {changes}"


def network_line(artifact: Artifact) -> str:
    """Returns what attention adds to the linear forecast; empty where there is none, or no measure."""
    found = artifact.metrics.get("attention_share")
    if found is None:
        return ""
    share, way = artifact.metrics.get("share"), artifact.config.model.linear
    if not share:
        return "attention: 0 % of the forecast; on the validation windows the linear forecast was best"
    kept = "" if share == 1 else f" (validation kept {100 * share:.0f} % of it)"
    return (
        f"attention: {100 * found:.0f} % of what moves forecasts of the validation windows away from "
        f"the mean of their context, the linear forecast the rest; linear {way}{kept}"
    )


def _descent(parent: dict[str, Any] | None) -> list[str]:
    """Returns a line per artifact that the weights come from, the nearest first."""
    if parent is None:
        return []
    line = (
        f"- started from weights fitted to {parent['data']} ({parent['freq']}) until "
        f"{parent['until']}, fingerprint {parent['fingerprint']}"
    )
    return [line, *_descent(parent["parent"])]


def _patches_written(config: Plan) -> str:
    size = config.model.decoder_patch or 1
    if config.model.decoder == "direct" or size == 1:
        return ""
    return f" (given what came before, the {size} steps of a patch are drawn independently)"
