"""Sources: where the distances come from."""
