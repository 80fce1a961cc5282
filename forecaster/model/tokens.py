"""Inputs become tokens: the half of the network that comes before attention.

What comes in: `Inputs` in data units. What goes out: tokens of the context, tokens of the horizon, and
what they are told of time, of the series, and of the values written before them.

Axes: B batch · L context · H horizon · T step · C channel · D width · N, M tokens. Channels are read
one by one with shared weights: [B, …, C] is folded to [B·C, …].
"""

from __future__ import annotations

import math
from functools import reduce
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from forecaster.config import ModelPlan
from forecaster.model.dropout import Dropout
from forecaster.model.embedding import (
    CovariateChannels,
    Covariates,
    beside,
    category_tables,
    fold,
    looked_up,
    marked,
    of_channels,
    patched,
    repeat,
    widths_of,
)
from forecaster.model.layers import ConvStem
from forecaster.model.memory import Memory
from forecaster.model.positions import TimeEncoding
from forecaster.model.scaling import ContextScaler, Scale, Standardizer
from forecaster.model.shape import Shape
from forecaster.model.vocabulary import Vocabulary, Words
from forecaster.windows.batch import Inputs


class Horizon(NamedTuple):
    """What is known of the horizon before any of it is written."""

    tokens: Tensor
    """[B·C, N, D] from time encodings and known covariates."""
    shown: Tensor
    """[B·C, N] True where other channels may attend to a token."""
    angles: Tensor | None
    """[B·C, N, E/2] by how much queries and keys are turned; None unless positions are rotary."""


class Tokens(nn.Module):
    """Makes tokens; abstract: `Network` adds what becomes of them."""

    def __init__(self, config: ModelPlan, shape: Shape):
        """Builds what reads `Inputs`.

        Args:
            config: a resolved section (context_length, patch and decoder_patch are numbers).
            shape: counts of everything in `Inputs`.
        """
        super().__init__()
        assert config.context_length and config.patch and config.decoder_patch
        self.config, self.shape = config, shape
        self.context_length, self.patch = config.context_length, config.patch
        self.decoder_patch = config.decoder_patch
        self.attention_length = config.attention_length or config.context_length
        self.scaler = ContextScaler(shape.channels, config.scale_length)
        self.past_scaler = Standardizer(shape.past)
        self.known_scaler = Standardizer(shape.known)
        self.static_scaler = Standardizer(shape.static)
        self.past_embedding = category_tables(shape.past_categories)
        self.known_embedding = category_tables(shape.known_categories)
        self.static_embedding = category_tables(shape.static_categories)
        apart = config.channel_attention
        tells = shape.embeds_channels or (apart and shape.channels > 1)
        self.channel_embedding = category_tables((shape.channels,) if tells else ())

        past = widths_of(shape.past, self.past_embedding)
        known = widths_of(shape.known, self.known_embedding)
        about = sum(widths_of(shape.static, self.static_embedding, self.channel_embedding))
        gap = 0 if shape.regular else 1
        ahead = gap if apart else gap + sum(known)
        width = config.width
        follows, reads = config.decoder == "autoregressive", config.reads_words
        cells = (0 if reads else 2) + ahead + (0 if apart else sum(past))
        self.context_patch = nn.Linear(self.patch * cells, width) if cells else None
        self.horizon_patch = nn.Linear(self.decoder_patch * ahead, width) if ahead else None
        self.horizon_token = None if follows else nn.Parameter(torch.zeros(width))
        self.about = nn.Linear(about, width) if about else None
        self.context_tokens = -(-self.attention_length // self.patch)
        self.horizon_tokens = -(-shape.horizon // self.decoder_patch)
        tokens = (self.context_tokens, self.horizon_tokens)
        self.time = TimeEncoding(config, shape.cycles, *tokens)
        self.dropout = Dropout(config.dropout)
        self.stem = ConvStem(config, config.stem_kernel) if config.stem_kernel else None
        self.context_covariates = CovariateChannels(known + past if apart else [], self.patch, width)
        self.horizon_covariates = CovariateChannels(known if apart else [], self.decoder_patch, width)
        told = follows and not reads
        self.previous_patch = nn.Linear(2 * self.decoder_patch, width) if told else None
        self.words = Words(Vocabulary.of(config), width) if reads else None

    def read_context(self, inputs: Inputs, scale: Scale) -> tuple[Tensor, Tensor]:
        """Returns [B·C, M, D] patches, and [B·C, M] True where one holds an observation.

        Args:
            inputs: for the context.
            scale: of its values.
        """
        tail, size = self._span(future=False), self.patch
        observed = inputs.observed[:, tail]
        values = fold(scale.apply(inputs.context[:, tail]).masked_fill(~observed, torch.nan))
        past, known = self._past(inputs), self._known(inputs, future=False)
        mixed = [] if self.config.channel_attention else [past.together(), known.together()]
        shared = [
            repeat(part, observed.shape[2]) for part in [*mixed, *self._gap(inputs, future=False)]
        ]
        if self.words is None:
            shared = [*marked(values), *shared]
        embedded = [] if self.words is None else [self.words(values[..., 0])]
        if self.context_patch is not None:
            cells = torch.cat(shared, dim=-1)  # [BC, L, X]
            embedded.append(self.context_patch(patched(cells, size)))
        tokens = self._scaled(reduce(torch.add, embedded))
        seen = patched(fold(observed), size).any(dim=-1)
        if len(self.context_covariates):
            others, real = self.context_covariates([*known.apart(), *past.apart()])
            tokens, seen = beside(tokens, others), beside(seen, real)
        return (tokens if self.stem is None else self.stem(tokens, seen)), seen

    def read_horizon(self, memory: Memory, inputs: Inputs) -> Horizon:
        """Returns tokens of the horizon patches.

        Args:
            memory: the encoded context.
            inputs: for what is known after the cutoff.
        """
        targets, size = inputs.context.shape[2], self.decoder_patch
        starts = slice(self.context_length, None, size)
        elapsed = inputs.elapsed[:, starts]
        time = self.time(elapsed, inputs.phase[:, starts], first=self.context_tokens)
        known, apart = self._known(inputs, future=True), self.config.channel_attention
        tokens = time if self.horizon_token is None else self._scaled(self.horizon_token) + time
        if self.horizon_patch is not None:
            cells = [*([] if apart else [known.together()]), *self._gap(inputs, future=True)]
            embedded = self.horizon_patch(patched(torch.cat(cells, dim=-1), size, front=False))
            tokens = tokens + self._scaled(embedded)
        tokens = repeat(tokens, targets)
        channels = targets + len(self.horizon_covariates)
        # A channel that was never observed has nothing to tell the others.
        heard = of_channels(memory.seen, channels, targets).any(dim=1, keepdim=True)
        shown = heard.expand(-1, tokens.shape[1])
        if len(self.horizon_covariates):
            others, real = self.horizon_covariates(known.apart(), front=False)
            tokens, shown = beside(tokens, others + time[:, None]), beside(shown, real)
        return Horizon(tokens, shown, self.time.angles(repeat(elapsed, channels)))

    def _past(self, inputs: Inputs) -> Covariates:
        tail = self._span(future=False)
        observed, codes = inputs.past_observed[:, tail], inputs.past_category[:, tail]
        numbers = self.past_scaler(inputs.past[:, tail], observed)
        return Covariates(numbers, observed, codes, looked_up(self.past_embedding, codes))

    def _known(self, inputs: Inputs, future: bool) -> Covariates:
        span = self._span(future)
        observed, codes = inputs.known_observed[:, span], inputs.known_category[:, span]
        numbers = self.known_scaler(inputs.known[:, span], observed)
        return Covariates(numbers, observed, codes, looked_up(self.known_embedding, codes))

    def _gap(self, inputs: Inputs, future: bool) -> list[Tensor]:
        """[B, T, 1] time since the row before, on irregular tables."""
        if self.shape.regular:
            return []
        gap = inputs.elapsed.diff(dim=1, prepend=inputs.elapsed[:, :1] - 1)
        return [gap.clamp(min=0).log1p()[:, self._span(future), None]]

    def _span(self, future: bool) -> slice:
        """The horizon, or the end of the context that attention reads."""
        length = self.context_length
        return slice(length, None) if future else slice(length - self.attention_length, length)

    def read_about(self, inputs: Inputs) -> Float[Tensor, "BC 1 D"]:
        """Returns what is known of series and channel whatever the time.

        Covariates that are channels are told of their series alone: code 0 adds nothing.
        """
        code = F.pad(inputs.channel, (0, len(self.context_covariates)))
        if self.about is None:
            return inputs.context.new_zeros((code.numel(), 1, self.config.width))
        observed = ~inputs.static.isnan()
        numbers = self.static_scaler(inputs.static, observed)
        codes = looked_up(self.static_embedding, inputs.static_category)
        series = torch.cat([numbers, observed.float(), *codes], dim=-1)
        channel = looked_up(self.channel_embedding, code.reshape(-1, 1))
        about: Tensor = self.about(torch.cat([repeat(series, code.shape[1]), *channel], dim=-1))
        return about[:, None]

    def told(self, tokens: Tensor, previous: Tensor, scale: Scale) -> Tensor:
        """Returns tokens with what came one patch before them added to those of targets.

        Args:
            tokens: [B·C, N, D], covariates that are channels included.
            previous: [B, N·patch, C] data units; NaN = missing, which is a learned token.
            scale: of the windows.
        """
        values = fold(scale.apply(previous))
        if self.words is not None:
            embedded = self.words(values[..., 0])
        else:
            assert self.previous_patch is not None
            cells = torch.cat(marked(values), dim=-1)
            embedded = self.previous_patch(patched(cells, self.decoder_patch))
        embedded = self._scaled(embedded)
        windows = previous.shape[0]
        if tokens.shape[0] == embedded.shape[0]:
            return tokens + embedded
        others = tokens.shape[0] // windows - previous.shape[2]  # covariates as channels
        nothing = embedded.new_zeros((windows, others, *embedded.shape[1:]))
        return tokens + beside(embedded, nothing)

    def _scaled(self, embedded: Tensor) -> Tensor:
        scales = self.config.scale_inputs or self.config.reads_words
        return embedded * math.sqrt(self.config.width) if scales else embedded
