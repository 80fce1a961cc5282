"""Search for better settings: `study` holds the options, `search` runs it."""
