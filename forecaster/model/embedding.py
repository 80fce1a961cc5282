"""Inputs become tokens: patches of the context, tokens of the horizon, static and previous values.

Axes: B batch · T step · H horizon · C channel · D width · M context token · N horizon token ·
K known number · S static number · W path of a window. Channels are folded into the batch; with channel
attention covariates are channels behind the targets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from forecaster.config import ModelPlan
from forecaster.model.channels import (
    CovariateChannels,
    Covariates,
    add_channels,
    category_embeddings,
    embedded,
    fold,
    keep_channels,
    patches,
    repeat_channels,
    values_and_mask,
    widths_per_step,
)
from forecaster.model.heads import Vocabulary
from forecaster.model.layers import ConvStem, Dropout
from forecaster.model.positions import TimeEncoding
from forecaster.model.scaling import Scale, Standardizer
from forecaster.windows.batch import Inputs


@dataclass(frozen=True)
class Shape:
    """Sizes of the axes of `Inputs`, which an artifact keeps beside its weights."""

    horizon: int
    """H; 0 = classes are learned instead of a forecast."""
    channels: int
    """Targets."""
    past: int = 0
    """Numeric past covariates."""
    known: int = 0
    """Numeric known covariates."""
    static: int = 0
    """Numeric static covariates."""
    past_categories: tuple[int, ...] = ()
    """Categories in the training rows, per categorical past covariate."""
    known_categories: tuple[int, ...] = ()
    """The same for known covariates."""
    static_categories: tuple[int, ...] = ()
    """The same for static covariates."""
    cycles: int = 0
    """Calendar cycles."""
    regular: bool = True
    """False: the time between cells enters the patches."""
    classes: int = 0
    """Classes; 0 = values are forecast."""

    @property
    def embeds_channels(self) -> bool:
        """Whether channels have embeddings: a covariate means different things to each."""
        covariates = self.past + self.known + len(self.past_categories + self.known_categories)
        return self.channels > 1 and covariates > 0


class Embedding(nn.Module):
    """Turns `Inputs` into tokens."""

    def __init__(self, config: ModelPlan, shape: Shape):
        super().__init__()
        self.config, self.shape = config, shape
        width = config.width
        # Covariates are channels of their own, or cells of the targets' patches.
        as_channels = config.channel_attention
        self.past_scaler = Standardizer(shape.past)
        self.known_scaler = Standardizer(shape.known)
        self.static_scaler = Standardizer(shape.static)
        self.past_embedding = category_embeddings(shape.past_categories)
        self.known_embedding = category_embeddings(shape.known_categories)
        self.static_embedding = category_embeddings(shape.static_categories)
        by_channel = shape.embeds_channels or (as_channels and shape.channels > 1)
        self.channel_embedding = category_embeddings((shape.channels,) if by_channel else ())

        past = widths_per_step(shape.past, self.past_embedding)
        known = widths_per_step(shape.known, self.known_embedding)
        static = sum(widths_per_step(shape.static, self.static_embedding, self.channel_embedding))
        autoregressive = config.decoder == "autoregressive"
        tokenized = config.tokenizes_values
        # Numbers per step: value and mask of the target, the gap of irregular tables, covariates.
        gap = 0 if shape.regular else 1
        future = gap if as_channels else gap + sum(known)
        cells = (0 if tokenized else 2) + future + (0 if as_channels else sum(past))
        patch, decoder_patch = config.patch, config.decoder_patch
        self.context_patch = nn.Linear(patch * cells, width) if cells else None
        reads_ahead = future and shape.horizon
        self.horizon_patch = nn.Linear(decoder_patch * future, width) if reads_ahead else None
        # An autoregressive decoder has the values of the patch before in its place.
        needs_token = shape.horizon > 0 and not autoregressive
        self.horizon_token = nn.Parameter(torch.zeros(width)) if needs_token else None
        self.static = nn.Linear(static, width) if static else None
        self.attention_length = config.attention_length or config.context_length
        self.context_tokens = -(-self.attention_length // patch)
        self.horizon_tokens = -(-shape.horizon // decoder_patch)
        self.time = TimeEncoding(config, shape.cycles, self.context_tokens, self.horizon_tokens)
        self.dropout = Dropout(config.dropout)
        self.stem = ConvStem(width, config.conv_kernel) if config.conv_kernel else None
        # Known ones first: those of the horizon are a beginning of those of the context (`keep_channels`).
        in_context = known + past if as_channels else []
        in_horizon = known if as_channels and shape.horizon else []
        self.context_covariates = CovariateChannels(in_context, patch, width)
        self.horizon_covariates = CovariateChannels(in_horizon, decoder_patch, width)
        reads_values = autoregressive and not tokenized
        self.previous_patch = nn.Linear(2 * decoder_patch, width) if reads_values else None
        self.vocabulary = Vocabulary()
        # One vector per bin, and one for a missing value.
        self.values = nn.Embedding(self.vocabulary.bins + 1, width) if tokenized else None

    def embed_context(
        self, inputs: Inputs, scale: Scale
    ) -> tuple[Float[Tensor, "BC M D"], Bool[Tensor, "BC M"]]:
        """Returns tokens with their time encodings, and True where one holds an observation."""
        span, size = self._span(future=False), self.config.patch
        observed = inputs.observed[:, span]
        targets = observed.shape[2]
        # [B, T, C] → [B·C, T, 1]
        values = fold(scale.apply(inputs.context[:, span]).masked_fill(~observed, torch.nan))
        past, known = self._past(inputs), self._known(inputs, future=False)
        mixed = [] if self.config.channel_attention else [past.by_step(), known.by_step()]
        shared = [*mixed, *self._gap(inputs, future=False)]
        cells = [repeat_channels(part, targets) for part in shared]
        parts = []
        if self.values is None:
            cells = [*values_and_mask(values), *cells]
        else:
            parts.append(self.values(self.vocabulary.tokens(values[..., 0])))
        if self.context_patch is not None:
            parts.append(self.context_patch(patches(torch.cat(cells, dim=-1), size)))
        tokens = self._scaled(reduce(torch.add, parts))  # [B·C, M, D]
        seen = patches(fold(observed), size).any(dim=-1)  # [B·C, M]
        if len(self.context_covariates):
            covariates, real = self.context_covariates([*known.by_covariate(), *past.by_covariate()])
            tokens = add_channels(tokens, covariates)
            seen = add_channels(seen, real)
        if self.stem is not None:
            tokens = self.stem(tokens, seen)
        # A patch has the time of its last step; the first one may be filled up at its old end.
        length, reads = self.config.context_length, self.attention_length
        first_end = length - reads + (reads % size or size) - 1
        ends = slice(first_end, length, size)
        time = self.time(inputs.elapsed[:, ends], inputs.phase[:, ends], first=0)
        return tokens + repeat_channels(time, targets + len(self.context_covariates)), seen

    def embed_horizon(
        self, inputs: Inputs, seen: Bool[Tensor, "BC M"]
    ) -> tuple[Float[Tensor, "BC N D"], Bool[Tensor, "BC N"]]:
        """Returns tokens with their time encodings, and True where other channels may attend to one.

        `seen` is that of the encoded context.
        """
        targets, size = inputs.context.shape[2], self.config.decoder_patch
        starts = slice(self.config.context_length, None, size)
        time = self.time(inputs.elapsed[:, starts], inputs.phase[:, starts], first=self.context_tokens)
        known = self._known(inputs, future=True)
        tokens = time if self.horizon_token is None else self._scaled(self.horizon_token) + time
        if self.horizon_patch is not None:
            mixed = [] if self.config.channel_attention else [known.by_step()]
            cells = torch.cat([*mixed, *self._gap(inputs, future=True)], dim=-1)
            projected = self.horizon_patch(patches(cells, size, front=False))  # [B, N, D]
            tokens = tokens + self._scaled(projected)
        # Only now: what the horizon knows is the same for all targets.
        tokens = repeat_channels(tokens, targets)
        channels = targets + len(self.horizon_covariates)
        # A channel that was never observed is hidden from the others.
        observed = keep_channels(seen, channels, targets).any(dim=1, keepdim=True)
        shown = observed.expand(-1, tokens.shape[1])
        if len(self.horizon_covariates):
            covariates, real = self.horizon_covariates(known.by_covariate(), front=False)
            tokens = add_channels(tokens, covariates + time[:, None])  # [B, K, N, D] + [B, 1, N, D]
            shown = add_channels(shown, real)
        return tokens, shown

    def embed_static(self, inputs: Inputs) -> Float[Tensor, "BC 1 D"]:
        """Returns the embedding of series and channel; covariates as channels have the series' only."""
        code = F.pad(inputs.channel, (0, len(self.context_covariates)))  # code 0 adds nothing
        if self.static is None:
            return inputs.elapsed.new_zeros((code.numel(), 1, self.config.width))
        observed, numbers = ~inputs.static.isnan(), self.static_numbers(inputs)
        codes = embedded(self.static_embedding, inputs.static_category)
        series = torch.cat([numbers, observed.float(), *codes], dim=-1)  # [B, _]
        channel = embedded(self.channel_embedding, code.reshape(-1, 1))  # [B·channels, _], or none
        parts = [repeat_channels(series, code.shape[1]), *channel]
        return self.static(torch.cat(parts, dim=-1))[:, None]

    def add_previous(
        self, tokens: Float[Tensor, "BC N D"], previous: Float[Tensor, "W T C"], scale: Scale
    ) -> Float[Tensor, "BC N D"]:
        """Returns horizon tokens plus the embedding of the values one patch before each, data units.

        A missing value (NaN) has an embedding of its own.
        """
        values = fold(scale.apply(previous))
        if self.values is not None:
            projected = self.values(self.vocabulary.tokens(values[..., 0]))
        else:
            assert self.previous_patch is not None
            cells = torch.cat(values_and_mask(values), dim=-1)
            projected = self.previous_patch(patches(cells, self.config.decoder_patch))
        projected = self._scaled(projected)
        if covariates := len(self.horizon_covariates):
            # They have no values before: zeros behind the targets of each window.
            zeros = projected.new_zeros((previous.shape[0], covariates, *projected.shape[1:]))
            projected = add_channels(projected, zeros)
        return tokens + projected

    def known_numbers(self, inputs: Inputs) -> Float[Tensor, "B T K"]:
        """Returns standardised known covariates of context and horizon, 0 where missing."""
        return self.known_scaler(inputs.known, inputs.known_observed)

    def static_numbers(self, inputs: Inputs) -> Float[Tensor, "B S"]:
        """Returns standardised static numbers, 0 where missing."""
        return self.static_scaler(inputs.static, ~inputs.static.isnan())

    def _past(self, inputs: Inputs) -> Covariates:
        span = self._span(future=False)
        observed, codes = inputs.past_observed[:, span], inputs.past_category[:, span]
        numbers = self.past_scaler(inputs.past[:, span], observed)
        return Covariates(numbers, observed, codes, embedded(self.past_embedding, codes))

    def _known(self, inputs: Inputs, future: bool) -> Covariates:
        span = self._span(future)
        observed, codes = inputs.known_observed[:, span], inputs.known_category[:, span]
        known = inputs.known[:, span]
        if self.config.known_less_mean:
            # A price level of a store is in its target's level already: what moves the target is how far a
            # price lies from it. Left in, promotion took the effect of the price on the demo (1.22 and .60).
            known = known - self._known_level(inputs) + self.known_scaler.loc
        numbers = self.known_scaler(known, observed)
        return Covariates(numbers, observed, codes, embedded(self.known_embedding, codes))

    def _known_level(self, inputs: Inputs) -> Float[Tensor, "B 1 K"]:
        """Returns the mean of known numbers in the context; that of the training rows where none is observed."""
        context = slice(None, self.config.context_length)
        observed = inputs.known_observed[:, context]
        total = torch.where(observed, inputs.known[:, context], 0.0).sum(dim=1, keepdim=True)
        count = observed.sum(dim=1, keepdim=True)
        return torch.where(count > 0, total / count.clamp(min=1), self.known_scaler.loc)

    def _gap(self, inputs: Inputs, future: bool) -> list[Tensor]:
        """[B, T, 1] time since the row before, on irregular tables."""
        if self.shape.regular:
            return []
        # The row before the first is not known: one step.
        gap = inputs.elapsed.diff(dim=1, prepend=inputs.elapsed[:, :1] - 1)
        return [gap.clamp(min=0).log1p()[:, self._span(future), None]]

    def _span(self, future: bool) -> slice:
        """The horizon, or the end of the context that attention reads."""
        length = self.config.context_length
        return slice(length, None) if future else slice(length - self.attention_length, length)

    def _scaled(self, projected: Tensor) -> Tensor:
        # Vaswani et al. (2017), section 3.4: embeddings are multiplied by √D.
        scales = self.config.style == "vaswani2017" or self.values is not None
        return projected * math.sqrt(self.config.width) if scales else projected


def previous_values(
    inputs: Inputs, target: Float[Tensor, "B H C"], size: int
) -> Float[Tensor, "B T C"]:
    """Returns, for each horizon patch, the values of the patch before it, data units; NaN = missing.

    Args:
        inputs: the context, whose last values come before the first patch.
        target: values after the cutoff, data units; none gives the last values of the context only.
        size: steps per patch.
    """
    context = inputs.context.masked_fill(~inputs.observed, torch.nan)[:, -size:]
    missing = size - context.shape[1]  # of a context shorter than a patch
    steps = size * max(1, -(-target.shape[1] // size))
    # A patch later: the last of the target comes before no patch.
    values = torch.cat([context, target], dim=1)
    return F.pad(values, (0, 0, missing, 0), value=torch.nan)[:, :steps]
