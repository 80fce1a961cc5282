"""`forecaster config`: all settings with their defaults, or as a preset, a file and `--set` change them."""

from __future__ import annotations

from typing import Any

import typer

from forecaster.cli import options


def config(
    preset: options.Preset = None, config: options.ConfigFile = None, sets: options.Sets = None
) -> dict[str, Any]:
    """Print all settings with their values and descriptions, as YAML.

    Without options these are the defaults.
    """
    from forecaster.config import config_from, describe, load_config

    settings = config_from(load_config(config, sets or ()), None, {}, preset)
    typer.echo(describe(settings), nl=False)
    return {"settings": settings.model_dump(mode="json")}
