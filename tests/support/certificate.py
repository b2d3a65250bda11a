"""A certificate for a server on this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certificate(made: Path, key: Path) -> str:
    """Make one of localhost, signed by itself, and its key; what a client that trusts it needs."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", key, "-out", made),
        ],
        check=True,
        capture_output=True,
    )
    return made.read_text()
