"""The weights of attention over experts that come with the package; nothing is downloaded.

forecaster/weights/expert_attention-2.md says from which data, with which seeds and by which command they
were made.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from forecaster.errors import ArtifactError
from forecaster.model.expert_attention import ExpertAttention

FILE = Path(__file__).resolve().parents[1] / "weights" / "expert_attention-2.safetensors"
VERSION = "2"
"""Of features and network; weights of another one do not fit."""
_METHOD = "method.weight"
_TUNED = "tuned."  # of a table, not of the file


def load_shipped(attention: ExpertAttention, file: Path = FILE) -> None:
    """Puts the weights of a file into a network; an expert that it does not know has the mean token of all.

    Raises:
        ArtifactError: the file is missing, damaged, or of another version.
    """
    weights, names = _read(file)
    tokens = dict(zip(names, weights[_METHOD], strict=True))
    mean = weights[_METHOD].mean(dim=0)
    own = [tokens.get(name, mean) for name in attention.names]
    weights = weights | {_METHOD: torch.stack(own)}
    expected = {
        name: tuple(value.shape)
        for name, value in attention.state_dict().items()
        if not name.startswith(_TUNED)
    }
    found = {name: tuple(value.shape) for name, value in weights.items()}
    if found != expected:
        wrong = sorted({*expected.items()} ^ {*found.items()})[0][0]
        raise _damaged(file, f"tensor {wrong} of another name or shape")
    attention.load_state_dict(weights, strict=False)
    attention.reset_tuned()


def save(attention: ExpertAttention, file: Path) -> None:
    """Writes the weights of a network."""
    weights = {name: value.contiguous() for name, value in attention.state_dict().items()}
    about = {"version": VERSION, "experts": ",".join(attention.names), "sha256": _digest(weights)}
    save_file(weights, file, about)


@cache
def _read(file: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The weights, and the experts of which they hold a token."""
    try:
        with safe_open(file, "pt") as content:
            about = content.metadata() or {}
            weights = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise _damaged(file, "no such file") from None
    except (OSError, SafetensorError) as error:
        raise _damaged(file, str(error)) from None
    if about.get("version") != VERSION:
        raise _damaged(file, f"version {about.get('version')}")
    if about.get("sha256") != _digest(weights):
        raise _damaged(file, "other numbers than were written")
    names = about.get("experts", "").split(",")
    if _METHOD not in weights or len(weights[_METHOD]) != len(names):
        raise _damaged(file, f"tokens of other experts than {len(names)}")
    return weights, names


def _digest(weights: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].numpy().tobytes())
    return digest.hexdigest()


def _damaged(file: Path, found: str) -> ArtifactError:
    return ArtifactError(
        f"{file}: expected weights of attention over experts, version {VERSION}, found {found}: "
        f"install forecaster again"
    )
