"""The encoder-decoder, read top to bottom: predict · encode · decode · generate.

    context ─▶ scale ─▶ patches + time encodings ─▶ ENCODER ─▶ memory
                                                                 │
    known covariates, phases, elapsed ─▶ horizon tokens ─▶ DECODER ─▶ head ─▶ quantiles
              [values of the patch before ─▶ +]                                   │ network weight
    history ─▶ [experts, weighed by attention to their errors] ─▶ quantiles ───────┴─▶ mean of both

Leads of a horizon patch ignore everything after it (decoder_mask causal).

Axes: B batch · S path · H horizon · T step · C channel · P raw number · Q quantile level · D width ·
N token. Channels are forecast one by one with shared weights: [B, …, C] is folded to [B·C, …].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from forecaster.config import Expert, ModelPlan
from forecaster.model.attention import KeyValueCache, Memory
from forecaster.model.channels import keep_channels, repeat_paths
from forecaster.model.embedding import Embedding, Shape, previous_values
from forecaster.model.experts import CUTOFFS, FEW, Experts, Pool
from forecaster.model.heads import QuantileHead, make_head
from forecaster.model.layers import DecoderLayer, EncoderLayer
from forecaster.model.mean_demand import steadied
from forecaster.model.sampling import NUM_SAMPLES, Prediction, prediction_from_paths, uniforms
from forecaster.model.scaling import ContextScaler, Scale
from forecaster.model.shortcuts import may_hold
from forecaster.model.trainable import Losses, MedianLoss, Trainable
from forecaster.windows.batch import Batch, Inputs, parts_of_effect

Choose = Callable[[Tensor, Scale, int], Tensor]
"""(raw [B, T, C, P], scale, first lead) → the next values [B, T, C] of each path, data units."""


_SHARPNESS = 4.0  # of the weights of forecasts with and without the calendar
_TINY = 1e-300  # data units


class OfExperts(NamedTuple):
    """What experts forecast, data units."""

    quantiles: Tensor
    """[B, H, C, Q]"""
    mean: Tensor
    """[B, H, C]"""
    missed: Tensor
    """[R, J, P] by their weighted mean at earlier cutoffs; 0 where not known."""
    pool: Pool
    scale: Scale


class Network(Trainable):
    """Patch encoder, causal decoder, and a head that makes distributions."""

    def __init__(self, config: ModelPlan, shape: Shape):
        super().__init__()
        self.config, self.shape = config, shape
        self.scaler = ContextScaler(shape.channels)
        self.embedding = Embedding(config, shape)
        tokens = self.embedding.context_tokens
        self.encoder = nn.ModuleList(EncoderLayer(config, tokens) for _ in range(config.encoder_layers))
        self.encoder_norm = nn.LayerNorm(config.width)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.decoder_norm = nn.LayerNorm(config.width)
        self.head = make_head(config)
        self.output = nn.Linear(config.width, config.decoder_patch * self.head.size)
        self.experts: Experts | None = None
        if config.pool.experts:
            self.experts = Experts(config, shape)
            self.network_weight = nn.Buffer(torch.ones(shape.channels + 1))
            """[C + 1] weight of the network in the forecast of each channel; the rest is the experts'."""
            self.settled: tuple[float, float] | None = None
            """Smallest and largest network weight where they may not be read from the tensor: in a graph."""
        if not self.output.weight.is_meta:  # counting parameters needs no values
            initialise(self)
            # The first forecast is the context's own mean and spread, whatever the tokens.
            nn.init.zeros_(self.output.weight)
            with torch.no_grad():
                self.output.bias.copy_(self.head.initial_bias().repeat(config.decoder_patch))

    def forward(self, inputs: Inputs, key: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B H C Q"]:
        """Returns quantiles in data units; `key` seeds the sample paths of each window."""
        return self.predict(inputs, key).quantiles

    def predict(
        self, inputs: Inputs, key: Int[Tensor, " B"] | None = None, paths: int | None = None
    ) -> Prediction:
        """Returns quantiles, mean and sample paths in data units.

        `key` seeds the paths of each window (None = 0 for all); `paths` is their number (None = 100).
        """
        if self.config.decoder == "autoregressive":
            return self._sampled(inputs, key, paths or NUM_SAMPLES)
        least, most = self.network_weights()
        if most == 0:
            return self.of_experts(inputs, self.scale(inputs))
        memory = self.encode(inputs)
        raw = self.decode(memory, inputs)
        quantiles = self.head.quantiles(raw, memory.scale)
        if self.experts is not None:
            brief = self.brief(inputs)
            if least == 1 and not (may_hold(brief) or may_hold(self.experts.intermittent)):
                return Prediction(quantiles, None, None)
            weight = torch.where(brief, 0.0, self.network_weight[inputs.channel])
            weight = weight[:, None, :, None].to(quantiles.dtype)
            alone = self.of_experts(inputs, memory.scale)
            # Nine levels of a network of weight 1 had 82 % of the sum of counts, the mean of experts 98 %.
            return alone._replace(quantiles=torch.lerp(alone.quantiles, quantiles, weight))
        return Prediction(quantiles, None, None)

    def losses(self, batch: Batch, loss: MedianLoss = "pinball") -> Losses:
        """Returns the sum of losses and the number of observed targets of each window."""
        inputs, target = batch.inputs, batch.target
        memory = self.encode(inputs)
        previous = None
        if self.config.decoder == "autoregressive":  # teacher forcing
            previous = previous_values(inputs, target, self.config.decoder_patch)
        raw = self.decode(memory, inputs, previous)
        with torch.autocast(target.device.type, enabled=False):
            if loss == "pinball":
                losses = self.head.loss(raw.float(), memory.scale, target)
            else:
                assert isinstance(self.head, QuantileHead)
                losses = self.head.median_loss(raw.float(), memory.scale, target, loss)
        return losses.sum(dim=(1, 2)), (~target.isnan()).float().sum(dim=(1, 2))

    def network_weights(self) -> tuple[float, float]:
        """Returns the smallest and the largest weight of the network; 1 and 1 where there are no experts."""
        if self.experts is None:
            return 1.0, 1.0
        if self.settled is not None:
            return self.settled
        least, most = torch.aminmax(self.network_weight)
        return float(least), float(most)

    def brief(self, inputs: Inputs) -> Bool[Tensor, "B C"]:
        """Returns whether the history of a channel is so short that the experts alone forecast it."""
        none = torch.zeros_like(inputs.channel, dtype=torch.bool)
        return none if self.experts is None else self.experts.brief(inputs)

    def pool(
        self,
        inputs: Inputs,
        scale: Scale,
        time: Tensor | None = None,
        has_calendar: bool = True,
    ) -> Pool:
        """Returns what the experts forecast.

        Args:
            inputs, scale: windows.
            time: of the cutoffs of training windows.
            has_calendar: False = effects of the calendar were taken out.
        """
        assert self.experts is not None
        known = self.embedding.known_numbers(inputs)
        return self.experts(inputs, scale, self.scaler, known, time, has_calendar)

    def weights_of_experts(self, inputs: Inputs) -> Float[Tensor, "R H E"]:
        """Returns the weights of the experts in their part of the forecast."""
        assert self.experts is not None
        found = self.of_pool(inputs, self.scale(inputs))
        weights = self.experts.weights(found.pool)
        if not self.reads_remainder(inputs):
            return weights
        remainder = self.of_remainder(inputs)
        share = self.weight_of_remainder(inputs, found, remainder).to(weights.dtype)
        of_remainder = self.experts.weights(remainder.pool)
        return torch.lerp(weights, of_remainder, share.flatten()[:, None, None])

    def of_experts(self, inputs: Inputs, scale: Scale, only: Expert | None = None) -> Prediction:
        """Returns the forecast of the experts, or of one, without the network, data units.

        Where the calendar has effects they forecast twice, with it and without, and their errors at earlier
        cutoffs say which counts more. It has a mean where a channel is of counts: half of them are 0, and
        quantiles show little of the others.
        """
        assert self.experts is not None
        found = self.of_pool(inputs, scale, only)
        quantiles, mean = found.quantiles, found.mean
        if only is None and self.reads_remainder(inputs):
            remainder = self.of_remainder(inputs)
            weight = self.weight_of_remainder(inputs, found, remainder)[:, None]  # [B, 1, C]
            quantiles = torch.lerp(quantiles, remainder.quantiles, weight[..., None])
            mean = torch.lerp(mean, remainder.mean, weight)
        median = quantiles[..., self.experts.levels.index(0.5)]
        few, unit = self.experts.few(inputs, scale, median)
        if may_hold(few > 0):
            offsets = self.experts.few_offsets[few.clamp(1, FEW) - 1, : inputs.horizon]  # [B, C, H, Q]
            around = unit[..., None] * offsets.transpose(1, 2)
            median = median[..., None]
            counts = self.experts.intermittent[inputs.channel][:, None, :, None]
            median = torch.where(counts, median.clamp(min=0.0), median)
            quantiles = torch.where(few[:, None, :, None] > 0, median + around, quantiles)
        return Prediction(quantiles, mean if may_hold(self.experts.intermittent) else None, None, few)

    def reads_remainder(self, inputs: Inputs) -> bool:
        """Whether experts forecast what effects of the calendar leave, too."""
        return self._several and inputs.calendar.shape[1] > 0

    @property
    def _several(self) -> bool:
        """Whether there are several experts, whose mean may be bettered; one alone is what was asked for."""
        return self.experts is not None and len(self.experts.names) > 1

    def of_pool(
        self, inputs: Inputs, scale: Scale, only: Expert | None = None, has_calendar: bool = True
    ) -> OfExperts:
        """Returns the forecast of the experts, or of one, and their errors."""
        assert self.experts is not None
        pool = self.pool(inputs, scale, has_calendar=has_calendar)
        channels = inputs.context.shape[2]
        quantiles, mean = (
            # Experts forecast the table's horizon, inputs may have a shorter one: [B·C, H, …] → [B, H, C, …]
            scale.invert(rows.unflatten(0, (-1, channels)).transpose(1, 2)[:, : inputs.horizon])
            for rows in self.experts.quantiles(pool, inputs, only)
        )
        if only is None and self._several and may_hold(self.experts.intermittent):
            seasons = self.experts.season, self.experts.second
            mean = steadied(mean, inputs.history, inputs.history_observed, seasons)
        missed = pool.evidence.mixed * scale.scale.flatten()[:, None, None]
        return OfExperts(quantiles, mean, missed, pool, scale)

    def of_remainder(self, inputs: Inputs) -> OfExperts:
        """Returns the same of what effects of the calendar leave, with these put back."""
        remainder = inputs.without_calendar()
        found = self.of_pool(remainder, self.scale(remainder), has_calendar=False)
        effect = inputs.calendar[:, -inputs.horizon :]
        factor, shift = parts_of_effect(effect, inputs.multiplies)
        quantiles = found.quantiles * factor[..., None] + shift[..., None]
        return found._replace(quantiles=quantiles, mean=found.mean * factor + shift)

    def weight_of_remainder(
        self, inputs: Inputs, found: OfExperts, remainder: OfExperts
    ) -> Float[Tensor, "B C"]:
        """Returns how much of the forecast is that of the remainder, by errors e at n of four earlier cutoffs.

            weight = 1 / (1 + (e of the remainder / e)^(4 · m/(m + 1)) · ratio^(4 · (1 − m/4)/(m + 1)))
            m      = n · min(1, distance of both forecasts at earlier cutoffs / that of the steps ahead)

        Where few are known, or where they show little of what the calendar does ahead, as days of autumn of
        Christmas, the ratio of the table counts in their place. Of a series without history 0: the profile of the
        others has its calendar.
        """
        assert self.experts is not None
        evidence = found.pool.evidence
        error, other = (evidence.mean_size(one.missed) + _TINY for one in (found, remainder))
        before = evidence.mean_size(found.missed - remainder.missed)
        median = self.experts.levels.index(0.5)
        apart = (found.quantiles - remainder.quantiles)[..., median]  # [B, H, C]
        ahead = apart.abs().mean(dim=1).flatten() + _TINY
        cutoffs = evidence.cutoffs * (before / ahead).clamp(max=1.0)  # m
        of_errors = (other / error) ** (_SHARPNESS * cutoffs / (cutoffs + 1))
        ratio = inputs.error_ratios[..., 2].flatten().to(error.dtype)
        of_table = ratio ** (_SHARPNESS * (1 - cutoffs / CUTOFFS) / (cutoffs + 1))
        weight = 1 / (1 + of_errors * of_table)
        weight = weight.unflatten(0, (-1, inputs.channel.shape[1]))
        return torch.where(self.experts.cold(inputs), 0.0, weight)

    def _sampled(self, inputs: Inputs, key: Tensor | None, paths: int) -> Prediction:
        keys = inputs.channel.new_zeros(len(inputs.channel)) if key is None else key

        def draw(raw: Tensor, scale: Scale, lead: int) -> Tensor:
            numbers = uniforms(keys, paths, lead, *raw.shape[1:3]).flatten(0, 1)  # [B·S, T, C, 2]
            return self.head.sample(raw, scale, numbers)

        drawn = self.generate(self.encode(inputs), inputs, draw, paths)
        return prediction_from_paths(drawn, self.config.quantile_levels)

    def scale(self, inputs: Inputs) -> Scale:
        """Returns the scale of the context that the longest lookback or attention reads."""
        # Before these steps the context serves the linear expert's earlier cutoffs alone.
        oldest = self.experts.cutoff_span if self.experts and self.experts.linear else 0
        scale = self.scaler(
            inputs.context[:, oldest:],
            inputs.observed[:, oldest:],
            inputs.channel,
            inputs.history,
            inputs.history_observed,
        )
        if self.experts is None:
            return scale
        return self.experts.with_cold_scale(inputs, scale, self.embedding.static_numbers(inputs))

    def encode(self, inputs: Inputs) -> Memory:
        """Returns the encoded context with its scale."""
        embedding, targets = self.embedding, inputs.context.shape[2]
        scale = self.scale(inputs)
        tokens, seen = embedding.embed_context(inputs, scale)  # [B·channels, M, D], [B·channels, M]
        static = embedding.embed_static(inputs)  # [B·channels, 1, D]
        channels = targets + len(embedding.context_covariates)
        tokens = embedding.dropout(tokens + static)
        for layer in self.encoder:
            tokens = layer(tokens, seen, channels)
        tokens = self.encoder_norm(tokens)
        # Covariates known only up to the cutoff have no channel in the horizon.
        kept = targets + len(embedding.horizon_covariates)
        return Memory(
            tokens=keep_channels(tokens, channels, kept),
            seen=keep_channels(seen, channels, kept),
            static=keep_channels(static, channels, kept),
            scale=scale,
        )

    def decode(
        self, memory: Memory, inputs: Inputs, previous: Float[Tensor, "B T C"] | None = None
    ) -> Float[Tensor, "B H C P"]:
        """Returns the head's raw numbers for every lead in one pass.

        `previous`: for an autoregressive decoder, the values one patch before each lead
        (`previous_values`), data units; NaN = missing.
        """
        tokens, shown = self.embedding.embed_horizon(inputs, memory.seen)  # [B·channels, N, D]
        tokens = tokens + memory.static
        if previous is not None:
            tokens = self.embedding.add_previous(tokens, previous, memory.scale)
        tokens = self.embedding.dropout(tokens)
        channels = inputs.context.shape[2] + len(self.embedding.horizon_covariates)
        for layer in self.decoder:
            tokens = layer(tokens, memory, shown, channels)
        horizon = inputs.elapsed.shape[1] - self.config.context_length
        return self._raw(tokens, channels, inputs.context.shape[2])[:, :horizon]

    def generate(
        self, memory: Memory, inputs: Inputs, choose: Choose, paths: int
    ) -> Float[Tensor, "B S H C"]:
        """Returns paths that an autoregressive decoder generates patch after patch, data units.

        `choose` makes values of the raw numbers of a patch.
        """
        targets = inputs.context.shape[2]
        horizon = inputs.elapsed.shape[1] - self.config.context_length
        patch = self.config.decoder_patch
        # All known inputs of the horizon at once; the values before each patch are added in the loop.
        tokens, shown = self.embedding.embed_horizon(inputs, memory.seen)
        tokens = tokens + memory.static
        channels = inputs.context.shape[2] + len(self.embedding.horizon_covariates)
        scale = Scale(*(part.repeat_interleave(paths, dim=0) for part in memory.scale))
        caches = [KeyValueCache(paths, channels) for _ in self.decoder]
        values = previous_values(inputs, inputs.context[:, :0], patch)
        values = values.repeat_interleave(paths, dim=0)  # [B·S, T, C]
        generated = []
        for number in range(tokens.shape[1]):
            one = slice(number, number + 1)
            visible = repeat_paths(shown[:, one], channels, paths)
            token = repeat_paths(tokens[:, one], channels, paths)  # [B·S·channels, 1, D]
            token = self.embedding.add_previous(token, values, scale)
            for layer, cache in zip(self.decoder, caches, strict=True):
                token = layer(token, memory, visible, channels, cache)
            values = choose(self._raw(token, channels, targets), scale, number * patch + 1)
            generated.append(values)
        paths_of_windows = torch.cat(generated, dim=1)[:, :horizon]  # [B·S, H, C]
        return paths_of_windows.unflatten(0, (-1, paths))

    @property
    def longest_horizon(self) -> int | None:
        """Steps that learned positions cover; None where positions have no end."""
        learned, tokens = self.embedding.time.learned, self.embedding.context_tokens
        return None if learned is None else (len(learned) - tokens) * self.config.decoder_patch

    def _raw(self, tokens: Tensor, channels: int, targets: int) -> Float[Tensor, "B T C P"]:
        """[B·channels, N, D] → the head's raw numbers."""
        raw = self.output(self.decoder_norm(keep_channels(tokens, channels, targets)))
        # A token has the numbers of all steps of its patch: [B·C, N, patch·P] → [B·C, T, P].
        raw = raw.unflatten(-1, (self.config.decoder_patch, -1)).flatten(1, 2)
        return raw.unflatten(0, (-1, targets)).transpose(1, 2)  # [B, T, C, P]


def initialise(network: Trainable) -> None:
    """Draws the weights of a network that are trained, in place."""
    for module in network.modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and not weight.requires_grad:  # learned on other tables
            continue
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.1)
            with torch.no_grad():
                module.weight[0] = 0  # unknown: adds nothing
    embedding = network.embedding
    if embedding.horizon_token is not None:
        nn.init.normal_(embedding.horizon_token, std=0.02)
    if embedding.values is not None:
        # Multiplied by √width when read: of spread 1 beside the time encodings.
        nn.init.normal_(embedding.values.weight, std=embedding.config.width**-0.5)
    if embedding.time.learned is not None:
        nn.init.normal_(embedding.time.learned, std=0.02)
