"""The code of a registered model: MLflow runs it, nothing here imports it. It loads no Lightning."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlflow.exceptions import MlflowException  # noqa: TID253
from mlflow.models import set_model  # noqa: TID253
from mlflow.pyfunc import PyFuncModel, PythonModel, pandas  # noqa: TID253

from forecaster.errors import ForecasterError
from forecaster.forecast.artifact import is_forecaster
from forecaster.forecast.classification import ClassPredictor
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.saved_model import load_artifact
from forecaster.forecast.window import resolve_window
from forecaster.panel.audit import audit_panel
from forecaster.panel.build import open_panel


class ServedForecaster(PythonModel):
    """A saved model behind MLflow's `predict`. It keeps nothing of a request: threads may share it."""

    def load_context(self, context: Any) -> None:
        """Opens the saved model that was shipped with this file."""
        artifact = load_artifact(Path(context.artifacts["model"]))
        self._model = Predictor(artifact) if is_forecaster(artifact) else ClassPredictor(artifact)
        self._artifact = artifact

    # The type is MLflow's to see: any other that fits a table of any columns makes it complain.
    def predict(
        self, context: Any, model_input: pandas.DataFrame, params: dict[str, Any] | None = None
    ) -> pandas.DataFrame:
        """Returns forecasts, or classes, as rows keyed in the table's own names; a bad request is HTTP 400.

        Args:
            context: MLflow's; unused.
            model_input: history, and after it rows with empty targets and the known covariates.
            params: horizon, cutoff and, where the model draws paths, seed; null = the default.
        """
        given = {name: value for name, value in (params or {}).items() if value is not None}
        try:
            panel = open_panel(model_input, self._artifact.plan.data, schema=self._artifact.read_schema)
            if isinstance(self._model, ClassPredictor):
                audit_panel(panel, classes=True)
                frame = self._model.predict(panel).to_pandas()
            else:
                window = resolve_window(
                    self._model.artifact,
                    panel,
                    cutoff=str(given.get("cutoff", "own")),
                    horizon=int(given.get("horizon", self._artifact.horizon)),
                    seed=int(given.get("seed", 0)),
                )
                frame = self._model.predict(panel, window).to_pandas()
            for name in frame.columns[frame.isna().any()]:  # NaN is no JSON; null is
                frame[name] = frame[name].astype(object).where(frame[name].notna(), None)
            return frame
        except ForecasterError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from None


def _checks_params(predict: Callable[..., Any]) -> Callable[..., Any]:
    """Returns MLflow's `predict`, which refuses unknown params of this model; else it would drop them unseen."""

    @functools.wraps(predict)
    def checked(model: PyFuncModel, data: Any, params: dict[str, Any] | None = None) -> Any:
        inner = getattr(model._model_impl, "python_model", None)  # others of this process are not ours
        if isinstance(inner, ServedForecaster):
            schema = model.metadata.get_params_schema()
            known = [] if schema is None else [param.name for param in schema.params]
            if unknown := [name for name in params or {} if name not in known]:
                raise MlflowException.invalid_parameter_value(
                    f"params {', '.join(map(repr, unknown))}: this model takes {', '.join(known) or 'none'}"
                )
        return predict(model, data, params)

    return checked


PyFuncModel.predict = _checks_params(PyFuncModel.predict)
set_model(ServedForecaster())
