"""What a model was trained with: versions of packages, and the git commit if there is one."""

from __future__ import annotations

import importlib.metadata
import subprocess

_PACKAGES = ("attention-forecaster", "torch", "pytorch-lightning", "polars", "numpy")


def versions() -> dict[str, str]:
    """Returns versions by package, "unknown" where one is not installed, and `git_commit`."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "unknown"
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.SubprocessError):  # no git on this machine, or a slow disk
        return found
    if commit.returncode == 0:
        found["git_commit"] = commit.stdout.strip()
    return found
