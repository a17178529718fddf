"""Distances: one file each, and the sums in a fixed order that they are made of.

distance   what a distance declares: sums, the float32 filter and its band, the equivalent in FAISS
llvm       LLVM vectors that loops are written in
sums       sums over pairs and blocks of rows: float64, in one fixed order
"""
