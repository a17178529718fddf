"""The growing gallery: an evaluation on disk that is always up to date.

ledger        Ledger: create, append, remove, forget, add queries, evaluate, verify
changes       created, a segment appended or removed, identities forgotten, queries added
verification  everything read, and counted again
trajectory    an entry a snapshot; what a change will count, forecast
gallery       labels and data of segments and queries, checked to be what they were
block         some queries against some segments, each counted apart
store         what is on disk: labels, the state, and what each change has added
state         positives, statistics and nearest negatives after a change
head          everything but the arrays: settings, segments, trajectory
"""

from streameval.ledger.ledger import Ledger
from streameval.ledger.trajectory import Snapshot

__all__ = ["Ledger", "Snapshot"]
