"""Files that lie elsewhere: the same table as here, or one line that says why not."""

import gzip
import io
import socket
import sys
import time

import fsspec
import polars as pl
import pytest
from loopback import server

from forecaster.errors import DataError
from forecaster.panel import frames as remote
from forecaster.panel.frames import read_table

FRAME = pl.DataFrame({"day": ["2024-01-01", "2024-01-02"], "y": [1.5, 2.0]})
CSV = FRAME.write_csv().encode()


def parquet():
    file = io.BytesIO()
    FRAME.write_parquet(file)
    return file.getvalue()


def refused(source, *parts):
    with pytest.raises(DataError) as caught:
        read_table(source)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, message


def test_a_web_address_gives_the_table_of_the_file_behind_it():
    files = {"a.csv": CSV, "a.csv.gz": gzip.compress(CSV), "x/a.parquet": parquet(), "plain": CSV}
    with server(files) as web:
        for name in files:
            table = read_table(f"{web}/{name}")
            assert table.frame.equals(FRAME) and table.name == f"{web}/{name}"
        refused(f"{web}/b.csv", "/b.csv: cannot be read (the server answers 404", "check the address")


def test_an_absent_or_silent_server_is_an_error_after_the_timeout(monkeypatch):
    monkeypatch.setattr(remote, "URL_TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        begin = time.monotonic()
        refused(f"http://127.0.0.1:{port}/a.csv", "cannot be read", "timed out")
        assert time.monotonic() - begin < 5
    refused(f"http://127.0.0.1:{port}/a.csv", "no answer", "refused")


def test_files_folders_and_patterns_of_any_fsspec_scheme_are_read(tmp_path):
    memory = fsspec.filesystem("memory")
    try:
        memory.pipe({"/shop/part-2.csv": CSV, "/shop/part-10.csv": CSV, "/shop/notes.md": b"#"})
        assert read_table("memory://shop/part-2.csv").frame.equals(FRAME)
        for source in ("memory://shop/part-*.csv", "memory://shop"):
            table = read_table(source)
            assert table.frame.equals(pl.concat([FRAME, FRAME]))
            assert [name.rsplit("/")[-1] for name, _ in table.parts] == ["part-2.csv", "part-10.csv"]
        refused(
            "memory://shop/none.csv", "memory://shop/none.csv: cannot be read (there is no such file)"
        )
        refused("memory://shop/none-*.csv", "no file matches this pattern")
    finally:
        memory.rm("/shop", recursive=True)
    (tmp_path / "a b.csv").write_bytes(CSV)
    assert read_table((tmp_path / "a b.csv").as_uri()).frame.equals(FRAME)


def test_a_scheme_without_its_package_is_refused_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "adlfs", None)
    refused("abfs://box/a.csv", "abfs://box/a.csv: cannot be listed (Install adlfs to access Azure")
    refused("nosuch://box/a.csv", "nosuch://box/a.csv: cannot be listed (Protocol not known: nosuch")


@pytest.fixture
def bucket(monkeypatch):
    files = {"box/a.csv": CSV, "box/parts/store=1/a.csv": CSV, "box/parts/store=2/a.csv": CSV}
    files["box/a.parquet"] = parquet()
    with server(files) as web:
        for name, value in {
            "AWS_ENDPOINT_URL": web,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        yield


def test_s3_files_folders_and_patterns_are_read_from_the_endpoint_of_the_environment(bucket):
    assert read_table("s3://box/a.csv").frame.equals(FRAME)
    assert read_table("s3://box/a.parquet").frame.equals(FRAME)
    both = pl.concat([FRAME.with_columns(store=pl.lit(k, pl.Int64)) for k in (1, 2)])
    assert read_table("s3://box/parts").frame.equals(both)
    assert read_table("s3://box/parts/*/a.csv").frame.equals(both)
    refused("s3://box/b.csv", "s3://box/b.csv: cannot be read (there is no such file)")


@pytest.mark.slow
def test_an_absent_s3_endpoint_is_an_error(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    begin = time.monotonic()
    refused("s3://box/a.csv", "s3://box/a.csv: cannot be", "onnect")
    assert time.monotonic() - begin < 60
