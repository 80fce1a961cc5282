"""A `Backtest` as one page that needs no other file."""
