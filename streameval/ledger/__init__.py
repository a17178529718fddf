"""The growing gallery: an evaluation on disk that is always up to date.

ledger        Ledger: create, append, remove, forget, add queries, evaluate, verify
create        the first state of a ledger; options that a growing gallery allows
append        a new segment: forecast, counts, old segments that are read again
queries       further queries
removal       segments and identities: what they added is subtracted
verification  everything read, and counted again
trajectory    an entry a snapshot; what a change will count, forecast
head          everything but the arrays: settings, segments, trajectory
state         positives, statistics and nearest negatives after a change
history       what each change has added, by segment
block         some queries against some segments, each counted apart
gallery       labels and data of segments and queries, checked to be what they were
store         what is on disk
"""

from streameval.ledger.ledger import Ledger
from streameval.ledger.trajectory import Snapshot

__all__ = ["Ledger", "Snapshot"]
