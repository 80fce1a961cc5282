"""Columns become sorted rows, and rows a panel without repeats, at their true place."""
