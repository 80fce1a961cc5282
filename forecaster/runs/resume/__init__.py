"""A fit that was stopped goes on: what it was asked for, its checkpoints, the folder of both."""
