"""Batch forecast with neuralforecast, in an environment of its own: see batch_forecast.py.

python benchmarks/peer_batch.py make FILE.csv MODEL      fits one step of PatchTST and saves it
python benchmarks/peer_batch.py run  FILE.csv MODEL OUT  loads it, reads, forecasts, writes Parquet
"""

from __future__ import annotations

import logging
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

warnings.filterwarnings("ignore")


def main() -> None:
    """Does what is asked for."""
    import pandas as pd
    from neuralforecast import NeuralForecast

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    what, file, model = sys.argv[1:4]
    # The fastest of the readers that pandas has.
    frame = pd.read_csv(file, parse_dates=["time"], engine="pyarrow")
    frame.columns = ["unique_id", "ds", "y"]
    if what == "make":
        made(frame[frame["unique_id"] < "store_0000050"]).save(model, overwrite=True)
        return
    loaded = NeuralForecast.load(model)
    loaded.predict(df=frame).to_parquet(sys.argv[4])


def made(frame: pd.DataFrame) -> Any:
    """Returns a PatchTST of width 64 with 2 layers that forecasts nine quantiles, after one step."""
    from neuralforecast import NeuralForecast
    from neuralforecast.losses.pytorch import MQLoss
    from neuralforecast.models import PatchTST

    network = PatchTST(
        h=24,
        input_size=168,
        encoder_layers=2,
        hidden_size=64,
        n_heads=4,
        linear_hidden_size=128,
        patch_len=24,
        stride=24,
        loss=MQLoss(quantiles=[k / 10 for k in range(1, 10)]),
        max_steps=1,
        valid_batch_size=1024,
        windows_batch_size=1024,
        inference_windows_batch_size=1024,
        enable_progress_bar=False,
        logger=False,
        enable_model_summary=False,
        accelerator="cpu",
    )
    forecaster = NeuralForecast(models=[network], freq="h")
    forecaster.fit(df=frame)
    return forecaster


if __name__ == "__main__":
    main()
