"""Audit: what in the inputs is likely a mistake, and what it would change.

`audit_labels` needs the labels alone; `check_labels` is the part of it that is cheap enough to
run before every evaluation. `audit_features` reads the features of both sides once, block by block,
and some rows again. Nothing is refused here, and no number of an evaluation depends on it.
"""

from streameval.audit.features import audit_features
from streameval.audit.labels import Audit, Finding, audit_labels, check_all, check_labels

__all__ = ["Audit", "Finding", "audit_features", "audit_labels", "check_all", "check_labels"]
