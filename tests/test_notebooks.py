"""Every notebook runs from top to bottom, and what is committed of it holds results, not errors.

The kernel is the Python that runs the tests; the notebooks run in a copy of notebooks/ and data/, with
trainings of a few steps and searches of a few trials.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from test_readme import copy_few_shops

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_LINES = 60  # of text in one output
MOST_BYTES = 1_500_000

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture
def kernel(tmp_path, monkeypatch) -> str:
    """Name of a kernel of the running Python, whatever kernels and settings the user has installed."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    # As in conftest.py: where cores are busy, a second thread makes small trainings ten times slower.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "jupyter" / "kernels" / "running"
    folder.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "the running Python", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    return "running"


def _texts(notebook: nbformat.NotebookNode) -> list[str]:
    """All that the outputs say in words."""
    texts: list[str] = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            texts.append(output.get("text", ""))
            texts += [v for kind, v in output.get("data", {}).items() if kind.startswith("text/")]
    return texts


def _shortened(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook with few steps and experts, fewer shops, and a search of three trials, then five."""
    cut = 0
    for cell in notebook.cells:
        for long, short in (
            (r'"steps": \d+', '"steps": 40'),
            (r'"width": (\d+)}', r'"width": \1, "experts": ["seasonal_naive", "linear"]}'),
            (r"range\(1, 13\)", "range(1, 4)"),
            ("trials=8", "trials=3"),
            ("trials=14", "trials=5"),
        ):
            cell.source, count = re.subn(long, short, cell.source)
            cut += count
    assert cut
    return notebook


@pytest.mark.slow
@every_notebook
def test_a_notebook_runs_without_an_error(path, kernel, tmp_path):
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    copy_few_shops(tmp_path / "data")
    notebook = _shortened(nbformat.read(path, as_version=4))
    folder = {"metadata": {"path": str(tmp_path / "notebooks")}}
    client = NotebookClient(notebook, kernel_name=kernel, timeout=600, resources=folder)
    client.execute()
    assert sorted(p.name for p in (tmp_path / "notebooks").iterdir()) == sorted(
        p.name for p in (ROOT / "notebooks").iterdir()
    ), "a notebook leaves nothing behind"


@every_notebook
def test_a_committed_notebook_holds_its_results(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    kinds = [output.output_type for cell in code for output in cell.outputs]
    assert kinds and "error" not in kinds
    assert any("image/png" in o.get("data", {}) for cell in code for o in cell.outputs)
    assert path.stat().st_size < MOST_BYTES


@every_notebook
def test_committed_results_are_short_and_hold_no_path_of_the_machine_they_were_made_on(path):
    for text in _texts(nbformat.read(path, as_version=4)):
        # HTML of a table is long by nature; its plain text is beside it.
        assert text.lstrip().startswith("<") or len(text.splitlines()) <= MOST_LINES
        plain = re.sub(r"<[^>]*>", "", text)
        assert not re.findall(r"(?<![\w.])/(?:\w[\w.-]*/)+[\w.-]+|[A-Za-z]:\\\\", plain)
