"""What experts learn from a table: which suit it, their maps, errors, residuals and levels."""
