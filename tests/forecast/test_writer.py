"""Files and folders appear whole or not at all."""

import os

import polars as pl
import pytest
from forecast import tiny

from forecaster import files
from forecaster.errors import OutputError
from forecaster.forecast import writer

ROWS = pl.DataFrame({"store": ["a", "b"], "forecast": [1.5, None]})


@pytest.fixture(params=["new", "old"])
def file(request, tmp_path):
    """A path with nothing there, or with something."""
    path = tmp_path / "result.csv"
    if request.param == "old":
        path.write_text("before")
    return path


@pytest.fixture(params=["new", "empty", "old"])
def folder(request, tmp_path):
    """A path with nothing there, an empty folder, or a folder of the same kind."""
    path = tmp_path / "model"
    if request.param != "new":
        path.mkdir()
    if request.param == "old":
        (path / "contract.json").write_text("before")
        (path / "extra.txt").write_text("before")
    return path


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_file_whose_writing_fails_is_not_there_and_the_old_one_is(tmp_path, file, fault):
    before = tiny.tree(tmp_path)
    with pytest.raises((OutputError, KeyboardInterrupt)) as caught, files.atomic_file(file) as partial:
        partial.write_text("half")
        raise fault
    assert tiny.tree(tmp_path) == before
    if isinstance(fault, OSError):
        assert str(caught.value) == (
            f"{file}: cannot be written: No space left on device; make room there, or choose another place"
        )


def test_a_file_takes_its_name_only_when_it_is_whole(tmp_path, file):
    before = file.read_text() if file.exists() else None
    with files.atomic_file(file) as partial:
        partial.write_text("half")
        assert (file.read_text() if file.exists() else None) == before
        partial.write_text("whole")
    assert tiny.tree(tmp_path) == {"result.csv": b"whole"}


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_folder_whose_writing_fails_is_not_there_and_the_old_one_is(tmp_path, folder, fault):
    before = tiny.tree(tmp_path)
    writing = files.atomic_folder(folder, replaces="contract.json")
    with pytest.raises((OutputError, KeyboardInterrupt)), writing as partial:
        (partial / "contract.json").write_text("half")
        raise fault
    assert tiny.tree(tmp_path) == before


def test_a_folder_takes_its_name_only_when_it_is_whole_and_replaces_the_old_one(tmp_path, folder):
    before = tiny.tree(tmp_path)
    with files.atomic_folder(folder, replaces="contract.json") as partial:
        (partial / "contract.json").write_text("whole")
        hidden = {name: text for name, text in tiny.tree(tmp_path).items() if name[0] != "."}
        assert hidden == before
    assert tiny.tree(tmp_path) == {"model/": b"", "model/contract.json": b"whole"}


def test_a_folder_that_cannot_take_its_name_leaves_the_old_one(tmp_path, monkeypatch):
    old = tmp_path / "model"
    old.mkdir()
    (old / "contract.json").write_text("before")
    before = tiny.tree(tmp_path)
    rename = type(old).rename

    def failing(self, target):
        if self.name.endswith(".partial"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(type(old), "rename", failing)
    with (
        pytest.raises(OutputError, match="Input/output error"),
        files.atomic_folder(old, replaces="contract.json") as partial,
    ):
        (partial / "contract.json").write_text("whole")
    assert tiny.tree(tmp_path) == before


def test_a_folder_of_other_work_is_never_replaced(tmp_path):
    thesis = tmp_path / "thesis"
    thesis.mkdir()
    (thesis / "chapter.tex").write_text("years")
    file = tmp_path / "file"
    file.write_text("years")
    before = tiny.tree(tmp_path)
    for path in (thesis, file):
        with (
            pytest.raises(OutputError, match=f"{path.name}: exists and is not a saved model"),
            files.atomic_folder(path, replaces="contract.json"),
        ):
            pass
    assert tiny.tree(tmp_path) == before


def test_what_cannot_be_written_is_known_before(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    files.check_writable(tmp_path / "to" / "be" / "made.csv")
    with pytest.raises(OutputError, match="file is not a folder"):
        files.check_writable(file / "below" / "made.csv")
    with pytest.raises(
        OutputError, match=r"x\.txt: expected a name ending in \.csv, \.parquet or \.xlsx"
    ):
        writer.check_suffix(tmp_path / "x.txt", writer.ROWS)
    writer.check_suffix(tmp_path / "x.CSV", writer.ROWS)


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind the superuser")
def test_a_folder_without_permission_is_known_before(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(OutputError, match="no permission in"):
        files.check_writable(closed / "made.csv")


def test_rows_are_read_back_as_written(tmp_path):
    writer.write_rows(ROWS, tmp_path / "deep" / "rows.csv", pl.DataFrame.clone)
    writer.write_rows(ROWS, tmp_path / "rows.parquet", pl.DataFrame.clone)
    assert pl.read_csv(tmp_path / "deep" / "rows.csv").equals(ROWS)
    assert pl.read_parquet(tmp_path / "rows.parquet").equals(ROWS)
    with pytest.raises(
        OutputError, match=r"rows.ods: expected a name ending in .csv, .parquet or .xlsx"
    ):
        writer.write_rows(ROWS, tmp_path / "rows.ods", pl.DataFrame.clone)
