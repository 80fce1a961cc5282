"""Which column is what: the questions that `infer_schema` asks."""
