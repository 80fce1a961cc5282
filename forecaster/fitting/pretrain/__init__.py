"""Weights that are learned in advance, from made and real series, and shipped with the package."""
