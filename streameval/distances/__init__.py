"""Distances: one file each, and the sums in a fixed order that they are made of.

registry   the names of all distances, and the lookup of one
distance   the base class, and the equivalent of a distance in FAISS
filter     float32 values that tell distances apart, and their guard band
sums       sums over pairs and blocks of rows: float64, in one fixed order
lane_sums  these sums as LLVM vectors
"""
