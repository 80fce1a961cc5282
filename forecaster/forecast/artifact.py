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
from typing import TYPE_CHECKING, Any, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from forecaster.config import Config, ModelPlan, parse_config
from forecaster.errors import ArtifactError, ConfigError, DataError
from forecaster.files import atomic_folder, check_replaceable, check_writable
from forecaster.forecast.card import card_of
from forecaster.forecast.contract import (
    CONTRACT,
    Calibration,
    Member,
    checked_metrics,
    counts,
    first_fault,
    read_contract,
    read_json,
)
from forecaster.model.embedding import Shape
from forecaster.model.ensemble import Ensemble
from forecaster.model.network import Network
from forecaster.model.size import count_parameters
from forecaster.panel.panel import Panel
from forecaster.panel.schema import Schema

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 2
"""The format that this version writes and reads."""
_WIDTHS = "calibration.safetensors"
_FLOAT, _MOST_HEADER = 4, 100_000_000


@dataclass(frozen=True, repr=False)
class Artifact:
    """A trained ensemble with its contract."""

    schema: Schema
    """Columns, categories and frequency the model was trained on."""
    config: Config
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
        config = parse_config(read_json(folder, file.name), source=str(file))
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


def _load_member(folder: Path, member: Member, config: Config, shape: Shape) -> Network:
    model = member.model(config)
    size = count_parameters(ModelPlan.of(model), shape)
    weights = _load_tensors(folder, member, size, "a network of this config", "weights")
    try:
        network = Network(ModelPlan.of(model), shape)
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ArtifactError(f"{folder / member.file}: does not fit its contract ({reason})") from error
    return network


def _load_widths(folder: Path, stored: Calibration, config: Config, shape: Shape) -> Tensor:
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
    known = get_args(Calibration.model_fields["method"].annotation)
    if isinstance(stored, dict) and stored.get("method") not in known:
        raise ArtifactError(
            f"{folder}: holds a calibration by the method {reprlib.repr(stored.get('method'))}, which "
            f"this version cannot apply (it knows {', '.join(known)}): upgrade attention-forecaster"
        )


def _load_tensors(
    folder: Path, stored: Member | Calibration, numbers: int, owner: str, what: str
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
