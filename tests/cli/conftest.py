"""The command line, called in this process; a folder with the shop in it."""

import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from forecast import tiny

from forecaster.cli import main


@dataclass(frozen=True)
class Answer:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def shell(monkeypatch, capsys) -> Callable[..., Answer]:
    """Runs `forecaster WORDS...` in this process."""

    def run(*words: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["forecaster", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return Answer(left.value.code, out, err)

    return run


@pytest.fixture(scope="session")
def shop_folder(tmp_path_factory) -> Path:
    """The shop, its prices, a config, and two saved models."""
    path = tmp_path_factory.mktemp("shop")
    tiny.shop().write_csv(path / "shop.csv")
    tiny.plain().write_csv(path / "plain.csv")
    tiny.prices().write_csv(path / "prices.csv")
    tiny.write_tiny(path / "tiny.yaml")
    tiny.model().save(path / "model")
    tiny.plain_model().save(path / "plain_model")
    return path


@pytest.fixture
def folder(shop_folder, tmp_path, monkeypatch) -> Path:
    """A working folder of its own with these files."""
    monkeypatch.chdir(shutil.copytree(shop_folder, tmp_path, dirs_exist_ok=True))
    return tmp_path


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """As on a full disk, a write beyond so many bytes fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
