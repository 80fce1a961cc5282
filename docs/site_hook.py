"""Gives mkdocs the pages: the site has the paths of the repository, so a link leads to one page on both."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
SHOWN = (
    "*.md",
    "LICENSE",
    "benchmarks/README.md",
    "configs/**/*",
    "data/README.md",
    "docs/**/*",
    "forecaster/weights/*.md",
    "tests/bad_inputs/catalogue.yaml",
)
HIDDEN = ("docs/README.md", "__pycache__", ".ipynb_checkpoints")
"""The list of pages is that of the navigation here."""
SEARCH = {
    "LOG.md": {"exclude": True},
    "docs/log/": {"exclude": True},
    "CHANGELOG.md": {"exclude": True},
    "docs/tutorial.md": {"boost": 4},
    "docs/how-to.md": {"boost": 4},
    "docs/effects.md": {"boost": 4},
    "docs/api.md": {"boost": 0.5},
    "docs/results.md": {"boost": 0.2},
    "docs/architecture.md": {"boost": 0.2},
    "benchmarks/": {"boost": 0.2},
    "forecaster/": {"boost": 0.2},
}
"""What the search makes of pages that answer questions, and of those that name everything."""


def on_files(files: Any, config: Any) -> Any:
    """Puts the files of the repository in the place of those below docs/."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for path in sorted({path for pattern in SHOWN for path in ROOT.glob(pattern) if path.is_file()}):
        name = path.relative_to(ROOT).as_posix()
        if not any(part in name for part in HIDDEN):
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Orders the search."""
    for start, options in SEARCH.items():
        if page.file.src_uri.startswith(start):
            page.meta["search"] = options
    return markdown
