"""Batches become quantiles: knows nothing of frames, panels and files."""
