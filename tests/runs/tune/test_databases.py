"""A study in a real PostgreSQL, and behind Optuna's proxy: as exact as a file, and patient.

The server is Debian's, started here on a free port, in a folder that goes away, by a user who is not
root; it is stopped by its own number.
"""

import glob
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sweeps import assert_nothing_lost, command, make_plan, wait_for, workers_of

from forecaster.runs.tune.study import finished, open_study

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cheap")]


def _programs():
    found = [shutil.which("initdb"), *sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))]
    return next((Path(path).parent for path in found if path), None)


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class _Server:
    """A PostgreSQL server that can be stopped and started again."""

    def __init__(self, programs, folder, port):
        self.programs, self.folder, self.port = programs, folder, port
        # PostgreSQL refuses to run as root.
        self.user = {"user": "postgres", "group": "postgres", "extra_groups": []}
        self.user = self.user if os.geteuid() == 0 else {}
        self.process = None

    def make(self):
        """Makes an empty database."""
        words = ["-D", str(self.folder / "data"), "-U", "studies", "--auth=trust", "--no-sync"]
        words += ["--locale=C", "--encoding=UTF8"]
        subprocess.run(
            [self.programs / "initdb", *words], check=True, capture_output=True, cwd="/", **self.user
        )

    def start(self):
        """Starts the server, and waits until it answers."""
        settings = [f"port={self.port}", "listen_addresses=127.0.0.1", "unix_socket_directories="]
        settings += ["fsync=off"]
        words = ["-D", str(self.folder / "data"), *(w for s in settings for w in ("-c", s))]
        self.process = subprocess.Popen(
            [self.programs / "postgres", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            **self.user,
        )
        wait_for(lambda: _listens(self.port))

    def stop(self):
        """Stops the server at once, its connections too."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture(scope="module")
def postgres():
    """A server that runs."""
    programs = _programs()
    if programs is None:
        pytest.skip("no PostgreSQL: apt-get install postgresql")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("no psycopg: pip install 'psycopg[binary]'")
    folder = Path(tempfile.mkdtemp(prefix="forecaster-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = _Server(programs, folder, port)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _plan(postgres, folder, name, **told):
    address = f"postgresql+psycopg://studies@127.0.0.1:{postgres.port}/postgres"
    return make_plan(folder, storage=address, study=name, workers=3, **told)


@pytest.fixture
def told():
    """Reads a study's trials, by one connection each."""
    opened = {}

    def read(plan):
        study = opened.setdefault(plan.study, None) or open_study(plan)
        opened[plan.study] = study
        return study.get_trials()

    return read


def test_three_workers_on_postgres_one_of_them_killed_tell_the_exact_total(
    postgres, told, tmp_path, monkeypatch
):
    monkeypatch.setenv("CHEAP_SECONDS", "0.05")
    plan = _plan(postgres, tmp_path, "killed", trials=16)
    with command(plan, tmp_path, "bowl") as process:
        wait_for(lambda: len(finished(told(plan))) >= 5, process)
        os.kill(workers_of(process)[1].pid, signal.SIGKILL)
        assert process.wait(120) == 0
    trials = told(plan)
    assert_nothing_lost(trials, 16)
    assert len({trial.user_attrs["owner"] for trial in trials}) >= 3


def test_a_server_that_is_started_again_in_the_middle_costs_nothing_that_was_told(
    postgres, told, tmp_path, monkeypatch
):
    monkeypatch.setenv("CHEAP_SECONDS", "0.05")
    plan = _plan(postgres, tmp_path, "restarted", trials=14)
    with command(plan, tmp_path, "bowl") as process:
        wait_for(lambda: len(finished(told(plan))) >= 5, process)
        before = {trial.number: trial.values for trial in finished(told(plan))}
        postgres.stop()
        postgres.start()
        assert process.wait(120) == 0
    trials = told(plan)
    assert {trial.number: trial.values for trial in finished(trials)}.items() >= before.items()
    assert not [trial for trial in trials if "error" in trial.user_attrs]
    assert_nothing_lost(trials, 14)


def test_a_server_that_stays_away_ends_the_search_in_one_line_and_keeps_what_was_told(
    postgres, told, tmp_path, monkeypatch
):
    monkeypatch.setenv("CHEAP_SECONDS", "0.05")
    plan = _plan(postgres, tmp_path, "gone", trials=300)
    try:
        with command(plan, tmp_path, "bowl", patience=2.0) as process:
            wait_for(lambda: len(finished(told(plan))) >= 5, process)
            before = {trial.number: trial.values for trial in finished(told(plan))}
            postgres.stop()
            _, said = process.communicate(timeout=120)
            assert process.returncode == 2
    finally:
        postgres.start()
    (line,) = said.strip().splitlines()
    assert "study storage postgresql+psycopg://studies@127.0.0.1" in line and "tried for 2 s" in line
    assert {trial.number: trial.values for trial in finished(told(plan))}.items() >= before.items()
    plan = replace(plan, trials=len(finished(told(plan))) + 3)
    with command(plan, tmp_path, "bowl") as process:
        assert process.wait(120) == 0
    assert_nothing_lost(told(plan), plan.trials)


@contextmanager
def _proxy(address, port):
    program = (
        "import optuna, sys; optuna.storages.run_grpc_proxy_server("
        f"optuna.storages.get_storage({address!r}), host='127.0.0.1', port={port})"
    )
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", program])
    try:
        wait_for(lambda: _listens(port) or process.poll() is not None)
        yield
    finally:
        process.kill()
        process.wait()


def test_three_workers_behind_a_proxy_tell_the_exact_total(told, tmp_path, unused_port):
    if importlib.util.find_spec("grpc") is None:
        pytest.skip("no grpc: pip install grpcio protobuf")
    plan = make_plan(tmp_path, trials=10, workers=3, storage=f"grpc://127.0.0.1:{unused_port}")
    with _proxy(f"sqlite:///{tmp_path}/shop.db", unused_port):
        with command(plan, tmp_path, "bowl") as process:
            assert process.wait(120) == 0
        assert_nothing_lost(told(plan), 10)
