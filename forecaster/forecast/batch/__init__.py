"""Forecasts of many series in parts: each part whole or not there, none made twice."""
