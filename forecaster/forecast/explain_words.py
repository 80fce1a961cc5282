"""What page and picture of an `Explanation` say in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from forecaster.forecast.explain import AttentionMap, Explanation

TITLES = {
    "encoder": "Encoder: the context looks at itself",
    "encoder channels": "Encoder: channels look at each other",
    "decoder": "Decoder: the horizon looks at itself",
    "decoder channels": "Decoder: channels of the horizon look at each other",
    "cross": "Cross-attention: the horizon looks at the context",
}
"""By part of the network, in the order of the page."""

READING = """
<p><b>Attention maps.</b> Each token holds one patch of steps and is named by its first. The strong
cells of a row are where that token took its values from. In a causal decoder everything right of
the diagonal is blank: no token sees a later one. A token that met nothing has an empty row.</p>
<p><b>Rollout</b> (Abnar and Zuidema, 2020) follows attention through all layers: heads are
averaged, the way around each layer counts as much as the layer itself, and layers are multiplied. A
row says how much of each token is left in what the forecast of that patch is made from. Right of the
cutoff is what a token of the horizon holds of itself and of others beside it: the calendar and known
covariates. Compare shares within a side: how much both sides hold follows from the number of layers
alone.</p>
<p><b>Without each.</b> One thing at a time is hidden, as if it had never been observed, and the
forecast is made again. Of the context both values and past covariates are hidden, and the scale is
taken from what is left. Things that stand in for each other each look unimportant, for the other is
still there.</p>
<p><b>What this does not prove.</b> A large weight is not a reason. Weights mix vectors that earlier
layers have already mixed, values may be small where weights are large, and other weights can give
the same forecast. Rollout knows nothing of values and of feed-forward layers. Hiding a thing
shows what this model does without it at this one cutoff: not what would happen in the world if it
changed, and not how much it matters elsewhere.</p>
"""

STYLE = ".maps{display:flex;flex-wrap:wrap;gap:.4rem}"
"""Beside that of every page."""

_KINDS = {
    "local": "A token of a local attention meets neighbours alone: the map is a band.",
    "sparse": "In a sparse attention a token that does not stand out takes an even share of all: its "
    "row is a plain one.",
    "low_rank": "A low-rank attention has no map of its own: tokens meet mixtures of all others. Its "
    "maps are what this comes to for each token; they may be negative (orange) and need not sum to 1, "
    "so there is no rollout.",
}


def notes(told: Explanation) -> list[str]:
    """Returns what must be known to read the page of this model."""
    forecast, model = told.forecast, told.model
    length, steps = len(told.history), len(told.time)
    masked = sum(not token.seen for token in told.context)
    said = [
        f"Cutoff {told.span(length - 1, length)}; {steps - length} steps ahead, until "
        f"{told.span(steps - 1, steps)}. {len(told.context)} tokens of {model.patch} steps in the "
        f"context ({masked} without an observation), {len(told.horizon)} of {model.decoder_patch} in "
        f"the horizon; {model.heads} heads."
    ]
    if told.attention:
        said.append(f"{told.attention[0].upper()}{told.attention[1:]}.")
    kinds = {one.kind for one in told.maps}
    said += [words for kind, words in _KINDS.items() if kind in kinds]
    if model.decoder == "autoregressive":
        said.append(
            "The decoder follows its own values. Its maps are those of one path, which is told the "
            "median of all paths as if it had written that itself."
        )
    if model.channel_attention:
        said.append(
            "Channels look at each other in every layer; maps across channels are means over tokens. "
            "Rollout follows time within this channel, and leaves out what came from the others."
        )
    if forecast.actual is not None:
        said.append("The truth of these steps is in the table: it was not shown to the model.")
    return said


def heads_of(one: AttentionMap) -> list[tuple[str, NDArray[np.float32]]]:
    """Returns names and weights [query, key] of what there is to draw: the mean of heads, then each."""
    if len(one.weights) == 1:
        return [("the head", one.weights[0])]
    each = [(f"head {n}", weights) for n, weights in enumerate(one.weights, start=1)]
    return [("mean of heads", one.weights.mean(axis=0)), *each]
