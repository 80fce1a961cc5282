"""A folder with the shop in it; a disk that is full."""

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from forecast import tiny


@pytest.fixture(scope="session")
def shop_folder(tmp_path_factory) -> Path:
    """The shop, its prices, a config, and two saved models."""
    path = tmp_path_factory.mktemp("shop")
    tiny.shop().write_csv(path / "shop.csv")
    tiny.plain().write_csv(path / "plain.csv")
    tiny.prices().write_csv(path / "prices.csv")
    tiny.write_tiny(path / "tiny.yaml", model=tiny.NETWORK["model"])
    tiny.model().save(path / "model")
    tiny.network_model().save(path / "plain_model")  # refitted by many
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
