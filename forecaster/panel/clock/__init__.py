"""How times are written, how far apart they are, and what recurs in them."""
