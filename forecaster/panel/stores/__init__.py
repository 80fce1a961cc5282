"""Panels larger than memory: streamed to disk once, mapped ever after."""
