"""Writes the pages of gallery/ from its scripts: question, code, what it prints, picture.

python docs/make_gallery.py [SCRIPT …]
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "docs" / "gallery"
SCRIPTS = sorted(GALLERY.glob("*.py"))
HEAD = """# Gallery

Questions, each with the few lines that answer it and what they draw. `python docs/make_gallery.py` makes every
page from the script beside it.

| | |
|---|---|
"""


def question(script: Path) -> str:
    """The first line of the script's docstring."""
    text = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def index() -> str:
    """The page that shows all, two in a row."""
    cells = [
        f"[![{question(script)}]({script.stem}.png)]({script.stem}.md)<br>[{question(script)}]({script.stem}.md)"
        for script in SCRIPTS
    ]
    pairs = zip(cells[::2], cells[1::2], strict=True)
    return HEAD + "".join(f"| {left} | {right} |\n" for left, right in pairs)


def page(script: Path, folder: Path) -> str:
    """Runs a script in an empty folder, where it leaves its picture, and returns its page."""
    source = script.read_text(encoding="utf-8")
    title, _, about = (ast.get_docstring(ast.parse(source)) or "").partition("\n\n")
    code = source.partition('\n"""\n')[2].strip()
    (folder / "data").symlink_to(ROOT / "data")
    words = [sys.executable, "-W", "error::FutureWarning", str(script)]
    env = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "110"}
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{script.name}: {done.stderr}")
    parts = [
        f"# {title}",
        about,
        f"```python\n{code}\n```",
        f"```text\n{done.stdout.rstrip()}\n```",
        f"![{title}]({script.stem}.png)",
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    for script in [Path(word).resolve() for word in sys.argv[1:]] or SCRIPTS:
        with tempfile.TemporaryDirectory() as folder:
            text = page(script, Path(folder))
            picture = f"{script.stem}.png"
            (GALLERY / picture).write_bytes((Path(folder) / picture).read_bytes())
        script.with_suffix(".md").write_text(text, encoding="utf-8")
    (GALLERY / "README.md").write_text(index(), encoding="utf-8")
