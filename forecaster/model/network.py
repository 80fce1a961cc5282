"""The encoder-decoder, read top to bottom: encode · decode · forward.

What comes in: `Inputs` in data units. What goes out: quantiles in data units. Promised: nothing after
a horizon patch changes its forecast (decoder_mask "causal"); what an unobserved cell holds changes
nothing; y → a·y + b maps the forecast the same way.

    context ─▶ scale ─▶ patches + time encodings ─▶ ENCODER ─▶ memory
                                                                 │
    known covariates, phases, elapsed ─▶ horizon tokens ─▶ DECODER ─▶ head ─▶ quantiles

Axes: B batch · L context · H horizon · C channel · Q quantile level · D width · N, M tokens.
Channels are forecast one by one with shared weights: [B, …, C] is folded to [B·C, …] on the way in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from forecaster.config import ModelConfig
from forecaster.model.attention import causal_mask
from forecaster.model.encoding import TimeEncoding
from forecaster.model.heads import QuantileHead
from forecaster.model.layers import DecoderLayer, EncoderLayer
from forecaster.model.scaling import ContextScaler, Scale, Standardizer
from forecaster.windows.batch import Inputs


@dataclass(frozen=True)
class Shape:
    """What the data looks like to the network: counts, never names."""

    horizon: int
    """H."""
    channels: int
    """Targets the model knows."""
    past: int = 0
    """Numeric past covariates."""
    known: int = 0
    """Numeric known covariates."""
    static: int = 0
    """Numeric static covariates."""
    past_categories: tuple[int, ...] = ()
    """Categories met in training, per categorical past covariate."""
    known_categories: tuple[int, ...] = ()
    """The same for known covariates."""
    static_categories: tuple[int, ...] = ()
    """The same for static covariates."""
    cycles: int = 0
    """Calendar cycles."""
    regular: bool = True
    """False: the time between cells enters the patches."""

    @property
    def embeds_channels(self) -> bool:
        """True when a channel must be told apart: covariates mean different things to each."""
        covariates = self.past + self.known + len(self.past_categories + self.known_categories)
        return self.channels > 1 and covariates > 0


class Memory(NamedTuple):
    """What the encoder hands to the decoder."""

    tokens: Tensor
    """[B·C, M, D] the encoded context."""
    mask: Tensor
    """[B·C, 1, 1, M] True where a token holds an observation."""
    about: Tensor
    """[B·C, 1, D] what is known of the series and channel whatever the time."""
    scale: Scale
    """Undoes the scaling."""


class Network(nn.Module):
    """Patch encoder, causal direct decoder, monotone quantile head."""

    def __init__(self, config: ModelConfig, shape: Shape):
        """Builds the network and initialises its weights.

        Args:
            config: a resolved section (context_length, patch and decoder_patch are numbers).
            shape: counts of everything in `Inputs`.
        """
        super().__init__()
        assert config.context_length and config.patch and config.decoder_patch
        self.config, self.shape = config, shape
        self.context_length, self.patch = config.context_length, config.patch
        self.decoder_patch = config.decoder_patch
        self.scaler = ContextScaler(shape.channels)
        self.past_scaler = Standardizer(shape.past)
        self.known_scaler = Standardizer(shape.known)
        self.static_scaler = Standardizer(shape.static)
        self.past_embedding = _embeddings(shape.past_categories)
        self.known_embedding = _embeddings(shape.known_categories)
        self.static_embedding = _embeddings(shape.static_categories)
        channels = (shape.channels,) if shape.embeds_channels else ()
        self.channel_embedding = _embeddings(channels)

        gap = 0 if shape.regular else 1
        known = 2 * shape.known + _width_of(self.known_embedding) + gap
        past = 2 * shape.past + _width_of(self.past_embedding)
        about = 2 * shape.static + _width_of(self.static_embedding)
        about += _width_of(self.channel_embedding)
        width = config.width
        self.context_patch = nn.Linear(self.patch * (2 + past + known), width)
        self.horizon_patch = nn.Linear(self.decoder_patch * known, width) if known else None
        self.horizon_token = nn.Parameter(torch.zeros(width))
        self.about = nn.Linear(about, width) if about else None
        self.time = TimeEncoding(width, shape.cycles, config.harmonics)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.encoder_norm = nn.LayerNorm(width)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.decoder_norm = nn.LayerNorm(width)
        self.head = QuantileHead(config.quantile_levels)
        self.output = nn.Linear(width, self.decoder_patch * self.head.size)
        self._initialise()

    def _initialise(self) -> None:
        """The one place where weights get their first values."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.1)
                with torch.no_grad():
                    module.weight[0] = 0  # unknown: adds nothing
        nn.init.normal_(self.horizon_token, std=0.02)
        # The first forecast is the context's own mean and spread, whatever the tokens say.
        nn.init.zeros_(self.output.weight)
        with torch.no_grad():
            self.output.bias.copy_(self.head.initial_bias().repeat(self.decoder_patch))

    def forward(self, inputs: Inputs) -> Float[Tensor, "B H C Q"]:
        """Returns quantiles in data units."""
        memory = self.encode(inputs)
        return memory.scale.invert(self.head(self.decode(memory, inputs)))

    def encode(self, inputs: Inputs) -> Memory:
        """Returns the context as tokens, with the scale that was taken out of it."""
        scale = self.scaler(inputs.context, inputs.observed, inputs.channel)
        values = torch.where(inputs.observed, scale.apply(inputs.context), 0.0)
        about = self._about(inputs)
        cells = torch.cat([_fold(values), _fold(inputs.observed).float()], dim=-1)  # [BC, L, 2]
        covariates = torch.cat([self._past(inputs), self._known(inputs, future=False)], dim=-1)
        cells = torch.cat([cells, _repeat(covariates, inputs)], dim=-1)
        patches = _patched(cells, self.patch)
        seen = _patched(_fold(inputs.observed), self.patch).any(dim=-1)  # [BC, M]
        first = (self.context_length % self.patch or self.patch) - 1
        ends = slice(first, self.context_length, self.patch)  # the last cell of each patch
        time = self.time(inputs.elapsed[:, ends], inputs.phase[:, ends])
        tokens = self.dropout(self.context_patch(patches) + _repeat(time, inputs) + about)
        mask = seen[:, None, None, :]
        for layer in self.encoder:
            tokens = layer(tokens, mask)
        return Memory(self.encoder_norm(tokens), mask, about, scale)

    def decode(self, memory: Memory, inputs: Inputs) -> Float[Tensor, "B H C P"]:
        """Returns the head's raw numbers for every lead, scaled units.

        Args:
            memory: the encoded context.
            inputs: the same inputs, for what is known after the cutoff.
        """
        horizon, size = self.shape.horizon, self.decoder_patch
        starts = slice(self.context_length, self.context_length + horizon, size)
        time = self.time(inputs.elapsed[:, starts], inputs.phase[:, starts])
        tokens = self.horizon_token + time
        if self.horizon_patch is not None:
            known = self._known(inputs, future=True)
            tokens = tokens + self.horizon_patch(_patched(known, size, front=False))
        tokens = self.dropout(_repeat(tokens, inputs) + memory.about)
        mask = self._decoder_mask(tokens)
        for layer in self.decoder:
            tokens = layer(tokens, memory.tokens, mask, memory.mask)
        raw: Tensor = self.output(self.decoder_norm(tokens))
        raw = raw.unflatten(-1, (size, -1)).flatten(1, 2)[:, :horizon]  # [BC, H, P]
        channels = inputs.context.shape[2]
        unfolded: Tensor = raw.unflatten(0, (-1, channels))
        return unfolded.transpose(1, 2)

    def _decoder_mask(self, tokens: Tensor) -> Bool[Tensor, "N N"] | None:
        if self.config.decoder_mask == "full":
            return None
        return causal_mask(tokens.shape[1], tokens.device)

    def _past(self, inputs: Inputs) -> Float[Tensor, "B L X"]:
        observed = inputs.past_observed
        numbers = self.past_scaler(inputs.past, observed)
        codes = _embedded(self.past_embedding, inputs.past_category)
        return torch.cat([numbers, observed.float(), *codes], dim=-1)

    def _known(self, inputs: Inputs, future: bool) -> Float[Tensor, "B T X"]:
        length = self.context_length
        span = slice(length, None) if future else slice(0, length)
        observed = inputs.known_observed[:, span]
        numbers = self.known_scaler(inputs.known[:, span], observed)
        codes = _embedded(self.known_embedding, inputs.known_category[:, span])
        parts = [numbers, observed.float(), *codes]
        if not self.shape.regular:
            gap = inputs.elapsed.diff(dim=1, prepend=inputs.elapsed[:, :1] - 1)
            parts.append(gap.clamp(min=0).log1p()[:, span, None])
        return torch.cat(parts, dim=-1)

    def _about(self, inputs: Inputs) -> Float[Tensor, "BC 1 D"]:
        batch, _, channels = inputs.context.shape
        if self.about is None:
            return inputs.context.new_zeros((batch * channels, 1, self.config.width))
        observed = ~inputs.static.isnan()
        numbers = self.static_scaler(inputs.static, observed)
        codes = _embedded(self.static_embedding, inputs.static_category)
        series = torch.cat([numbers, observed.float(), *codes], dim=-1)
        channel = _embedded(self.channel_embedding, inputs.channel.reshape(-1, 1))
        about: Tensor = self.about(torch.cat([_repeat(series, inputs), *channel], dim=-1))
        return about[:, None]


def _embeddings(sizes: tuple[int, ...]) -> nn.ModuleList:
    """One table per category; row 0, the unknown, stays zero."""
    return nn.ModuleList(
        nn.Embedding(size + 1, min(16, 2 + size // 2), padding_idx=0) for size in sizes
    )


def _width_of(tables: nn.ModuleList) -> int:
    return sum(table.embedding_dim for table in tables if isinstance(table, nn.Embedding))


def _embedded(tables: nn.ModuleList, codes: Tensor) -> list[Tensor]:
    return [table(codes[..., i]) for i, table in enumerate(tables)]


def _fold(cells: Tensor) -> Tensor:
    """[B, L, C] → [B·C, L, 1]: a window per channel."""
    return cells.transpose(1, 2).flatten(0, 1)[..., None]


def _repeat(shared: Tensor, inputs: Inputs) -> Tensor:
    """[B, …] → [B·C, …]: what all channels of a window share, once for each."""
    channels = inputs.context.shape[2]
    return shared if channels == 1 else shared.repeat_interleave(channels, dim=0)


def _patched(cells: Tensor, size: int, front: bool = True) -> Tensor:
    """[B, T, X] → [B, N, size·X]; what does not fill a patch is padded with zeros, old end first."""
    missing = -cells.shape[1] % size
    if missing:
        padding = cells.new_zeros((cells.shape[0], missing, cells.shape[2]))
        cells = torch.cat([padding, cells] if front else [cells, padding], dim=1)
    patches: Tensor = cells.unflatten(1, (-1, size))
    return patches.flatten(2)
