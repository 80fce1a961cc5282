"""What a model was trained with: versions of packages, and the git commit if there is one."""

from __future__ import annotations

import importlib.metadata
import subprocess
from contextlib import suppress

_PACKAGES = ("attention-forecaster", "torch", "pytorch-lightning", "polars", "numpy")


def versions() -> dict[str, str]:
    """Returns versions by package, "unknown" where one is not installed, and `git_commit`."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "unknown"
    # No git on this machine, no repository, or a slow disk.
    with suppress(OSError, subprocess.SubprocessError):
        commit = subprocess.check_output(
            ["git", "rev-parse", "HEAD"], stderr=subprocess.DEVNULL, text=True, timeout=5
        )
        found["git_commit"] = commit.strip()
    return found
