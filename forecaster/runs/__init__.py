"""Work that is tracked: fits from table to report, searches, batch forecasts, MLflow, the registry."""
