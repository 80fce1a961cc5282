"""Fits without pictures."""

import pytest


@pytest.fixture(autouse=True)
def undrawn(undrawn) -> None:
    """No test here looks at a figure."""
