"""Microseconds per window of one peer's own loading, as JSON; `peers.py` runs it where the peer is.

    python benchmarks/peer_windows.py PEER SERIES ROWS

Windows are 96 + 24 rows of one target and two covariates known in advance, of hourly series of noise.
What is timed is what the peer does for each step of training before its network is called, by its own
loader with its own defaults, in batches of 256 windows where the peer lets one choose (neuralforecast
takes 1,024 windows from 32 series). One thread, processor time, median over batches.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
import torch

CONTEXT, HORIZON, BATCH = 96, 24, 256
BATCHES, SECONDS = (5, 60), 4.0
"""Fewest and most batches that are timed, and the time after which the fewest will do."""

Stage = tuple[str, Iterable[object], int]
"""What is timed, its batches without end, and the windows of each."""


def main() -> None:
    peer, n_series, n_rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    stages = LOADERS[peer](make_frame(n_series, n_rows))
    print(json.dumps({name: microseconds(iter(batches), size) for name, batches, size in stages}))


def make_frame(n_series: int, n_rows: int) -> pd.DataFrame:
    """Returns the rows of `windows.make_panel` under the names that most peers expect."""
    rng = np.random.default_rng(0)
    series = np.repeat(np.arange(n_series), n_rows)
    hour = np.tile(np.arange(n_rows), n_series) + series % 24
    cells = rng.normal(size=(len(series), 3)).astype(np.float32)
    stamps = pd.Timestamp("1970-01-01") + pd.to_timedelta(hour, unit="h")
    named = pd.DataFrame(cells, columns=["y", "k0", "k1"])
    return named.assign(unique_id=[f"s{k}" for k in series], ds=stamps, hour=hour)


def neuralforecast(frame: pd.DataFrame) -> Iterator[Stage]:
    """What `training_step` does before the network: windows of all rows of 32 series, then a draw."""
    from neuralforecast.models import MLP
    from neuralforecast.tsdataset import TimeSeriesDataset, TimeSeriesLoader

    model = MLP(h=HORIZON, input_size=CONTEXT, futr_exog_list=["k0", "k1"], max_steps=1)
    dataset = TimeSeriesDataset.from_df(frame.drop(columns="hour"))[0]
    loader = TimeSeriesLoader(dataset, batch_size=model.batch_size, shuffle=True)
    size = model.windows_batch_size

    def batches() -> Iterator[object]:
        for batch in forever(loader):
            temporal, static, static_names, usable, weight, names = model._create_windows(
                batch, "train"
            )
            windows = model._sample_windows(
                windows_temporal=temporal,
                static=static,
                static_cols=static_names,
                temporal_cols=names,
                w_idxs=torch.randperm(len(usable))[:size],
                final_condition=usable,
                sample_weight=weight,
            )
            windows = model._normalization(windows=windows, y_idx=batch["y_idx"])
            yield model._parse_windows(batch, windows)

    yield "neuralforecast", batches(), size


def darts(frame: pd.DataFrame) -> Iterator[Stage]:
    """The sequential dataset of its torch models, behind the loader and collation that they use."""
    from darts import TimeSeries
    from darts.models.forecasting import torch_forecasting_model as torch_model
    from darts.utils.data.torch_datasets.training_dataset import SequentialTorchTrainingDataset

    groups = [group for _, group in frame.groupby("unique_id", sort=False)]
    targets = [TimeSeries.from_dataframe(group, "ds", "y") for group in groups]
    known = [TimeSeries.from_dataframe(group, "ds", ["k0", "k1"]) for group in groups]
    dataset = SequentialTorchTrainingDataset(
        targets, future_covariates=known, input_chunk_length=CONTEXT, output_chunk_length=HORIZON
    )
    collate = torch_model._batch_collate_fn_train
    loader = torch.utils.data.DataLoader(dataset, BATCH, shuffle=True, collate_fn=collate)
    yield "darts", forever(loader), BATCH


def gluonts(frame: pd.DataFrame) -> Iterator[Stage]:
    """The training data of its temporal fusion transformer, which takes covariates known in advance."""
    from gluonts.dataset.common import ListDataset
    from gluonts.itertools import Cached
    from gluonts.torch.model.tft import TemporalFusionTransformerEstimator

    items = [
        {"start": group.ds.iloc[0], "target": group.y, "feat_dynamic_real": group[["k0", "k1"]].T}
        for _, group in frame.groupby("unique_id", sort=False)
    ]
    dataset = ListDataset(items, freq="h")
    estimator = TemporalFusionTransformerEstimator(
        freq="h",
        prediction_length=HORIZON,
        context_length=CONTEXT,
        dynamic_dims=[2],
        batch_size=BATCH,
        num_batches_per_epoch=10**6,
    )
    module = estimator.create_lightning_module()
    transformed = estimator.create_transformation().apply(dataset, is_train=True)
    for name, data in (("cached", Cached(transformed)), ("uncached", transformed)):
        yield f"gluonts, {name}", estimator.create_training_data_loader(data, module), BATCH


def pytorch_forecasting(frame: pd.DataFrame) -> Iterator[Stage]:
    """The `TimeSeriesDataSet` of version 1, and the data module meant for version 2."""
    from pytorch_forecasting import TimeSeriesDataSet
    from pytorch_forecasting.data.data_module import EncoderDecoderTimeSeriesDataModule
    from pytorch_forecasting.data.timeseries import TimeSeries

    names = ["k0", "k1"]
    dataset = TimeSeriesDataSet(
        frame,
        time_idx="hour",
        target="y",
        group_ids=["unique_id"],
        max_encoder_length=CONTEXT,
        min_encoder_length=CONTEXT,
        max_prediction_length=HORIZON,
        min_prediction_length=HORIZON,
        time_varying_known_reals=names,
        time_varying_unknown_reals=["y"],
    )
    loader = dataset.to_dataloader(train=True, batch_size=BATCH, num_workers=0)
    yield "pytorch-forecasting, 1", forever(loader), BATCH
    series = TimeSeries(
        frame.drop(columns="ds"), time="hour", target="y", group=["unique_id"], num=names, known=names
    )
    module = EncoderDecoderTimeSeriesDataModule(
        series, max_encoder_length=CONTEXT, max_prediction_length=HORIZON, batch_size=BATCH
    )
    module.setup("fit")
    yield "pytorch-forecasting, 2", forever(module.train_dataloader()), BATCH


LOADERS: dict[str, Callable[[pd.DataFrame], Iterator[Stage]]] = {
    "neuralforecast": neuralforecast,
    "darts": darts,
    "gluonts": gluonts,
    "pytorch-forecasting": pytorch_forecasting,
}


def forever(loader: Iterable[Any]) -> Iterator[Any]:
    """Returns the batches of epoch after epoch, each drawn anew."""
    for epoch in cycle([loader]):
        yield from epoch


def microseconds(batches: Iterator[object], size: int) -> float:
    """Returns the median time of one window, after a batch to warm up."""
    next(batches)
    spent: list[float] = []
    fewest, most = BATCHES
    while len(spent) < most and (len(spent) < fewest or sum(spent) < SECONDS):
        begun = time.thread_time()
        next(batches)
        spent.append(time.thread_time() - begun)
    return 1e6 * statistics.median(spent) / size


if __name__ == "__main__":
    main()
