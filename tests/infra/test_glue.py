"""The Glue jobs: what they carry, what they may do, when they run, what they cost at most."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coldstream import deployment
from infra import glue_wheels
from infra.bundle import run_uv
from infra.glue_bundle import LEFT_OUT, build
from tests.infra.conftest import KEY, SECRET, flat
from tests.infra.test_rights import DATA, METADATA, granted

if TYPE_CHECKING:
    from conftest import Assembly

ROOT = Path(__file__).resolve().parents[2]
JOB = "AWS::Glue::Job"
TABLES = {
    "scrub": "scrub_*",
    "profile": "profile_*",
    "fleet": "fleet_*",
    "materialise": "*",
    "rebuild": "rebuild_*",
}


def jobs(assembly: Assembly) -> dict[str, dict[str, Any]]:
    """Properties of each job, by the job's name."""
    found = [one["Properties"] for one in assembly.of_type(JOB).values()]
    return {each["Name"].rpartition("-")[2]: each for each in found}


def test_there_is_a_job_for_each_name_and_no_other(assembly: Assembly) -> None:
    assert set(jobs(assembly)) == set(deployment.JOBS)


def test_a_job_runs_on_spark_4_with_bounded_size_time_and_repetition(assembly: Assembly) -> None:
    for name, job in jobs(assembly).items():
        assert job["Command"]["Name"] == "glueetl"
        assert (job["GlueVersion"], job["WorkerType"], job["NumberOfWorkers"]) == (
            "6.0",
            "G.1X",
            10,
        )
        assert job["DefaultArguments"]["--enable-auto-scaling"] == "true"
        assert 0 < job["Timeout"] <= 480
        assert job["MaxRetries"] == (0 if name == "rebuild" else 1)
        assert job["ExecutionProperty"] == {"MaxConcurrentRuns": 1}
        assert job["Tags"] == {"coldstream": "coldstream", "job": name}


def test_a_job_is_told_where_things_are_and_carries_our_code_by_name(assembly: Assembly) -> None:
    for name, job in jobs(assembly).items():
        given = job["DefaultArguments"]
        assert flat(given["--bucket"]) == "<Bucket>"
        assert flat(given["--table"]) == "<CatalogTable>"
        assert given["--prefix"] == "rabbitmq/"
        assert flat(given["--region"]) == "<AWS::Region>"
        assert flat(given["--warehouse"]) == f"s3://<Warehouse>/{name}/"
        assert given["--database"] == given["--service"] == "coldstream"
        assert flat(job["Command"]["ScriptLocation"]).endswith(f"/{deployment.job_script(name)}")
        assert "/coldstream.zip" in str(given["--extra-py-files"])
        assert "/coldstream.gluewheels.zip" in str(given["--additional-python-modules"])
        assert given["--python-modules-installer-option"] == "--no-index"


def test_everything_a_job_carries_is_uploaded_under_its_own_name(assembly: Assembly) -> None:
    manifest = json.loads((assembly.directory / "coldstream.assets.json").read_text())
    uploaded = {
        Path(one["objectKey"]).name
        for each in manifest["files"].values()
        for one in each["destinations"].values()
    }

    scripts = {deployment.job_script(name) for name in deployment.JOBS}
    assert uploaded >= scripts | {"coldstream.zip", "coldstream.gluewheels.zip"}
    for each in manifest["files"].values():
        source = assembly.directory / each["source"]["path"]
        assert source.exists()


@pytest.mark.parametrize("name", deployment.JOBS)
def test_a_role_reads_streams_keeps_its_own_tables_and_changes_nothing_of_a_stream(
    assembly: Assembly, name: str
) -> None:
    actions = granted(assembly, f"Jobs{name.title()}")
    files = [f"<Warehouse.Arn>/{name}/*"]

    code = [each for each in actions["s3:GetObject"] if "cdk-hnb659fds-assets" in each]
    assert 2 <= len(code) <= 3
    assert not any("*" in each for each in code)
    assert set(actions["s3:GetObject"]) - set(code) == {DATA, METADATA, *files}
    assert actions["s3:DeleteObject"] == files
    assert actions["s3:PutObject"] == files
    assert sorted(actions["s3:ListBucket"]) == ["<Bucket.Arn>", "<Warehouse.Arn>"]
    assert {each for each in actions if each.startswith("dynamodb:")} == {
        "dynamodb:DescribeTable",
        "dynamodb:GetItem",
        "dynamodb:Query",
        "dynamodb:Scan",
    }
    glue = {each for each in actions if each.startswith("glue:")}
    if name not in TABLES:
        assert not glue
        return
    assert not [each for each in glue if "Delete" in each]
    tables = "arn:<AWS::Partition>:glue:<AWS::Region>:<AWS::AccountId>"
    assert actions["glue:CreateTable"] == sorted(
        [
            f"{tables}:catalog",
            f"{tables}:database/coldstream",
            f"{tables}:table/coldstream/{TABLES[name]}",
        ]
    )


@pytest.mark.parametrize("name", deployment.JOBS)
def test_a_role_may_ask_for_the_log_groups_that_are_there_as_glue_does(
    assembly: Assembly, name: str
) -> None:
    actions = granted(assembly, f"Jobs{name.title()}")

    assert actions["logs:CreateLogGroup"] == actions["logs:PutLogEvents"]
    assert [each.partition("log-group:")[2] for each in actions["logs:CreateLogGroup"]] == [
        "/aws-glue/jobs/coldstream/error:log-stream:*",
        "/aws-glue/jobs/coldstream/output:log-stream:*",
    ]


@pytest.mark.parametrize("name", TABLES)
def test_a_role_may_do_what_pyiceberg_asks_of_the_catalog_of_tables(
    assembly: Assembly, name: str
) -> None:
    """Make a table, load it, commit to it; databases belong to the stack."""
    actions = granted(assembly, f"Jobs{name.title()}")
    schemas = {"glue:GetSchemaVersion"} if name == "materialise" else set()

    assert {each for each in actions if each.startswith("glue:")} - schemas == {
        "glue:CreateTable",
        "glue:GetDatabase",
        "glue:GetTable",
        "glue:UpdateTable",
    }


def test_materialise_may_ask_glue_s_registry_for_the_schema_of_a_body(assembly: Assembly) -> None:
    """By the id in the body, so no registry can be named; no other job decodes bodies."""
    for name in deployment.JOBS:
        found = granted(assembly, f"Jobs{name.title()}").get("glue:GetSchemaVersion")
        assert found == (["*"] if name == "materialise" else None)


def test_by_default_no_optimiser_is_switched_on_and_no_secret_read(assembly: Assembly) -> None:
    actions = granted(assembly, "JobsMaterialise")

    assert not [each for each in actions if "Optimizer" in each or "secret" in each]
    assert "iam:PassRole" not in actions
    assert not [name for name in assembly.of_type("AWS::IAM::Role") if "Optimizers" in name]
    assert "--maintenance" not in jobs(assembly)["materialise"]["DefaultArguments"]


def test_one_setting_leaves_tables_to_glue_s_optimisers_with_a_role_of_their_own(
    customised: Assembly,
) -> None:
    given = jobs(customised)["materialise"]["DefaultArguments"]
    (role,) = [name for name in customised.of_type("AWS::IAM::Role") if "Optimizers" in name]
    assert (given["--maintenance"], flat(given["--optimizer-role"])) == ("glue", f"<{role}.Arn>")

    actions = granted(customised, "JobsMaterialise")
    assert actions["iam:PassRole"] == [f"<{role}.Arn>"]
    (passing,) = [
        each for each in customised.rights("JobsMaterialise") if each["Action"] == ["iam:PassRole"]
    ]
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "glue.amazonaws.com"}}
    tables = "arn:<AWS::Partition>:glue:<AWS::Region>:<AWS::AccountId>"
    for verb in ("Create", "Get", "Update"):
        assert actions[f"glue:{verb}TableOptimizer"] == sorted(
            [
                f"{tables}:catalog",
                f"{tables}:database/streams_eu",
                f"{tables}:table/streams_eu/*",
            ]
        )

    own = granted(customised, "JobsOptimizers")
    files = ["<Warehouse.Arn>/materialise/*"]
    assert own["s3:DeleteObject"] == own["s3:GetObject"] == own["s3:PutObject"] == files
    assert own["s3:ListBucket"] == ["<Warehouse.Arn>"]
    assert {each for each in own if each.startswith("glue:")} == {
        "glue:GetDatabase",
        "glue:GetTable",
        "glue:UpdateTable",
    }


def test_the_secret_of_a_catalog_is_for_the_job_that_fills_its_tables(
    customised: Assembly,
) -> None:
    for name in deployment.JOBS:
        found = granted(customised, f"Jobs{name.title()}").get("secretsmanager:GetSecretValue")
        assert found == ([SECRET] if name == "materialise" else None)


def test_no_job_runs_by_itself_unless_somebody_wants_it(assembly: Assembly) -> None:
    assert not [name for name in assembly.of_type("AWS::Scheduler::Schedule") if "Jobs" in name]


def test_a_schedule_starts_its_job_and_may_start_no_other(customised: Assembly) -> None:
    schedules = {
        name: one["Properties"]
        for name, one in customised.of_type("AWS::Scheduler::Schedule").items()
        if name.startswith("Jobs")
    }

    started = {
        json.loads(each["Target"]["Input"])["JobName"]: each["ScheduleExpression"]
        for each in schedules.values()
    }
    assert started == {
        "rabbit-eu-materialise": "rate(15 minutes)",
        "rabbit-eu-scrub": "rate(1440 minutes)",
        "rabbit-eu-profile": "rate(10080 minutes)",
        "rabbit-eu-fleet": "rate(720 minutes)",
    }
    for each in schedules.values():
        assert flat(each["Target"]["Arn"]).endswith(":scheduler:::aws-sdk:glue:startJobRun")
        role = customised.resources[each["Target"]["RoleArn"]["Fn::GetAtt"][0]]["Properties"]
        (policy,) = role["Policies"]
        (statement,) = policy["PolicyDocument"]["Statement"]
        job = json.loads(each["Target"]["Input"])["JobName"]
        assert statement["Action"] == "glue:StartJobRun"
        assert flat(statement["Resource"]).endswith(f":job/{job}")


def test_settings_reach_the_jobs(customised: Assembly) -> None:
    for job in jobs(customised).values():
        assert job["NumberOfWorkers"] == 4
        assert job["DefaultArguments"]["--database"] == "streams_eu"
        assert job["DefaultArguments"]["--service"] == "rabbit-eu"
    rules = {name: job["DefaultArguments"].get("--rules") for name, job in jobs(customised).items()}
    assert rules.pop("materialise") == "s3://somewhere/materialise/rules.json"
    assert set(rules.values()) == {None}


def test_a_run_that_fails_is_counted_like_a_workflow_that_fails(assembly: Assembly) -> None:
    rule = assembly.only("AWS::Events::Rule", "JobsFailures")["Properties"]

    assert rule["EventPattern"]["source"] == ["aws.glue"]
    assert set(rule["EventPattern"]["detail"]["state"]) == {"FAILED", "TIMEOUT", "ERROR"}
    assert set(rule["EventPattern"]["detail"]["jobName"]) == {
        f"coldstream-{name}" for name in deployment.JOBS
    }
    (target,) = rule["Targets"]
    assert "StepsReport" in str(target["Arn"])
    # As it is: nothing that an event may lack is asked of it.
    assert "InputTransformer" not in target


def test_the_saved_queries_are_in_the_workgroup_which_bounds_what_they_read(
    assembly: Assembly,
) -> None:
    from infra.warehouse import QUERIES

    queries = [one["Properties"] for one in assembly.of_type("AWS::Athena::NamedQuery").values()]
    group = assembly.only("AWS::Athena::WorkGroup")["Properties"]
    settings = group["WorkGroupConfiguration"]

    assert {each["Name"].removeprefix("coldstream-") for each in queries} == {
        path.stem for path in QUERIES.glob("*.sql")
    }
    assert {each["WorkGroup"] for each in queries} == {group["Name"]}
    assert settings["EnforceWorkGroupConfiguration"] is True
    assert settings["BytesScannedCutoffPerQuery"] == 10**12
    assert (
        flat(settings["ResultConfiguration"]["OutputLocation"])
        == "s3://<Warehouse>/athena-results/"
    )


def test_results_of_queries_are_encrypted_as_the_tables_are(
    assembly: Assembly, customised: Assembly
) -> None:
    def said(made: Assembly) -> Any:
        group = made.only("AWS::Athena::WorkGroup")["Properties"]["WorkGroupConfiguration"]
        return group["ResultConfiguration"]["EncryptionConfiguration"]

    # It goes before what the bucket does by itself.
    assert said(assembly) == {"EncryptionOption": "SSE_S3"}
    assert said(customised) == {"EncryptionOption": "SSE_KMS", "KmsKey": KEY}


def test_a_query_without_a_title_is_refused(tmp_path: Path) -> None:
    from infra.warehouse import saved_query

    (tmp_path / "bare.sql").write_text("SELECT 1")

    with pytest.raises(ValueError, match=r"bare\.sql does not begin with a comment"):
        saved_query(tmp_path / "bare.sql")


def test_results_of_queries_are_forgotten_and_tables_are_not(assembly: Assembly) -> None:
    rules = assembly.resources["Warehouse"]["Properties"]["LifecycleConfiguration"]["Rules"]

    assert [each.get("Prefix") for each in rules if "ExpirationInDays" in each] == [
        "athena-results/"
    ]


def test_no_script_of_a_job_hides_a_module_of_python() -> None:
    scripts = {path.stem for path in (ROOT / "glue_jobs").glob("*.py")} - {"__init__"}

    assert scripts >= {Path(deployment.job_script(name)).stem for name in deployment.JOBS}
    assert not scripts & sys.stdlib_module_names


def checkout(directory: Path, *, wheels: bool = True) -> Path:
    """A copy of what the jobs' code is built from, without a kernel."""
    for name in ("pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, directory / name)
    ignore = shutil.ignore_patterns("__pycache__", "build")
    for name in ("src", "glue_jobs"):
        shutil.copytree(ROOT / name, directory / name, ignore=ignore)
    if wheels:
        built = glue_wheels.packages(ROOT)
        there = directory / built.relative_to(ROOT)
        shutil.copytree(built, there, copy_function=os.link)
    return directory


def test_two_checkouts_give_the_same_code_and_a_front_end_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = checkout(tmp_path / "one"), checkout(tmp_path / "two")
    (two / "src/coldstream/cli/more.py").write_text("MORE = 1\n")

    first, second = build(one), build(two)

    assert first.name == second.name
    assert [path.read_bytes() for path in sorted(first.iterdir())] == [
        path.read_bytes() for path in sorted(second.iterdir())
    ]
    (two / "src/coldstream/jobs/more.py").write_text("MORE = 1\n")
    assert build(two) != second


def test_the_package_has_what_jobs_import_and_no_front_end() -> None:
    members = zipfile.ZipFile(build(ROOT) / "coldstream.zip").namelist()
    packages = {name.split("/")[1] for name in members}

    assert packages >= {"jobs", "spark", "columns", "reader", "adapters", "errors.py"}
    assert not packages & LEFT_OUT
    assert not [name for name in members if "__pycache__" in name]


def test_a_run_installs_from_the_bucket_alone_what_the_lock_has(tmp_path: Path) -> None:
    """pip without an index, for Glue's Python and machines, on what lies in the zip."""
    archive = zipfile.ZipFile(build(ROOT) / "coldstream.gluewheels.zip")
    archive.extractall(tmp_path / "wheels")
    wheels = sorted((tmp_path / "wheels").iterdir())
    assert [each for each in wheels if each.name.startswith("coldstream_kernel-")]
    locked = {
        (each["name"].replace("-", "_"), each["version"])
        for each in tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    }
    versions = [tuple(wheel.name.split("-")[:2]) for wheel in wheels]
    assert {each for each in versions if each[0] != "coldstream_kernel"} <= locked

    run_uv(
        ROOT, "pip", "install", "--target", str(tmp_path / "there"), "--offline", "--no-index",
        "--find-links", str(tmp_path / "wheels"), "--python", sys.executable,
        "--python-version", "3.13", "--python-platform", "x86_64-manylinux_2_28",
        *(str(wheel) for wheel in wheels),
    )  # fmt: skip

    there = {path.name for path in (tmp_path / "there").iterdir()}
    assert there >= {"boto3", "cramjam", "numpy", "obstore", "pandas", "pyarrow", "pyiceberg"}
    assert there >= {"coldstream_kernel", "re2", "zlib_ng"}


@pytest.mark.slow
def test_the_same_lock_gives_the_same_wheels(tmp_path: Path) -> None:
    again = checkout(tmp_path, wheels=False)

    found = glue_wheels.packages(again)

    assert {path.name: path.read_bytes() for path in found.iterdir()} == {
        path.name: path.read_bytes() for path in glue_wheels.packages(ROOT).iterdir()
    }
