"""The `model` section of a config: what the network is made of.

What comes in is a mapping, what goes out is frozen and consistent: a network that cannot be built is
refused here, with its numbers, before any work.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

LONGEST = 1_000_000
"""Steps or tokens: beyond it a number is a slip, or meant to fill the memory."""
WIDEST, DEEPEST = 65_536, 1000
"""The same for the size of a token, and for layers; what fits this machine is asked with the data."""
MANY = 1_000_000_000
"""The same for what is only counted."""


def _or_null(value: object, check: ValidatorFunctionWrapHandler) -> int:
    return cast(int, value if value is None else check(value))


FROM_DATA = (WrapValidator(_or_null), PlainSerializer(lambda value: value, return_type=int | None))
"""Marks a number that may be null until it is chosen from the data. A resolved config holds a number,
which is what its type says to all that come after."""


class Section(BaseModel):
    """A frozen group of settings; unknown names are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


class ModelConfig(Section):
    """The network. The config chooses; there is no class per variant."""

    width: Annotated[int, Field(ge=4, le=WIDEST), *FROM_DATA] = 64
    """Size of a token; null = chosen from the number of training windows."""
    heads: int = Field(4, ge=1, le=WIDEST)
    """Attention heads; divides `width`."""
    encoder_layers: int = Field(2, ge=1, le=DEEPEST)
    """Layers over the context."""
    decoder_layers: int = Field(1, ge=1, le=DEEPEST)
    """Layers over the horizon."""
    feed_forward: int = Field(128, ge=1, le=8 * WIDEST)
    """Hidden size of the feed-forward layers."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Share of activations dropped while training, on embeddings and residuals."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of attention weights dropped while training; above 0 it costs the fused kernel."""
    stochastic_depth: float = Field(0.0, ge=0, lt=1)
    """Share of windows for which the last layer's parts are left out while training; earlier layers
    less, in proportion to their depth."""
    norm_first: bool = True
    """Normalise before each part of a layer; false: after its sum, as published in 2017."""
    normalization: Literal["layer", "rms"] = "layer"
    """layer: LayerNorm; rms: RMSNorm, which takes no mean away."""
    activation: Literal["gelu", "relu", "swiglu"] = "gelu"
    """Of the feed-forward layers; swiglu has a third matrix."""
    attention: Literal["full", "local", "strided", "sparse", "low_rank"] = "full"
    """Which tokens of the context meet. full: all; local: neighbours; strided: neighbours and every
    so-manieth; sparse: those that stand out meet all (ProbSparse); low_rank: mixtures of all."""
    decoder_attention: Literal["full", "local", "strided", "sparse", "low_rank"] = "full"
    """The same for the tokens of the horizon; low_rank has no causal form."""
    cross_attention: Literal["full", "low_rank"] = "full"
    """The same for horizon tokens that meet the context."""
    attention_window: int = Field(32, ge=1, le=LONGEST)
    """Tokens to each side that local and strided attention reach."""
    attention_stride: int = Field(16, ge=2, le=LONGEST)
    """Strided attention: every so-manieth token is met too."""
    attention_factor: int = Field(5, ge=1, le=LONGEST)
    """Sparse attention: of N tokens this times ln N are sampled, and as many stand out."""
    attention_rank: int = Field(64, ge=1, le=WIDEST)
    """Low-rank attention: mixtures of keys and values."""
    channel_attention: bool = False
    """Channels of a series, and covariates as channels beside them, attend to each other."""
    stem_kernel: int | None = Field(None, ge=2, le=10_000)
    """Tokens that a causal convolution before the encoder joins; null = off."""
    positions: Literal["elapsed", "sinusoidal", "learned", "rotary"] = "elapsed"
    """elapsed: sinusoids of the time since the cutoff; sinusoidal: of the token's number, as published;
    learned: a vector per token; rotary: queries and keys turn with the elapsed time."""
    learned_positions: int | None = Field(None, ge=1, le=LONGEST)
    """Tokens of context and horizon that learned positions cover; null = as many as there are."""
    context_length: int | None = Field(None, ge=2, le=LONGEST)
    """Steps read before the cutoff; null = chosen from the horizon and the season."""
    scale_length: int | None = Field(None, ge=2, le=LONGEST)
    """Steps before the cutoff whose mean and spread scale a window, `context_length` at most; null =
    all of them."""
    attention_length: int | None = Field(None, ge=1, le=LONGEST)
    """Steps before the cutoff that attention reads, `context_length` at most; null = all of them."""
    linear: Literal["skip", "blend", "none"] | None = None
    """A linear forecast solved in closed form beside attention. skip: attention learns, through a gate,
    what is left to correct; blend: it learns by itself; validation weighs the two in either case.
    Null = blend where head and decoder allow it, quantile and direct; none = attention alone."""
    lookbacks: tuple[Annotated[int, Field(ge=1, le=LONGEST)], ...] | None = Field(None, max_length=32)
    """Steps before the cutoff that linear maps read, a map for each, averaged; null = chosen."""
    linear_spans: tuple[Annotated[int, Field(ge=1, le=LONGEST)], ...] | None = Field(
        None, max_length=32
    )
    """Training steps that linear maps are solved on, counted from the last, a map for each (and each
    lookback), averaged; null = all there are."""
    linear_phases: int | None = Field(None, ge=1, le=10_000)
    """Places of the shortest calendar cycle that have linear maps of their own, by where the cutoff
    falls, as 24 for the hours of a day; 1 = one map for all; null = chosen on validation."""
    linear_calendar: bool | None = None
    """Whether linear maps read where in each calendar cycle the cutoff falls, as three harmonics;
    null = chosen on validation."""
    linear_lags: tuple[Annotated[int, Field(ge=1, le=LONGEST)], ...] | None = Field(None, max_length=32)
    """Steps before the horizon from which linear maps read known covariates once more, as 24 and 168
    for those of a day and of a week before; null = the season and the shorter calendar cycles."""
    linear_units: Literal["window", "training", "season"] | Annotated[int, Field(ge=1, le=LONGEST)] = (
        "window"
    )
    """What linear maps count in. window: spreads of the context, so that forecasts grow with their
    series; training: spreads of the channel's training rows, so that a covariate adds as much in a calm
    week as in a wild one, as for prices; a number of steps: the mean distance of the context's values
    so far apart, as MASE counts, so that series that repeat themselves weigh more; season: as many as
    the season has."""
    linear_period: Literal["season"] | Annotated[int, Field(ge=1, le=LONGEST)] | None = None
    """Steps of a cycle: beside each linear map stands one whose leads read values whole cycles before
    them alone, those of one cycle by shared weights, and the mean of both is kept; season: as many as
    the season has; null = off."""
    linear_strength: (
        Annotated[float, Field(ge=0)] | tuple[Annotated[float, Field(ge=0)], ...] | None
    ) = None
    """Ridge penalty of linear maps, per training window; a list has one for each horizon patch.
    Null = chosen on validation."""
    patch: int | None = Field(None, ge=1, le=LONGEST)
    """Steps per token of the context; null = chosen from the season."""
    scale_inputs: bool = False
    """Multiply what patches are embedded to by √width before positions are added, as published."""
    decoder: Literal["direct", "autoregressive"] = "direct"
    """direct: all leads in one pass, from time encodings and known covariates. autoregressive: patch
    after patch, each told the values of the one before; forecasts are sample paths."""
    paths: int = Field(100, ge=2, le=100_000)
    """Sample paths that quantiles of an autoregressive forecast come from."""
    decoder_patch: int | None = Field(None, ge=1, le=LONGEST)
    """Steps per token of the horizon; 1 makes the decoder causal per lead; null = `patch`."""
    decoder_mask: Literal["causal", "full"] = "causal"
    """causal: leads of a patch ignore everything after it; full: all covariates are known at once."""
    harmonics: int = Field(4, ge=1, le=1000)
    """Sine and cosine pairs per calendar cycle."""
    head: Literal["quantile", "student_t", "negative_binomial", "binned"] = "quantile"
    """Distribution of a value. quantile: free in shape; student_t: heavy tails; negative_binomial:
    counts; binned: logits over a vocabulary of scaled values."""
    bins: int = Field(256, ge=2, le=100_000)
    """Words of a binned head's vocabulary."""
    bin_limit: float = Field(6.0, gt=0)
    """Scaled value at which the vocabulary ends; what is beyond belongs to the outermost words."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of a binned target's weight that is spread over all words."""
    quantile_levels: tuple[float, ...] = Field(
        (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9), max_length=1000
    )
    """Levels forecast, rising, strictly between 0 and 1, with the median."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.width is not None:
            self._can_be_parted()
        if self.decoder_attention == "low_rank" and self.decoder_mask == "causal":
            raise ValueError(
                "decoder_attention low_rank has no causal form: each of its "
                f"{self.attention_rank} mixtures holds tokens of all leads; take full, local, strided "
                "or sparse, or decoder_mask full"
            )
        if self.decoder == "autoregressive":
            self._can_follow_itself()
        if self.linear in ("skip", "blend"):
            self._can_be_linear()
        longest, reads = self.context_length, self.attention_length
        if longest is not None and reads is not None and reads > longest:
            raise ValueError(
                f"attention_length {reads} is longer than context_length {longest}: lengthen the "
                "context, or set it to null"
            )
        levels = self.quantile_levels
        if list(levels) != sorted(set(levels)) or not all(0 < level < 1 for level in levels):
            raise ValueError(f"quantile_levels {list(levels)} must rise strictly between 0 and 1")
        if 0.5 not in levels:
            raise ValueError(f"quantile_levels {list(levels)} lack 0.5, the forecast itself")
        return self

    def _can_be_parted(self) -> None:
        """Refuses a width that heads and sinusoids do not divide."""
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.width % 2:
            raise ValueError(f"width {self.width} is odd; sinusoids come in pairs")
        if self.positions == "rotary" and self.width // self.heads % 2:
            raise ValueError(
                f"width {self.width} over heads {self.heads} is {self.width // self.heads} per head, "
                "odd; rotary positions turn pairs"
            )

    def _can_be_linear(self) -> None:
        """Refuses a linear forecast beside what it cannot be added to, or that reads too far back."""
        if self.head != "quantile" or self.decoder != "direct":
            raise ValueError(
                f"linear {self.linear} gives quantiles of all leads at once, which head {self.head} "
                f"with decoder {self.decoder} has no place for: take linear none, or head quantile and "
                "decoder direct"
            )
        reads = {"lookbacks": self.lookbacks, "linear_lags": self.linear_lags}
        for name, steps in reads.items():
            if steps and self.context_length is not None and max(steps) > self.context_length:
                raise ValueError(
                    f"{name} {list(steps)} reach further back than context_length "
                    f"{self.context_length}: lengthen the context, or set it to null"
                )

    @property
    def reads_words(self) -> bool:
        """Whether values enter as words of the head's vocabulary, as in a language model."""
        return self.head == "binned" and self.decoder == "autoregressive"

    def _can_follow_itself(self) -> None:
        """Refuses what a decoder that is told its own values cannot have."""
        if self.decoder_mask == "full":
            raise ValueError(
                "decoder_mask full shows a token what comes after it, which an autoregressive decoder "
                "has yet to write: take decoder_mask causal, or decoder direct"
            )
        if self.decoder_attention == "sparse":
            raise ValueError(
                "decoder_attention sparse ranks tokens anew with each one written, so nothing can be "
                "kept of it: take full, local or strided, or decoder direct"
            )
        if self.head == "quantile" and len(self.quantile_levels) < 2:
            raise ValueError(
                f"quantile_levels {list(self.quantile_levels)} is one level, paths are drawn from "
                "at least two; add some, or take another head"
            )
        patches = {"patch": self.patch, "decoder_patch": self.decoder_patch}
        longer = {name: size for name, size in patches.items() if size not in (None, 1)}
        if self.reads_words and longer:
            found = ", ".join(f"{name} {size}" for name, size in longer.items())
            raise ValueError(f"{found}: an autoregressive binned head reads one word per step, patch 1")
