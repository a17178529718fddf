"""What tests use of `streameval.labels` beside its public names."""

from streameval.labels.bundle import NAMES as NAMES

__all__ = [
    "NAMES",
]
