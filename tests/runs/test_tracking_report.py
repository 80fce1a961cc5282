"""The page of a fit and of a backtest among the files of its run."""

import pytest
from forecast import tiny
from mlflow.tracking import MlflowClient

import forecaster as fc
from forecaster.evaluation.report import render_report

# MLflow's own use of SQLAlchemy; nothing of ours.
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")


def test_a_fit_and_a_backtest_log_their_page(place):
    config = tiny.TINY | {"tracking": {"enabled": True}}
    model = fc.fit(tiny.plain(), horizon=7, config=config, out=place / "model", quiet=True)
    backtest = model.backtest(tiny.plain(), windows=2, quiet=True)
    client = MlflowClient(tracking_uri=f"sqlite:///{place}/mlflow.db")
    ids = [experiment.experiment_id for experiment in client.search_experiments()]
    fitted, scored = client.search_runs(ids, order_by=["attributes.start_time"])
    pages = {}
    for run in (fitted, scored):
        files = {file.path for file in client.list_artifacts(run.info.run_id)}
        assert "report.html" in files
        path = client.download_artifacts(run.info.run_id, "report.html", str(place))
        with open(path, encoding="utf-8") as file:
            pages[run.data.tags["kind"]] = file.read()
    assert pages["fit"] == (place / "model" / "report.html").read_text(encoding="utf-8")
    assert pages["backtest"] == render_report(backtest)
