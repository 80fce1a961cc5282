"""`python -m forecaster` is the command `forecaster`."""

from forecaster.cli import main

main()
