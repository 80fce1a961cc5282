"""The encoder-decoder, read top to bottom: forward · encode · decode · generate.

What comes in: `Inputs` in data units. What goes out: quantiles in data units, and joint paths where the
decoder is autoregressive. Promised: nothing after a horizon patch changes its forecast (decoder_mask
"causal"); what an unobserved cell holds changes nothing; y → a·y + b maps the forecast the same way
(all heads but that of counts and that of words).

    context ─▶ scale ─┬─▶ patches + time encodings ─▶ ENCODER ─▶ memory
                      │                                            │
    known covariates, phases, elapsed ─▶ horizon tokens ─▶ DECODER ─▶ [· gate +] head ─▶ quantiles
              [values of the patch before ─▶ +]                         ▲                  │ share
                      └─▶ [linear forecast] ────────────────────────────┴──────────────────┘

Axes: B batch · S path · L context · H horizon · T step · C channel · P raw number · Q quantile level ·
D width · N, M tokens.
Channels are forecast one by one with shared weights: [B, …, C] is folded to [B·C, …] on the way in.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from forecaster.config import ModelPlan
from forecaster.model.embedding import (
    for_paths,
    of_channels,
    repeat,
    shifted,
)
from forecaster.model.experts import LinearForecast
from forecaster.model.heads import QuantileHead, make_head
from forecaster.model.layers import DecoderLayer, EncoderLayer, make_norm
from forecaster.model.memory import Cache, Memory
from forecaster.model.sampling import Prediction, prediction_from_paths, uniforms
from forecaster.model.scaling import Scale
from forecaster.model.shape import Shape
from forecaster.model.tokens import Tokens
from forecaster.windows.batch import Inputs

Choose = Callable[[Tensor, Scale, int], Tensor]
"""(raw [W, T, C, P], scale, first lead) → values [W, T, C], data units: what a path does next."""


class Network(Tokens):
    """Patch encoder, causal decoder, and a head that makes distributions."""

    def __init__(self, config: ModelPlan, shape: Shape):
        """Builds the network and initialises its weights.

        Args:
            config: a resolved section (context_length, patch and decoder_patch are numbers).
            shape: counts of everything in `Inputs`.
        """
        super().__init__(config, shape)
        layers, tokens = config.encoder_layers, (self.context_tokens, self.horizon_tokens)
        self.encoder = nn.ModuleList(EncoderLayer(config, n + 1, tokens[0]) for n in range(layers))
        self.encoder_norm = make_norm(config)
        self.decoder = nn.ModuleList(
            DecoderLayer(config, layers + n + 1, tokens[1], tokens[0])
            for n in range(config.decoder_layers)
        )
        self.decoder_norm = make_norm(config)
        self.head = make_head(config)
        self.output = nn.Linear(config.width, self.decoder_patch * self.head.size)
        self.linear: LinearForecast | None = None
        self.gate: nn.Parameter | None = None
        if config.linear in ("skip", "blend"):
            self.linear = LinearForecast(config, shape)
            self.network_weight: Tensor
            """How much of the forecast is attention's; the rest is the linear one."""
            self.register_buffer("network_weight", torch.ones(()))
        if config.linear == "skip":
            self.gate = nn.Parameter(torch.zeros(self.head.size))
        if not self.output.weight.is_meta:  # one that is only counted has no values
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
        if self.horizon_token is not None:
            nn.init.normal_(self.horizon_token, std=0.02)
        if self.words is not None:
            nn.init.normal_(self.words.embedding.weight, std=self.config.width**-0.5)
        if self.time.learned is not None:
            nn.init.normal_(self.time.learned, std=0.02)
        if self.gate is not None:  # closed at first: a map of zeros behind it would never learn
            return
        # The first forecast is the context's own mean and spread, whatever the tokens say.
        nn.init.zeros_(self.output.weight)
        with torch.no_grad():
            self.output.bias.copy_(self.head.initial_bias().repeat(self.decoder_patch))

    def forward(self, inputs: Inputs, key: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B H C Q"]:
        """Returns quantiles in data units.

        Args:
            inputs: windows.
            key: what the paths of each window are drawn by, where there are any; None = all the same.
        """
        quantiles: Tensor = self.predict(inputs, key).quantiles
        return quantiles

    def predict(
        self, inputs: Inputs, key: Int[Tensor, " B"] | None = None, paths: int | None = None
    ) -> Prediction:
        """Returns quantiles and mean in data units, and the paths they come from where there are any.

        Args:
            inputs: windows.
            key: as in `forward`.
            paths: how many; None = as the config says.
        """
        if self.config.decoder == "direct":
            return self._at_once(inputs)
        memory = self.encode(inputs)
        draws = paths or self.config.paths
        keys = inputs.channel.new_zeros(len(inputs.channel)) if key is None else key

        def draw(raw: Tensor, scale: Scale, lead: int) -> Tensor:
            numbers = uniforms(keys, draws, lead, *raw.shape[1:3]).flatten(0, 1)
            return self.head.sample(raw, scale, numbers)

        return prediction_from_paths(
            self.generate(memory, inputs, draw, draws), self.config.quantile_levels
        )

    def _at_once(self, inputs: Inputs) -> Prediction:
        """What a direct decoder and the linear forecast say, each as much as validation gave it."""
        if self.linear is None:
            memory = self.encode(inputs)
            raw = self.decode(memory, inputs)
            return Prediction(
                self.head.quantiles(raw, memory.scale), self.head.mean(raw, memory.scale), None
            )
        share = float(self.network_weight)
        if share == 0:
            scale = self.scaler(inputs.context, inputs.observed, inputs.channel)
            return Prediction(scale.invert(self.linear_quantiles(inputs, scale)), None, None)
        memory = self.encode(inputs)
        said = self.head.quantiles(self.decode(memory, inputs), memory.scale)
        if share < 1:
            said = torch.lerp(
                memory.scale.invert(self.linear_quantiles(inputs, memory.scale)), said, share
            )
        return Prediction(said, None, None)

    def linear_quantiles(self, inputs: Inputs, scale: Scale) -> Float[Tensor, "B H C Q"]:
        """Returns the quantiles of the linear forecast alone, scaled units.

        Args:
            inputs: windows.
            scale: of their contexts.
        """
        assert self.linear is not None
        known = self.known_scaler(inputs.known, inputs.known_observed)
        quantiles: Tensor = self.linear(inputs, scale, known)
        return quantiles

    def greedy(self, inputs: Inputs) -> Float[Tensor, "B H C"]:
        """Returns the one path that always takes what the head finds likeliest, data units."""

        def likeliest(raw: Tensor, scale: Scale, lead: int) -> Tensor:
            return self.head.mode(raw, scale)

        return self.generate(self.encode(inputs), inputs, likeliest, 1)[:, 0]

    def encode(self, inputs: Inputs) -> Memory:
        """Returns the context as tokens, with the scale that was taken out of it."""
        scale = self.scaler(inputs.context, inputs.observed, inputs.channel)
        tokens, seen = self.read_context(inputs, scale)
        about = self.read_about(inputs)
        channels = tokens.shape[0] // inputs.elapsed.shape[0]
        first = (self.attention_length % self.patch or self.patch) - 1
        first += self.context_length - self.attention_length
        ends = slice(first, self.context_length, self.patch)  # the last cell of each patch
        elapsed = inputs.elapsed[:, ends]
        time = self.time(elapsed, inputs.phase[:, ends], first=0)
        angles = self.time.angles(repeat(elapsed, channels))
        tokens = self.dropout(tokens + repeat(time, channels) + about)
        for layer in self.encoder:
            tokens = layer(tokens, seen, angles, channels)
        # What is known only up to the cutoff has no place in the horizon.
        kept = channels - len(self.context_covariates) + len(self.horizon_covariates)
        memory = Memory(self.encoder_norm(tokens), seen, angles, about, scale)
        return memory.of_channels(channels, kept)

    def decode(
        self, memory: Memory, inputs: Inputs, previous: Float[Tensor, "B T C"] | None = None
    ) -> Float[Tensor, "B H C P"]:
        """Returns the head's raw numbers for every lead, scaled units, in one pass.

        Args:
            memory: the encoded context.
            inputs: the same inputs, for what is known after the cutoff.
            previous: for an autoregressive decoder, the values one patch before each lead
                (`embedding.shifted`), data units; NaN = missing, which is a learned token.
        """
        horizon = inputs.elapsed.shape[1] - self.context_length
        tokens, shown, angles = self.read_horizon(memory, inputs)
        channels = tokens.shape[0] // inputs.elapsed.shape[0]
        tokens = tokens + memory.about
        if previous is not None:
            tokens = self.told(tokens, previous, memory.scale)
        causal = self.config.decoder_mask == "causal"
        tokens = self.dropout(tokens)
        for layer in self.decoder:
            tokens = layer(tokens, memory, causal, shown, angles, channels)
        raw = self._raw(tokens, channels, inputs.context.shape[2])[:, :horizon]
        if self.gate is None:
            return raw
        assert isinstance(self.head, QuantileHead)
        return self.head.inverse(self.linear_quantiles(inputs, memory.scale)) + self.gate * raw

    def generate(
        self, memory: Memory, inputs: Inputs, choose: Choose, paths: int
    ) -> Float[Tensor, "B S H C"]:
        """Returns paths written patch after patch by an autoregressive decoder, data units.

        Args:
            memory: the encoded context.
            inputs: the same inputs, for what is known after the cutoff.
            choose: makes values of raw numbers.
            paths: S, per window.
        """
        horizon, targets = inputs.elapsed.shape[1] - self.context_length, inputs.context.shape[2]
        tokens, shown, angles = self.read_horizon(memory, inputs)
        channels = tokens.shape[0] // inputs.elapsed.shape[0]
        tokens = tokens + memory.about
        scale = Scale(*(part.repeat_interleave(paths, dim=0) for part in memory.scale))
        caches = [Cache(paths, channels) for _ in self.decoder]
        values = shifted(inputs, inputs.context[:, :0], self.decoder_patch)
        values = values.repeat_interleave(paths, dim=0)  # [W, T, C]
        written = []
        for number in range(tokens.shape[1]):
            one = slice(number, number + 1)
            turns = None if angles is None else for_paths(angles[:, one], channels, paths)
            others = for_paths(shown[:, one], channels, paths)
            own = self.told(for_paths(tokens[:, one], channels, paths), values, scale)
            for layer, cache in zip(self.decoder, caches, strict=True):
                own = layer(own, memory, True, others, turns, channels, cache)
            values = choose(self._raw(own, channels, targets), scale, number * self.decoder_patch + 1)
            written.append(values)
        drawn: Tensor = torch.cat(written, dim=1)[:, :horizon].unflatten(0, (-1, paths))
        return drawn

    @property
    def longest_horizon(self) -> int | None:
        """Steps that learned positions cover; None where positions have no end."""
        learned = self.time.learned
        return None if learned is None else (len(learned) - self.context_tokens) * self.decoder_patch

    def _raw(self, tokens: Tensor, channels: int, targets: int) -> Tensor:
        """[B·channels, N, D] → [B, N·patch, C, P]."""
        raw: Tensor = self.output(self.decoder_norm(of_channels(tokens, channels, targets)))
        raw = raw.unflatten(-1, (self.decoder_patch, -1)).flatten(1, 2)
        unfolded: Tensor = raw.unflatten(0, (-1, targets))
        return unfolded.transpose(1, 2)
