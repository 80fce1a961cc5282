"""Work that is tracked: fit, backtest with refitting, MLflow."""
