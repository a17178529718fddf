"""streameval: exact re-identification and retrieval metrics in one streaming pass."""
