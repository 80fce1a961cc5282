"""A panel store may come from anybody: it is refused in a line, or it works; nothing in it is run."""

import pickle
import random
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from json_wounds import fuzz
from test_hostile_artifacts import GOLDEN, _bounded

import forecaster as fc

ARRAYS = ("values", "codes", "time", "indptr", "static", "static_codes", "observed_ends")
ROLES = {"known": ["price", "promo", "ad"], "categorical": ["promo", "ad", "category"]}


class Bomb:
    """A pickle that says when it is opened."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """The golden table as a store."""
    folder = tmp_path_factory.mktemp("store") / "table.store"
    fc.convert(GOLDEN / "table.csv", folder, future=GOLDEN / "future.csv", quiet=True, **ROLES)
    return folder


@pytest.fixture
def store(converted, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(converted, tmp_path / "table.store"))


def _tried(store: Path) -> bool:
    """Whether it opens; a refusal must be a line that a person can read."""
    try:
        with _bounded():
            fc.check(store, 7)
            fc.load(GOLDEN / "model").predict(store)
    except fc.ForecasterError as error:
        text = str(error)
        assert 0 < len(text) < 20_000 and "Traceback" not in text and "panicked" not in text
        return False
    return True


@pytest.mark.parametrize("name", ARRAYS)
def test_a_pickle_in_an_array_is_never_opened(store, name):
    array = np.load(store / f"{name}.npy")
    bombs = np.full(max(1, len(array)), Bomb(), dtype=object)
    np.save(store / f"{name}.npy", bombs, allow_pickle=True)
    with pytest.raises(fc.DataError, match="damaged panel store"):
        fc.check(store)
    (store / f"{name}.npy").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(fc.DataError, match="damaged panel store"):
        fc.check(store)
    np.savez(store / "other.npz", bombs)
    (store / "other.npz").replace(store / f"{name}.npy")
    with pytest.raises(fc.DataError, match="damaged panel store"):
        fc.check(store)


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize(
    "rows", [0, -1, 1, 2], ids=["none", "one less", "one more", "of two axes more"]
)
def test_arrays_that_do_not_fit_each_other_are_refused(store, name, rows):
    array = np.load(store / f"{name}.npy")
    if rows == 2:
        changed = array[..., None]
    else:
        changed = np.resize(array, (0 if rows == 0 else len(array) + rows, *array.shape[1:]))
    np.save(store / f"{name}.npy", changed)
    with pytest.raises(fc.DataError, match=r"damaged panel store \(.*convert again"):
        fc.check(store)


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_that_claims_terabytes_takes_no_memory(store, name):
    array = np.load(store / f"{name}.npy")
    facts = np.lib.format.header_data_from_array_1_0(array) | {"shape": (1 << 40, *array.shape[1:])}
    with (store / f"{name}.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, facts)
        file.write(array.tobytes())
    if array[:1].size:
        with _bounded(), pytest.raises(fc.DataError, match="damaged panel store"):
            fc.check(store)


@pytest.mark.parametrize("rows", [[0, 5, 3], [1, 5, 9], [0, -1, 9], [0, 2**62, 9]])
def test_first_rows_that_do_not_rise_are_refused(store, rows):
    indptr = np.load(store / "indptr.npy")
    indptr[: len(rows) - 1] = rows[:-1]
    np.save(store / "indptr.npy", indptr)
    with pytest.raises(fc.DataError, match=r"indptr.npy does not rise from 0|damaged"):
        if rows[:2] == [0, 5]:
            indptr[1:3] = 5, 3
            np.save(store / "indptr.npy", indptr)
        fc.check(store)


@pytest.mark.long
def test_a_wounded_store_is_refused_in_a_line_or_works(store):
    fc.load(GOLDEN / "model").predict(store)
    fuzz(store, ["panel.json"], lambda: _tried(store), 0, 30)


@pytest.mark.slow
def test_stores_with_hundreds_of_wounds_are_refused_in_a_line_or_work(store):
    fuzz(store, ["panel.json"], lambda: _tried(store), 1, 200)


@pytest.mark.long
def test_bytes_flipped_anywhere_give_a_line_or_a_panel(store):
    rng = random.Random(0)
    for name in (*(f"{array}.npy" for array in ARRAYS), "keys.arrow"):
        content = (store / name).read_bytes()
        for _ in range(6):
            bad = bytearray(content)
            bad[rng.randrange(min(len(bad), 400))] ^= 1 << rng.randrange(8)
            (store / name).write_bytes(bad[: rng.choice([len(bad), len(bad) // 2])])
            _tried(store)
        (store / name).write_bytes(content)


def test_a_store_whose_files_vanish_is_refused_in_a_line(store):
    for name in (*(f"{array}.npy" for array in ARRAYS), "keys.arrow"):
        (store / name).rename(store / "aside")
        with pytest.raises(fc.DataError, match=r"damaged panel store .*No such file"):
            fc.check(store)
        (store / "aside").rename(store / name)


def test_keys_of_other_series_are_refused(store):
    keys = pl.read_ipc((store / "keys.arrow").read_bytes())
    keys.head(1).write_ipc(store / "keys.arrow")
    with pytest.raises(fc.DataError, match=r"keys.arrow has 1 rows, expected"):
        fc.check(store)
