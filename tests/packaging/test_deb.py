"""The Debian package: what is in it, what its scripts do, and what its unit allows."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
SCRIPTS = ("postinst", "prerm", "postrm")

pytestmark = pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="needs dpkg-deb")


def builder() -> Any:
    spec = importlib.util.spec_from_file_location("build_deb", PACKAGING / "build_deb.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with everything but the environment of Python."""
    place = tmp_path_factory.mktemp("deb")
    module, tree = builder(), place / "tree"
    (tree / module.HOME / "coldstream").mkdir(parents=True)
    (tree / module.HOME / "coldstream/marker.py").write_text("")
    made: Path = module.build(tree, "arm64", "1.2.3", "3.11", place)
    return made


def run(*words: str | Path, **more: Any) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout


def contents(deb: Path) -> dict[str, str]:
    """Mode and owner by path."""
    rows = [line.split() for line in run("dpkg-deb", "-c", deb).splitlines()]
    return {row[5].lstrip("."): f"{row[0]} {row[1]}" for row in rows}


def unit(name: str = "coldstream-agent.service") -> dict[str, list[str]]:
    """All values of each directive."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in (PACKAGING / name).read_text().splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            found[key].append(value)
    return found


def test_settings_that_may_hold_passwords_are_not_for_everybody(deb: Path) -> None:
    found = contents(deb)

    assert found["/etc/coldstream/agent.toml"] == "-rw-r----- root/root"
    assert found["/etc/coldstream/agent.env"] == "-rw------- root/root"
    assert found["/etc/coldstream/gateway.users"] == "-rw-r----- root/root"
    assert found["/etc/coldstream/gateway.env"] == "-rw------- root/root"
    assert found["/usr/bin/coldstream"] == "-rwxr-xr-x root/root"
    assert all(each.endswith("root/root") for each in found.values())


def test_the_unit_the_slice_the_guide_and_completion_are_in_it(deb: Path) -> None:
    assert {
        "/lib/systemd/system/coldstream-agent.service",
        "/lib/systemd/system/coldstream-gateway.service",
        "/lib/systemd/system/coldstream.slice",
        "/usr/share/doc/coldstream/run-the-agent.md",
        "/usr/share/doc/coldstream/agent.md",
        "/usr/share/doc/coldstream/gateway.md",
        "/usr/share/doc/coldstream/copyright",
        "/usr/share/bash-completion/completions/coldstream",
        "/usr/lib/coldstream/coldstream/marker.py",
    } <= contents(deb).keys()


def test_every_file_below_etc_is_kept_through_an_upgrade(deb: Path) -> None:
    kept = run("dpkg-deb", "-I", deb, "conffiles").split()
    below = [path for path in contents(deb) if path.startswith("/etc/") and path[-1] != "/"]

    assert kept == sorted(below)


def test_it_depends_on_the_very_python_that_its_wheels_are_for(deb: Path, tmp_path: Path) -> None:
    control = run("dpkg-deb", "-f", deb)

    assert "Version: 1.2.3\nArchitecture: arm64\n" in control
    assert "python3 (>= 3.11), python3 (<< 3.12~)" in control
    assert "rabbitmq-server" not in run("dpkg-deb", "-f", deb, "Depends")
    assert "@" not in re.sub(r"<.*>", "", control)

    (tmp_path / "tree/usr/lib/coldstream").mkdir(parents=True)
    other = builder().build(tmp_path / "tree", "amd64", "1.2.3", "3.13", tmp_path)
    assert other.name == "coldstream_1.2.3+python3.13_amd64.deb"
    assert "python3 (>= 3.13), python3 (<< 3.14~)" in run("dpkg-deb", "-f", other)


def test_sums_hold_for_every_file(deb: Path, tmp_path: Path) -> None:
    run("dpkg-deb", "-x", deb, tmp_path / "x")
    sums = run("dpkg-deb", "-I", deb, "md5sums")

    assert "OK" in run("md5sum", "-c", "-", input=sums, cwd=tmp_path / "x")


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_plain_shell_that_stops_at_the_first_error(name: str) -> None:
    path = PACKAGING / "debian" / name

    subprocess.run(["sh", "-n", path], check=True)
    assert path.read_text().startswith("#!/bin/sh\n")
    assert "\nset -e\n" in path.read_text()


class Machine:
    """Commands that only note that they were called, for the scripts of the package."""

    def __init__(self, place: Path) -> None:
        self.calls, self.bin = place / "calls", place / "bin"
        self.bin.mkdir()
        self.calls.write_text("")

    def has(self, command: str, code: int = 0, said: str = "") -> None:
        path = self.bin / command
        says = f"echo {said}\n" if said else ""
        path.write_text(f'#!/bin/sh\necho {command} "$@" >>{self.calls}\n{says}exit {code}\n')
        path.chmod(0o755)

    def runs(self, script: str, *arguments: str) -> list[str]:
        """What a script calls, and below that what it says on stderr."""
        text = (PACKAGING / "debian" / script).read_text()
        # As on a machine with systemd; and nothing of this machine's is touched.
        text = text.replace("-d /run/systemd/system", "-d /").replace("-x /usr/", "-n /usr/")
        environment = {"PATH": str(self.bin)}
        words = ["/bin/sh", "-c", text, script, *arguments]
        done = subprocess.run(words, check=True, env=environment, stderr=subprocess.PIPE, text=True)
        calls = self.calls.read_text().splitlines()
        self.calls.write_text("")
        return calls + done.stderr.splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    for command in (
        *("adduser", "install", "chgrp", "python3", "systemctl", "deb-systemd-invoke"),
        *("deb-systemd-helper", "rm", "rmdir", "deluser", "find"),
    ):
        made.has(command)
    made.has("getent", code=2)
    made.has("stat", said="root:root:640")  # as dpkg has unpacked every file
    made.has("dpkg-statoverride", code=1)
    return made


def test_an_installation_makes_the_user_and_starts_nothing(machine: Machine) -> None:
    calls = machine.runs("postinst", "configure", "")

    assert any(each.startswith("adduser ") and "--system" in each for each in calls)
    assert {each for each in calls if each.startswith("chgrp")} == CHGRPS
    assert not any(word in each for each in calls for word in ("start", "enable"))


CHGRPS = {f"chgrp coldstream /etc/coldstream/{each}" for each in ("agent.toml", "gateway.users")}


def test_a_file_that_is_new_with_an_upgrade_or_restored_can_be_read_by_the_service(
    machine: Machine,
) -> None:
    calls = machine.runs("postinst", "configure", "0.0.9")

    assert {each for each in calls if each.startswith("chgrp")} == CHGRPS


@pytest.mark.parametrize("old", ["", "0.0.9"])
@pytest.mark.parametrize(
    ("said", "overridden"),
    [
        ("root:coldstream:640", 1), ("root:root:600", 1), ("root:admins:640", 1), ("", 1),
        ("root:root:640", 0),
    ],
)  # fmt: skip
def test_a_group_or_a_mode_that_somebody_chose_stays(
    machine: Machine, old: str, said: str, overridden: int
) -> None:
    machine.has("stat", code=0 if said else 1, said=said)
    machine.has("dpkg-statoverride", code=overridden)

    calls = machine.runs("postinst", "configure", old)

    assert not any(each.startswith("chgrp") for each in calls)


def test_an_upgrade_restarts_only_what_ran_and_leaves_the_files_group(machine: Machine) -> None:
    machine.has("getent")
    machine.has("stat", said="root:coldstream:640")
    calls = machine.runs("postinst", "configure", "0.0.9")

    assert "deb-systemd-invoke try-restart coldstream-agent.service" in calls
    assert "deb-systemd-invoke try-restart coldstream-gateway.service" in calls
    assert not any(each.startswith(("adduser", "chgrp")) for each in calls)
    assert machine.runs("prerm", "upgrade", "1.0") == []


def test_a_removal_stops_the_agent_and_keeps_settings_and_a_purge_forgets_them(
    machine: Machine,
) -> None:
    machine.has("getent")

    stopped = machine.runs("prerm", "remove")
    assert "deb-systemd-invoke stop coldstream-agent.service" in stopped
    assert "deb-systemd-invoke stop coldstream-gateway.service" in stopped
    assert not any(each.startswith(("rm", "deluser")) for each in machine.runs("postrm", "remove"))
    purged = machine.runs("postrm", "purge")
    assert any(each.startswith("rm -rf") and "/var/lib/coldstream" in each for each in purged)
    assert "deluser --quiet --system coldstream" in purged


@pytest.mark.parametrize("name", ["coldstream-agent.service", "coldstream-gateway.service"])
def test_a_purge_forgets_that_a_unit_was_enabled_by_systemctl(machine: Machine, name: str) -> None:
    purged = machine.runs("postrm", "purge")

    assert f"rm -f /etc/systemd/system/multi-user.target.wants/{name}" in purged
    assert f"rm -rf /etc/systemd/system/{name}.d" in purged
    assert unit(name)["WantedBy"] == ["multi-user.target"], "so there is no other link"
    removed = machine.runs("postrm", "remove")
    assert not any("wants" in each for each in removed), "who installs it again wants it as before"


def test_a_purge_that_leaves_the_user_says_so(machine: Machine) -> None:
    machine.has("getent")
    machine.has("deluser", code=8)

    assert "the user coldstream is left behind" in machine.runs("postrm", "purge")[-1]


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_ever_touches_the_broker(name: str) -> None:
    code = [
        line
        for line in (PACKAGING / "debian" / name).read_text().splitlines()
        if not line.lstrip().startswith("#")
    ]

    assert "rabbit" not in "\n".join(code)


def test_the_unit_is_watched_restarts_for_ever_and_reads_its_file_again() -> None:
    found = unit()

    assert found["Type"] == ["notify"]
    assert found["Restart"] == ["always"]
    assert found["StartLimitIntervalSec"] == ["0"]
    assert found["WatchdogSec"] == ["10min"]
    assert found["ExecStart"] == [
        "/usr/bin/coldstream agent run --config /etc/coldstream/agent.toml"
    ]
    check, hup = found["ExecReload"]
    assert check == "/usr/bin/coldstream agent config --config /etc/coldstream/agent.toml"
    assert hup == "/bin/kill -HUP $MAINPID"


def test_the_unit_does_nothing_to_the_broker() -> None:
    found = unit()

    broker = {key for key, values in found.items() if any("rabbitmq" in each for each in values)}

    assert broker == {"After", "SupplementaryGroups"}


def test_the_unit_lets_a_credential_process_run_and_finds_its_profile() -> None:
    """`aws_signing_helper`, of IAM Roles Anywhere: a program of its own, a profile in ~/.aws."""
    found = unit()

    assert not {"NoExecPaths", "InaccessiblePaths", "MemoryDenyWriteExecute"} & found.keys()
    assert "@process" not in " ".join(found["SystemCallFilter"])
    assert "AF_INET" in found["RestrictAddressFamilies"][-1]
    assert found["EnvironmentFile"] == ["-/etc/coldstream/agent.env"], "which has AWS_PROFILE"
    assert "--home /var/lib/coldstream" in (PACKAGING / "debian/postinst").read_text()


def test_ten_thousand_streams_may_be_held() -> None:
    (files,) = unit()["LimitNOFILE"]

    assert int(files) // 2 >= 2 * 10_000 + 10_000, "half is held, two of each, and what waits"


def test_the_unit_of_the_gateway_takes_its_users_again_and_needs_no_broker() -> None:
    found = unit("coldstream-gateway.service")

    assert found["ExecStart"] == ["/usr/bin/coldstream gateway run"]
    assert found["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
    assert found["Restart"] == ["always"]
    broker = {key for key, values in found.items() if any("rabbitmq" in each for each in values)}
    assert broker == {"After"}, "a group that is not there would keep it from starting"


@pytest.mark.parametrize("name", ["coldstream-agent.service", "coldstream-gateway.service"])
def test_the_units_can_read_and_hardly_anything_else(name: str) -> None:
    found = {key: values[-1] for key, values in unit(name).items()}

    assert found["User"] == "coldstream"
    if "agent" in name:
        assert found["SupplementaryGroups"] == "rabbitmq"
    assert found["CapabilityBoundingSet"] == ""
    assert found["ProtectSystem"] == "strict"
    assert "ReadWritePaths" not in found
    assert found["StateDirectory"] == "coldstream"
    for each in (
        *(
            "NoNewPrivileges",
            "ProtectHome",
            "PrivateTmp",
            "PrivateDevices",
            "ProtectKernelTunables",
        ),
        *("ProtectKernelModules", "ProtectKernelLogs", "ProtectControlGroups", "ProtectClock"),
        *("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality"),
    ):
        assert found[each] == "yes", each


def test_the_weights_count_against_the_broker_and_not_within_a_slice_of_one() -> None:
    service, its_slice = unit(), unit("coldstream.slice")

    assert service["Slice"] == ["coldstream.slice"]
    assert not {"CPUWeight", "IOWeight"} & service.keys()
    assert (its_slice["CPUWeight"], its_slice["IOWeight"]) == (["20"], ["20"])
    for name in ("CPUQuota", "MemoryHigh", "MemoryMax", "LimitNOFILE"):
        assert service[name], name
    assert service["IOSchedulingClass"] == ["best-effort"]


@pytest.mark.parametrize("name", ["coldstream-agent.service", "coldstream-gateway.service"])
def test_systemd_takes_every_directive(tmp_path: Path, name: str) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze")
    text = (PACKAGING / name).read_text()
    shutil.copy(PACKAGING / "coldstream.slice", tmp_path)
    path = tmp_path / name
    path.write_text(text.replace("/usr/bin/coldstream", shutil.which("true") or ""))

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True
    )

    ours = [line for line in done.stderr.splitlines() if "coldstream" in line]
    assert (done.returncode, ours) == (0, [])


def test_every_service_that_we_call_is_in_the_package() -> None:
    """What is called where the package runs: botocore knows no other service there."""
    called = set()
    for folder in ("agent", "cli", "adapters"):
        for path in (ROOT / "src/coldstream" / folder).rglob("*.py"):
            if path.name != "glue_schemas.py":  # for the bodies that jobs read
                calls = re.findall(r'(?:client|aws_client)\(\s*"([a-z0-9-]+)"', path.read_text())
                called |= set(calls)

    assert {"s3", "dynamodb", "sqs", "lambda", "stepfunctions"} <= called | {"s3"}
    assert called <= builder().SERVICES


@pytest.mark.slow
def test_a_whole_package_runs_without_anything_else(tmp_path: Path) -> None:
    """Built of uv.lock, unpacked, and run by the Python that it is for, isolated."""
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    environment = {**os.environ, "COLDSTREAM_KERNEL_ARCH": "x86_64"}
    run(uv, "build", "-q", "--wheel", "kernel", "-o", tmp_path / "k", cwd=ROOT, env=environment)
    script = PACKAGING / "build_deb.py"
    run(
        *(sys.executable, script, "--uv", uv, "--kernel", tmp_path / "k"),
        *("--arch", "amd64", "--out", tmp_path, "--level", "0"),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ""},
    )
    (deb,) = tmp_path.glob("coldstream_*_amd64.deb")
    run("dpkg-deb", "-x", deb, tmp_path / "x")
    home = tmp_path / "x" / builder().HOME

    libraries = [path for path in home.rglob("*.so*") if path.is_file()]
    assert len(libraries) > 10
    for path in libraries:
        assert path.read_bytes()[18:20] == b"\x3e\x00", f"{path} is not for x86-64"
    named = [path.name for path in libraries if "cpython-" in path.name]
    assert all("cpython-311-" in name for name in named)

    # As /usr/bin/coldstream does, and then what the agent imports when it runs.
    program = f"""
import sys; sys.path.insert(0, {str(home)!r})
sys.argv = ["coldstream", "agent", "config", "--show"]
import boto3, coldstream.cli.agent_service
import coldstream.agent.telling.metrics, coldstream.agent.broker.gate
import coldstream.gateway.server
assert boto3.__file__.startswith({str(home)!r})
for name in {sorted(builder().SERVICES)!r}:
    boto3.client(name, region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="b")
from coldstream.adapters.s3 import S3ObjectStore
S3ObjectStore(bucket="bucket")
import coldstream_kernel
from coldstream.cli.main import main; main()
"""
    shown = run(
        sys.executable, "-I", "-c", program,
        env={"PATH": os.environ["PATH"], "AWS_REGION": "eu-central-1",
             "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
    )  # fmt: skip
    assert "fragment_size\t64MiB\tdefault" in shown
