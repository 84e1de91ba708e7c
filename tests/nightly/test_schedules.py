"""The schedules in examples/schedules work; each runs up to the point at which it needs its scheduler.

Small programs replace the schedulers: they set the variables that the documentation names, and run their arguments.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from postrun.cli import main
from postrun.simulate import Problems, write_demo

RUNS = ("c", "team/a")  # of the last and of the first of three shards
QUICK = {"POSTRUN_FORMAT": "json", "POSTRUN_RULES": "StepOutlier", "POSTRUN_SETTLE": "0", "POSTRUN_ENGINE": "none"}


@pytest.fixture(scope="module")
def schedules(project_root: Path) -> Path:
    return project_root / "examples" / "schedules"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    write_demo(folder, steps=2, nodes=1, gpus_per_node=1, problems=Problems(straggler_rank=None))
    return next((folder / "kineto").iterdir())


@pytest.fixture
def source(trace: Path, tmp_path: Path) -> Path:
    for name in RUNS:
        (tmp_path / "runs" / name).mkdir(parents=True)
        shutil.copy(trace, tmp_path / "runs" / name / trace.name)
    return tmp_path / "runs"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "reports"


@pytest.fixture
def programs(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes programs to a folder at the start of PATH.

    Name -> text of a script. The folder also contains `postrun`.
    """
    folder = tmp_path / "bin"

    def make(**scripts: str) -> Path:
        folder.mkdir(exist_ok=True)
        scripts["postrun"] = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m postrun.cli "$@"\n'
        for name, text in scripts.items():
            (folder / name).write_text(text.lstrip())
            (folder / name).chmod(0o755)
        return folder

    return make


def run(command: list[str], folder: Path, programs: Path | None, **variables: str) -> subprocess.CompletedProcess[str]:
    first = f"{programs}:" if programs is not None else ""
    environment = {"PATH": f"{first}/usr/bin:/bin", "HOME": str(folder), "PYTHONSAFEPATH": "1", **QUICK, **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)


def in_process(arguments: list[str], **variables: str) -> dict[str, Any]:
    assert arguments[0].rpartition("/")[2] == "postrun"
    done = CliRunner().invoke(main, [*arguments[1:], "--json"], env={**QUICK, **variables})
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def indexed(out: Path) -> list[str]:
    return sorted(row["id"] for row in json.loads((out / "index.json").read_text())["runs"])


def replaced(text: str, **words: str) -> str:
    """Replace words that must occur; ``_`` in their names is a ``/``."""
    for old, new in words.items():
        assert old.replace("_", "/") in text
        text = text.replace(old.replace("_", "/"), new)
    return text


def yaml_of(path: Path) -> list[Any]:
    yaml = pytest.importorskip("yaml", reason="no PyYAML")
    return list(yaml.safe_load_all(path.read_text()))


def test_every_script_is_posix_shell_and_executable_where_it_is_called(schedules: Path) -> None:
    scripts = [*schedules.rglob("*.sh"), *schedules.rglob("*.sbatch")]
    assert len(scripts) == 5
    for script in scripts:
        assert script.read_text().startswith("#!/bin/sh\n")
        checked = subprocess.run(["sh", "-n", str(script)], capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, ""), script
        assert script.suffix == ".sbatch" or script.stat().st_mode & stat.S_IXUSR, script


# -- systemd, cron ---------------------------------------------------------------------------------------------------------


def _unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return parser


def test_systemd_takes_the_units(schedules: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    for path in (schedules / "systemd").glob("postrun-nightly.*"):
        # It looks whether the program is there.
        (tmp_path / path.name).write_text(path.read_text().replace("/opt/postrun/bin/postrun", "/bin/true"))
    units = [str(tmp_path / f"postrun-nightly.{kind}") for kind in ("service", "timer")]
    checked = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    lines = [line for line in checked.stderr.splitlines() if "postrun" in line]
    assert (checked.returncode, lines) == (0, []), checked.stderr


@pytest.mark.slow
def test_what_the_service_calls_is_a_night(schedules: Path, source: Path, out: Path) -> None:
    service = _unit(schedules / "systemd" / "postrun-nightly.service")["Service"]
    lines = [line for line in (schedules / "systemd" / "nightly.env").read_text().splitlines() if line and not line.startswith("#")]
    variables = dict(line.split("=", 1) for line in lines)
    assert service["EnvironmentFile"] == "/etc/postrun/nightly.env"
    variables |= {"SOURCE": str(source), "POSTRUN_OUT": str(out)}
    words = [re.sub(r"\$\{(\w+)\}", lambda found: variables[found[1]], word) for word in shlex.split(service["ExecStart"])]
    night = in_process(words, **variables)
    assert sorted(night["reported"]) == list(RUNS)
    assert indexed(out) == list(RUNS)
    # Workers and their memory fit into what the service may have.
    workers, memory = (int(re.search(rf"--{name} (\d+)", service["ExecStart"])[1]) for name in ("workers", "memory"))  # type: ignore[index]
    assert workers * memory * 1e9 <= 0.85 * int(service["MemoryMax"].removesuffix("G")) * 2**30


def _cron_commands(schedules: Path) -> list[str]:
    limits = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    commands = []
    for line in (schedules / "postrun.crontab").read_text().splitlines():
        if not line or line.startswith("#") or re.match(r"[A-Z]+=", line):
            continue
        *fields, command = line.split(None, 5)
        for field, (low, high) in zip(fields, limits, strict=True):
            for part in field.split(","):
                match = re.fullmatch(r"(?:\*|(\d+)(?:-(\d+))?)(?:/\d+)?", part)
                assert match, line
                assert all(low <= int(number) <= high for number in match.groups() if number is not None), line
        assert "%" not in command  # a line end to cron
        commands.append(command)
    return commands


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1])
def test_the_lines_for_cron_mail_each_broken_run_once(first: int, schedules: Path, source: Path, out: Path) -> None:
    """Whichever line comes first to a run prints and fails; then both are silent."""
    *commands, weekly = _cron_commands(schedules)
    assert len(commands) == 2
    (source / "bad").mkdir()
    (source / "bad" / "trace.json").write_text("no trace")
    printed = []
    for command in (commands[first], commands[1 - first], commands[first]):
        words = [{"/data/runs": str(source), "/data/reports": str(out)}.get(word, word) for word in shlex.split(command)]
        done = CliRunner().invoke(main, words[1:], env=QUICK)
        printed.append((done.exit_code, done.output.strip()))
    (code, text), *rest = printed
    assert (code, text.splitlines()[0]) == (3, "postrun: --fail-on: no report of bad")
    assert text.splitlines()[1].startswith("note: bad failed: nothing usable found")
    assert rest == [(0, ""), (0, "")]
    assert indexed(out) == sorted((*RUNS, "bad"))
    done = CliRunner().invoke(main, [*shlex.split(weekly.replace("/data/reports", str(out)))[1:]], env=QUICK)
    assert (done.exit_code, done.stdout.splitlines()[1]) == (0, f"{out}/digest.html")
    assert (out / "digest.html").stat().st_mode & 0o777 == 0o644


def test_every_schedule_of_nights_alarms(schedules: Path) -> None:
    """Each call of a night has --fail-on, or its variable; the index has not."""
    texts = {path: path.read_text() for path in schedules.rglob("*") if path.is_file() and "nightly" in path.read_text()}
    nights = {path: text for path, text in texts.items() if re.search(r"^[^#\n]*postrun[\", ]+nightly[\", ]", text, re.MULTILINE)}
    nights.pop(schedules / "slurm" / "index.sbatch")
    nights.pop(schedules / "aws-batch" / "submit.sh")  # calls the job definition, and the index
    assert len(nights) == 7
    service = schedules / "systemd" / "postrun-nightly.service"
    nights[service] += (schedules / "systemd" / "nightly.env").read_text()
    assert [
        path.name for path, text in nights.items() if not re.search(r"fail-on[\", ]+regression,error|FAIL_ON=regression,error", text)
    ] == []


# -- Kubernetes ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_cronjob_is_confined_and_does_a_night(schedules: Path, source: Path, out: Path) -> None:
    account, job = yaml_of(schedules / "kubernetes" / "nightly.yaml")
    assert (account["kind"], job["apiVersion"], job["kind"]) == ("ServiceAccount", "batch/v1", "CronJob")
    assert any(key.endswith("/role-arn") for key in account["metadata"]["annotations"])
    work = job["spec"]["jobTemplate"]["spec"]
    pod = work["template"]["spec"]
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert job["metadata"]["namespace"] == account["metadata"]["namespace"]
    assert (pod["restartPolicy"], pod["securityContext"]["runAsNonRoot"]) == ("Never", True)
    (container,) = pod["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert mounted == {environment["TMPDIR"]: pod["volumes"][0]["name"]}
    assert environment["HOME"] in mounted
    assert {"cpu", "memory", "ephemeral-storage"} <= container["resources"]["limits"].keys()
    (failed,) = [rule["onExitCodes"] for rule in work["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
    assert failed["containerName"] == container["name"]
    assert failed["values"] == [2, 3, 4]  # docs/nightly.md: failures that another attempt does not fix
    places = {"s3://bucket/runs": str(source), "s3://reports/runs": str(out)}
    words = [places.get(word, word) for word in (*container["command"], *container["args"])]
    assert words[words.index("--workers") + 1] == container["resources"]["limits"]["cpu"]
    assert sorted(in_process(words)["reported"]) == list(RUNS)


# -- AWS Batch -------------------------------------------------------------------------------------------------------------

AWS = f"""
#!{sys.executable}
'''Stands in for `aws batch submit-job`: runs the job, and each part of an array with the variables that AWS Batch sets.'''
import json, os, subprocess, sys
assert sys.argv[1:3] == ["batch", "submit-job"], sys.argv
words = sys.argv[3:]
given = dict(zip(words[::2], words[1::2], strict=True))
with open("submitted", "a") as file:
    file.write(json.dumps(given) + chr(10))
definition = json.load(open(os.environ["DEFINITION"]))
assert given["--job-definition"] == definition["jobDefinitionName"]
values = definition["parameters"] | dict(one.split("=", 1) for one in given.get("--parameters", "").split(",") if one)
command = definition["containerProperties"]["command"]
if "--container-overrides" in given:
    name, _, text = given["--container-overrides"].partition("=")
    assert name == "command"
    command = text.split(",")
command = [values.get(word[5:], word) if word.startswith("Ref::") else word for word in command]
size = int(given.get("--array-properties", "size=0").partition("=")[2])
assert size != 1, "an array has two jobs or more"
for index in range(size or 1):
    array = dict(AWS_BATCH_JOB_ARRAY_INDEX=str(index), AWS_BATCH_JOB_ARRAY_SIZE=str(size)) if size else {{}}
    with open("log", "a") as log:
        subprocess.run(command, env=os.environ | array, stdout=log, stderr=log, check=True)
print(f"id-of-{{given['--job-name']}}")
"""


def _reported(log: str) -> Counter[str]:
    """Count the reports of each run in the lines of the nights."""
    return Counter(re.findall(r"^\[\d+/\d+\] (\S+) \(", log, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize("shards", [3, 1])
def test_an_array_of_aws_batch_reports_each_run_once(
    shards: int, schedules: Path, source: Path, out: Path, tmp_path: Path, programs: Callable[..., Path]
) -> None:
    folder = schedules / "aws-batch"
    called = [str(folder / "submit.sh"), "queue", str(shards), str(source), str(out)]
    done = run(called, tmp_path, programs(aws=AWS), DEFINITION=str(folder / "job-definition.json"))
    assert (done.returncode, done.stdout) == (0, "night: id-of-postrun-nightly\nindex: id-of-postrun-index\n"), done.stderr
    night, index = (json.loads(line) for line in (tmp_path / "submitted").read_text().splitlines())
    assert night.get("--array-properties") == (None if shards == 1 else f"size={shards}")
    assert index["--depends-on"] == "jobId=id-of-postrun-nightly"
    assert _reported((tmp_path / "log").read_text()) == dict.fromkeys(RUNS, 1)
    assert indexed(out) == list(RUNS)


def test_the_job_definition_does_not_repeat_what_would_fail_again(schedules: Path) -> None:
    definition = json.loads((schedules / "aws-batch" / "job-definition.json").read_text())
    container = definition["containerProperties"]
    assert container["readonlyRootFilesystem"] is True
    mounted = {mount["containerPath"] for mount in container["mountPoints"]}
    environment = {one["name"]: one["value"] for one in container["environment"]}
    assert {environment["TMPDIR"], environment["HOME"]} <= mounted
    rules = definition["retryStrategy"]["evaluateOnExit"]
    assert {rule["onExitCode"] for rule in rules if rule["action"] == "EXIT"} == {"2", "3", "4"}
    assert rules[-1] == {"onReason": "*", "action": "RETRY"}


def test_submit_says_what_it_takes(schedules: Path, tmp_path: Path) -> None:
    done = run([str(schedules / "aws-batch" / "submit.sh"), "queue"], tmp_path, None)
    assert done.returncode == 2
    assert "QUEUE SHARDS SOURCE OUT" in done.stderr


# -- SLURM -----------------------------------------------------------------------------------------------------------------

SBATCH = f"""
#!{sys.executable}
'''Stands in for sbatch: runs each part of the array with the variables that SLURM sets; those of #SBATCH as it reads them.'''
import json, os, re, subprocess, sys
*given, script = sys.argv[1:]
text = open(script).read()
said = dict(re.findall(r"--([a-z-]+)=(\\S+)", " ".join(re.findall(r"^#SBATCH (.*)$", text, re.MULTILINE))))
assert said["nodes"] == said["ntasks"] == "1"
said["array"] = os.environ.get("ARRAY", said["array"]) if "array" in said else None
job = dict(SLURM_JOB_ID="77", SLURM_CPUS_PER_TASK=said["cpus-per-task"], SLURM_MEM_PER_NODE=str(int(said["mem"].removesuffix("G")) * 1024))
parts = [{{}}]
if said["array"]:
    first, last, step = re.fullmatch(r"(\\d+)-(\\d+)(?::(\\d+))?", said["array"]).groups("1")
    numbers = range(int(first), int(last) + 1, int(step))
    parts = [
        dict(SLURM_ARRAY_JOB_ID="77", SLURM_ARRAY_TASK_ID=str(number), SLURM_ARRAY_TASK_COUNT=str(len(numbers)), SLURM_ARRAY_TASK_STEP=step,
             SLURM_ARRAY_TASK_MIN=first, SLURM_ARRAY_TASK_MAX=str(numbers[-1]))
        for number in numbers
    ]
with open("submitted", "a") as file:
    file.write(json.dumps([said.get("array"), *given]) + chr(10))
for part in parts:
    with open("log", "a") as log:
        subprocess.run(["sh", script], env=os.environ | job | part, stdout=log, stderr=log)
print("77;cluster" if "--parsable" in given else "Submitted batch job 78")
"""
SRUN = '#!/bin/sh\necho "$@" >> steps\nexec "$@"\n'


@pytest.mark.slow
def test_an_array_of_slurm_reports_each_run_once(
    schedules: Path, source: Path, out: Path, tmp_path: Path, programs: Callable[..., Path]
) -> None:
    variables = {"SOURCE": str(source), "OUT": str(out)}
    done = run([str(schedules / "slurm" / "submit.sh")], tmp_path, programs(sbatch=SBATCH, srun=SRUN), **variables)
    assert done.returncode == 0, done.stderr
    night, index = (json.loads(line) for line in (tmp_path / "submitted").read_text().splitlines())
    assert night == ["0-2", "--parsable"]
    assert index == [None, "--dependency=afterany:77"]
    steps = (tmp_path / "steps").read_text().splitlines()
    assert [re.findall(r"--shard (\S+)|(--index-only)", step) for step in steps] == [
        [("0/3", "")], [("1/3", "")], [("2/3", "")], [("", "--index-only")]
    ]  # fmt: skip
    assert all("--workers 4 --memory 3276MiB" in step for step in steps[:3])
    assert _reported((tmp_path / "log").read_text()) == dict.fromkeys(RUNS, 1)
    assert indexed(out) == list(RUNS)


def test_parts_count_from_0_whatever_the_numbers_of_the_array(schedules: Path, tmp_path: Path, programs: Callable[..., Path]) -> None:
    environment = programs(sbatch=SBATCH, srun='#!/bin/sh\necho "$@" >> steps\n')
    assert run(["sbatch", str(schedules / "slurm" / "nightly.sbatch")], tmp_path, environment, ARRAY="4-8:2").returncode == 0
    assert re.findall(r"--shard (\S+)", (tmp_path / "steps").read_text()) == ["0/3", "1/3", "2/3"]


RUNUSER = """
#!/bin/sh
[ "$1 $2 $3" = "-u somebody --" ] || exit 1
shift 3
exec "$@"
"""
SYSTEMD_RUN = """
#!/bin/sh
echo "$@" >> units
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.mark.slow
@pytest.mark.parametrize("systemd", [False, True])
def test_the_epilog_reports_a_job_once_and_never_fails(
    systemd: bool, schedules: Path, trace: Path, tmp_path: Path, programs: Callable[..., Path]
) -> None:
    environment = programs(**{"runuser": RUNUSER, "systemd-run": SYSTEMD_RUN})
    script = (schedules / "slurm" / "epilog.sh").read_text()
    script = replaced(script, _shared_runs=str(tmp_path / "runs"), _opt_postrun_bin_postrun=f"{environment}/postrun")
    script = replaced(
        script, _usr_sbin_runuser=f"{environment}/runuser", _run_systemd_system=str(tmp_path) if systemd else f"{tmp_path}/none"
    )
    script = script.replace("/usr/bin/systemd-run", f"{environment}/systemd-run")
    epilog = tmp_path / "epilog"
    epilog.write_text(script)
    job = tmp_path / "runs" / "somebody" / "run-77"

    def ends(**variables: str) -> set[str]:
        done = run(["sh", str(epilog)], tmp_path, Path("/nowhere"), **variables)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return {path.relative_to(job).as_posix() for path in job.rglob("report.json")}

    mine: Mapping[str, str] = {"SLURM_JOB_ID": "77", "SLURM_JOB_USER": "somebody", "SLURM_SCRIPT_CONTEXT": "epilog_slurmd"}
    assert ends(**mine) == set()  # it recorded nothing
    job.mkdir(parents=True)
    shutil.copy(trace, job / trace.name)
    assert ends(**mine) == {"report.0/report.json"}
    written_ns = (job / "report.0" / "report.json").stat().st_mtime_ns
    assert ends(**mine) == {"report.0/report.json"}  # the job's next node
    assert (job / "report.0" / "report.json").stat().st_mtime_ns == written_ns
    if systemd:
        assert "--no-block --unit=postrun-77-0 --uid=somebody" in (tmp_path / "units").read_text()
        return
    assert not (tmp_path / "units").exists()
    (job / trace.name).write_text("cut")
    assert ends(**mine, SLURM_RESTART_COUNT="1") == {"report.0/report.json"}  # no report can be made of it
    shutil.copy(trace, job / trace.name)
    assert ends(**mine, SLURM_RESTART_COUNT="2") == {"report.0/report.json", "report.2/report.json"}
    assert ends(SLURM_JOB_ID="77") == ends(SLURM_JOB_USER="somebody") == {"report.0/report.json", "report.2/report.json"}
    later = job.with_name("run-77-1")  # a start with a folder of its own
    later.mkdir()
    shutil.copy(trace, later / trace.name)
    assert ends(**mine, SLURM_RESTART_COUNT="3") == {"report.0/report.json", "report.2/report.json"}
    assert (later / "report.3" / "report.json").is_file()
    assert "&\n" not in script  # nothing is left behind, which would be killed


# -- GitHub, GitLab --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_workflow_of_github(schedules: Path, source: Path, out: Path, tmp_path: Path, programs: Callable[..., Path]) -> None:
    (workflow,) = yaml_of(schedules / "github" / "nightly.yml")
    assert [one["cron"] for one in workflow[True]["schedule"]] == ["15 2 * * *"]  # YAML 1.1 reads `on` as true
    steps = workflow["jobs"]["nightly"]["steps"]
    night, say = (step["run"] for step in steps if "run" in step)
    (kept,) = [step for step in steps if step.get("uses", "").startswith("actions/upload-artifact@")]
    assert (kept["if"], kept["with"]["path"]) == ("always()", "night.json")
    variables = {**workflow["env"], "SOURCE": str(source), "OUT": str(out), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    environment = programs()
    done = run(["sh", "-e", "-c", night], tmp_path, environment, **variables)
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads((tmp_path / "night.json").read_text())["reported"]) == list(RUNS)

    (source / "bad").mkdir()
    (source / "bad" / "trace.json").write_text("no trace")
    done = run(["sh", "-e", "-c", night], tmp_path, environment, **variables)
    assert done.returncode == 3, done.stderr
    assert run(["sh", "-e", "-c", say], tmp_path, environment, **variables).returncode == 0
    summary = (tmp_path / "summary.md").read_text().splitlines()
    assert (summary[0], summary[-1]) == ("```json", "```")
    assert [one["id"] for one in json.loads("\n".join(summary[1:-1]))["failed"]] == ["bad"]


@pytest.mark.slow
def test_the_job_of_gitlab(schedules: Path, source: Path, tmp_path: Path, programs: Callable[..., Path]) -> None:
    (pipeline,) = yaml_of(schedules / "gitlab" / ".gitlab-ci.yml")
    job = pipeline["nightly reports"]
    assert job["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "schedule"'}]
    assert job["artifacts"]["paths"] == job["cache"]["paths"] == ["reports/"]
    assert job["artifacts"]["when"] == job["cache"]["when"] == "always"
    token = tmp_path / "token"
    variables = {**job["variables"], "SOURCE": str(source), "AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_TOKEN": "se$cret"}
    done = run(["sh", "-e", "-c", "\n".join(job["script"])], tmp_path, programs(), **variables)
    assert done.returncode == 0, done.stderr
    assert (token.read_text(), stat.S_IMODE(token.stat().st_mode)) == ("se$cret", 0o600)
    assert indexed(tmp_path / "reports") == list(RUNS)
