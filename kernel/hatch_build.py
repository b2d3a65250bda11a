"""Compile kernel.c for the wheel: by zig, so that any machine builds for any machine and old glibc.

COLDSTREAM_KERNEL_ARCH chooses x86_64 or aarch64; this machine's own by default.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_GLIBC = "2.17"


class KernelBuildHook(BuildHookInterface[Any]):
    """Adds `kernel.so` and the platform's tag to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say what the wheel is for."""
        arch = os.environ.get("COLDSTREAM_KERNEL_ARCH") or platform.machine()
        if arch not in ("x86_64", "aarch64"):
            raise RuntimeError(f"no kernel is built for {arch}: x86_64 and aarch64 are")
        root = Path(self.root)
        output = root / "build" / arch / "kernel.so"
        output.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                sys.executable, "-m", "ziglang", "cc",
                "-target", f"{arch}-linux-gnu.{_GLIBC}",
                "-O3", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fno-sanitize=all",
                # Guards around arrays of 64 values would cost as much as decoding; every index into
                # them is checked, and `make fuzz-kernel` looks.
                "-fno-stack-protector",
                "-fvisibility=hidden", "-fPIC", "-shared", "-s",
                "-o", str(output), str(root / "kernel.c"),
            ],
            check=True,
        )  # fmt: skip
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{_GLIBC.replace('.', '_')}_{arch}"
        # An editable install finds the package in src, so the library has to be there as well.
        if version == "editable":
            (root / "src/coldstream_kernel/kernel.so").write_bytes(output.read_bytes())
        build_data["force_include"][str(output)] = "coldstream_kernel/kernel.so"
