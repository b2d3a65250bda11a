"""Which RabbitMQ a node runs: the system's package, or one of a newer Debian in a directory.

    python -m coldstream_devkit.broker_release [forky|trixie ...]

installs the newer ones (`make brokers`), as root, each in a Debian of its own below
COLDSTREAM_BROKERS, ~/.cache/coldstream/brokers by default. Packages come from the mirror that the
system has. A node of such a Debian runs in a mount namespace of its own, so that nothing stays
mounted when it dies.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_ENV_DIRECTORY = "COLDSTREAM_BROKERS"
_BIN = Path("/usr/lib/rabbitmq/bin")
_USER = "rabbitmq"
_SOURCES = (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list"))
#: debootstrap of Debian 12 has no script for what is newer.
_SCRIPT = Path("/usr/share/debootstrap/scripts/sid")
#: Packages ask it before they start a service.
_POLICY = Path("/usr/sbin/policy-rc.d")
_REFUSE = "#!/bin/sh\nexit 101\n"
_APT_INSTALL = (
    *("env", "DEBIAN_FRONTEND=noninteractive", "apt-get"),
    *("-qy", "--no-install-recommends", "install", "rabbitmq-server"),
)
#: Where a node in a Debian of its own sees its directory.
_INSIDE = Path("/srv")
_ENTER = """
set -e
root=$1 base=$2; shift 2
mount -t proc proc "$root/proc"
mount --bind "$base" "$root/srv"
(ulimit -n 65536) 2>/dev/null && ulimit -n 65536
exec chroot --userspec=rabbitmq:rabbitmq "$root" "$@"
"""


class InstallError(RuntimeError):
    """A release cannot be installed here."""


@dataclass(frozen=True, slots=True)
class Release:
    """One RabbitMQ.

    Attributes:
        suite: of Debian; "" for the package of the system.
        packaged: the version that was there when this was written.
    """

    suite: str
    packaged: str

    def __str__(self) -> str:
        return f"{self.packaged}-{self.suite or 'system'}"

    @property
    def root(self) -> Path:
        """The directory that its programs take for /."""
        default = Path.home() / ".cache" / "coldstream" / "brokers"
        return (
            Path(os.environ.get(_ENV_DIRECTORY) or default) / self.suite
            if self.suite
            else Path("/")
        )

    @property
    def program(self) -> Path:
        """The directory of its programs, below its root."""
        return _BIN

    def installed(self) -> bool:
        """Whether nodes of it can be started here."""
        there = (self.root / _BIN.relative_to("/") / "rabbitmq-server").exists()
        return there and (not self.suite or os.geteuid() == 0)

    def missing(self) -> str:
        """What to do where it is not installed."""
        if not self.suite:
            return "rabbitmq-server is not installed: as root, apt-get install rabbitmq-server"
        if os.geteuid() != 0:
            return f"RabbitMQ of Debian {self.suite} needs root"
        return f"RabbitMQ of Debian {self.suite} is not in {self.root}: make brokers"

    def inside(self, base: Path) -> Path:
        """What its programs call the directory `base` of a node."""
        return _INSIDE if self.suite else base

    def command(
        self, base: Path, environment: Mapping[str, str], arguments: Sequence[str | Path]
    ) -> list[str]:
        """The command that runs a program of it as its user: as root, else as whoever runs this."""
        words = [str(each) for each in arguments]
        if os.geteuid() != 0:
            return words
        pairs = [f"{name}={value}" for name, value in environment.items()]
        if self.suite:
            enter = [
                "unshare",
                "--mount",
                "--",
                "sh",
                "-c",
                _ENTER,
                "enter",
                str(self.root),
                str(base),
            ]
            return [*enter, "env", "-i", *pairs, *words]
        return ["runuser", "-u", _USER, "--", "env", "-i", *pairs, *words]

    def owner(self) -> tuple[int, int]:
        """Numbers of its user and group."""
        for line in (self.root / "etc" / "passwd").read_text().splitlines():
            fields = line.split(":")
            if fields[0] == _USER:
                return int(fields[2]), int(fields[3])
        raise InstallError(f"{self.root} has no user {_USER}")


SYSTEM = Release("", "3.10.8")
TRIXIE = Release("trixie", "4.0.5")
FORKY = Release("forky", "4.3.6")
NEWER = (FORKY, TRIXIE)


def mirror(texts: Sequence[str]) -> str:
    """The first package mirror of files of apt, in either of their two forms.

    Raises:
        InstallError: there is none.
    """
    for text in texts:
        found = re.search(r"^(?:URIs:|deb(?: \[[^\]]*\])?) +(\S+)", text, re.MULTILINE)
        if found:
            return found[1]
    raise InstallError(f"no mirror in {' or '.join(map(str, _SOURCES))}")


def install(release: Release) -> None:
    """Install a release: the system's package, or a newer one below the directory of brokers.

    It takes a minute or so, and starts no broker.

    Raises:
        InstallError: not root, no Debian, no debootstrap, no mirror, or one of its commands fails.
    """
    if release.suite:
        _install_newer(release)
    else:
        _install_here(release)


def _install_here(release: Release) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise InstallError(release.missing())
    with no_service(_POLICY):
        _run("apt-get", "-q", "update")
        _run(*_APT_INSTALL)
    if not release.installed():
        raise InstallError(f"the package has no {_BIN / 'rabbitmq-server'}")


@contextmanager
def no_service(policy: Path) -> Iterator[None]:
    """Keep packages from starting what they bring; a policy that is there already stays."""
    if policy.exists():
        yield
        return
    policy.write_text(_REFUSE)
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()


def _install_newer(release: Release) -> None:
    if os.geteuid() != 0:
        raise InstallError("brokers are installed, and run, as root: chroot and mount need it")
    if shutil.which("debootstrap") is None:
        raise InstallError("debootstrap is not installed: apt-get install debootstrap")
    texts = [path.read_text() for path in _SOURCES if path.exists()]
    root = release.root
    unfinished = root.with_name(f"{root.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    _run("debootstrap", "--variant=minbase", release.suite, unfinished, mirror(texts), _SCRIPT)
    (unfinished / "etc" / "hosts").write_text("127.0.0.1 localhost\n")  # or epmd finds no host
    with no_service(unfinished / _POLICY.relative_to("/")):
        # The lists of a suite that is not released are soon older than they say they may be.
        enter = ("chroot", unfinished)
        _run(*enter, "apt-get", "-q", "-o", "Acquire::Check-Valid-Until=false", "update")
        _run(*enter, *_APT_INSTALL)
        _run(*enter, "apt-get", "clean")
    shutil.rmtree(root, ignore_errors=True)
    unfinished.rename(root)


def _run(*arguments: str | Path) -> None:
    words = [str(each) for each in arguments]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise InstallError(f"{' '.join(words)} ended with {done.returncode}:\n{tail}")


def main(words: Sequence[str]) -> int:
    """Install the releases of the suites named, forky by default, unless they are there."""
    suites = {each.suite: each for each in NEWER}
    try:
        for word in words or (FORKY.suite,):
            if word not in suites:
                raise InstallError(f"no release {word!r}; there are {', '.join(suites)}")
            release = suites[word]
            if not release.installed():
                install(release)
            sys.stdout.write(f"RabbitMQ of Debian {word} is in {release.root}\n")
    except InstallError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
