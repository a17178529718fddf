"""What tests use of `streameval.audit` beside its public names."""

from streameval.audit import Audit as Audit
from streameval.audit import audit_features as audit_features
from streameval.audit import audit_labels as audit_labels
from streameval.audit import check_labels as check_labels
from streameval.audit import features as audit_module
from streameval.audit.features import scan_rows as scan_rows

__all__ = [
    "Audit",
    "audit_features",
    "audit_labels",
    "audit_module",
    "check_labels",
    "scan_rows",
]
