"""A saved model: JSON and safetensors, never code.

    contract.json             format, columns, counts, members, weights, calibration, trained_until, request
    plan.json                 the resolved settings
    member-00.safetensors …   weights, each with its sha256 in the contract
    errors.safetensors        errors at earlier cutoffs, which order sample paths; digests of recent rows
    series.safetensors        hashes of the series of the fit, of a classifier
    effects.safetensors       coefficients of covariates known in advance
    metrics.json, card.md     validation scores and loss curves; the same for people

A folder may come from anybody: each file is checked before memory is taken for it.
"""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
import stat
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    TypeAdapter,
    ValidationError,
)
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from forecaster.config import Plan, parse_config, parse_plan
from forecaster.errors import ArtifactError, ConfigError, DataError
from forecaster.files import atomic_folder
from forecaster.forecast.artifact import Artifact, declared_shape
from forecaster.forecast.card import model_card
from forecaster.forecast.model_folder import CONTRACT, FILES, METRICS, PLAN, check_saved
from forecaster.forecast.paths import GRID, UNKNOWN, ErrorLevels
from forecaster.model.class_network import ClassEnsemble, ClassNetwork
from forecaster.model.embedding import Shape
from forecaster.model.ensemble import Ensemble
from forecaster.model.experts import check_experts
from forecaster.model.network import Network
from forecaster.model.size import check_work, count_parameters
from forecaster.panel.arrays import Array
from forecaster.panel.schema import Schema
from forecaster.windows.effect_columns import CALENDAR_PARTS, Term
from forecaster.windows.effects import Effects

FORMAT = 1
"""The format this version writes and reads."""
_ERRORS, _COUNTS = "errors.safetensors", "counts"
_SERIES, _HASHES = "series.safetensors", "hashes"
_RECENT = "recent"
_EFFECTS = "effects.safetensors"
_MOST_TERM = 1000  # columns of a term
_LONGEST_PERIOD = 1e9  # steps
_LARGEST_JSON = 1 << 28  # bytes
_FLOAT, _LARGEST_HEADER = 4, 100_000_000  # bytes
_OBJECT = TypeAdapter(dict[str, Any])
_SHAPE = TypeAdapter(Shape)
_Number = StrictFloat | StrictInt
_Arrays = Mapping[str, tuple[tuple[int, ...], torch.dtype]]
"""Shapes and dtypes by name."""


def save_artifact(artifact: Artifact[Any], path: str | Path) -> None:
    """Writes the folder, whole or not at all; replaces an artifact that is there.

    Raises:
        OutputError: the folder cannot be written, or holds something else.
    """
    with atomic_folder(Path(path), replaces=CONTRACT, holds=FILES) as folder:
        members: Iterable[nn.Module] = [artifact.ensemble]
        weights: tuple[float, ...] = (1.0,)
        factors = tail_factor = None
        if isinstance(artifact.ensemble, Ensemble):
            members, weights = artifact.ensemble.members, artifact.ensemble.weights
            factors, tail_factor = artifact.ensemble.conformal_factors, artifact.ensemble.tail_factor
        series = None
        if (hashes := artifact.series_hashes) is not None:
            file = _write_tensors(folder, _SERIES, {_HASHES: torch.from_numpy(hashes)})
            series = file | {"count": len(hashes)}
        errors = None
        if artifact.errors is not None:
            kept = artifact.errors.measured
            arrays = {_COUNTS: kept.counts, _HASHES: kept.hashes, _RECENT: kept.recent}
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            errors = _write_tensors(folder, _ERRORS, tensors) | {"spacing": kept.spacing}
            errors |= {"cutoffs": len(kept.counts), "count": len(kept.hashes)}
        files = [
            _write_tensors(folder, f"member-{number:02d}.safetensors", member.state_dict())
            for number, member in enumerate(members)
        ]
        contract = {
            "format": FORMAT,
            "columns": artifact.schema.to_dict(),
            "shape": asdict(artifact.shape),
            "members": files,
            "weights": list(weights),
            "conformal_factors": None if factors is None else factors.tolist(),
            "tail_factor": tail_factor,
            "errors": errors,
            "series": series,
            "effects": None if artifact.effects is None else _write_effects(folder, artifact.effects),
            "trained_until": artifact.trained_until,
            "data": artifact.data,
            "fingerprint": artifact.fingerprint,
            "versions": artifact.versions,
            "parent": artifact.parent,
            "request": artifact.request
            and artifact.request.model_dump(mode="json", exclude={"tracking"}),
        }
        parts = {
            CONTRACT: contract,
            PLAN: artifact.plan.model_dump(mode="json"),
            METRICS: artifact.metrics,
        }
        for name, content in parts.items():
            text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "card.md").write_text(model_card(artifact), encoding="utf-8")


def load_artifact(path: str | Path) -> Artifact[Ensemble] | Artifact[ClassEnsemble]:
    """Returns the artifact of a folder, of a model that forecasts or of a classifier.

    Raises:
        ArtifactError: there is none, it is damaged, or its format is another.
    """
    folder = Path(path)
    stored = _read_json(folder, CONTRACT)
    found = stored.get("format")
    if type(found) is not int or found != FORMAT:
        raise ArtifactError(
            f"{folder}: artifact format {reprlib.repr(found)}, expected format {FORMAT}: upgrade "
            f"attention-forecaster, or fit the model again: forecaster fit TABLE --out {folder}"
        )
    file = folder / PLAN
    try:
        plan = parse_plan(_read_json(folder, PLAN), str(file))
        file = folder / CONTRACT
        contract, schema, shape = _parse_contract(stored, plan)
        check_work(plan.model, plan.horizon, len(contract.members), source=str(folder / PLAN))
        file = folder / METRICS
        metrics = _read_json(folder, METRICS)
        _Metrics.model_validate(metrics)
        request = stored.get("request")
        if request is not None:
            known = {name: value for name, value in dict(request).items() if name != "tracking"}
            request = parse_config(known, str(folder / CONTRACT))
    except ConfigError as error:
        raise ArtifactError(str(error)) from error
    except (KeyError, TypeError, ValueError, DataError) as error:
        raise ArtifactError(f"{file}: damaged ({_first_fault(error)}); save it again") from error
    modules: list[Any] = [_load_member(folder, entry, plan, shape) for entry in contract.members]
    # Neither training nor gradients, as in the fit: torch picks some products by whether weights learn.
    for module in modules:
        module.eval().requires_grad_(False)
    ensemble = modules[0]
    if not shape.classes:
        factors = None
        if contract.conformal_factors is not None:
            factors = torch.tensor(contract.conformal_factors)
        ensemble = Ensemble(
            modules, contract.weights, factors, plan.target, tail_factor=contract.tail_factor
        ).eval()
        ensemble.requires_grad_(False)
    hashes = None
    if contract.series is not None:
        expected = {_HASHES: ((contract.series.count, 4), torch.int64)}
        hashes = _load_arrays(folder, contract.series, expected)[_HASHES]
    return Artifact(
        schema=schema,
        plan=plan,
        shape=shape,
        ensemble=ensemble,
        trained_until=contract.trained_until,
        data=contract.data,
        fingerprint=contract.fingerprint,
        series_hashes=hashes,
        errors=None if contract.errors is None else _load_errors(folder, contract.errors, shape),
        effects=None if contract.effects is None else _load_effects(folder, contract.effects, schema),
        metrics=metrics,
        versions=contract.versions,
        parent=stored.get("parent"),
        request=request,
    )


class _Stored(BaseModel):
    """Unknown keys are ignored: a later version wrote them."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class _TensorFile(_Stored):
    file: str = Field(pattern=r"^[\w-][\w.-]*$", max_length=255)  # a plain name inside the folder
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class _SeriesFile(_TensorFile):
    count: int = Field(ge=0, le=1 << 32)


class _ErrorsFile(_SeriesFile):
    cutoffs: int = Field(ge=0, le=1 << 16)
    spacing: int = Field(ge=1, le=1 << 32)


class _EffectsFile(_SeriesFile):
    terms: tuple[Term, ...]
    codes: Annotated[int, Field(ge=1, le=_MOST_TERM)]
    """Of a static with coefficients at most, that of an unknown one too."""


class _Parent(_Stored):
    data: str
    fingerprint: str
    freq: str
    until: str
    updated: str = ""
    """Date on which the parent was updated; empty = training started from it."""
    parent: _Parent | None = None


class _Contract(_Stored):
    """contract.json without columns and shape, which have types of their own."""

    members: tuple[_TensorFile, ...] = Field(min_length=1, max_length=1000)
    weights: tuple[Annotated[float, Field(ge=0)], ...]
    conformal_factors: tuple[Annotated[float, Field(gt=0)], ...] | None = None
    tail_factor: float | None = Field(None, gt=0, le=100)
    errors: _ErrorsFile | None = None
    series: _SeriesFile | None = None
    effects: _EffectsFile | None = None
    trained_until: int = Field(ge=-(1 << 62), le=1 << 62)
    data: str
    fingerprint: str
    versions: dict[str, str]
    parent: _Parent | None = None


class _Validation(BaseModel):
    scores: dict[str, dict[str, _Number]] = {}


class _Calibrated(BaseModel):
    cutoffs: StrictInt
    applied: StrictBool
    before: dict[Literal["coverage", "inside", "width", "pinball"], _Number] = Field(min_length=3)
    after: dict[Literal["coverage", "inside", "width", "pinball"], _Number] = Field(min_length=3)


class _Metrics(BaseModel):
    """The keys of metrics.json that the card and the report read."""

    network_weight: _Number | None = None
    attention_steps: StrictInt = 0
    expert_weights: dict[str, _Number] = {}
    calibration: _Calibrated | None = None
    curves: dict[str, list[list[_Number]]] = {}
    validation: _Validation = _Validation()


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    check_saved(folder, name)
    try:
        return _OBJECT.validate_json(_read_file(path, 0, _LARGEST_JSON, "expected a few kilobytes"))
    except ValidationError as error:
        fault = error.errors()[0]
        if fault["type"] == "json_invalid":
            raise ArtifactError(f"{path}: damaged, not JSON ({fault['ctx']['error']})") from None
        found = type(fault["input"]).__name__
        raise ArtifactError(f"{path}: damaged, expected an object, found {found}") from None


def _read_file(path: Path, least: int, most: int, expected: str) -> bytes:
    """Returns the bytes of a file, once its size is known to be within bounds."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ArtifactError(f"{path}: expected a file, found something else")
        if not least <= found.st_size <= most:
            raise ArtifactError(
                f"{path}: does not fit its contract ({found.st_size:,} bytes; {expected})"
            )
        return path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read ({error.strerror})") from error


def _parse_contract(stored: Mapping[str, Any], plan: Plan) -> tuple[_Contract, Schema, Shape]:
    """Returns the parts of contract.json once they agree with each other and with the plan."""
    contract = _Contract.model_validate(dict(stored))
    schema = Schema.from_dict(stored["columns"])
    shape = _SHAPE.validate_python(stored["shape"])
    if len(contract.weights) != len(contract.members):
        raise ValueError(f"{len(contract.weights)} weights for {len(contract.members)} members")
    if abs(sum(contract.weights) - 1) > 1e-3:
        raise ValueError(f"weights of members sum to {sum(contract.weights):g}, not 1")
    factors, levels = contract.conformal_factors, plan.model.quantile_levels
    if factors is not None and len(factors) != len(levels):
        raise ValueError(f"{len(factors)} conformal factors for {len(levels)} levels")
    needed = "series" if shape.classes else "errors"
    # An autoregressive decoder draws paths itself.
    if getattr(contract, needed) is None and plan.model.decoder == "direct":
        raise ValueError(f"'{needed}' is missing")
    check_experts(plan.model)
    linear = plan.model.pool.linear
    if linear is not None and linear.phases > 1 and not shape.cycles:
        raise ValueError(f"{PLAN}: phases {linear.phases}, and no calendar cycle")
    for name, count in asdict(declared_shape(schema, schema.calendar, plan.horizon)).items():
        if getattr(shape, name) != count:
            raise ValueError(f"shape.{name} is {getattr(shape, name)}, columns and plan give {count}")
    return contract, schema, shape


def _first_fault(error: Exception) -> str:
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        text = f"{place}: {fault['msg']}, found {reprlib.repr(fault['input'])}"
    elif isinstance(error, KeyError):
        text = f"{error.args[0]!r} is missing"
    else:
        text = str(error)
    return " ".join(text.split())[:300]


def _load_member(
    folder: Path, stored: _TensorFile, plan: Plan, shape: Shape
) -> Network | ClassEnsemble:
    size = _FLOAT * count_parameters(plan.model, shape, plan.fit.ensemble_size)
    weights = _read_tensors(folder, stored, size, "a network of this plan")
    network: Network | ClassEnsemble
    try:
        if shape.classes:
            folds = range(plan.fit.ensemble_size)
            network = ClassEnsemble([ClassNetwork(plan.model, shape) for _ in folds])
        else:
            network = Network(plan.model, shape)
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ArtifactError(f"{folder / stored.file}: does not fit its contract ({reason})") from error
    return network


def _load_errors(folder: Path, stored: _ErrorsFile, shape: Shape) -> ErrorLevels:
    expected: _Arrays = {
        _COUNTS: ((stored.cutoffs, stored.count, shape.horizon), torch.uint8),
        _HASHES: ((stored.count,), torch.int64),
        _RECENT: ((stored.count,), torch.int64),
    }
    arrays = _load_arrays(folder, stored, expected)
    counts = arrays[_COUNTS]
    if ((counts > len(GRID)) & (counts != UNKNOWN)).any():
        raise ArtifactError(f"{folder / stored.file}: damaged (expected counts of at most {len(GRID)})")
    return ErrorLevels(counts, arrays[_HASHES], stored.spacing, arrays[_RECENT])


def _write_effects(folder: Path, effects: Effects) -> dict[str, Any]:
    names = [field.name for field in fields(effects) if field.name != "terms"]
    tensors = {name: torch.from_numpy(np.asarray(getattr(effects, name))) for name in names}
    terms = [asdict(term) for term in effects.terms]
    sizes = {"count": len(effects.hashes), "codes": effects.of_static.shape[2]}
    return _write_tensors(folder, _EFFECTS, tensors) | {"terms": terms} | sizes


def _load_effects(folder: Path, stored: _EffectsFile, schema: Schema) -> Effects:
    series, channels = stored.count, len(schema.target)
    for term in stored.terms:
        names = schema.code_columns if term.words else schema.columns
        sizes = (term.words, len(term.knots), len(term.names))
        small = all(0 <= size <= _MOST_TERM for size in sizes)
        of_column = 0 <= term.place < len(names) and small and term.spread > 0
        of_calendar = term.name in CALENDAR_PARTS or 2 <= term.period < _LONGEST_PERIOD
        if not (of_calendar if term.kind == "calendar" else of_column):
            raise ArtifactError(
                f"{folder / CONTRACT}: damaged (effects.terms: {reprlib.repr(term.name)} is no term of the "
                "columns); save it again"
            )
    every = sum(term.size(schema.calendar) for term in stored.terms)
    declared = sum(term.kind != "calendar" for term in stored.terms)
    expected: _Arrays = {
        "hashes": ((series,), torch.int64),
        "own": ((series, channels, every), torch.float64),
        "shared": ((channels, every), torch.float64),
        "of_static": (
            (channels, len(schema.static_category), stored.codes, every),
            torch.float64,
        ),
        "deviation": ((series, channels, every), torch.float64),
        "determined": ((series, channels, 2), torch.float64),
        "variation": ((channels, declared), torch.float64),
        "multiplies": ((channels,), torch.bool),
        "noise": ((series, channels), torch.float64),
        "center": ((series, channels, 2), torch.float64),
        "calendar_ratio": ((channels,), torch.float64),
    }
    arrays = _load_arrays(folder, stored, expected)
    # These are NaN where a series had no rows.
    empty = ("noise", "center", "deviation")
    if not all(np.isfinite(part).all() for name, part in arrays.items() if name not in empty):
        raise ArtifactError(f"{folder / stored.file}: damaged (expected finite coefficients)")
    return Effects(stored.terms, **arrays)


def _load_arrays(folder: Path, stored: _TensorFile, expected: _Arrays) -> dict[str, Array]:
    """Returns the arrays of a file, which have the names, shapes and dtypes that the contract gives them."""
    size = sum(math.prod(shape) * dtype.itemsize for shape, dtype in expected.values())
    tensors = _read_tensors(folder, stored, size, "a fit to this table")
    found = {name: (tuple(part.shape), part.dtype) for name, part in tensors.items()}
    if found != expected:
        words = (f"{name} {dtype} {list(shape)}" for name, (shape, dtype) in expected.items())
        raise ArtifactError(
            f"{folder / stored.file}: does not fit its contract (expected {', '.join(words)})"
        )
    return {name: part.numpy() for name, part in tensors.items()}


def _write_tensors(folder: Path, name: str, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    content = save_tensors({key: tensor.contiguous() for key, tensor in tensors.items()})
    (folder / name).write_bytes(content)
    return {"file": name, "sha256": hashlib.sha256(content).hexdigest()}


def _read_tensors(folder: Path, stored: _TensorFile, size: int, owner: str) -> dict[str, Tensor]:
    """Returns the tensors of a file whose size and checksum are those of the contract."""
    file = folder / stored.file
    # Before memory is taken, for the file or for the network: plan and weights may be anybody's.
    content = _read_file(file, size, size + _LARGEST_HEADER, f"{owner} has {size:,} bytes")
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != stored.sha256:
        raise ArtifactError(
            f"{file}: damaged: expected sha256 {stored.sha256[:12]}…, found {sha256[:12]}…; "
            "copy the artifact again, or fit it again"
        )
    try:
        return load_tensors(content)
    except SafetensorError as error:
        reason = str(error).splitlines()[0]
        raise ArtifactError(f"{file}: does not fit its contract ({reason})") from error
