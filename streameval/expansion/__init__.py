"""Query expansion, database-side augmentation and multi-query: features made of neighbours."""
