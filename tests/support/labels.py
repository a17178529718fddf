"""What tests use of `streameval.labels` beside its public names."""

from streameval.labels.columns import BUNDLE as NAMES

__all__ = [
    "NAMES",
]
