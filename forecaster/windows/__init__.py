"""A panel becomes batches."""
