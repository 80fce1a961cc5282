"""Networks that classify series or steps: the encoder of the forecasts, and a head of classes.

    context ─▶ scale ─▶ patches + time encodings ─▶ ENCODER ─┬─▶ attention of one query ─▶ a class per series
                                                             └─▶ mean over channels ─────▶ a class per step
    context ─▶ random convolution kernels + ridge ─▶ classes of either kind
    probability = network weight · mean of the networks + rest · random kernels, each with its temperature

Axes: B window · L context · C channel · M token · D width · G class · P class of each model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from forecaster.config import ModelPlan
from forecaster.model.attention import MultiHeadAttention
from forecaster.model.embedding import Embedding, Shape
from forecaster.model.layers import Dropout, EncoderLayer
from forecaster.model.network import initialise
from forecaster.model.random_kernels import RandomKernels
from forecaster.model.scaling import ContextScaler, Scale
from forecaster.model.shortcuts import may_hold
from forecaster.model.trainable import Losses, MedianLoss, Trainable
from forecaster.windows.batch import Batch, Inputs

# Augmentation
_STRETCH = 0.1  # of the length, at most
_SHIFT = 0.05  # of the length, at most
_GROWTH = 0.1  # standard deviation of the factor of a channel
_NOISE = 0.05  # standard deviation, spreads
_HIDDEN = 0.1  # of the steps, side by side


class ClassScaler(nn.Module):
    """Scales channels by the mean and spread of their training rows: levels may tell classes apart."""

    def __init__(self, channels: int):
        super().__init__()
        self.scaler = ContextScaler(channels)

    def forward(self, inputs: Inputs) -> Scale:
        """Returns the scale of each window."""
        loc, scale = self.scaler.loc[inputs.channel], self.scaler.scale[inputs.channel]
        return Scale(loc, torch.zeros_like(loc), scale)

    def standardised(self, inputs: Inputs) -> Float[Tensor, "B L C"]:
        """Returns scaled values, 0 where missing."""
        return torch.where(inputs.observed, self(inputs).apply(inputs.context), 0.0)


class ClassNetwork(Trainable):
    """Encoder with a head of classes; learns the class of a window, or of each of its steps."""

    experts: None = None

    def __init__(self, config: ModelPlan, shape: Shape):
        super().__init__()
        self.config, self.shape = config, shape
        self.per_step = config.head == "step_classes"
        self.scale = ClassScaler(shape.channels)
        self.embedding = Embedding(config, shape)
        tokens = self.embedding.context_tokens
        self.encoder = nn.ModuleList(EncoderLayer(config, tokens) for _ in range(config.encoder_layers))
        self.encoder_norm = nn.LayerNorm(config.width)
        self.query = None if self.per_step else nn.Parameter(torch.zeros(config.width))
        self.pool = None if self.per_step else MultiHeadAttention(config.width, config.heads)
        self.dropout = Dropout(config.dropout)
        steps = config.patch if self.per_step else 1
        channels = shape.channels + len(self.embedding.context_covariates)
        self.output = nn.Linear(channels * config.width, steps * shape.classes)
        self.class_weights = nn.Buffer(torch.ones(shape.classes))
        """[G] of the loss; what they add to rare classes is taken off the probabilities."""
        if not self.output.weight.is_meta:
            initialise(self)
            if self.query is not None:
                nn.init.normal_(self.query, std=0.02)
            nn.init.zeros_(self.output.weight)

    @property
    def scaler(self) -> ContextScaler:  # type: ignore[override]
        """Scaler of the channels."""
        return self.scale.scaler

    def forward(self, inputs: Inputs) -> Float[Tensor, "B *L G"]:
        """Returns logits of the classes of each window, or [B, L, G] of each of its steps."""
        if self.per_step:
            tokens, _ = self.encode(inputs)
            tokens = tokens.transpose(1, 2).flatten(2)  # [B, C, M, D] → [B, M, C·D]
            logits = self.output(self.dropout(tokens))  # [B, M, patch·G]
            logits = logits.unflatten(-1, (self.config.patch, -1)).flatten(1, 2)  # [B, M·patch, G]
            # The first patch may be filled up at its old end.
            return logits[:, -self.config.context_length :] - self.class_weights.log()
        return self.output(self.dropout(self.embed(inputs))) - self.class_weights.log()

    def encode(self, inputs: Inputs) -> tuple[Float[Tensor, "B C M D"], Bool[Tensor, "B C M"]]:
        """Returns encoded tokens of each channel, covariates among them, and where one holds an observation."""
        embedding = self.embedding
        tokens, seen = embedding.embed_context(inputs, self.scale(inputs))
        tokens = embedding.dropout(tokens + embedding.embed_static(inputs))
        channels = inputs.context.shape[2] + len(embedding.context_covariates)
        for layer in self.encoder:
            tokens = layer(tokens, seen, channels)
        windows = (-1, channels)
        return self.encoder_norm(tokens).unflatten(0, windows), seen.unflatten(0, windows)

    def embed(self, inputs: Inputs) -> Float[Tensor, "B CD"]:
        """Returns a vector per window: of each channel, what one query attends to."""
        tokens, seen = self.encode(inputs)
        if self.pool is None or self.query is None:
            real = seen[..., None].float()  # [B, C, M, 1]
            mean = (tokens * real).sum(dim=2) / real.sum(dim=2).clamp(min=1)
            return mean.flatten(1)
        # Per channel: one query over all of them had an accuracy of .77 for .93 on JapaneseVowels.
        query = self.query.expand(tokens.shape[0] * tokens.shape[1], 1, -1)
        pooled = self.pool(query, tokens.flatten(0, 1), seen.flatten(0, 1))  # [B·C, 1, D]
        return pooled.unflatten(0, tokens.shape[:2]).flatten(1)

    def losses(self, batch: Batch, loss: MedianLoss = "pinball") -> Losses:
        """Returns the weighted sum of cross-entropies of each window, and the sum of weights.

        While training, windows are augmented. `loss` does not matter: classes have no median.
        """
        inputs = batch.inputs
        if self.training:
            inputs = augmented(inputs, self.scaler.scale[inputs.channel], moves=not self.per_step)
        code = batch.target if self.per_step else batch.target.amax(dim=1)  # 0 = no class
        class_ = (code - 1).clamp(min=0)
        # The loss is of the logits before `forward` takes the class weights off them.
        logits = self(inputs).float() + self.class_weights.log()
        weight = torch.where(code > 0, self.class_weights[class_], 0.0)
        entropy = F.cross_entropy(logits.flatten(0, -2), class_.flatten(), reduction="none")
        weighted = weight * entropy.view(code.shape)
        return (weighted.sum(dim=1), weight.sum(dim=1)) if self.per_step else (weighted, weight)


def augmented(inputs: Inputs, spread: Float[Tensor, "B C"], moves: bool) -> Inputs:
    """Returns windows changed as series may differ by chance.

    Args:
        inputs: of training windows.
        spread: of each channel, data units.
        moves: also stretch and shift time, which classes of steps do not allow.
    """
    context, observed = inputs.context, inputs.observed
    windows, length, channels = context.shape
    if moves:
        # Drawn on the processor: the same on every device.
        stretch = 1 + _STRETCH * (2 * torch.rand(windows, 1) - 1)
        shift = _SHIFT * length * (2 * torch.rand(windows, 1) - 1)
        steps = torch.arange(length, dtype=torch.float32)
        middle = (length - 1) / 2
        # The step that each one is taken from: the nearest, so that values stay those of the series.
        source = ((steps - middle) * stretch + middle + shift).round().long()  # [B, L]
        source = source.clamp(0, length - 1).to(context.device)
        source = source[..., None].expand(-1, -1, channels)  # [B, L, C]
        context, observed = context.gather(1, source), observed.gather(1, source)
    hidden_length = max(1, round(_HIDDEN * length))
    begin = torch.randint(0, length, (windows, 1))
    steps = torch.arange(length)
    hidden = (steps >= begin) & (steps < begin + hidden_length) & (length > 2)
    observed = observed & ~hidden[..., None].to(observed.device)
    factor = 1 + _GROWTH * torch.randn(windows, 1, channels, dtype=context.dtype).to(context.device)
    noise = _NOISE * torch.randn(context.shape, dtype=context.dtype).to(context.device)
    context = context * factor + noise * spread[:, None]
    return replace(inputs, context=context, observed=observed)


class ClassEnsemble(nn.Module):
    """Probabilities of classes: networks of several folds, and random kernels."""

    def __init__(self, networks: Sequence[ClassNetwork]):
        """Takes networks of the same plan and shape."""
        super().__init__()
        self.networks = nn.ModuleList(networks)
        config, shape = networks[0].config, networks[0].shape
        self.per_step = networks[0].per_step
        self.scale = ClassScaler(shape.channels)
        self.kernels = RandomKernels(
            shape.channels, config.context_length, shape.classes, self.per_step
        )
        self.temperatures = nn.Buffer(torch.ones(2))
        """Of the networks and of the kernels: what their logits are divided by."""
        self.network_weight = nn.Buffer(torch.ones(()))
        self.class_share = nn.Buffer(torch.full((shape.classes,), 1 / shape.classes))
        """[G] of the training samples."""

    def forward(self, inputs: Inputs) -> Float[Tensor, "B *L G"]:
        """Returns probabilities of the classes of each window, or [B, L, G] of each of its steps."""
        # A part without weight is not computed.
        if not may_hold(self.network_weight > 0):
            return self._by_kernels(inputs)
        by_networks = self._by_networks(inputs)
        if not may_hold(self.network_weight < 1):
            return by_networks
        return torch.lerp(self._by_kernels(inputs), by_networks, self.network_weight)

    def beside_parts(self, inputs: Inputs) -> Float[Tensor, "B *L P"]:
        """Returns probabilities as of `forward`, then by the networks alone, then by the random kernels alone."""
        networks, kernels = self._by_networks(inputs), self._by_kernels(inputs)
        model = torch.lerp(kernels, networks, self.network_weight)
        return torch.cat([model, networks, kernels], dim=-1)

    def _by_networks(self, inputs: Inputs) -> Float[Tensor, "B *L G"]:
        logits = torch.stack([network(inputs) for network in self.networks])
        return (logits / self.temperatures[0]).softmax(dim=-1).mean(dim=0)

    def _by_kernels(self, inputs: Inputs) -> Float[Tensor, "B *L G"]:
        return (self.kernels(*self.series(inputs)) / self.temperatures[1]).softmax(dim=-1)

    def series(self, inputs: Inputs) -> tuple[Float[Tensor, "B L C"], Bool[Tensor, "B L"]]:
        """Returns what random kernels read: scaled values, and True inside the series."""
        observed = inputs.observed.any(dim=-1)  # [B, L]
        from_first = observed.cumsum(dim=1) > 0
        to_last = observed.flip(1).cumsum(dim=1).flip(1) > 0
        return self.scale.standardised(inputs), from_first & to_last

    def embed(self, inputs: Inputs) -> Float[Tensor, "B D"]:
        """Returns a vector per window: those of the networks beside each other."""
        return torch.cat([network.embed(inputs) for network in self.networks], dim=-1)  # type: ignore[operator]
