"""What tests of searches share: quiet Optuna, free ports, workers that find cheap objectives."""

import os
import socket
from pathlib import Path

import pytest


@pytest.fixture
def unused_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def cheap(monkeypatch) -> None:
    """Worker processes find `cheap_objectives`, and use one thread each."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture(autouse=True)
def quick_disk(request, monkeypatch) -> None:
    """No test here looks at what outlives the machine, and a busy disk takes seconds to say so."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(os, "fsync", lambda _: None)
