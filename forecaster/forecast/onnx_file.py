"""A saved model as an ONNX file, for programs in other languages.

What comes in: an artifact. What goes out: one file that maps what a window holds to quantiles in data
units — scaling and all members inside, any batch size. Promised: onnxruntime and torch agree within
1e-4 of the scale, checked on the spot where onnxruntime is installed; what ONNX cannot express is
refused, nothing is approximated.

    inputs     the fields of `Inputs` that this model reads: what it has none of is left out, and NaN
               says what is not observed
    outputs    quantiles [batch, lead, channel, level]; mean [batch, lead, channel] where there is one
    metadata   format, columns, channels, freq, horizon, context_length, cycles, quantile_levels, …
"""

from __future__ import annotations

import copy
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from forecaster.errors import ConfigError, OutputError
from forecaster.files import atomic_file, check_writable
from forecaster.forecast.artifact import Artifact
from forecaster.model.embedding import Shape
from forecaster.model.ensemble import Ensemble
from forecaster.model.network import Network
from forecaster.panel.calendar import Calendar
from forecaster.windows.batch import Inputs

FORMAT = 1
"""Of the metadata."""
_MASKS = {"observed": "context", "past_observed": "past", "known_observed": "known"}
_TOLERANCE = 1e-4  # of the window's scale


class OnnxGraph(nn.Module):
    """An ensemble with the inputs that it reads, one by one."""

    def __init__(self, artifact: Artifact):
        super().__init__()
        first = artifact.ensemble.members[0]
        assert isinstance(first, Network)
        self.ensemble, self.scaler = with_fixed_shares(artifact.ensemble), first.scaler
        self.sizes = field_sizes(artifact.shape, artifact.context_length)
        self.names = [name for name, size in self.sizes.items() if 0 not in size]

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Returns quantiles, and the mean where there is one, in data units.

        Args:
            given: tensors in the order of `names`.
        """
        read = dict(zip(self.names, given, strict=True))
        batch = read["context"].shape[0]
        for name, size in self.sizes.items():
            if name not in read:
                dtype = torch.int64 if _is_code(name) else torch.float32
                read[name] = torch.zeros(batch, *size, dtype=dtype)
        masks = {mask: ~read[values].isnan() for mask, values in _MASKS.items()}
        said = self.ensemble.predict(Inputs(**read, **masks))
        return (said.quantiles,) if said.mean is None else (said.quantiles, said.mean)


def with_fixed_shares(ensemble: Ensemble) -> Ensemble:
    """Returns a copy whose shares of attention are numbers: a graph cannot branch on a tensor."""
    fixed = copy.deepcopy(ensemble)
    for member in fixed.members:
        if member.linear is not None:
            share = float(member.network_weight)  # type: ignore[arg-type]
            del member.network_weight
            member.network_weight = share  # type: ignore[assignment]
    return fixed


def field_sizes(shape: Shape, context_length: int) -> dict[str, tuple[int, ...]]:
    """Returns the fields of `Inputs` but the masks, with their axes after the batch."""
    whole = context_length + shape.horizon
    return {
        "context": (context_length, shape.channels),
        "past": (context_length, shape.past),
        "known": (whole, shape.known),
        "static": (shape.static,),
        "static_category": (len(shape.static_categories),),
        "past_category": (context_length, len(shape.past_categories)),
        "known_category": (whole, len(shape.known_categories)),
        "phase": (whole, shape.cycles),
        "elapsed": (whole,),
        "channel": (shape.channels,),
    }


def check_onnx(path: Path) -> None:
    """Raises before any work what writing to `path` would raise after it.

    Raises:
        OutputError: the suffix is another, or the file cannot be written.
        ConfigError: the extra `onnx` is not installed.
    """
    if path.suffix != ".onnx":
        raise OutputError(f"{path}: expected a file that ends in .onnx")
    check_writable(path)
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"--onnx needs {' and '.join(missing)}: pip install 'attention-forecaster[onnx]'"
        )


def write_onnx(artifact: Artifact, path: Path) -> str:
    """Writes the file, whole or not at all; returns what is in it, in words.

    Args:
        artifact: a model whose decoder is direct.
        path: ends in .onnx; one that is there is replaced.

    Raises:
        ConfigError: this kind of model has no such form, or the extra `onnx` is not installed.
        OutputError: the file cannot be written.
    """
    check_onnx(path)
    _refuse(artifact)
    graph = OnnxGraph(artifact).eval()
    given = _windows(graph, artifact.shape, 3)
    with atomic_file(path) as partial:
        with _quiet():
            program = torch.onnx.export(
                graph,
                tuple(given),
                input_names=graph.names,
                output_names=["quantiles", "mean"][: len(graph(*given))],
                dynamic_shapes=(({0: torch.export.Dim("batch", min=1)},) * len(given),),
                dynamo=True,
                optimize=True,
                verbose=False,
            )
        assert program is not None
        model = program.model_proto
        for key, value in metadata(artifact).items():
            entry = model.metadata_props.add()
            entry.key, entry.value = key, value
        partial.write_bytes(model.SerializeToString())
        compared = _compared(graph, artifact.shape, partial)
    return f"{', '.join(graph.names)} → quantiles; {compared}"


def metadata(artifact: Artifact) -> dict[str, str]:
    """Returns what a program needs to fill the inputs and read the outputs, as JSON by key."""
    schema, shape = artifact.schema, artifact.shape
    integer = schema.time is None or schema.time_dtype == "integer"
    calendar = Calendar(schema.freq, schema.time_zone, integer, schema.season_length, schema.periods)
    told: dict[str, Any] = {
        "format": FORMAT,
        "channels": schema.target,
        "past": schema.past_numeric,
        "known": schema.known_numeric,
        "static": schema.static_numeric,
        "past_category": schema.past_category,
        "known_category": schema.known_category,
        "static_category": schema.static_category,
        "categories": {name: schema.categories[name] for name in schema.categorical},
        "cycles": calendar.cycles,
        "freq": schema.freq,
        "time_zone": schema.time_zone,
        "context_length": artifact.context_length,
        "horizon": shape.horizon,
        "quantile_levels": artifact.config.model.quantile_levels,
        "trained_until": calendar.text(artifact.trained_until),
        "fingerprint": artifact.fingerprint,
    }
    return {f"forecaster.{key}": json.dumps(value, ensure_ascii=False) for key, value in told.items()}


def _refuse(artifact: Artifact) -> None:
    """Refuses what a graph without loops cannot say."""
    model = artifact.config.model
    reasons = {
        "decoder autoregressive draws sample paths, patch after patch": model.decoder
        == "autoregressive",
        "attention sparse selects queries by their values": model.attention == "sparse",
        "channel_attention leaves out the channels that hold nothing": model.channel_attention,
    }
    for reason, found in reasons.items():
        if found:
            raise ConfigError(
                f"--onnx: model.{reason}, which an ONNX graph cannot express; serve this model with "
                "--mlflow NAME"
            )


def _is_code(name: str) -> bool:
    return name == "channel" or name.endswith("_category")


def _windows(graph: OnnxGraph, shape: Shape, count: int) -> list[Tensor]:
    """Returns made-up inputs with missing cells, around what the model knows of its channels."""
    chance = torch.Generator().manual_seed(count)
    words = {
        "static_category": shape.static_categories,
        "past_category": shape.past_categories,
        "known_category": shape.known_categories,
    }
    whole = graph.sizes["elapsed"][0]
    made = []
    for name in graph.names:
        size = (count, *graph.sizes[name])
        if name == "channel":
            cells = torch.arange(1, shape.channels + 1).expand(size)
        elif name in words:
            codes = [torch.randint(0, n + 1, size[:-1], generator=chance) for n in words[name]]
            cells = torch.stack(codes, dim=-1)
        elif name == "elapsed":
            cells = (torch.arange(whole) + 1.0 - (whole - shape.horizon)).expand(size)
            if not shape.regular:
                cells = cells + 0.4 * torch.rand(size, generator=chance) * (cells != 0)
        elif name == "phase":
            cells = torch.rand(size, generator=chance)
        else:
            cells = torch.randn(size, generator=chance)
            if name == "context":
                cells = cells * graph.scaler.scale[1:] + graph.scaler.loc[1:]
            cells = cells.masked_fill(torch.rand(size, generator=chance) < 0.1, torch.nan)
        made.append(cells.contiguous())
    return made


def _compared(graph: OnnxGraph, shape: Shape, file: Path) -> str:
    """Returns how far onnxruntime is from torch on made-up windows, in words.

    Raises:
        ConfigError: further than is promised.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return "not compared with torch: onnxruntime is not installed"
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    worst = 0.0
    for count in (1, 5):  # any batch size but that of the export
        given = dict(zip(graph.names, _windows(graph, shape, count), strict=True))
        found = session.run(None, {name: cells.numpy() for name, cells in given.items()})
        context = given["context"]
        spread = graph.scaler(context, ~context.isnan(), given["channel"]).scale
        with torch.inference_mode():
            wanted = graph(*given.values())
        for mine, theirs in zip(wanted, found, strict=True):
            apart = (mine - torch.from_numpy(theirs)).abs().reshape(*mine.shape[:3], -1)
            worst = max(worst, float((apart.amax(dim=(1, 3)) / spread).max()))
    if not worst <= _TOLERANCE:
        raise ConfigError(
            f"--onnx: onnxruntime is {worst:.1e} of the scale away from torch, expected at most "
            f"{_TOLERANCE:.0e}; serve this model with --mlflow NAME"
        )
    return f"at most {worst:.1e} of the scale from torch in onnxruntime {onnxruntime.__version__}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps what torch says of its own steps to itself; what fails becomes one line.

    Raises:
        ConfigError: torch cannot express the network.
    """
    said, level = io.StringIO(), logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(said), redirect_stderr(said):
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # torch has many kinds, private ones too
        first: BaseException = error
        while first.__cause__ is not None:
            first = first.__cause__
        reason = str(first).strip().splitlines() or [type(first).__name__]
        raise ConfigError(
            f"--onnx: this network cannot be expressed in ONNX ({reason[0]}); serve this model with "
            "--mlflow NAME"
        ) from error
    finally:
        logging.disable(level)
