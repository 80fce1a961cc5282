"""Models under a name in MLflow's registry: published as what a server runs, fetched as data alone."""
