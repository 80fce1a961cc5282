"""Columns that measure nothing: numbers of rows, ids, parts of the date and copies have no role unless declared."""

from datetime import date

import numpy as np
import polars as pl
import pytest
from loopback import *  # noqa
