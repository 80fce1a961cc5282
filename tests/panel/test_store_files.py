"""A store is opened as the panel it was made of, mapped; what is derived from it is mapped too."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from panel_tables import TWO, same, table

from forecaster.config import DataConfig
from forecaster.errors import DataError, OutputError
from forecaster.panel import arrays
from forecaster.panel.build import open_panel
from forecaster.panel.categories import recoded, with_categories
from forecaster.panel.store import is_store, open_store, writing

AS_IS = DataConfig()


def stored(panel, folder, data=AS_IS):
    """The panel, written part by part and opened from the folder."""
    with writing(folder) as store:
        for _, part in panel.parts():
            store.append(part)
        store.finish(data, panel.notes)
    return open_store(folder)


def made(make_panel):
    """A panel with everything in it."""
    return make_panel(
        5,
        60,
        targets=2,
        past=1,
        known=1,
        categories=True,
        static=True,
        missing=0.2,
        gaps=0.1,
        ragged=True,
    )


@pytest.fixture
def small_blocks(monkeypatch):
    """Every panel is many blocks and many parts."""
    monkeypatch.setattr(arrays, "BLOCK_CELLS", 50)
    monkeypatch.setattr("forecaster.panel.panel.PART_CELLS", 50)


@pytest.mark.parametrize("options", [{}, {"irregular": True}, {"n_series": 1, "targets": 3}])
def test_a_store_is_the_panel_bit_for_bit(make_panel, tmp_path, small_blocks, options):
    given = {"targets": 2, "known": 1, "categories": True, "static": True, "gaps": 0.1, "ragged": True}
    panel = make_panel(**(given | options))
    mapped = stored(panel, tmp_path / "store")
    assert (
        same(panel, mapped)
        and mapped.keys.equals(panel.keys)
        and mapped.series_names == panel.series_names
    )
    facts = ("schema", "calendar", "regular", "kind", "name", "notes")
    assert all(getattr(panel, name) == getattr(mapped, name) for name in facts)
    np.testing.assert_array_equal(panel.observed_ends, mapped.observed_ends)
    for array in (mapped.values, mapped.codes, mapped.time):
        assert isinstance(array, np.memmap) and not array.flags.writeable
    assert replace(mapped).fingerprint() == panel.fingerprint()  # not the one that was noted
    np.testing.assert_array_equal(replace(mapped).observed_ends, panel.observed_ends)


def test_what_is_derived_from_a_store_is_mapped_and_what_it_would_be_in_memory(
    make_panel, tmp_path, small_blocks
):
    panel = made(make_panel)
    mapped = stored(panel, tmp_path / "store")
    before = sorted(path.name for path in (tmp_path / "store").iterdir())
    middle = int(np.median(panel.time))
    words = {name: values[:1] for name, values in panel.schema.categories.items()}
    for derived in (
        lambda p: p.until(middle),
        lambda p: p.reaching(np.full(p.n_series, middle), 50),
        lambda p: recoded(p, words),
        lambda p: with_categories(p, p.indptr[:-1] + 5),
        lambda p: p.cut(p.indptr[:-1] + 1, p.indptr[1:] - 1),
    ):
        one, other = derived(panel), derived(mapped)
        assert same(one, other)
        assert all(isinstance(getattr(other, name), np.memmap) for name in ("values", "codes", "time"))
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == before


def test_a_derived_array_without_room_is_one_clear_line(make_panel, tmp_path, monkeypatch):
    mapped = stored(made(make_panel), tmp_path / "store")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrays.os, "posix_fallocate", full)
    with pytest.raises(OutputError, match=r"store: a copy of 0.0 GB cannot be written \(No space left"):
        mapped.until(int(mapped.time[10]))


def test_parts_are_views_of_neighbouring_series_and_make_up_the_panel(make_panel, small_blocks):
    panel = made(make_panel)
    parts = list(panel.parts())
    assert len(parts) > 2 and [first for first, _ in parts] == list(
        np.cumsum([0, *(part.n_series for _, part in parts[:-1])])
    )
    for name in ("values", "codes", "time", "static"):
        whole = np.concatenate([getattr(part, name) for _, part in parts])
        np.testing.assert_array_equal(whole, getattr(panel, name))
        assert all(np.shares_memory(getattr(p, name), getattr(panel, name)) for _, p in parts)
    assert [name for _, part in parts for name in part.series_names] == panel.series_names


@pytest.mark.parametrize(
    ("card", "message"),
    [
        ("{", "damaged panel store"),
        ('{"format": 1}', "damaged panel store"),
        (
            '{"format": 2}',
            "panel store of format 2, expected format 1: upgrade attention-forecaster, or",
        ),
        ('{"format": true}', "panel store of format True, expected format 1: "),
    ],
)
def test_a_damaged_card_is_one_clear_line(tmp_path, card, message):
    folder = tmp_path / "store"
    stored(open_panel(TWO, AS_IS), folder)
    (folder / "panel.json").write_text(card)
    with pytest.raises(DataError, match=message) as caught:
        open_panel(folder, AS_IS)
    assert "\n" not in str(caught.value) and "convert again" in str(caught.value)


def test_a_store_is_recognised_by_its_card_and_replaces_another(tmp_path):
    panel = open_panel(TWO, AS_IS)
    stored(panel, tmp_path / "store")
    assert is_store(tmp_path / "store") and not is_store(tmp_path) and not is_store(TWO)
    assert json.loads((tmp_path / "store" / "panel.json").read_text())["rows"] == panel.n_rows
    stored(panel.until(int(panel.time[1])), tmp_path / "store")
    assert open_store(tmp_path / "store").n_rows < panel.n_rows


def test_flags_that_contradict_a_store_are_all_refused_and_others_hold(tmp_path):
    data = DataConfig(known=("x",), on_duplicates="mean")
    stored(open_panel(TWO, data), tmp_path / "store", data)
    folder = tmp_path / "store"
    fine = DataConfig(series=("id",), target=("y",), freq="D", time="day", season_length=3)
    assert open_panel(folder, fine).calendar.season_length == 3
    with pytest.raises(DataError) as caught:
        open_panel(folder, DataConfig(target=("x",), freq="1h", on_duplicates="last"), future=TWO)
    lines = str(caught.value).splitlines()
    assert [line.partition(": the")[0].removeprefix(f"{folder}: ") for line in lines] == [
        "--target x", "--freq 1h", "--on-duplicates last",
    ]  # fmt: skip
    assert "convert the table again with --target x" in lines[0]
    with pytest.raises(DataError, match=r"takes no further table; convert .* with --future FILE"):
        open_panel(folder, AS_IS, future=TWO)


def test_a_model_reads_a_store_in_its_own_categories_or_says_which_roles_differ(tmp_path):
    frame = table(a={0: 1, 1: 2, 2: 3}, b={0: 1, 1: 2}).with_columns(pl.lit(1.5).alias("z"))
    data = DataConfig(past=("x", "w"), static=())
    model = open_panel(frame.with_columns(w=pl.lit("even")), data).schema
    stored(open_panel(frame, data), tmp_path / "store", data)
    assert same(
        open_panel(frame, data, schema=model), open_panel(tmp_path / "store", data, schema=model)
    )
    assert open_panel(tmp_path / "store", data, schema=model).unmet == {"w": ("odd",)}
    wider = replace(model, past=("x", "z", "w"), freq="1h")
    with pytest.raises(DataError) as caught:
        open_panel(tmp_path / "store", data, schema=wider)
    roles, clock = str(caught.value).splitlines()
    assert "the model has past x,z,w: the store was converted with x,w; convert" in roles
    assert roles.endswith("again with --past x,z,w")
    assert "the model has freq 1h: the store was converted with 1d; convert" in clock
    stored(
        open_panel(frame, data), tmp_path / "mean", data.model_copy(update={"on_duplicates": "mean"})
    )
    with pytest.raises(DataError, match="--on-duplicates last: the store was converted with mean"):
        last = data.model_copy(update={"on_duplicates": "last"})
        open_panel(tmp_path / "mean", last, schema=model)
