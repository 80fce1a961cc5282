"""Which column is what: the questions that `schema.infer_schema` asks."""
