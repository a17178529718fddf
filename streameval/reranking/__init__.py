"""k-reciprocal re-ranking: neighbours of all images, their encodings, and distances from these."""
