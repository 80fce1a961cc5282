"""A table becomes arrays: the only folder that knows polars and pandas."""
