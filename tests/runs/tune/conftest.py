"""What tests of searches share: cheap evaluators in worker processes, a disk that is quick."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def cheap(monkeypatch) -> None:
    """Worker processes find `cheap_evaluators`, and use one thread each."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture(autouse=True)
def quick_disk(request, monkeypatch) -> None:
    """No test here needs what outlives the machine, and a busy disk takes seconds to sync."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(os, "fsync", lambda _: None)
