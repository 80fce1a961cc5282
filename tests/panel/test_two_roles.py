"""A column has one role, whichever options name it, in a fit and with a model."""

import itertools

import pytest
from panel.panel_tables import TWO

from forecaster.config import DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.panel.build import open_panel

MODEL = {"time": "day", "series": ("id",), "target": ("y",), "known": ("x",), "static": ("w",)}
ROLES = ("time", "series", "target", "known", "past", "static", "label")
COLUMN = {"time": "day", "series": "id", "target": "y", "known": "x", "static": "w"}


def _named(role: str, column: str) -> dict:
    return {role: column if role in ("time", "label") else (column,)}


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(ROLES, 2)])
def test_two_options_that_name_one_column_are_refused_in_a_fit(one, other):
    rest = {"target": ("y",)} if "target" not in (one, other) else {}
    with pytest.raises(DataError, match=f"column 'x' is declared twice, by --{one} and --{other}"):
        open_panel(
            TWO.with_columns(x=TWO["day"]), DataConfig(**rest | _named(one, "x") | _named(other, "x"))
        )


@pytest.mark.parametrize(("role", "other"), [*itertools.permutations(COLUMN, 2)])
def test_an_option_that_takes_a_column_of_another_role_of_the_model_is_refused(role, other):
    schema = open_panel(TWO.with_columns(w=TWO["id"]), DataConfig(**MODEL)).schema
    with pytest.raises(ConfigError, match=f"column '{COLUMN[other]}' is declared twice, by --"):
        schema.renamed(DataConfig(**_named(role, COLUMN[other])))


def test_a_class_column_of_a_model_without_one_are_refused():
    schema = open_panel(TWO, DataConfig()).schema
    with pytest.raises(ConfigError, match="--label w: this model was fitted with none"):
        schema.renamed(DataConfig(label="w"))
