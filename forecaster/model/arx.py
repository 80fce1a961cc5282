"""ARX: the linear forecast corrected by past values of covariates and of other channels.

    forecast − level, of the linear expert       × a number per lead ┐
    the last values of the channel, less level   × map               │
    level, less the mean of the training rows; 1 × map               │  + linear forecast
    chosen columns at chosen lags (drivers),     × map               ┘
    or their squares

ARX: autoregression with exogenous inputs. Each channel has its own drivers and its own map; a channel
without drivers has no such forecast. All numbers are in units of the window's spread, and drivers in those
of the channel's training spread over it, so that a relation in data units is one number at all times.

Axes: B batch · C channel · R row, a channel of a window · T history · J cutoff · D step of a driver ·
K driver column · F driver at a lag · N number that a map reads · L lead.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from forecaster.config import ModelPlan
from forecaster.model.channels import repeat_channels
from forecaster.model.embedding import Shape
from forecaster.model.linear import ALL, EARLY, mapped
from forecaster.model.scaling import ContextScaler, Scale
from forecaster.windows.batch import Inputs

MOST_DRIVERS = 64
"""Columns at a lag that one channel reads."""
TAIL = 24
"""Own values that it reads."""
_FARTHEST = 6.0  # training spreads of a driver


class ArxForecast(nn.Module):
    """A map per channel from drivers and own values to what the linear forecast misses."""

    def __init__(self, config: ModelPlan, shape: Shape):
        """Starts without drivers."""
        super().__init__()
        channels, columns = shape.channels + 1, len(config.drivers)
        self.absolute = config.driver_units == "training"
        self.tail = min(TAIL, config.memory)
        count = self.tail + 2 + MOST_DRIVERS + 1
        self.maps = nn.Buffer(torch.zeros(2, channels, count, shape.horizon))
        """[EARLY or ALL, C + 1, N, H]; code 0 has none. The last row is the number per lead."""
        self.column, self.lag = (
            nn.Buffer(torch.zeros(channels, MOST_DRIVERS, dtype=torch.int64)) for _ in range(2)
        )
        """[C + 1, F] steps back from the cutoff; a column from K on is the square of one before."""
        self.used = nn.Buffer(torch.zeros(channels, dtype=torch.bool))
        """[C + 1] whether a channel has drivers."""
        self.loc = nn.Buffer(torch.zeros(columns, dtype=torch.float64))
        self.spread = nn.Buffer(torch.ones(columns, dtype=torch.float64))
        """[K] mean and spread of each driver column in the training rows."""
        self.held_out: Tensor | None = None
        """[block, C + 1, N, H] for training windows, as `LinearForecast.held_out`; None when not training."""

    def forward(
        self,
        inputs: Inputs,
        scale: Scale,
        scaler: ContextScaler,
        filled: Float[Tensor, "R T"],
        linear: Float[Tensor, "R J L"],
        shifts: Sequence[int],
        leads: slice | Sequence[int],
        block: Int[Tensor, "R J"] | None = None,
    ) -> Float[Tensor, "R J L"]:
        """Returns forecasts at cutoffs some steps back, scaled units.

        Args:
            inputs: windows.
            scale: of their contexts.
            scaler: holds mean and spread of the training rows of each channel.
            filled: history without gaps, scaled units.
            linear: what the linear expert forecasts there, scaled units.
            shifts: steps back of each cutoff.
            leads: those of `linear`.
            block: of the training time that each cutoff falls into; None = not a training window.
        """
        code = inputs.channel.flatten()
        own, level = self.own(filled, inputs, scale, scaler, shifts)
        read = torch.cat([own, self.drivers(inputs, scale, scaler, shifts)], dim=-1)
        if block is None:
            maps = self.maps[EARLY if any(shifts) else ALL]
            group = code[:, None].expand(-1, len(shifts))
        else:
            assert self.held_out is not None
            count = self.held_out.shape[1]
            maps, group = self.held_out.flatten(0, 1), block * count + code[:, None]
        maps, group = maps[..., leads], group.flatten()
        missed = mapped(read.flatten(0, 1), maps[:, : read.shape[2]], group)
        missed = missed.unflatten(0, (-1, len(shifts)))
        along = maps[group, -1].unflatten(0, (-1, len(shifts)))
        return linear + missed + (linear - level) * along

    def own(
        self,
        filled: Float[Tensor, "R T"],
        inputs: Inputs,
        scale: Scale,
        scaler: ContextScaler,
        shifts: Sequence[int],
    ) -> tuple[Float[Tensor, "R J N"], Float[Tensor, "R J 1"]]:
        """Returns what maps read of the channel itself, and the level of its last values."""
        end = filled.shape[1]
        last = torch.stack([filled[:, end - s - self.tail : end - s] for s in shifts], dim=1)
        level = last.mean(dim=-1, keepdim=True)
        apart = (scale.level + scale.loc - scaler.loc[inputs.channel]) / scale.scale
        above = torch.stack([apart, scaler.scale[inputs.channel] / scale.scale], dim=-1)
        above = above.flatten(0, 1).float()[:, None].expand(-1, len(shifts), -1)
        above = torch.cat([above[..., :1] + level, above[..., 1:]], dim=-1) * self.absolute
        return torch.cat([last - level, above], dim=-1), level

    def drivers(
        self, inputs: Inputs, scale: Scale, scaler: ContextScaler, shifts: Sequence[int]
    ) -> Float[Tensor, "R J F"]:
        """Returns the chosen columns at the chosen lags, 0 where missing."""
        values, most, code = inputs.drivers, self._most(), inputs.channel.flatten()
        column, lag = (part[code, :most][:, None] for part in (self.column, self.lag))
        back = torch.tensor(shifts, device=code.device)[:, None] + lag
        at = (values.shape[1] - 1 - back).clamp(0, values.shape[1] - 1)  # [R, J, F]
        window = torch.arange(values.shape[0], device=code.device)
        window = repeat_channels(window, inputs.channel.shape[1])[:, None, None]
        plain, squared = column % values.shape[2], column >= values.shape[2]
        cells = values[window, at, plain]
        apart = self._apart(cells, self._loc(values)[window[..., 0], plain[:, 0]][:, None], plain)
        apart = torch.where(squared, apart.square() - 1, apart).nan_to_num(0.0).float()
        return apart * self._unit(inputs, scale, scaler)

    def standardised(
        self, inputs: Inputs, scale: Scale, scaler: ContextScaler
    ) -> Float[Tensor, "R D KK"]:
        """Returns all driver columns, then their squares, in the units of maps; 0 where missing."""
        values = inputs.drivers
        apart = self._apart(values, self._loc(values)[:, None], slice(None))
        apart = torch.cat([apart, apart.square() - 1], dim=-1).nan_to_num(0.0).float()
        apart = repeat_channels(apart, inputs.channel.shape[1])
        return apart * self._unit(inputs, scale, scaler)

    def _most(self) -> int:
        """How many drivers the channel with most of them has; a graph reads as many as there can be."""
        if torch.compiler.is_exporting():
            return MOST_DRIVERS
        used = self.maps[ALL, :, self.tail + 2 : -1].any(dim=2).any(dim=0).nonzero()
        return int(used.max()) + 1 if len(used) else 0

    def _loc(self, values: Float[Tensor, "B D K"]) -> Float[Tensor, "B K"]:
        """The mean of each column: of the training rows, or of the window."""
        return self.loc.expand(values.shape[0], -1) if self.absolute else values.nanmean(dim=1)

    def _apart(self, cells: Tensor, loc: Tensor, column: Tensor | slice) -> Tensor:
        return ((cells - loc) / self.spread[column]).clamp(-_FARTHEST, _FARTHEST)

    def _unit(
        self, inputs: Inputs, scale: Scale, scaler: ContextScaler
    ) -> Float[Tensor, "R 1 1"] | float:
        """What one training spread of a driver is to the maps."""
        if not self.absolute:
            return 1.0
        return (scaler.scale[inputs.channel] / scale.scale).flatten().float()[:, None, None]
