"""A cluster over TLS, by Dask's own configuration, with certificates made on the fly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import pytest
from clusters import write_inputs
from servers import free_port

BIN = Path(sys.executable).parent
LABELS = ("--query-ids", "qid.npy", "--query-cams", "qcam.npy")
LABELS += ("--gallery-ids", "gid.npy", "--gallery-cams", "gcam.npy")


def write_certificate(folder: Path, name: str) -> Path:
    """Write a key and a certificate for 127.0.0.1 that is its own authority; return the file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(named)
        .issuer_name(named)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    file = folder / f"{name}.pem"
    file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return file


def configuration(file: Path) -> dict[str, str]:
    """Return the environment that names a certificate to Dask, as its manual says."""
    sides = ("SCHEDULER", "WORKER", "CLIENT")
    tls = {f"{side}__{part}": file for side in sides for part in ("CERT", "KEY")}
    return {
        f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(path)
        for name, path in {"CA_FILE": file, **tls}.items()
    }


@contextmanager
def running(environment: dict[str, str], log: Path, *command: str) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(BIN / "dask"), *command],
            env=environment,
            cwd=log.parent,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def evaluate(
    folder: Path, environment: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "streameval"), "evaluate", "--query", "q.npy", "--gallery", "g.npy"]
    return subprocess.run(
        [*command, *LABELS, "--quiet", *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_cluster_over_tls(tmp_path: Path) -> None:
    folder = write_inputs(tmp_path)
    own, other = (write_certificate(folder, name) for name in ("own", "other"))
    plain = {name: value for name, value in os.environ.items() if "DASK_" not in name}
    environment = plain | configuration(own)
    port = free_port()
    address = f"tls://127.0.0.1:{port}"
    with ExitStack() as stack:
        for log, command in (
            ("s", f"scheduler --protocol tls --host 127.0.0.1 --port {port} --no-dashboard"),
            ("w", f"worker {address} --host 127.0.0.1 --nworkers 2 --nthreads 1 --no-dashboard"),
        ):
            stack.enter_context(running(environment, folder / f"{log}.log", *command.split()))
        done = evaluate(folder, environment, "--scheduler", address, "--out", "encrypted")
        assert done.returncode == 0, done.stderr
        assert "tls://127.0.0.1" in (folder / "w.log").read_text()
        for bad, scheme, words in (
            (plain | configuration(other), "tls", "certificate"),
            (plain, "tls", "distributed.comm.tls"),
            (plain | configuration(folder / "none.pem"), "tls", "No such file"),
            (environment, "tcp", "no scheduler answers at tcp://"),
        ):
            refused = evaluate(folder, bad, "--scheduler", f"{scheme}://127.0.0.1:{port}")
            assert refused.returncode == 2, (words, refused.stderr)
            assert words in refused.stderr
            assert "Traceback" not in refused.stderr
    alone = evaluate(folder, plain, "--out", "threads")
    assert alone.returncode == 0, alone.stderr
    metrics = [
        json.loads((folder / name / "summary.json").read_text())["metrics"]
        for name in ("encrypted", "threads")
    ]
    assert metrics[0] == metrics[1]
    curves = [np.load(folder / name / "curves.npz") for name in ("encrypted", "threads")]
    assert all(np.array_equal(curves[0][name], curves[1][name]) for name in curves[1])
