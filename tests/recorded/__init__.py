"""Recorded results and refusals, to compare with after a redesign."""
