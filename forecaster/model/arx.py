"""ARX: the linear forecast corrected by past values of covariates and of other channels.

    forecast − level, of the linear expert       × a number per lead ┐
    the last values of the channel, less level   × map               │
    level, less the mean of the training rows; 1 × map               │  + linear forecast
    chosen columns at chosen lags (drivers),     × map               ┘
    or their squares

ARX: autoregression with exogenous inputs (Ljung, "System identification", 1999), solved for each lead
by itself. With ŷ the linear forecast, ȳ the level of the last n values and xⱼ the driver j at its lag:

    arx(h) = ŷ(h) + Σᵢ (yᵢ − ȳ)·M[i, h] + (ȳ − μ)·M[n, h] + M[n + 1, h] + Σⱼ xⱼ·M[n + 2 + j, h] + (ŷ(h) − ȳ)·v[h]

A map of all columns at all lags would have thousands of rows; those that are read are chosen in `drivers.py`.
Each channel has its own drivers and its own map; a channel without drivers has no such forecast. All numbers
are in units of the window's spread, and drivers in those of the channel's training spread over it, so that a
relation in data units is one number at all times.

Axes: B batch · C channel · R row, a channel of a window · T history · J cutoff · D step of a driver ·
K driver column · F driver at a lag · N feature of a map · H horizon · L lead.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from forecaster.config import ModelPlan
from forecaster.model.channels import before_cutoffs, repeat_channels
from forecaster.model.embedding import Shape
from forecaster.model.linear import ALL, EARLY, mapped
from forecaster.model.scaling import ContextScaler, Scale
from forecaster.model.shortcuts import upper_bound
from forecaster.windows.batch import Inputs

MOST_DRIVERS = 64
"""Columns at a lag that one channel reads at most."""
TAIL = 24
"""Values of the channel that it reads: a day of hours; further back its linear forecast reads."""
_BIAS_FEATURES = 2  # level less the mean of the training rows; 1
_FARTHEST = 6.0  # training spreads at which drivers are clipped


class ArxForecast(nn.Module):
    """A map per channel from drivers and own values to what the linear forecast misses."""

    def __init__(self, config: ModelPlan, shape: Shape):
        """Starts without drivers."""
        super().__init__()
        channels, columns = shape.channels + 1, len(config.pool.drivers)
        self.absolute = config.pool.driver_units == "training"
        """Whether maps read the distance of level and drivers from the mean of the training rows."""
        self.tail = min(TAIL, config.pool.memory)
        features = self.tail + _BIAS_FEATURES + MOST_DRIVERS + 1
        self.maps = nn.Buffer(torch.zeros(2, channels, features, shape.horizon))
        """[EARLY or ALL, C + 1, N, H]; code 0 has none. The last row is v, a number per lead."""
        self.column = nn.Buffer(torch.zeros(channels, MOST_DRIVERS, dtype=torch.int64))
        """[C + 1, F] column of each driver; from K on it is the square of the column K before."""
        self.lag = nn.Buffer(torch.zeros(channels, MOST_DRIVERS, dtype=torch.int64))
        """[C + 1, F] steps back from the cutoff."""
        self.used = nn.Buffer(torch.zeros(channels, dtype=torch.bool))
        """[C + 1] whether a channel has drivers."""
        self.loc = nn.Buffer(torch.zeros(columns, dtype=torch.float64))
        """[K] mean of each driver column in the training rows."""
        self.spread = nn.Buffer(torch.ones(columns, dtype=torch.float64))
        """[K] its spread."""
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
        code = inputs.channel.flatten()  # [R]
        autoregressive, level = self.autoregressive(filled, inputs, scale, scaler, shifts)
        drivers = self.drivers(inputs, scale, scaler, shifts)
        features = torch.cat([autoregressive, drivers], dim=-1)  # [R, J, N − unused drivers]
        if block is None:
            maps = self.maps[EARLY if any(shifts) else ALL]
            group = code[:, None].expand(-1, len(shifts))
        else:
            assert self.held_out is not None
            channels = self.held_out.shape[1]
            maps = self.held_out.flatten(0, 1)  # [block · (C + 1), N, H]
            group = block * channels + code[:, None]
        maps, group = maps[..., leads], group.flatten()
        # Rows of maps of drivers that no channel has are left out: they are 0.
        used = maps[:, : features.shape[2]]
        correction = mapped(features.flatten(0, 1), used, group)
        correction = correction.unflatten(0, (-1, len(shifts)))  # [R·J, L] → [R, J, L]
        factor = maps[group, -1].unflatten(0, (-1, len(shifts)))  # v: [R, J, L]
        return linear + correction + (linear - level) * factor

    def autoregressive(
        self,
        filled: Float[Tensor, "R T"],
        inputs: Inputs,
        scale: Scale,
        scaler: ContextScaler,
        shifts: Sequence[int],
    ) -> tuple[Float[Tensor, "R J N"], Float[Tensor, "R J 1"]]:
        """Returns the features of the channel itself, and the level of its last values.

        They are the last values less their level; then, in units of training rows, the level less the
        mean of these rows, and 1; else 0 and 0.
        """
        last = before_cutoffs(filled, shifts, self.tail)  # [R, J, n]
        level = last.mean(dim=-1, keepdim=True)  # [R, J, 1]
        # What was taken off the window, less the training mean: with the level it is ȳ − μ.
        distance = scale.level + scale.loc - scaler.loc[inputs.channel]  # [B, C]
        offset = distance / scale.scale
        constant = self._training_unit(inputs, scale, scaler)
        bias = torch.stack([offset, constant], dim=-1).flatten(0, 1).float()  # [R, 2]
        bias = bias[:, None].expand(-1, len(shifts), -1)  # [R, J, 2]
        offset, constant = bias[..., :1] + level, bias[..., 1:]
        bias = torch.cat([offset, constant], dim=-1) * self.absolute
        return torch.cat([last - level, bias], dim=-1), level

    def drivers(
        self, inputs: Inputs, scale: Scale, scaler: ContextScaler, shifts: Sequence[int]
    ) -> Float[Tensor, "R J F"]:
        """Returns the chosen columns at the chosen lags, 0 where missing."""
        # Equal to the chosen columns of `standardised`, without making the others.
        values = inputs.drivers  # [B, D, K]
        steps, columns = values.shape[1:]
        code, count = inputs.channel.flatten(), self._driver_count()
        column = self.column[code, :count][:, None]  # [R, 1, F]
        lag = self.lag[code, :count][:, None]
        age = torch.tensor(shifts, device=code.device)[:, None] + lag  # [J, 1] + [R, 1, F]
        step = (steps - 1 - age).clamp(0, steps - 1)  # [R, J, F]
        window = torch.arange(values.shape[0], device=code.device)
        window = repeat_channels(window, inputs.channel.shape[1])[:, None, None]  # [R, 1, 1]
        unsquared = column % columns
        cells = values[window, step, unsquared]  # [R, J, F]
        # The mean of each driver's column in its window: [B, K] → [R, F] → [R, 1, F].
        loc = self._loc(values)[window[..., 0], unsquared[:, 0]][:, None]
        deviation = self._deviation(cells, loc, unsquared)
        deviation = torch.where(column >= columns, deviation.square() - 1, deviation)
        return deviation.nan_to_num(0.0).float() * self._unit(inputs, scale, scaler)

    def standardised(
        self, inputs: Inputs, scale: Scale, scaler: ContextScaler
    ) -> Float[Tensor, "R D _"]:
        """Returns all driver columns, then their squares, in the units of maps; 0 where missing."""
        values = inputs.drivers
        deviation = self._deviation(values, self._loc(values)[:, None], slice(None))
        # Less 1, the mean square of standardised values, so that a square is no constant.
        both = torch.cat([deviation, deviation.square() - 1], dim=-1)
        both = both.nan_to_num(0.0).float()
        both = repeat_channels(both, inputs.channel.shape[1])  # [B, D, 2K] → [R, D, 2K]
        return both * self._unit(inputs, scale, scaler)

    def _driver_count(self) -> int:
        """How many drivers the channel with most of them has."""
        rows = self.maps[ALL, :, self.tail + _BIAS_FEATURES : -1]  # [C + 1, F, H]
        used = rows.any(dim=2).any(dim=0)  # [F]
        number = torch.arange(1, MOST_DRIVERS + 1, device=used.device)
        return upper_bound(number * used, MOST_DRIVERS)

    def _loc(self, values: Float[Tensor, "B D K"]) -> Float[Tensor, "B K"]:
        """The mean of each column: of the training rows, or of the window."""
        if self.absolute:
            return self.loc.expand(values.shape[0], -1)
        return values.nanmean(dim=1)

    def _deviation(self, cells: Tensor, loc: Tensor, column: Tensor | slice) -> Tensor:
        """(x − mean) / spread, clipped: one outlier times a weight would be the forecast."""
        standardised = (cells - loc) / self.spread[column]
        return standardised.clamp(-_FARTHEST, _FARTHEST)

    def _unit(
        self, inputs: Inputs, scale: Scale, scaler: ContextScaler
    ) -> Float[Tensor, "R 1 1"] | float:
        """What one training spread of a driver is to the maps."""
        if not self.absolute:
            return 1.0
        unit = self._training_unit(inputs, scale, scaler)
        return unit.flatten().float()[:, None, None]

    @staticmethod
    def _training_unit(inputs: Inputs, scale: Scale, scaler: ContextScaler) -> Float[Tensor, "B C"]:
        """The spread of the training rows of each channel per spread of its window."""
        return scaler.scale[inputs.channel] / scale.scale
