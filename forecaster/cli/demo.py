"""`forecaster demo`: the main job from a CSV to scores, on data that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

_UNTIL = "2025-09-10"
"""Four horizons before the last day: one fit is scored on rows that it has not seen, and forecasts as well."""


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything the demo makes.")] = Path("demo"),
) -> dict[str, Any]:
    """Fit, forecast and score the demo data.

    Everything lands in one folder, an MLflow store of the runs too.
    """

    from forecaster import api
    from forecaster.cli import results
    from forecaster.files import shipped
    from forecaster.forecast.writer import write_figure
    from forecaster.runs.console import Screen
    from forecaster.runs.tracking import where_to_look

    console = Screen()
    names = ("demo.csv", "demo_future.csv")
    data, future = (shipped(name, "data", "demo_data") for name in names)
    known = ["price", "promo"]
    console.rule(f"fit {data.name}: 28 days ahead, without the last 4 × 28 days", align="left")
    out.mkdir(parents=True, exist_ok=True)
    store = {"tracking": {"uri": f"sqlite:///{out.absolute() / 'mlflow.db'}"}}
    model = api.fit(
        data, 28, config=store, known=known, until=_UNTIL, out=out / "model", overwrite=True
    )

    console.rule("predict the next 28 days", align="left")
    forecast = model.predict(data, future=future)
    forecast.write(out / "forecasts.csv")
    console.print(forecast.report)

    console.rule("backtest on the days held out", align="left")
    backtest = model.backtest(data, windows=4, refit="never")
    backtest.write(out / "backtest.parquet")
    console.print_summary(backtest)

    console.rule(align="left")
    picture, page = out / "forecast.png", out / "report.html"
    drawings = {
        picture.name: lambda: write_figure(forecast.plot(), picture),
        page.name: lambda: backtest.report(page),
    }
    drawn = console.draw(drawings, "everything else is complete")
    console.print(f"forecasts  {out / 'forecasts.csv'}", soft_wrap=True)
    if drawn:
        console.print(f"picture    {picture.absolute()}", soft_wrap=True)
        console.print(f"report     {page.absolute()}", soft_wrap=True)
    runs = where_to_look(store["tracking"]["uri"])
    console.print(f"runs       {runs}", soft_wrap=True)
    return {"out": out, "runs": runs, **results.about_scores(backtest)}
