"""A saved model as an ONNX file, for programs in other languages: scaling and all members inside.

onnxruntime is compared with torch on the spot where it is installed. What ONNX cannot express is
refused, nothing is approximated.

    inputs     the fields of `Inputs` that this model reads; NaN = not observed; any batch size
    outputs    quantiles [batch, lead, channel, level]; mean [batch, lead, channel]
    metadata   format, columns, channels, freq, horizon, context_length, cycles, quantile_levels, …
"""

from __future__ import annotations

import copy
import gc
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from forecaster.errors import ConfigError
from forecaster.files import atomic_file, check_writable
from forecaster.forecast.artifact import Artifact, is_forecaster
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.writer import check_suffix
from forecaster.model.class_network import ClassEnsemble
from forecaster.model.ensemble import Ensemble
from forecaster.model.shortcuts import for_all_inputs
from forecaster.panel.arrays import Array
from forecaster.panel.panel import Panel
from forecaster.windows.batch import Inputs

if TYPE_CHECKING:
    from onnx import ModelProto
    from torch.export import ExportedProgram
    from torch.onnx import ONNXProgram

METADATA_FORMAT = 1
_MASKS = {
    "observed": "context",
    "past_observed": "past",
    "known_observed": "known",
    "history_observed": "history",
}
_DTYPES = {"multiplies": torch.bool, "error_ratios": torch.float32}
_TOLERANCE = 1e-4  # of the window's scale, or of the reach of its forecast
_APART = 1e-3  # of a probability: a result on a threshold of random kernels counts or not


class OnnxGraph(nn.Module):
    """An ensemble whose inputs are single tensors: those that it reads."""

    def __init__(self, artifact: Artifact[Any]):
        super().__init__()
        self.ensemble: Ensemble | ClassEnsemble = copy.deepcopy(artifact.ensemble)
        if isinstance(self.ensemble, Ensemble):
            for member in self.ensemble.networks:
                if member.experts is not None:  # a graph cannot branch on a tensor
                    member.settled = member.network_weights()
        self.shape, self.sizes = artifact.shape, _sizes(artifact)
        self.multiplies = () if artifact.effects is None else artifact.effects.multiplies
        self.names = [name for name, size in self.sizes.items() if 0 not in size]

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Returns quantiles and mean; or probabilities. Tensors are those of `names`."""
        if isinstance(self.ensemble, ClassEnsemble):
            return (self.ensemble(self.complete(given)),)
        quantiles, mean, *_ = self.ensemble.predict(self.complete(given))
        assert mean is not None
        return quantiles, mean

    def complete(self, given: tuple[Tensor, ...]) -> Inputs:
        """Returns `Inputs`: masks from NaN, and empty tensors for what the model does not read."""
        read = dict(zip(self.names, given, strict=True))
        batch = read["context"].shape[0]
        for name in self.sizes.keys() - read.keys():
            dtype = _DTYPES.get(name, torch.int64 if name.endswith("_category") else torch.float64)
            read[name] = torch.zeros(batch, *self.sizes[name], dtype=dtype)
        return Inputs(**read, **{mask: ~read[values].isnan() for mask, values in _MASKS.items()})

    def random_inputs(self, count: int) -> tuple[Tensor, ...]:
        """Returns random inputs with missing cells, of the level of each channel in training."""
        random = torch.Generator().manual_seed(count)
        shape, ensemble = self.shape, self.ensemble
        owner = ensemble.networks[0] if isinstance(ensemble, Ensemble) else ensemble.scale
        scaler = owner.scaler
        made: dict[str, Tensor] = {}
        for name in self.names:
            size = (count, *self.sizes[name])
            if name == "channel":
                cells = torch.arange(1, shape.channels + 1).expand(size)
            elif name.endswith("_category"):
                counts = torch.tensor(getattr(shape, name.replace("_category", "_categories")))
                cells = torch.randint(1 << 30, size, generator=random) % (counts + 1)
            elif name == "elapsed":
                cells = (torch.arange(size[1]) + 1.0 - (size[1] - shape.horizon)).expand(size)
                if not shape.regular:
                    cells = cells + 0.4 * torch.rand(size, generator=random) * (cells != 0)
            elif name == "phase":
                cells = torch.rand(size, generator=random)
            elif name == "multiplies":
                cells = torch.tensor([[bool(one) for one in self.multiplies]]).expand(size)
            elif name == "error_ratios":
                cells = torch.ones(size)
            elif name == "effect_variance":
                cells = 0.1 * torch.rand(size, generator=random, dtype=torch.float64)
            elif name in ("effect", "calendar"):
                cells = 0.1 * torch.randn(size, generator=random, dtype=torch.float64)
            else:
                cells = torch.randn(size, generator=random, dtype=torch.float64)
                if name in ("context", "history"):
                    cells = cells * scaler.scale[1:] + scaler.loc[1:]
                cells = cells.masked_fill(torch.rand(size, generator=random) < 0.1, torch.nan)
            made[name] = cells.contiguous()
        return tuple(made.values())


def check_onnx(path: Path, overwrite: bool = True) -> None:
    """Raises before any work what writing to `path` would raise after it.

    Raises:
        OutputError: the suffix is another, or the file cannot be written or exists.
        ConfigError: the extra `onnx` is not installed.
    """
    check_suffix(path, (".onnx",))
    check_writable(path, overwrite=overwrite)
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"--onnx needs {' and '.join(missing)}: pip install onnx onnxruntime onnxscript"
        )


def write_onnx(artifact: Artifact[Any], path: Path) -> str:
    """Writes the file, whole or not at all; returns its inputs and the comparison, in words.

    Raises:
        ConfigError: ONNX cannot express this model, or the extra `onnx` is not installed.
        OutputError: the file cannot be written.
    """
    check_onnx(path)
    _check_expressible(artifact)
    from torch._dynamo import config as tracing

    # Of a batch of any size a shape costs less to infer again than to take from torch's cache: .83 of the time.
    without_cache = tracing.patch(fake_tensor_cache_enabled=False)
    graph = OnnxGraph(artifact).eval()
    given = graph.random_inputs(3)
    outputs = ["quantiles", "mean"] if is_forecaster(artifact) else ["probabilities"]
    with atomic_file(path) as unfinished:
        with _quiet(), for_all_inputs(), without_cache, _uncollected():
            model = _translated(graph, given, outputs)
        for key, value in metadata(artifact).items():
            entry = model.metadata_props.add()
            entry.key, entry.value = key, value
        unfinished.write_bytes(model.SerializeToString())
        compared = _compare(graph, unfinished)
    return f"{', '.join(graph.names)} → {', '.join(outputs)}; {compared}"


def _translated(graph: OnnxGraph, given: tuple[Tensor, ...], outputs: list[str]) -> ModelProto:
    """Returns the ONNX form of a graph, for any batch size."""
    from onnxscript import optimizer

    from forecaster.forecast.onnx_translations import translations

    def export(program: ExportedProgram, **options: Any) -> ONNXProgram:
        found = torch.onnx.export(
            program,
            input_names=graph.names,
            output_names=outputs,
            dynamic_shapes=(({0: "batch"},) * len(given),),  # its name in the file
            dynamo=True,
            # Its rewrite rules are tried 241,000 times on a graph of 16 experts, half of the whole export,
            # and save nothing: onnxruntime fuses operations as it loads a file.
            optimize=False,
            verbose=False,
            **options,
        )
        assert found is not None
        return found

    batch = torch.export.Dim("batch", min=1, max=1 << 40)  # torch 2.7 takes no largest int64
    shapes = (({0: batch},) * len(given),)
    trace = partial(torch.export.export, graph, given, dynamic_shapes=shapes, strict=False)
    program = trace()
    # Half of an export went into decomposing every operation, which torch does before it translates: all but
    # the few in `translations` have a translation as they are. None of torch's is of an operation in place.
    program.run_decompositions = lambda table=None: program
    try:
        found = export(program, custom_translation_table=translations())
    except torch.onnx.OnnxExporterError:  # an operation that neither torch nor `translations` knows
        found = export(trace())
    for (
        node
    ) in found.model.graph:  # torch names values by their operation: a mean of tokens is `mean`, too
        for value in node.outputs:
            if value.name in outputs and not value.is_graph_output():
                value.name = f"{value.name}_inside"
    optimizer.fold_constants(found.model)
    optimizer.remove_unused_nodes(found.model)
    return found.model_proto


def onnx_inputs(artifact: Artifact, panel: Panel, cutoff: str) -> tuple[list[str], dict[str, Array]]:
    """Returns the names of the series that can be forecast, and the inputs of the file for them."""
    series_names, inputs = Predictor(artifact, "cpu").inputs(panel, cutoff)
    names = [name for name, size in _sizes(artifact).items() if 0 not in size]
    return series_names, {name: getattr(inputs, name).numpy() for name in names}


def _sizes(artifact: Artifact[Any]) -> dict[str, tuple[int, ...]]:
    """Returns the fields of `Inputs` without the masks, with their axes after the batch."""
    shape, pool = artifact.shape, artifact.plan.model.pool
    context, whole = artifact.context_length, artifact.context_length + shape.horizon
    return {
        "context": (context, shape.channels),
        "past": (context, shape.past),
        "known": (whole, shape.known),
        "static": (shape.static,),
        "static_category": (len(shape.static_categories),),
        "past_category": (context, len(shape.past_categories)),
        "known_category": (whole, len(shape.known_categories)),
        "phase": (whole, shape.cycles),
        "elapsed": (whole,),
        "channel": (shape.channels,),
        "history": (pool.history_length, shape.channels),
        "drivers": (pool.driver_length, len(pool.drivers)),
        **_effect_sizes(artifact),
    }


def _effect_sizes(artifact: Artifact[Any]) -> dict[str, tuple[int, ...]]:
    effects, channels, horizon = artifact.effects, artifact.shape.channels, artifact.shape.horizon
    before = max(artifact.context_length, artifact.plan.model.pool.history_length)
    sizes = {"effect": 0, "effect_variance": 0, "multiplies": 0, "calendar": 0}
    if effects is not None:
        sizes["multiplies"] = channels
        sizes["effect"] = horizon if effects.are_taken_out else 0
        sizes["effect_variance"] = horizon if effects.variation.any() else 0
        sizes["calendar"] = before + horizon if effects.calendar else 0
    return {
        "effect": (sizes["effect"], channels),
        "effect_variance": (sizes["effect_variance"], channels),
        "multiplies": (sizes["multiplies"],),
        "calendar": (sizes["calendar"], channels),
        "error_ratios": (sizes["multiplies"], 3),
    }


def metadata(artifact: Artifact[Any]) -> dict[str, str]:
    """Returns what a program needs to fill the inputs and read the outputs, as JSON by key."""
    schema, shape = artifact.schema, artifact.shape
    calendar = schema.calendar
    values: dict[str, Any] = {
        "format": METADATA_FORMAT,
        "channels": schema.target,
        "past": schema.past_numeric,
        "known": schema.known_numeric,
        "drivers": artifact.plan.model.pool.drivers,
        "static": schema.static_numeric,
        "past_category": schema.past_category,
        "known_category": schema.known_category,
        "static_category": schema.static_category,
        "categories": {name: schema.categories[name] for name in schema.categorical},
        "classes": artifact.classes,
        "cycles": calendar.cycles,
        "freq": schema.freq,
        "time_zone": schema.time_zone,
        "context_length": artifact.context_length,
        "horizon": shape.horizon,
        "quantile_levels": artifact.plan.model.quantile_levels,
        "trained_until": calendar.text(artifact.trained_until),
        "fingerprint": artifact.fingerprint,
    }
    return {f"forecaster.{key}": json.dumps(value, ensure_ascii=False) for key, value in values.items()}


def _check_expressible(artifact: Artifact[Any]) -> None:
    model = artifact.plan.model
    if model.decoder == "autoregressive":
        reason = "decoder autoregressive draws sample paths, patch after patch"
    elif model.attention == "sparse":
        reason = "attention sparse selects queries by their values"
    else:
        return
    raise ConfigError(
        f"--onnx: model.{reason}, which an ONNX graph cannot express; serve this model with --mlflow NAME"
    )


def _compare(graph: OnnxGraph, file: Path) -> str:
    """Returns the largest difference of onnxruntime and torch on random inputs, in words."""
    if importlib.util.find_spec("onnxruntime") is None:
        return "not compared with torch: onnxruntime is not installed"
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    is_classifier = isinstance(graph.ensemble, ClassEnsemble)
    unit, most = ("in probability", _APART) if is_classifier else ("of the scale", _TOLERANCE)
    worst = 0.0
    for count in (1, 5):  # any batch size but that of the export
        given = graph.random_inputs(count)
        named = zip(graph.names, given, strict=True)
        found = session.run(None, {name: cells.numpy() for name, cells in named})
        with torch.inference_mode():
            wanted = graph(*given)
            scale = graph.ensemble.scale(graph.complete(given)).scale
        for mine, theirs in zip(wanted, found, strict=True):
            apart = (mine - torch.from_numpy(theirs)).abs()
            if not is_classifier:
                cells = mine.reshape(*mine.shape[:3], -1)
                # A forecast that leaves the context far behind is as exact as its own reach.
                reach = cells.amax(dim=(1, 3)) - cells.amin(dim=(1, 3))
                apart = apart.reshape(cells.shape).amax(dim=(1, 3)) / torch.maximum(scale, reach)
            worst = max(worst, float(apart.max()))
    if not worst <= most:
        raise ConfigError(
            f"--onnx: onnxruntime is {worst:.1e} {unit} away from torch, expected at most {most:.0e}; "
            "serve this model with --mlflow NAME"
        )
    return f"at most {worst:.1e} {unit} from torch in onnxruntime {onnxruntime.__version__}"


@contextmanager
def _uncollected() -> Iterator[None]:
    """Stops the search for unreachable cycles: in a graph that grows it was an eighth of an export."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences torch's export; makes one line of its errors."""
    output, level = io.StringIO(), logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(output), redirect_stderr(output):
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
