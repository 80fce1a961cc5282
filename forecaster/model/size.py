"""Sizes of networks: the defaults, the number of parameters, and a check that this machine can train them.

Parameters are counted on the meta device, which takes no memory: settings may describe more than any machine has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import psutil
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from forecaster.config import ModelPlan
from forecaster.errors import ConfigError
from forecaster.model.embedding import Shape
from forecaster.model.experts import ADDED
from forecaster.model.label_network import LabelEnsemble, LabelNetwork
from forecaster.model.linear import LinearForecast
from forecaster.model.network import Network
from forecaster.model.sampling import NUM_SAMPLES

SIZES = (
    (500, 64, 200, 64),
    (2_000, 64, 300, 128),
    (8_000, 64, 400, 256),
    (200_000, 64, 800, 256),
    (None, 128, 800, 256),
)
"""(training windows below, width, steps, batch size)."""
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


def count_parameters(config: ModelPlan, shape: Shape, networks: int = 1) -> int:
    """Returns the number of values in the state of a network; of all of a `LabelEnsemble` of some.

    Without those of `ADDED`, which a file may lack.
    """
    # All layers of a kind are alike, and a thousand take seconds to build.
    counted = {
        name: min(getattr(config, name), _COUNTED_LAYERS)
        for name in ("encoder_layers", "decoder_layers")
    }
    small = config.model_copy(update=counted)
    with torch.device("meta"), _Undrawn():
        if shape.classes:
            labels = LabelNetwork(small, shape)
            count, shared = _numbers(labels), _numbers(LabelEnsemble([labels])) - _numbers(labels)
            stacks = {"encoder_layers": labels.encoder}
        else:
            network = Network(small, shape)
            count, shared, networks = _numbers(network), 0, 1
            stacks = {"encoder_layers": network.encoder, "decoder_layers": network.decoder}
    for name, layers in stacks.items():
        count += (getattr(config, name) - counted[name]) * _numbers(layers[-1])
    return shared + networks * count


def _numbers(module: nn.Module) -> int:
    state = module.state_dict()
    return sum(state[name].numel() for name in state if name.rpartition(".")[2] not in ADDED)


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
    count, room = count_parameters(config, shape), psutil.virtual_memory().total
    if _COPIES * _FLOAT * count > room:
        raise ConfigError(
            f"model: {count:,} weights (width {config.width}, {config.encoder_layers} + "
            f"{config.decoder_layers} layers) need {_COPIES * _FLOAT * count / 1e9:,.1f} GB to train, "
            f"this machine has {room / 1e9:,.1f} GB: take a smaller model.width or fewer layers"
        )
    length = config.attention_length or config.context_length
    covariates = shape.past + shape.known + len(shape.past_categories + shape.known_categories)
    cells = config.context_length * (2 + covariates) + 4 * config.history_length
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
    if "linear" in config.experts:
        _check_linear_maps(config, shape, room)


def _check_linear_maps(config: ModelPlan, shape: Shape, room: int) -> None:
    with torch.device("meta"):
        linear = LinearForecast(config, shape)
    sizes = [tuple(weights.shape[1:]) for weights in linear.maps]
    # Gram matrix [P, F, F] and right-hand side [P, F, H] of each lookback.
    needed = _SUMS * _DOUBLE * sum(n * size * (size + leads) for n, size, leads in sizes)
    if needed > room:
        phases, size, _ = max(sizes, key=lambda shape: shape[0] * shape[1] ** 2)
        raise ConfigError(
            f"model.experts linear: maps from {size:,} features for {phases:,} phases need "
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
