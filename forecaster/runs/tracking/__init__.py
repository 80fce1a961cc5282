"""Runs recorded in MLflow."""

from forecaster.runs.tracking.content import curve_points, log_artifact, score_points
from forecaster.runs.tracking.run import TrackedRun, open_run
from forecaster.runs.tracking.spool import FOLDER
from forecaster.runs.tracking.store import tracking_uri, where_to_look
from forecaster.runs.tracking.sync import pending

__all__ = [
    "FOLDER",
    "TrackedRun",
    "curve_points",
    "log_artifact",
    "open_run",
    "pending",
    "score_points",
    "tracking_uri",
    "where_to_look",
]
