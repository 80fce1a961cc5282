"""Values as words: a vocabulary of scaled values, and the head that chooses among them.

What comes in: values in scaled units. What goes out: token numbers, and back. The head gives a logit
per token: a distribution of any shape, two peaks included, within the limits of the vocabulary.

Axes: B batch · N token · T step · C channel · D width · P bin · Q quantile level.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from forecaster.config import ModelConfig
from forecaster.model.head import Head
from forecaster.model.scaling import Scale


@dataclass(frozen=True)
class Vocabulary:
    """Equal bins of scaled values; one more number, `bins` itself, stands for a missing value."""

    bins: int
    """Words."""
    limit: float
    """The bins part [−limit, limit]; what is beyond belongs to the outermost."""

    @classmethod
    def of(cls, config: ModelConfig) -> Vocabulary:
        """Returns the vocabulary that a config names."""
        return cls(config.bins, config.bin_limit)

    @property
    def width(self) -> float:
        """Of a bin, scaled units."""
        return 2 * self.limit / self.bins

    def tokens(self, values: Float[Tensor, "*B"]) -> Int[Tensor, "*B"]:
        """Returns the number of each value's bin; `bins` where it is missing.

        Args:
            values: scaled units; NaN = missing.
        """
        missing = values.isnan()
        place = (torch.where(missing, 0.0, values) + self.limit) / self.width
        return torch.where(missing, self.bins, place.floor().clamp(0, self.bins - 1).long())

    def values(self, tokens: Int[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        """Returns the middle of each bin, scaled units."""
        return (tokens + 0.5) * self.width - self.limit


class Words(nn.Module):
    """Values as vectors: one learned per bin, and one for a missing value."""

    def __init__(self, vocabulary: Vocabulary, width: int):
        super().__init__()
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(vocabulary.bins + 1, width)

    def forward(self, values: Float[Tensor, "B N"]) -> Float[Tensor, "B N D"]:
        """Returns the vector of each value.

        Args:
            values: scaled units; NaN = missing.
        """
        vectors: Tensor = self.embedding(self.vocabulary.tokens(values))
        return vectors


class BinnedHead(Head):
    """Logits over the words of a vocabulary; within a bin all values are alike."""

    def __init__(self, levels: tuple[float, ...], vocabulary: Vocabulary, smoothing: float):
        """Takes the vocabulary.

        Args:
            levels: quantile levels, rising, strictly between 0 and 1.
            vocabulary: the words.
            smoothing: share of each target's weight that is spread over all words.
        """
        super().__init__()
        self.size, self.vocabulary, self.smoothing = vocabulary.bins, vocabulary, smoothing
        self.levels: Tensor
        self.register_buffer("levels", torch.tensor(levels), persistent=False)

    def initial_bias(self) -> Float[Tensor, " P"]:
        """Returns the log-density of a standard normal in scaled units."""
        return -0.5 * self._middles().square()

    def loss(
        self, raw: Float[Tensor, "B T C P"], scale: Scale, target: Float[Tensor, "B T C"]
    ) -> Float[Tensor, "B T C"]:
        """Returns the cross-entropy of each cell, labels smoothed.

        Source: Szegedy et al., "Rethinking the inception architecture" (2016), section 7.
        """
        observed = ~target.isnan()
        token = torch.where(observed, self.vocabulary.tokens(scale.apply(target)), 0)
        surprise = F.cross_entropy(
            raw.flatten(0, 2), token.flatten(), reduction="none", label_smoothing=self.smoothing
        )
        return torch.where(observed, surprise.unflatten(0, target.shape), 0.0)

    def quantiles(self, raw: Float[Tensor, "B T C P"], scale: Scale) -> Float[Tensor, "B T C Q"]:
        """Returns quantiles in data units, rising along the last axis."""
        return scale.invert(self._at(raw, self.levels.expand(*raw.shape[:-1], -1)))

    def mean(self, raw: Float[Tensor, "B T C P"], scale: Scale) -> Float[Tensor, "B T C"]:
        """Returns the mean in data units."""
        return scale.invert((raw.softmax(-1) @ self._middles())[..., None])[..., 0]

    def sample(
        self, raw: Float[Tensor, "B T C P"], scale: Scale, uniform: Float[Tensor, "B T C 2"]
    ) -> Float[Tensor, "B T C"]:
        """Returns draws: a word by its probability, and where in its bin by what the number leaves."""
        return scale.invert(self._at(raw, uniform[..., :1].to(raw.dtype)))[..., 0]

    def mode(self, raw: Float[Tensor, "B T C P"], scale: Scale) -> Float[Tensor, "B T C"]:
        """Returns the middle of the likeliest bin."""
        return scale.invert(self.vocabulary.values(raw.argmax(-1))[..., None])[..., 0]

    def _at(self, raw: Tensor, level: Tensor) -> Tensor:
        """Quantiles [B, T, C, N] at levels [B, T, C, N], scaled units."""
        below = raw.softmax(-1).cumsum(-1)
        bin_ = _first_at_least(below, level).clamp(max=self.size - 1)
        high = below.gather(-1, bin_)
        low = torch.where(bin_ > 0, below.gather(-1, (bin_ - 1).clamp(min=0)), 0.0)
        share = ((level - low) / (high - low)).clamp(0, 1)
        return (bin_ + share) * self.vocabulary.width - self.vocabulary.limit

    def _middles(self) -> Tensor:
        return self.vocabulary.values(torch.arange(self.size, device=self.levels.device))


def _first_at_least(rising: Tensor, level: Tensor) -> Tensor:
    """Returns where each level belongs among rising numbers, along the last axis."""
    if torch.compiler.is_exporting():  # ONNX knows no search
        return torch.stack([(rising < one[..., None]).sum(-1) for one in level.unbind(-1)], dim=-1)
    return torch.searchsorted(rising, level.contiguous())
