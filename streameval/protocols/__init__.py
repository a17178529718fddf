"""Protocols: which pairs are positive, negative or ignored, from labels and lists."""
