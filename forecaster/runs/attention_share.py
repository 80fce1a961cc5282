"""How much of a forecast is attention's work, where a linear forecast stands beside it.

What comes in: an ensemble, and the validation windows that were watched. What goes out: one number in
[0, 1]: 0 = the linear forecast alone, 1 = attention alone.
"""

from __future__ import annotations

import torch

from forecaster.config import Config
from forecaster.model.ensemble import Ensemble
from forecaster.panel.panel import Panel
from forecaster.windows.datamodule import WindowSequence
from forecaster.windows.split import Split
from forecaster.windows.store import training_store

_MOST_WINDOWS, _BATCH = 512, 128


@torch.no_grad()
def attention_share(ensemble: Ensemble, panel: Panel, config: Config, split: Split) -> dict[str, float]:
    """Returns `share`, the mean of the members' shares by weight, and `attention_share`, as measured.

    The latter is a / (a + b): what attention moves, of all that moves the median from the context's
    mean. a is the mean distance of the forecast from the linear one, b that of the linear one from the
    mean of the context, both in scaled units, over an even draw of the watched windows. Nothing where
    there is no linear forecast, or nothing is watched.

    Args:
        ensemble: trained and blended.
        panel: the table.
        config: settled.
        split: of the panel.
    """
    floor = ensemble.linear_only()
    if floor is None or not len(split.held):
        return {}
    shares = [float(member.network_weight) for member in ensemble.members]  # type: ignore[arg-type]
    share = sum(own * weight for own, weight in zip(shares, ensemble.weights, strict=True))
    ensemble = ensemble.with_offsets(None)  # moves no median, and asks for all channels at once
    store = training_store(panel, config)
    numbers = split.held[:: -(-len(split.held) // _MOST_WINDOWS)]
    median = ensemble.levels.index(0.5)
    moved = torch.zeros(2, dtype=torch.float64)
    for batch in WindowSequence(store, split.validation, numbers, _BATCH):
        loc, scale = (part[:, None] for part in ensemble.scale(batch.inputs))
        straight, said = (one(batch.inputs)[..., median] for one in (floor, ensemble))
        for place, distance in enumerate((said - straight, straight - loc)):
            distance = (distance / scale).abs()
            moved[place] += torch.where(distance.isfinite(), distance, 0.0).sum()
    whole = float(moved.sum())
    return {"share": share, "attention_share": float(moved[0]) / whole if whole else 0.0}
