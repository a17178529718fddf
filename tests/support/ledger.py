"""What tests use of `streameval.ledger` beside its public names."""

from streameval.ledger.block import Block as Block
from streameval.ledger.block import Part as Part
from streameval.ledger.head import Segment as Segment
from streameval.ledger.head import Settings
from streameval.ledger.store import Contents as Contents
from streameval.ledger.store import LedgerStore as LedgerStore

settings_of = Settings.of

__all__ = [
    "Block",
    "Contents",
    "LedgerStore",
    "Part",
    "Segment",
    "settings_of",
]
