"""The processor, as Linux describes it: which kernels OpenBLAS should take there.

OpenBLAS chooses when NumPy is loaded, so this module must not load NumPy.
"""

from __future__ import annotations

CORETYPE = "OPENBLAS_CORETYPE"  # the environment variable that OpenBLAS reads
AVX512 = tuple(f"avx512{group}" for group in ("f", "cd", "bw", "dq", "vl"))
"""What OpenBLAS's kernels for SkylakeX need."""

_HASWELL = (60, 61, 63, 69, 70, 71, 78, 79, 86, 87, 94, 102, 142, 158, 165, 166)
_OLD_MODELS = frozenset(map(str, _HASWELL))
_AMD = ("AuthenticAMD", "HygonGenuine")


def better_kernels(cpuinfo: str) -> str:
    """Return the kernels that OpenBLAS should be told to take; "" where its own choice is right.

    OpenBLAS (0.3.31, as in NumPy's wheels) goes by vendor, family and model first. For some it
    takes the kernels for Haswell without asking for AVX-512: these models of Intel's family 6, and
    AMD's families before 25, as which a virtual machine may present a later processor. A Zen 5
    (family 26) that got them is known, too, so the family of an AMD processor is not asked for. No
    OpenBLAS has better kernels for float32 there: those for Cooperlake and SapphireRapids differ
    from those for SkylakeX in bfloat16 only.

    Parameters
    ----------
    cpuinfo : str
        The text of /proc/cpuinfo, or of its first processor.
    """
    lines = (line.partition(":") for line in cpuinfo.strip().split("\n\n")[0].splitlines())
    fields = {name.strip(): value.strip() for name, _, value in lines}
    if not set(AVX512).issubset(fields.get("flags", "").split()):
        return ""
    vendor, family, model = (fields.get(name) for name in ("vendor_id", "cpu family", "model"))
    is_old_intel = vendor == "GenuineIntel" and family == "6" and model in _OLD_MODELS
    return "SkylakeX" if vendor in _AMD or is_old_intel else ""
