"""The package runs on what Windows has of Python: no fcntl, no fork, few signals.

Those that Lightning takes for granted elsewhere, SIGKILL and SIGUSR1, stay.
"""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from forecaster.errors import ConfigError
from forecaster.fitting import processes

WITHOUT = """
import os, signal, sys

import filelock, psutil  # on Linux they want fcntl and resource

for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"):
    sys.modules[name] = None
of_os = "fork forkpty killpg setsid getpgid getuid geteuid getgid set_blocking getloadavg statvfs chown mkfifo nice"
of_signal = "SIGHUP SIGQUIT SIGALRM SIGPIPE SIGCHLD pthread_sigmask alarm setitimer sigwait"
for module, names in ((os, of_os), (signal, of_signal)):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

from forecaster.__main__ import main

main()
"""


def command(folder, words):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *words.split()],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    days = pl.datetime_range(pl.datetime(2024, 1, 1), pl.datetime(2024, 4, 29), "1d", eager=True)
    sales = [float(20 + number % 7) for number in range(len(days))]
    pl.DataFrame({"date": days.dt.date(), "sales": sales}).write_csv(folder / "shop.csv")
    return folder


@pytest.mark.long
def test_a_table_is_checked_and_forecast(shop):
    assert "sales" in command(shop, "check shop.csv --horizon 7")
    command(shop, "predict shop.csv --horizon 7 --out next.csv")
    assert len(pl.read_csv(shop / "next.csv")) == 7


@pytest.mark.slow
def test_a_model_is_fitted_tracked_and_used(shop, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{(shop / 'runs.db').as_posix()}")
    command(shop, "fit shop.csv --horizon 7 --out model --set fit.steps=5 --set model.width=8")
    command(shop, "predict model shop.csv --out again.csv")
    assert len(pl.read_csv(shop / "again.csv")) == 7
    assert "shop.csv" in command(shop, "runs")


def test_several_processes_are_refused_on_windows(monkeypatch):
    monkeypatch.setattr(processes.os, "name", "nt")
    with pytest.raises(ConfigError, match="need Linux or macOS, found Windows; leave out --devices"):
        processes.Child("module:function", "rank 1")
