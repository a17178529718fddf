"""Benchmarks: speed and memory as ratios, two sides measured in turn in one run."""
