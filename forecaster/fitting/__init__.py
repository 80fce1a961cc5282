"""What a fit learns from a panel: experts, networks, their weights."""
