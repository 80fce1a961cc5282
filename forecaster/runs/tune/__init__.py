"""Search for good settings: a space of config paths, a study that survives, workers that share it."""
