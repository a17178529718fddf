"""Products of a few queries, gallery rows as they lie: to pack them would take as long again."""

from __future__ import annotations

import numpy as np

from streameval.compilation import compiled
from streameval.distances.llvm import carray, pointer


@compiled
def _row(rows, i):  # type: ignore[no-untyped-def]
    """Return a row, or the last one where there are no more; its columns lie side by side."""
    at = rows.ctypes.data + min(i, rows.shape[0] - 1) * rows.strides[0]
    return carray(pointer(at), rows.shape[1], np.float32)


@compiled(fastmath={"reassoc", "contract", "nsz"})
def multiply_few(queries, items, out):  # type: ignore[no-untyped-def]
    """Write the products of [m, D] and [n, D] float32, the columns of each side by side, [m, n].

    Four rows are multiplied by two queries at a time, in float32, in any order.
    """
    n, zero = items.shape[0], np.float32(0)
    for j in range(0, n, 4):
        w, x, y, z = _row(items, j), _row(items, j + 1), _row(items, j + 2), _row(items, j + 3)
        for i in range(0, queries.shape[0], 2):
            p, q = _row(queries, i), _row(queries, i + 1)
            pw = px = py = pz = qw = qx = qy = qz = zero
            for d in range(queries.shape[1]):
                pw += p[d] * w[d]
                px += p[d] * x[d]
                py += p[d] * y[d]
                pz += p[d] * z[d]
                qw += q[d] * w[d]
                qx += q[d] * x[d]
                qy += q[d] * y[d]
                qz += q[d] * z[d]
            for k in range(min(n - j, 4)):
                out[i, j + k] = (pw, px, py, pz)[k]
            if i + 1 < queries.shape[0]:
                for k in range(min(n - j, 4)):
                    out[i + 1, j + k] = (qw, qx, qy, qz)[k]
