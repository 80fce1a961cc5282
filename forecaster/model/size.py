"""Sizes of networks: the defaults, the number of parameters, and a check that this machine can train them.

Parameters are counted on the meta device, which takes no memory: settings may describe more than any machine has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import psutil
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from forecaster.config import ModelPlan
from forecaster.errors import ConfigError
from forecaster.model.class_network import ClassEnsemble, ClassNetwork
from forecaster.model.embedding import Shape
from forecaster.model.linear import LinearForecast
from forecaster.model.network import Network
from forecaster.model.sampling import NUM_SAMPLES


class Size(NamedTuple):
    """What is trained by default on so many windows."""

    windows: int | None
    """Fewer than these; None = any number."""
    width: int
    batch_size: int


SIZES = (
    Size(500, width=64, batch_size=64),
    Size(2_000, width=64, batch_size=128),
    Size(200_000, width=64, batch_size=256),
    Size(None, width=128, batch_size=256),
)
"""From few windows to many."""
FEWEST_WINDOWS = 100
"""A network beside experts is trained by default: on fewer its weight was 0 in each of 22 tables."""
_SECONDS = 120.0
"""Of a training, by default at most."""
_OF_TOKENS, _OF_STEPS = 1.4e-7, 6e-7
"""Seconds of a window in a training step, by width × tokens and by step of time: nine networks on two cores."""
_COPIES = 5
"""Of the weights while training: themselves, gradient, two moments, EMA."""
_FLOAT = 4  # bytes
_COUNTED_LAYERS = 2  # built to be counted
_MOST_SEEN = 10**9
"""Pairs of tokens, over all layers and members; ten times as many in decoders, which go lead by lead."""
_OTHERS_SEE = 64
"""Tokens that one attends to at most by default, where attention is not full."""
_SUMS, _DOUBLE = 6, 8
"""Gram matrices of the ridge: each quarter of the windows, all of them, and a factor."""


def most_steps(config: ModelPlan, horizon: int, batch_size: int) -> int:
    """Returns how many training steps take about two minutes of two idle cores: counted, so that a fit is the
    same on any machine.

    A step takes batch · (a · width · tokens of all layers + b · (context + horizon)) seconds.
    """
    length = config.attention_length or config.context_length
    tokens = config.encoder_layers * -(-length // config.patch)
    tokens += config.decoder_layers * -(-horizon // config.decoder_patch)
    window = _OF_TOKENS * config.width * tokens + _OF_STEPS * (length + horizon)
    return max(1, int(_SECONDS / (batch_size * window)))


def blueprint(config: ModelPlan, shape: Shape) -> Network | ClassNetwork:
    """Returns a network of shapes alone, on the meta device: no number is stored or drawn."""
    with torch.device("meta"), _Undrawn():
        if shape.classes:
            return ClassNetwork(config, shape)
        return Network(config, shape)


def count_parameters(config: ModelPlan, shape: Shape, networks: int = 1) -> int:
    """Returns the number of values in the state of a network; of all of a `ClassEnsemble` of some."""
    network = _with_few_layers(config, shape)
    count = _count(network, config)
    if not isinstance(network, ClassNetwork):
        return count
    with torch.device("meta"), _Undrawn():
        shared = _numbers(ClassEnsemble([network])) - _numbers(network)
    return shared + networks * count


def _with_few_layers(config: ModelPlan, shape: Shape) -> Network | ClassNetwork:
    """All layers of a kind are alike, and a thousand take seconds to build."""
    few = {
        "encoder_layers": min(config.encoder_layers, _COUNTED_LAYERS),
        "decoder_layers": min(config.decoder_layers, _COUNTED_LAYERS),
    }
    return blueprint(config.model_copy(update=few), shape)


def _count(network: Network | ClassNetwork, config: ModelPlan) -> int:
    """The number of values in a network of all layers, from one that has fewer."""
    count = _numbers(network)
    encoder = network.encoder
    count += (config.encoder_layers - len(encoder)) * _numbers(encoder[-1])
    if isinstance(network, Network):
        decoder = network.decoder
        count += (config.decoder_layers - len(decoder)) * _numbers(decoder[-1])
    return count


def _numbers(module: nn.Module) -> int:
    return sum(values.numel() for values in module.state_dict().values())


def check_work(
    config: ModelPlan, horizon: int, members: int, paths: int | None = None, source: str = "model"
) -> None:
    """Checks that a window is forecast within minutes: settings of a few bytes may ask for years.

    Raises:
        ConfigError: with the setting that is too large, what it takes, and the limit.
    """
    length = config.attention_length or config.context_length
    tokens, leads = -(-length // config.patch), -(-horizon // config.decoder_patch)
    seen = tokens if config.attention == "full" else min(tokens, config.attention_size or _OTHERS_SEE)
    drawn = (paths or NUM_SAMPLES) if config.decoder == "autoregressive" else 1
    encoder = members * config.encoder_layers * tokens * seen
    decoder = members * config.decoder_layers * leads * (leads + tokens) * drawn
    context = f"model.attention_length {length:,}, model.patch {config.patch:,}"
    ahead = f"horizon {horizon:,}, model.decoder_patch {config.decoder_patch:,}"
    ahead += f", {drawn:,} sample paths" * (drawn > 1)
    for settings, pairs, most in ((context, encoder, _MOST_SEEN), (ahead, decoder, 10 * _MOST_SEEN)):
        if pairs > most:
            raise ConfigError(
                f"{source}: {settings}: one forecast takes attention of {pairs:,} pairs of tokens, expected "
                f"at most {most:,}: take longer patches, or shorten the first"
            )


def check_memory(config: ModelPlan, shape: Shape) -> None:
    """Checks that the memory of this machine holds a training step of one window.

    Raises:
        ConfigError: with the numbers.
    """
    room = psutil.virtual_memory().total
    network = _with_few_layers(config, shape)
    count = _count(network, config)
    needed = _COPIES * _FLOAT * count
    if needed > room:
        raise ConfigError(
            f"model: {count:,} weights (width {config.width}, {config.encoder_layers} + "
            f"{config.decoder_layers} layers) need {needed / 1e9:,.1f} GB to train, "
            f"this machine has {room / 1e9:,.1f} GB: take a smaller model.width or fewer layers"
        )
    length = config.attention_length or config.context_length
    covariates = shape.past + shape.known + len(shape.past_categories + shape.known_categories)
    cells = config.context_length * (2 + covariates) + 4 * config.pool.history_length
    # At the least a vector of either width per token and layer waits for the backward pass.
    tokens = -(-length // config.patch) * config.encoder_layers
    tokens += -(-shape.horizon // config.decoder_patch) * config.decoder_layers
    window = _FLOAT * (cells + tokens * (config.width + config.feed_forward))
    if window > room:
        raise ConfigError(
            f"model: one window of {config.context_length:,} + {shape.horizon:,} steps needs "
            f"{window / 1e9:,.1f} GB to train, this machine has {room / 1e9:,.1f} GB: take a shorter "
            "model.context_length, a longer model.patch, or a smaller model.width"
        )
    if network.experts is not None and network.experts.linear is not None:
        _check_linear_maps(network.experts.linear, room)


def _check_linear_maps(linear: LinearForecast, room: int) -> None:
    sizes = [weights.shape[1:] for weights in linear.maps]  # (P, F, H) of each lookback
    cells = sum(phases * features * (features + leads) for phases, features, leads in sizes)
    needed = _SUMS * _DOUBLE * cells
    if needed > room:
        phases, features, _ = max(sizes, key=lambda size: size[0] * size[1] ** 2)
        raise ConfigError(
            f"model.experts linear: maps from {features:,} features for {phases:,} phases need "
            f"{needed / 1e9:,.1f} GB to solve, this machine has {room / 1e9:,.1f} GB: take shorter "
            "model.lookbacks, or experts without linear"
        )


class _Undrawn(TorchFunctionMode):
    """Skips random initialisation: on the meta device it loads torch's compiler, 0.6 s."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func.__name__ in ("normal_", "uniform_"):
            return None
        return func(*args, **(kwargs or {}))
