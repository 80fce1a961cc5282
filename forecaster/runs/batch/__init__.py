"""Forecasts of whole tables, of any size, into files: opened, shared out, made, put together."""
