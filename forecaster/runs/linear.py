"""The linear forecast beside attention: settled on validation, solved over training windows.

What comes in: a panel, a config and a split. What goes out: a config that says which maps there are,
and a network that holds their solution.
"""

from __future__ import annotations

from forecaster.config import Config
from forecaster.model.network import Network
from forecaster.panel.panel import Panel
from forecaster.windows.index import WindowIndex
from forecaster.windows.split import Split


def settle_linear(panel: Panel, config: Config, split: Split) -> Config:
    """Returns the config with what the linear maps are, where that was left to validation.

    Args:
        panel: the table.
        config: resolved but for the linear maps.
        split: of this panel.
    """
    return config


def solve_linear(network: Network, panel: Panel, config: Config, index: WindowIndex) -> None:
    """Solves the linear maps of a network over windows.

    Args:
        network: changed in place; one without linear maps stays as it is.
        panel: the table.
        config: settled.
        index: the windows that train.
    """
