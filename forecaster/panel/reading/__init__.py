"""A table at the door: paths, addresses, text and frames become one frame of columns."""
