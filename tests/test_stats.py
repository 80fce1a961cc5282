"""`make stats` counts what it says it counts."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import stats

SOURCE = '''"""A docstring
of two lines."""

# A comment alone.
VALUE = 1  # a comment after code
"""Of an attribute."""


def double(x):
    return (
        2 * x
    )
'''


def test_lines_tokens_and_comments_are_counted_each_once():
    size = stats.size_of(SOURCE)
    # VALUE = 1 · def double ( x ) : · return ( · 2 * x · )
    assert size.tokens == 3 + 6 + 2 + 3 + 1
    assert (size.code, size.docstring, size.blank) == (5, 3, 3)
    assert (size.comment, size.remarks) == (1, 2)
    assert (size.density, size.remark_share) == (3.0, 0.4)
    both = size + size
    assert (both.tokens, both.density) == (30, 3.0)
