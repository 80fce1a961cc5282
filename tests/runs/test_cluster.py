"""Promise: a forecast made on a Ray cluster is that of one machine, also when a node dies."""

import importlib.util

import polars as pl
import psutil
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.forecast.runner import BLOCK
from forecaster.runs import cluster

BLOCKS = 12
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="the extra ray is absent"
)


def test_without_ray_one_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(fc.ConfigError, match=r"pip install 'ray\[data\]'"):
        cluster.ray_engine()


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A table of a dozen blocks of short series, and its forecast by this process."""
    folder = tmp_path_factory.mktemp("many")
    names = pl.DataFrame({"store": [f"s{n:05d}" for n in range(BLOCKS * BLOCK - 100)]})
    names.join(tiny.plain(40).filter(store="a").drop("store"), how="cross").write_parquet(
        folder / "many.parquet"
    )
    tiny.plain_model().predict_to(folder / "here.parquet", folder / "many.parquet")
    return folder


@pytest.fixture
def nodes(monkeypatch):
    """Two nodes of a Ray cluster on this machine; the second has a mark to be told by."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_BACKEND_LOG_LEVEL", "fatal")
    from ray.cluster_utils import Cluster

    # Logical cores: with one each, an actor and the task that feeds it never fit a node together.
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    try:
        yield found, found.add_node(num_cpus=2)
    finally:
        found.shutdown()


def _works(node):
    """Whether an actor of the work lives on a node."""
    (raylet,) = [process.process.pid for process in node.all_processes["raylet"]]
    children = psutil.Process(raylet).children(recursive=True)
    return any("Maker" in "".join(child.cmdline()) for child in children)


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_node_that_dies_in_the_middle_changes_no_byte_of_the_result(many, nodes, tmp_path):
    ray_cluster, second = nodes
    out, killed = many / "there.parquet", []

    def kill(done, total):
        if not killed and _works(second):
            killed.append(done)
            ray_cluster.remove_node(second, allow_graceful=False)

    engine = cluster.ray_engine(ray_cluster.address)
    done = tiny.plain_model().predict_to(out, many / "many.parquet", engine=engine, progress=kill)
    assert 0 < killed[0] < BLOCKS * BLOCK - 100 and done.made == done.n_blocks == BLOCKS and done.whole
    assert out.read_bytes() == (many / "here.parquet").read_bytes()
    keys = pl.read_parquet(out).select("store", "lead")
    assert keys.n_unique() == keys.height == tiny.HORIZON * (BLOCKS * BLOCK - 100)
    assert not (many / "there.parquet.parts").exists()
