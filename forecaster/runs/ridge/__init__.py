"""Linear maps in closed form: windows read in blocks, solved, and what they miss."""
