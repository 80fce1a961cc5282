"""The site of `make docs`: built strictly, read and searched from the disk, without a network."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

ROOT = Path(__file__).parents[1]
MKDOCS = shutil.which(ROOT / ".venv-docs" / "bin" / "mkdocs")
BROWSER = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(MKDOCS is None, reason="no .venv-docs: run make docs"),
]
ANSWERS = {
    "how do I add holidays": "effects.html",
    "holidays and Easter": "06_holidays.html",
    "weekly from daily": "weekly",
    "too few rows": "too-few-rows",
    "confidence interval 95": "a-95--interval",
    "forecast without a fit": "forecast-without-a-fit",
    "new product without history": "new-product",
    "use a GPU": "a-gpu",
    "exit codes": "exit-codes",
    "table larger than memory": "tables-larger-than-memory",
    "explain a forecast": "explain-a-forecast",
    "what would a lower price sell": "05_what_if",
    "read a CSV": "read-a-csv-as-it-is",
}
"""Part of the address of the first hit: a page, or one of its sections that are shown below it."""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [MKDOCS, "build", "--strict", "--quiet", "--site-dir", folder]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_pages_load_nothing_from_a_network(site):
    pages = list(site.rglob("*.html"))
    loaded = [
        found
        for page in pages
        for found in re.findall(r"<(?:script|img|link)[^>]+https?://[^>]*>", page.read_text("utf-8"))
        if "canonical" not in found
    ]
    assert len(pages) > 35 and loaded == []


@pytest.mark.skipif(BROWSER is None, reason="no chromium")
@pytest.mark.parametrize("question", ANSWERS)
def test_the_first_hit_answers_a_question(site, question, tmp_path):
    page = f"file://{site}/index.html?q={quote(question)}"
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    words += ["--allow-file-access-from-files", "--virtual-time-budget=8000", "--dump-dom", page]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    shown = done.stdout.partition('class="md-search-result__list"')[2].partition("</ol>")[0]
    first = shown.split('<li class="md-search-result__item"')[1]
    hits = re.findall(r'<a href="([^"]*)" class="md-search-result__link', first)
    addresses = [re.sub(r"\?h=[^#]*", "", hit) for hit in hits]  # without the words to mark
    assert any(ANSWERS[question] in address for address in addresses), addresses
