"""Work recorded in MLflow: its store, one run per piece of work, what a run holds."""
