"""How far an effect that multiplies may go, as its logarithm."""

LARGEST = 20.0
"""Of a factor, up and down; −20 is that of a step at which all is closed."""
SHUT = -4.6
"""A hundredth; a factor below it is that of a step without any value but 0."""
CLOSED = -2.3
"""A tenth; a remainder behind a factor below it says nothing of the level."""
