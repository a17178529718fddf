"""OpenBLAS's kernels: chosen by the command before NumPy is loaded, and warned of in Python."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.kernels import (
    AVX512,
    CORETYPE,
    VARIABLE,
    better_kernels,
    blas_kernels,
    warn_of_slow_kernels,
    warn_once,
)

import streameval as se

OLDER = "sse4_2 avx f16c avx2 fma"
SERVER = f"{OLDER} {' '.join(AVX512)}"
ZEN4, AMX = f"{SERVER} avx512_vnni avx512_bf16", f"{SERVER} avx512_vnni amx_bf16 amx_tile amx_int8"


def described(vendor: str, family: int, model: int, name: str, flags: str) -> str:
    """Return what Linux says of two processors, by the lines and flags that matter."""
    text = (
        f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: {name}\nflags\t\t: fpu vme {flags}\nbugs\t\t: sysret_ss_attrs\n"
    )
    return "".join(f"processor\t: {number}\n{text}\n" for number in range(2))


INTEL, AMD = "GenuineIntel", "AuthenticAMD"
ZEN5 = described(AMD, 26, 2, "AMD EPYC 9655 96-Core Processor", f"{ZEN4} avx_vnni")
MASKED = described(AMD, 23, 1, "AMD EPYC Processor", SERVER)  # by a hypervisor: as Zen 1
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd sve\nCPU part\t: 0xd40\n\n"
KEPT = {
    "Zen 3": described(AMD, 25, 1, "AMD EPYC", OLDER),
    "Haswell": described(INTEL, 6, 63, "Intel(R) Xeon(R) CPU E5-2660 v3 @ 2.60GHz", OLDER),
    "Skylake-X": described(INTEL, 6, 85, "Intel(R) Core(TM) i7-7820X CPU @ 3.60GHz", SERVER),
    "Ice Lake": described(INTEL, 6, 106, "Intel(R) Xeon(R) Platinum 8370C CPU", SERVER),
    "Sapphire Rapids": described(INTEL, 6, 143, "Intel(R) Xeon(R) Platinum 8488C", AMX),
    "Knights Landing": described(INTEL, 6, 87, "Intel(R) Xeon Phi(TM)", "avx2 avx512f avx512cd"),
    "arm64": ARM,
    "no text": "",
    "other text": "\n\x00 flags : avx512f\n",
}
CHANGED = {
    "Zen 4": described(AMD, 25, 17, "AMD EPYC 9654 96-Core Processor", ZEN4),
    "Zen 5": ZEN5,
    "Zen 5, presented as Zen 1": MASKED,
    "Cannon Lake": described(INTEL, 6, 102, "Intel(R) Core(TM) i3-8121U CPU @ 2.20GHz", SERVER),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_openblas_chooses_is_kept(name: str) -> None:
    assert better_kernels(KEPT[name]) == ""


@pytest.mark.parametrize("name", CHANGED)
def test_kernels_for_haswell_are_replaced(name: str) -> None:
    assert better_kernels(CHANGED[name]) == "SkylakeX"


@pytest.mark.parametrize("group", AVX512)
def test_all_of_avx512_is_needed(group: str) -> None:
    assert better_kernels(ZEN5.replace(f" {group}", "", 1)) == ""


def run(program: str, **environment: str) -> str:
    """Run a program in an environment without a choice of kernels; return what it prints."""
    without = {name: value for name, value in os.environ.items() if name != CORETYPE}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**without, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("text", "given", "wanted"),
    [
        (ZEN5, None, "SkylakeX"),
        (ZEN5, "Haswell", "Haswell"),
        (ZEN5, "", ""),
        (KEPT["Zen 3"], None, None),
        (None, None, None),
    ],
)
def test_the_command_chooses_before_numpy_is_loaded(
    text: str | None, given: str | None, wanted: str | None, tmp_path: Path
) -> None:
    """Of a command that multiplies nothing: this processor may not run these kernels."""
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    program = f"""
import os, sys
from pathlib import Path
from streameval.cli import app
app.CPUINFO = Path({str(tmp_path / "cpuinfo")!r})
app.main(["completion", "bash"], standalone_mode=False)
print(os.environ.get({CORETYPE!r}), "numpy" in sys.modules)
"""
    printed = run(program, **({} if given is None else {CORETYPE: given}))
    assert printed.splitlines()[-1] == f"{wanted} False"


def test_nothing_is_chosen_once_numpy_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.cli import choose_blas_kernels

    (tmp_path / "cpuinfo").write_text(ZEN5)
    monkeypatch.setattr("streameval.cli.app.CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.delenv(CORETYPE, raising=False)
    choose_blas_kernels()
    assert CORETYPE not in os.environ


@pytest.fixture
def features(tmp_path: Path) -> list[str]:
    """Arguments of a small evaluation."""
    rng = np.random.default_rng(0)
    for side in ("q", "g"):
        np.save(tmp_path / f"{side}.npy", rng.standard_normal((40, 8), dtype=np.float32))
    np.save(tmp_path / "ids.npy", np.arange(40) % 4)
    ids = str(tmp_path / "ids.npy")
    return [
        *("evaluate", "--query", str(tmp_path / "q.npy"), "--gallery", str(tmp_path / "g.npy")),
        *("--query-ids", ids, "--gallery-ids", ids, "--protocol", "no-camera", "--quiet"),
    ]


ANY = "Nehalem"  # kernels that any processor of x86-64 runs, and that OpenBLAS chooses on none here


@pytest.mark.slow
@pytest.mark.skipif(not blas_kernels(), reason="NumPy's BLAS is not OpenBLAS")
@pytest.mark.skipif(blas_kernels() == "armv8", reason="kernels for x86-64 don't run here")
def test_the_command_and_its_workers_multiply_with_these_kernels(features: list[str]) -> None:
    program = f"""
from pathlib import Path
from streameval.cli import app
from streameval.kernels import processor
app.better_kernels = lambda text: {ANY!r}
app.CPUINFO = Path({__file__!r})
if __name__ == "__main__":
    app.main({[*features, "--dry-run"]!r}, standalone_mode=False)
    from streameval.kernels.multiplier import blas_kernels
    from streameval.run.connection import local_cluster
    print(blas_kernels())
    with local_cluster(2, 1, 1 << 30) as connection:
        print(connection.client.run(blas_kernels))
"""
    printed = run(program, **{VARIABLE: "blas"})
    assert f"kernels for {ANY}" in printed
    *_, here, workers = printed.splitlines()
    assert here == ANY
    assert workers.count(ANY) == 2


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pretend that the processor has AVX-512, and that OpenBLAS took its kernels for Haswell."""
    monkeypatch.setattr("streameval.kernels.multiplier.blas_kernels", lambda: "Haswell")
    monkeypatch.setattr("streameval.kernels.multiplier.has_avx512", lambda: True)
    monkeypatch.setenv(VARIABLE, "blas")
    monkeypatch.delenv(CORETYPE, raising=False)
    warn_once.cache_clear()
    yield
    warn_once.cache_clear()


LONG = 5 / (3 / 8) * 50e9  # operations of a thread that loses five seconds


def warned(flops: float) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_of_slow_kernels(flops)
    return [str(one.message) for one in found]


@pytest.mark.usefixtures("slow")
def test_slow_kernels_are_warned_of_once_where_seconds_are_lost() -> None:
    assert not warned(0.99 * LONG)
    (message,) = warned(1.01 * LONG)
    assert f"{CORETYPE}=SkylakeX" in message
    assert not warned(2 * LONG)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(
    ("name", "value"), [(CORETYPE, "Haswell"), (VARIABLE, "digits"), (CORETYPE, "")]
)
def test_what_the_user_has_chosen_is_not_warned_of(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert not warned(10 * LONG)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("attribute", ["blas_kernels", "has_avx512"])
def test_other_processors_are_not_warned_of(
    attribute: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"streameval.kernels.multiplier.{attribute}", lambda: "")
    assert not warned(10 * LONG)


@pytest.mark.usefixtures("slow")
def test_a_small_evaluation_does_not_warn_and_a_large_one_says_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = np.eye(40, dtype=np.float32)
    labels = se.Labels(np.arange(40) % 4)
    given: Any = {"query": labels, "gallery": labels, "protocol": "no-camera"}
    result = se.evaluate(se.Features(rows, rows), **given)  # warnings are errors here
    monkeypatch.setattr("streameval.kernels.multiplier.LEAST_LOST", 0.0)
    with pytest.warns(se.StreamevalWarning, match="kernels for Haswell") as found:
        again = se.evaluate(se.Features(rows, rows), **given)
    assert found[0].filename == __file__
    assert again.statistics.equals(result.statistics)
