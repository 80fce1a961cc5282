"""Forecasts meet truth: metrics, baselines, rolling backtests and the report."""
