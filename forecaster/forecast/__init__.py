"""Quantiles become rows."""
