"""Labels, lists of pairs and protocols, read from files."""
