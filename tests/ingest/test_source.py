"""Tests that the kind of every file is recognized, and problems are reported, not raised."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import marshal
import os
import re
import tarfile
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from postrun.cli import main
from postrun.errors import InputError, UsageError
from postrun.ingest import ingest, summary
from postrun.ingest.chrome_trace.head import read_head
from postrun.ingest.discover import find_files, format_of
from postrun.ingest.load import load
from postrun.ingest.store import format_names

EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 7, "ts": 1_700_000_000_000_000, "dur": 5}
TRACE = json.dumps({"schemaVersion": 1, "traceEvents": [EVENT]}).encode()
TF = b'{"traceEvents": [{"ph": "M", "pid": 9, "name": "process_name", "args": {"name": "/host:CPU"}}, {}]}'
REPORT = {"schema_version": 1, "generator": {"name": "postrun", "version": "0.1.0"}, "run": {"name": "x"}}
METRIC = b'{"Type":"cpu","Name":"cpu0","Dimension":"CPUUtilization","Value":4.5,"NodeId":"algo-1","Timestamp":1700000000.5}\n'
PEVENTS = (
    b'[\n{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1700000000000000}},\n'
    b'{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "Step:ModeKeys.TRAIN"}},\n'
    b'{"name": "Step:ModeKeys.TRAIN", "pid": 1, "ph": "X", "ts": 5, "dur": 9, "args": {"pid": 905, "step_num": "3"}}\n]'
)


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.json", TRACE, format_names.TRACE),
        ("without a suffix", TRACE, format_names.TRACE),
        ("a.json.gz", gzip.compress(TRACE, mtime=0), format_names.TRACE),
        ("misnamed.png", gzip.compress(TRACE, mtime=0), format_names.TRACE),
        ("bom.json", b"\xef\xbb\xbf\n" + TRACE, format_names.TRACE),
        ("array.json", json.dumps([EVENT]).encode(), format_names.TRACE),
        ("late.json", b'{"metadata": {"x": "' + b"y" * 100_000 + b'"}, "traceEvents": []}', format_names.TRACE),
        ("cut.pt.trace.json", b'{"a": [', format_names.TRACE),
        ("algo/1700000000.algo-1.json", METRIC, format_names.SYSTEM_METRICS),
        ("system/incremental/2023111422/1700000040.algo-1.json", METRIC, format_names.SYSTEM_METRICS),
        ("framework/pevents/2023111422/1700000000000014_905-host_pythontimeline.json", PEVENTS, format_names.TIMELINE),
        ("framework/training_job_end.ts", b"", format_names.END_MARKER),
        ("job.json", b'{"name": "x"}', format_names.JOB),
        ("job.json", b"not json", format_names.JOB),
        ("job.json", b"", format_names.JOB),
        ("job.json", TRACE, format_names.TRACE),
        ("report.json", json.dumps(REPORT, indent=1).encode(), format_names.REPORT),
        ("other.json", json.dumps(REPORT).encode(), format_names.REPORT),
        ("report.json", json.dumps({**REPORT, "generator": {"name": "x"}}).encode(), None),
        ("run.json", b'{"name": "x"}', None),
        ("list.json", b"[1, 2, 3]", None),
        ("empty.json", b"", None),
        ("x.png", b"\x89PNG\r\n\x1a\n" + bytes(200), None),
        ("x.sqlite", b"SQLite format 3\0" + bytes(100), "Nsight Systems export"),
        ("x.nsys-rep", b"whatever", "Nsight Systems report"),
        ("x.prt", b"whatever", "postrun capture"),
        ("framework/x.smpraw", b"whatever", "hosted raw capture"),
        ("framework/pytorch/cprofile/n/x/python_stats", b"{", "cProfile result"),
        ("framework/pytorch/pyinstrument/n/x/python_stats.json", b"{", "Pyinstrument result"),
        ("framework/pytorch/pyinstrument/n/x/python_stats.html", b"<html>", "page of a Python profile, or its timer"),
        ("framework/pytorch/cprofile/n/x/postrun.json", b"{}", "page of a Python profile, or its timer"),
        ("loop.pstats", b"{", "cProfile result"),
        ("loop.prof", bytes.fromhex("7ba903da"), "cProfile result"),
        ("loop.prof", b'{"time": 1}', None),
        ("a.json", b'{"start_time": 1.5,"duration": 0.1,"sample_count": 3,"root_frame": null}', "Pyinstrument result"),
        ("f/detailed_profiling/2020080513/0/1-h_1_2.metadata", b"", format_names.TENSORFLOW_TIME),
        ("plugins/profile/2020_08_05_13_37_44/host.trace.json.gz", gzip.compress(TF, mtime=0), format_names.TENSORFLOW),
        ("plugins/profile/2020_08_05_13_37_44/host.trace.json.gz", gzip.compress(TRACE, mtime=0), format_names.TRACE),
        ("cut.gz", gzip.compress(TRACE, mtime=0)[:-8], format_names.TRACE),
        ("garbage.json.gz", b"\x1f\x8b\x08\x00" + bytes(40), None),
    ],
)
def test_format_by_head_and_name(tmp_path: Path, name: str, content: bytes, expected: str | None) -> None:
    kind = format_of(put(tmp_path / name, content))
    assert (kind.name if kind else None) == expected


def test_head_of_plain_gzip_and_zstd(tmp_path: Path) -> None:
    import zstandard

    content = bytes(range(256)) * 1000
    for pack in (bytes, gzip.compress, zstandard.compress):
        head = read_head(put(tmp_path / "x", pack(content)), 1000)
        assert 0 < len(head) <= 1000
        assert content.startswith(head)


def test_folders_are_searched_in_order_without_hidden_files_and_link_loops(tmp_path: Path) -> None:
    for name in ("b/2.json", "b/1.json", "a/deep/er/x.json", ".hidden/x.json", "a/.hidden.json", "c.json"):
        put(tmp_path / name, TRACE)
    (tmp_path / "a" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "again.json").symlink_to(tmp_path / "c.json")
    (tmp_path / "dangling.json").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.json")
    actual = [(one.path.relative_to(tmp_path).as_posix(), one.problem) for one in find_files([tmp_path])]
    assert [name for name, problem in actual if problem is None] == ["again.json", "a/deep/er/x.json", "b/1.json", "b/2.json"]
    assert "write it to a file first" in str(dict(actual)["pipe.json"])
    assert "No such file" in str(dict(actual)["dangling.json"])


def test_links_that_lead_out_of_the_given_folder_are_not_followed(tmp_path: Path) -> None:
    for name in ("runs/mine/a.json", "runs/mine/deep/d.json", "runs/theirs/b.json", "elsewhere/c.json", "mined/e.json"):
        put(tmp_path / name, TRACE + name.encode())
    mine = tmp_path / "runs" / "mine"
    (mine / "sub").mkdir()
    links = {
        "up": tmp_path / "runs", "root": Path("/"), "self": mine, "aside": tmp_path / "elsewhere", "sub/upper": Path("../../../.."),
        "sub/within": mine / "deep", "file.json": tmp_path / "elsewhere/c.json", "nothing": tmp_path / "nowhere", "circle": Path("circle"),
    }  # fmt: skip
    for name, target in links.items():
        (mine / name).symlink_to(target)
    (mine / "prefix.json").symlink_to(tmp_path / "mined/e.json")
    actual = {one.path.relative_to(mine).as_posix(): one.problem for one in find_files([mine])}
    refused = "a link that leads out of the given folder and is not followed; to include it, give it as a SOURCE of its own"
    left_out = ["up", "root", "aside", "sub/upper", "file.json", "nothing", "prefix.json"]
    circle = "cannot be read (Too many levels of symbolic links)"
    assert actual == {"a.json": None, "deep/d.json": None, "circle": circle, **dict.fromkeys(left_out, refused)}
    (tmp_path / "mine").symlink_to(mine, target_is_directory=True)  # a SOURCE may be a link itself
    through_link = find_files([tmp_path / "mine"])
    assert [one.path.name for one in through_link if one.problem is None] == ["a.json", "d.json"]
    store = ingest([mine])
    notes = store.frame("SELECT file, message FROM ingest_note WHERE code = 'not_readable' ORDER BY file").rows()
    assert (f"The file was left out: {refused}.") in {message for _, message in notes}
    assert {file for file, _ in notes} == {name.rpartition("/")[2] for name in [*left_out, "circle"]}


def test_a_report_shows_nothing_of_what_links_lead_to(tmp_path: Path) -> None:
    put(tmp_path / "private/secret.json", b'{"name": "hidden-words", "labels": {"a": "hidden-words"}}')
    put(tmp_path / "private/hidden-words.json", TRACE)
    put(tmp_path / "private/postrun.json", b'{"timer": "cpu_time", "rank": 77}')
    put(tmp_path / "run/trace.json", TRACE)
    put(tmp_path / "run/profile/python_stats", marshal.dumps({("/a.py", 1, "f"): (1, 1, 0.25, 1.0, {})}))
    links = {"job.json": "secret.json", "etc": "", "x.json": "hidden-words.json", "profile/postrun.json": "postrun.json"}
    for name, target in links.items():
        (tmp_path / "run" / name).symlink_to(tmp_path / "private" / target)
    done = CliRunner().invoke(main, ["report", str(tmp_path / "run"), "-o", str(tmp_path / "out"), "--format", "html,json"])
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "out/report.json").read_bytes())
    for file in (tmp_path / "out").iterdir():
        assert b"hidden-words" not in file.read_bytes()
    left_out = "a link that leads out of the given folder"
    assert str(report).count(left_out) >= 4
    with ingest([tmp_path / "run"]) as store:
        assert store.frame("SELECT rank FROM process WHERE rank IS NOT NULL").rows() == []
        assert store.frame("SELECT timer FROM python_window").item() is None


def test_a_link_is_followed_to_what_is_a_source_of_its_own(tmp_path: Path) -> None:
    put(tmp_path / "run/a.json", TRACE)
    put(tmp_path / "elsewhere/b.json", TRACE + b" ")
    (tmp_path / "run/link.json").symlink_to(tmp_path / "elsewhere/b.json")
    for paths in ([tmp_path / "run", tmp_path / "elsewhere"], [tmp_path / "run", tmp_path / "run/link.json"]):
        actual = find_files(paths)
        assert sorted(one.path.name for one in actual) == ["a.json", "link.json"]
        assert [one.problem for one in actual] == [None, None]


def test_a_file_that_becomes_a_link_before_it_is_read_is_left_out(tmp_path: Path) -> None:
    secret = put(tmp_path / "secret.json", b'{"name": "hidden-words"}')
    put(tmp_path / "run/trace.json", TRACE)
    put(tmp_path / "run/job.json", b'{"name": "usual"}')
    actual = find_files([tmp_path / "run"])
    (tmp_path / "run/job.json").unlink()
    (tmp_path / "run/job.json").symlink_to(secret)
    with load(actual, [tmp_path / "run"]) as store:
        assert store.frame("SELECT name FROM run").item() == "run"
        ((file, message),) = store.frame("SELECT file, message FROM ingest_note WHERE code = 'not_readable'").rows()
    assert (file, "replaced by a link" in message) == ("job.json", True)


def test_a_report_is_no_input_and_says_so(tmp_path: Path) -> None:
    report = put(tmp_path / "report.json", json.dumps(REPORT).encode())
    with pytest.raises(InputError, match=r"postrun report; this is a report; give the traces or the run store it was made from"):
        ingest([report])
    put(tmp_path / "a.json", TRACE)
    store = ingest([tmp_path])
    assert store.frame("SELECT format, events FROM source ORDER BY path DESC").row(0) == ("postrun report", 0)
    assert store.frame("SELECT severity FROM ingest_note WHERE code = 'format_not_read'").item() == "info"


def test_nothing_usable_lists_what_was_looked_at_and_what_is_read(tmp_path: Path) -> None:
    put(tmp_path / "picture.png", b"\x89PNG\r\n\x1a\n")
    put(tmp_path / "empty.json", b"")
    put(tmp_path / "x.nsys-rep", b"x")
    target = tmp_path / "run.duckdb"
    with pytest.raises(InputError, match="nothing usable found") as caught:
        ingest([tmp_path], target)
    text = str(caught.value)
    assert caught.value.exit_code == 4
    for part in ("picture.png: unknown format", "empty.json: empty file", "nsys export --type sqlite"):
        assert part in text
    assert "What is read" not in text  # the kind of the file was recognized
    assert not target.exists()


def test_what_is_read_is_listed_where_no_kind_of_a_file_was_told(tmp_path: Path) -> None:
    (tmp_path / "no").mkdir()
    for path in (tmp_path / "no", put(tmp_path / "picture.png", b"\x89PNG\r\n\x1a\n")):
        with pytest.raises(InputError, match=r"What is read: PyTorch profiler traces .* Give a file or folder of that kind"):
            ingest([path])
    with pytest.raises(InputError, match=r"empty\.bin: [^\n]*empty file\.\nWhat is read: "):
        ingest([put(tmp_path / "empty.bin", b"")])
    bad = put(tmp_path / "bad.json", b'{"schemaVersion": 1, "traceEvents": []}')
    with pytest.raises(InputError) as caught:
        ingest([bad, tmp_path / "picture.png"])
    assert "What is read" not in str(caught.value)
    assert "No format that is read" not in str(caught.value)


def tar(data: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("trace.json")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()


def zipped(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("trace.json", data)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("run.zip", zipped(TRACE), "zip archive; unpack it first, as with `unzip"),
        ("trace.json", zipped(TRACE), "zip archive; unpack it first"),
        ("log.xlsx", zipped(TRACE), "Excel workbook; save its sheet as CSV"),
        ("run.tar", tar(TRACE), "tar archive; unpack it first, as with `tar -xf"),
        ("run.tar.gz", gzip.compress(tar(TRACE)), "tar archive; unpack it first, as with `tar -xf"),
        ("trace.json.gz", gzip.compress(gzip.compress(TRACE)), "file compressed twice; unpack it once first"),
        ("trace.json.bz2", bz2.compress(TRACE), "bzip2 file; unpack it first, as with `bunzip2"),
        ("trace.json.xz", lzma.compress(TRACE), "xz file; unpack it first, as with `unxz"),
        ("trace.7z", b"7z\xbc\xaf\x27\x1c\x00\x04", "7z archive; unpack it first"),
        ("trace.json", TRACE.decode().encode("utf-16"), "JSON in UTF-16; save it as UTF-8, as with `iconv"),
        ("trace.json", TRACE.decode().encode("utf-16-be"), "JSON in UTF-16; save it as UTF-8, as with `iconv"),
    ],
)
def test_what_must_be_unpacked_first_is_told_by_its_first_bytes(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    path = put(tmp_path / "in" / name, content)
    for path_or_folder in (path, path.parent):
        with pytest.raises(InputError, match=f"{re.escape(name)}: {re.escape(expected)}"):
            ingest([path_or_folder])
    put(tmp_path / "in" / "a.json", TRACE)
    with ingest([tmp_path / "in"]) as store:  # next to a trace it may be anything
        notes = store.frame("SELECT code, severity, count FROM ingest_note WHERE code LIKE '%format%'").rows()
    of_an_input = ".json." in name or "UTF-16" in expected
    assert notes == [("format_not_read" if of_an_input else "unknown_format", "info", 1)]


def test_checkpoints_of_programs_are_no_archives(tmp_path: Path) -> None:
    assert format_of(put(tmp_path / "model.pt", zipped(b"weights"))) is None


def test_pipes_and_standard_input_are_to_be_written_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    reading, writing = os.pipe()
    try:
        for path in ("pipe", f"/dev/fd/{reading}", "-"):
            with pytest.raises(InputError, match="write it to a file first") as caught:
                ingest([path])
            assert "What is read" not in str(caught.value)
    finally:
        os.close(reading)
        os.close(writing)


def test_a_trace_without_events_is_not_usable_and_says_why(tmp_path: Path) -> None:
    target = tmp_path / "run.duckdb"
    with pytest.raises(InputError, match="holds no event that is read"):
        ingest([put(tmp_path / "a.json", b'{"schemaVersion": 1, "traceEvents": []}')], target)
    assert not target.exists()


def test_a_store_in_the_place_of_the_new_one_stays_where_nothing_is_found(tmp_path: Path) -> None:
    target = put(tmp_path / "run.duckdb", b"precious")
    with pytest.raises(InputError):
        ingest([put(tmp_path / "x.png", b"png")], target)
    assert target.read_bytes() == b"precious"


@pytest.mark.parametrize("url", ["https://example.org/trace.json", "ftp://x/y", "hdfs://x/y"])
def test_urls(url: str) -> None:
    with pytest.raises(UsageError, match=r"not a place that is read; give s3://"):
        ingest([url])


def test_paths_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere: no such file or folder"):
        ingest([tmp_path / "nowhere"])
    with pytest.raises(UsageError, match="an empty path was given"):
        ingest([""])
    with pytest.raises(UsageError, match="nothing given"):
        ingest([])


def test_unknown_files_among_known_ones_are_listed(tmp_path: Path) -> None:
    put(tmp_path / "a.json", TRACE)
    put(tmp_path / "x.png", b"png")
    put(tmp_path / "y.sqlite", b"SQLite format 3\0")
    os.mkfifo(tmp_path / "z")
    store = ingest([tmp_path])
    sources = dict(store.frame("SELECT parse_filename(path), format FROM source").iter_rows())
    assert sources == {"a.json": format_names.TRACE, "x.png": "unknown", "y.sqlite": "Nsight Systems export", "z": "unknown"}
    codes = store.frame("SELECT code FROM ingest_note WHERE code <> 'phase_not_read' ORDER BY code").to_series().to_list()
    assert codes == ["not_readable", "not_readable", "unknown_format"]


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a.json", TRACE)
    put(tmp_path / "secret.json", TRACE + b" ")
    original = Path.open

    def refusing(self: Path, *arguments: object, **options: object) -> object:
        if self.name == "secret.json":
            raise PermissionError(13, "Permission denied", str(self))
        return original(self, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refusing)
    store = ingest([tmp_path])
    assert store.frame("SELECT message FROM ingest_note WHERE code = 'not_readable'").item() == (
        "The file was left out: cannot be read (Permission denied)."
    )
    with pytest.raises(InputError, match="Permission denied"):
        ingest([tmp_path / "secret.json"])


def test_the_same_file_twice_is_read_once(tmp_path: Path) -> None:
    put(tmp_path / "a.json", TRACE)
    put(tmp_path / "b.json", TRACE)
    put(tmp_path / "c.json", TRACE.replace(b'"dur": 5', b'"dur": 6'))
    store = ingest([tmp_path, tmp_path / "a.json"])  # the second path leads to a file that is known: listed once
    assert store.frame("SELECT count(*) FROM host_event").item() == 2
    assert store.frame("SELECT file, message FROM ingest_note WHERE code = 'duplicate'").rows() == [
        ("b.json", "The same as a.json; read once.")
    ]
    assert store.frame("SELECT count(DISTINCT sha256), count(sha256), count(*) FROM source").row(0) == (2, 3, 3)


def test_timelines_of_two_machines_are_two_though_their_contents_are_equal(tmp_path: Path) -> None:
    for name in ("0/1700000000000014_0-algo-1", "0/1700000000000014_1-algo-2", "1/1700000000000014_0-algo-1"):
        put(tmp_path / f"framework/pevents/{name}_pythontimeline.json", PEVENTS)
    store = ingest([tmp_path])
    assert store.frame("SELECT hostname FROM node ORDER BY hostname").to_series().to_list() == ["algo-1", "algo-2"]
    assert store.frame("SELECT count(*) FROM step").item() == 2
    assert store.frame("SELECT count(*) FROM ingest_note WHERE code = 'duplicate'").item() == 1


def test_run_stores_are_opened_when_given_alone(tmp_path: Path) -> None:
    put(tmp_path / "traces" / "a.json", TRACE)
    target = tmp_path / "traces" / "run.duckdb"
    with ingest([tmp_path / "traces"], target, name="first") as store:
        assert store.path == target
    with ingest([target]) as store:
        assert summary(store)["run"]["name"] == "first"
    with pytest.raises(UsageError, match="is a run store already"):
        ingest([target, tmp_path / "traces" / "a.json"])
    with pytest.raises(UsageError, match="is a run store already"):
        ingest([target], tmp_path / "other.duckdb")
    with ingest([tmp_path / "traces"], target) as store:  # again, with the same target: the old store is not a source
        assert summary(store)["sources"] == {format_names.TRACE: 1}
    with ingest([tmp_path / "traces"]) as store:
        assert "run_store_left_out" in {note["code"] for note in summary(store)["notes"]}


def test_job_information_describes_the_run(tmp_path: Path) -> None:
    put(tmp_path / "a.json", TRACE)
    job = {
        "name": "gpt", "framework": "PyTorch 2.6", "instance_type": "8 x H100", "status": "failed", "hyperparameters": {"lr": 0.1},
        "labels": {"team": "a"}, "resources": ["arn:x"],
    }  # fmt: skip
    put(tmp_path / "job.json", json.dumps(job).encode())
    columns = "name, framework, instance_type, status, hyperparameters, labels, resources"
    assert ingest([tmp_path]).frame(f"SELECT {columns} FROM run").row(0) == (
        "gpt", "PyTorch 2.6", "8 x H100", "failed", '{"lr": 0.1}', '{"team": "a"}', '["arn:x"]',
    )  # fmt: skip
    assert ingest([tmp_path], name="mine").frame("SELECT name FROM run").item() == "mine"


@pytest.mark.parametrize(
    ("content", "codes"),
    [
        (b"{", ["job_not_read"]),
        (b"{}", []),
        (b"not json", ["job_not_read"]),
        (b"\xff\xfe", ["job_not_read"]),
        (b"", ["job_not_read"]),
        (b"[1]", ["job_not_read"]),
        (b'{"name": 3, "status": "odd", "labels": []}', ["job_field"] * 3),
        (b'{"nmae": "x", "\\ud800": 1}', ["job_field_unknown"]),
        (b"{" * 10_000, ["job_not_read"]),
    ],
)
def test_damaged_job_information_is_noted(tmp_path: Path, content: bytes, codes: list[str]) -> None:
    put(tmp_path / "traces" / "a.json", TRACE)
    put(tmp_path / "traces" / "job.json", content)
    store = ingest([tmp_path / "traces"])
    assert store.frame("SELECT name, status FROM run").row(0) == ("traces", "unknown")
    assert store.frame("SELECT code FROM ingest_note WHERE code LIKE 'job%'").to_series().to_list() == codes


def test_notes_on_job_information_say_why_and_what_to_do(tmp_path: Path) -> None:
    put(tmp_path / "a.json", TRACE)
    note = "SELECT file, severity, message, count FROM ingest_note WHERE code LIKE 'job%'"
    put(tmp_path / "job.json", b"not json")
    assert ingest([tmp_path]).frame(note).row(0) == (
        "job.json", "warning",
        "The job information was left out: it is not valid JSON (Expecting value: line 1 column 1 (char 0))."
        " Correct the file or remove it.",
        1,
    )  # fmt: skip
    put(tmp_path / "job.json", b'{"nmae": "x", "name": "y", "batch": 3}')
    assert ingest([tmp_path]).frame(note).row(0) == (
        "job.json", "info",
        "Members of the job information that are not known were left out: batch, nmae. Known are name, framework, instance_type, status,"
        " hyperparameters, labels, resources.",
        2,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (["r/a.pt.trace.json.gz"], "a"),
        (["r"], "r"),
        (["r/a.json", "r/b.json"], "r"),
        (["r/x/a.json", "r/y/b.json"], "r"),
        (["r/x", "r/y"], "r"),
    ],
)
def test_name_from_the_common_place(tmp_path: Path, paths: list[str], name: str) -> None:
    for file in ("r/a.json", "r/b.json", "r/x/a.json", "r/y/b.json", "r/a.pt.trace.json.gz"):
        put(
            tmp_path / file,
            TRACE + file.encode().replace(b"r", b" ").translate(None, b"abcdefghijklmnopqstuvwxyz./") + b" " * len(file),
        )
    assert ingest([tmp_path / path for path in paths]).frame("SELECT name FROM run").item() == name


def test_status_from_end_markers_and_damage(tmp_path: Path) -> None:
    status = "SELECT status FROM run"
    trace = put(tmp_path / "x" / "framework" / "a.json", TRACE)
    assert ingest([tmp_path]).frame(status).item() == "unknown"
    put(tmp_path / "x" / "framework" / "training_job_end.ts", b"")
    assert ingest([tmp_path]).frame(status).item() == "completed"
    trace.write_bytes(TRACE[:-1])
    assert ingest([tmp_path]).frame(status).item() == "partial"


def test_hosted_files_beside_traces(tmp_path: Path) -> None:
    put(tmp_path / "system/incremental/2023111422/1700000040.algo-1.json", METRIC)
    put(tmp_path / "framework/pevents/2023111422/1700000000000014_905-host_pythontimeline.json", PEVENTS)
    put(tmp_path / "a.json", TRACE)
    store = ingest([tmp_path])
    assert summary(store)["rows"] == {
        "device_event": 0, "host_event": 1, "annotation": 1, "step": 1, "sample": 1, "python_profile": 0, "compilation": 0,
    }  # fmt: skip
    assert store.frame("SELECT started_ns, ended_ns FROM run").row(0) == (1_700_000_000_000_000_000, 1_700_000_000_500_000_000)
    assert store.frame("SELECT sum(events)::BIGINT FROM source").item() == 3


def test_progress_rises_to_one(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        put(tmp_path / name, TRACE.replace(b"aten", name.encode()))
    progress: list[tuple[str, float | None]] = []
    ingest([tmp_path], progress=lambda text, fraction: progress.append((text, fraction)))
    fractions = [fraction for _, fraction in progress if fraction is not None]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert {text for text, _ in progress} >= {"reading a.json", "reading b.json"}
