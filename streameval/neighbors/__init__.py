"""Neighbour lists: stored, or made by FAISS; their bounds; indexes beside the exact evaluation."""
