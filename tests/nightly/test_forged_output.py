"""A user who can write below --out, but not to the source, can do no more than replace the reports there."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import call_nightly
import polars as pl
import pytest
import small_runs as small
from postrun.ingest.object_store.objects import ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import done_markers, partials, places
from postrun.nightly import index as indexes
from postrun.nightly import table as tables
from postrun.nightly.claims import Claims
from postrun.nightly.index import Book
from postrun.nightly.model import Row, Task
from postrun.nightly.page import index_page
from postrun.nightly.work import report_run

SECRET = "SECRET_OF_THE_READER"
HEX = "0123456789abcdef"


def write_small(folder: Path, ranks: int = 1) -> None:
    """A trace per rank, with a launch and a kernel."""
    folder.mkdir(parents=True)
    at = 1_700_000_000_000_000
    for rank in range(ranks):
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 10, "dur": 5, "args": {"correlation": 1}}
        kernel = {"cat": "kernel", "name": "mm", "ts": at + 50, "dur": 20, "args": {"correlation": 1, "device": rank, "stream": 7}}
        events = [{"ph": "X", "pid": 5 + rank, "tid": 5, **event} for event in (launch, kernel)]
        head = {"host_name": "node", "distributedInfo": {"rank": rank, "world_size": ranks}}
        (folder / f"trace_rank{rank}.json").write_text(json.dumps({**head, "traceEvents": events}))


def row(**more: Any) -> dict[str, Any]:
    plain = Row(
        id="run", state="reported", kind="traces", fingerprint=HEX * 4, options=HEX[:12], bytes=1, files=1,
        folder=f"runs/run/{HEX}-{HEX[:12]}", written=("report.html", "report.json"), name="job",
    )  # fmt: skip
    return plain.to_json() | more


def marked(out: Path, data: bytes) -> None:
    file = out / "runs" / "run" / "done.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


FORGED: dict[str, bytes] = {
    "deep": b"[" * 200_000,
    "deep row": b'{"id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "huge": json.dumps(row(reason="x" * (5 << 20))).encode(),
    "folder of another run": json.dumps(row(folder=f"runs/secret/{HEX}-{HEX[:12]}")).encode(),
    "folder above": json.dumps(row(folder="runs/run/../../../etc")).encode(),
    "folder of another host": json.dumps(row(folder="//evil.example/x")).encode(),
    "folder as script": json.dumps(row(folder="javascript:alert(1)")).encode(),
    "file above": json.dumps(row(written=["../../../../etc/report.html"])).encode(),
    "file of another host": json.dumps(row(written=["//evil.example/report.html"])).encode(),
    "kind": json.dumps(row(kind="<b>")).encode(),
    "another run": json.dumps(row(id="other")).encode(),
    "many rules": json.dumps(row(verdicts={f"Rule{i}": "IssuesFound" for i in range(5000)})).encode(),
    "number": b"7",
    "bytes": b"\xff\x00",
    "text as list": json.dumps(row(written="report.html")).encode().replace(b'"report.html"', b"5"),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_marker_counts_as_none_and_is_named(tmp_path: Path, forged: bytes) -> None:
    marked(tmp_path, forged)
    out = open_objects(tmp_path)
    book = Book()
    assert book.known(out) == {}
    assert [line.partition(": ")[0] for line in book.refused] == [str(tmp_path / "runs" / "run" / "done.json")]
    assert done_markers.read_row(out, "run") is None
    book.write(out, {})
    page = (tmp_path / "index.html").read_text()
    assert "evil.example" not in page
    assert "javascript:alert" not in page


def test_an_honest_marker_counts(tmp_path: Path) -> None:
    marked(tmp_path, json.dumps(row()).encode())
    book = Book()
    assert list(book.known(open_objects(tmp_path))) == ["run"]
    assert book.refused == []


NUMBERS = [name for name, value in Row.__dataclass_fields__.items() if value.type in ("int", "float", "int | None", "float | None")]


@pytest.mark.parametrize("value", [-(2**63), -1, 0, 2**63 - 1])
def test_the_index_bears_any_number(tmp_path: Path, value: int) -> None:
    for position, name in enumerate(NUMBERS):
        run_id = f"run{position}"
        file = tmp_path / places.done(run_id)
        file.parent.mkdir(parents=True)
        forged = row(id=run_id, folder=f"runs/{run_id}/{HEX}-{HEX[:12]}", step_median_ns=100, started_ns=position)
        file.write_text(json.dumps(forged | {name: value}))
    out = open_objects(tmp_path)
    book = Book()
    rows = book.known(out)
    assert len(rows) == len(NUMBERS)
    assert book.write(out, rows).total == len(NUMBERS)


def test_rows_of_a_forged_table_are_checked_as_markers_are(tmp_path: Path) -> None:
    marked(tmp_path, json.dumps(row()).encode())
    out = open_objects(tmp_path)
    book = Book()
    book.write(out, book.known(out))
    table = pl.read_parquet(tmp_path / "index.parquet")
    forged = table.with_columns(folder=pl.lit("//evil.example/x"), name=pl.lit("forged"))
    data = io.BytesIO()
    forged.write_parquet(data, metadata={"postrun.index": "1"})
    (tmp_path / "index.parquet").write_bytes(data.getvalue())
    again = Book()
    known = again.known(open_objects(tmp_path))
    assert (known["run"].name, known["run"].folder) == ("job", row()["folder"])


def repeated(table: pl.DataFrame) -> pl.DataFrame:
    """A short file with 100 MB of texts."""
    return pl.concat([table] * 100).with_columns(reason=pl.lit("x" * 1_000_000))


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.with_columns(bytes=pl.col("bytes").cast(pl.String)),
        lambda table: table.drop("written"),
        lambda table: table.with_columns(verdicts=pl.lit(5)),
        repeated,
    ],
    ids=["type", "column", "verdicts", "many texts"],
)
def test_a_table_that_is_not_ours_is_no_cache(
    tmp_path: Path, change: Callable[[pl.DataFrame], pl.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_MOST_BYTES", 50_000_000)
    marked(tmp_path, json.dumps(row()).encode())
    out = open_objects(tmp_path)
    book = Book()
    book.write(out, book.known(out))
    forged = change(pl.read_parquet(tmp_path / "index.parquet"))
    data = io.BytesIO()
    forged.write_parquet(data, metadata={"postrun.index": "1"})
    assert len(data.getvalue()) < 1_000_000
    (tmp_path / "index.parquet").write_bytes(data.getvalue())
    known = indexes.read_known(open_objects(tmp_path), None)
    assert known.kept.markers == {}
    assert [one.name for one in known.rows.values()] == ["job"]


# -- claims ------------------------------------------------------------------------------------------------------------------


def claim(**more: Any) -> bytes:
    return json.dumps({"night": "other", "host": "elsewhere", "pid": 7, "expires_ns": time.time_ns() + 60 * 10**9} | more).encode()


@pytest.mark.parametrize(
    "data",
    [b"[" * 200_000, claim() + b" " * 5000, claim(expires_ns=2**62), claim(expires_ns=True), claim(expires_ns="x"), b"\xff"],
    ids=["deep", "long", "for ever", "true", "text", "bytes"],
)
def test_a_forged_claim_is_free(tmp_path: Path, data: bytes) -> None:
    path = places.claim("run")
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_bytes(data)
    with Claims(open_objects(tmp_path)) as claims:
        assert claims.take(path)
    assert not (tmp_path / path).exists()


def test_the_holder_of_a_claim_is_one_line(tmp_path: Path) -> None:
    path = places.claim("run")
    (tmp_path / path).parent.mkdir(parents=True)
    with Claims(open_objects(tmp_path)) as claims:
        for host, owner in (("a\x1b]0;t\x07", "an unknown process"), ("<b>\n", "an unknown process"), ("node-3", "process 7 on node-3")):
            (tmp_path / path).write_bytes(claim(host=host))
            assert not claims.take(path)
            assert claims.holder(path) == owner


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_something_else_in_the_place_of_a_claim_does_not_end_the_night(tmp_path: Path, kind: str) -> None:
    if kind == "link" and os.geteuid() != 0:
        pytest.skip("only root can make links of another user")
    source, out = tmp_path / "source", tmp_path / "out"
    write_small(source / "run")
    for path in (out / places.claim("run"), out / "index.claim.json"):
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(tmp_path / "elsewhere")
            os.lchown(path, 12345, 12345)
    done = call_nightly.nightly(source, "--out", out, "--engine", "none", "--settle", "0", "--format", "json", "--rules", "StepOutlier")
    assert done.exit_code == 0, done.output
    assert json.loads((out / "runs" / "run" / "done.json").read_text())["state"] == "reported"
    assert not (tmp_path / "elsewhere").exists()


def test_the_lock_of_a_folder_is_no_link(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".postrun-lock").symlink_to(tmp_path / "made")
    with pytest.raises(ObjectStoreError, match="a link, which is not followed"):
        open_objects(out).write("x", b"data")
    assert not (tmp_path / "made").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make links of another user")
def test_links_of_other_users_lead_nowhere(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    (out / "runs").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "report.json").write_text(SECRET)
    link = out / "runs" / "run"
    link.symlink_to(elsewhere)
    store = open_objects(out)
    assert store.read("runs/run/report.json").decode() == SECRET  # of the administrator
    os.lchown(link, 12345, 12345)
    for use in (
        lambda: store.read("runs/run/report.json"),
        lambda: store.write("runs/run/done.json", b"{}"),
        lambda: store.create("runs/run/claim.json", b"{}"),
        lambda: store.delete("runs/run/report.json"),
    ):
        with pytest.raises(ObjectStoreError, match="link of another user"):
            use()
    assert [path.name for path in elsewhere.iterdir()] == ["report.json"]


# -- parts -------------------------------------------------------------------------------------------------------------------


def precious(tmp_path: Path) -> Path:
    file = tmp_path / "precious.parquet"
    pl.DataFrame({"text": [SECRET]}).write_parquet(file)
    return file


def _delete(marker: dict[str, Any], file: Path) -> None:
    marker["files"][0]["read"]["tables"]["spill"] = str(file)


def _read_above(marker: dict[str, Any], file: Path) -> None:
    marker["files"][0]["read"]["tables"]["name"] = os.path.relpath(file, "/a/b").replace("../..", "../../../../../../../../../../..")


def _read(marker: dict[str, Any], file: Path) -> None:
    marker["files"][0]["read"]["tables"]["name"] = str(file)


def _fetch(marker: dict[str, Any], file: Path) -> None:
    marker["tables"][f"../../../../{file.name}"] = file.stat().st_size
    marker["prefix"] = ""


def _statement(marker: dict[str, Any], file: Path) -> None:
    text = file.with_suffix(".txt")
    text.write_text(SECRET)
    column = f"first_ns\") SELECT ?, ?, (SELECT 1 FROM read_text('{text}')); --"
    marker["files"][0]["read"]["windows"] = [{column: 1}]


def _types(marker: dict[str, Any], file: Path) -> None:
    marker["files"][0]["read"]["result"]["events"] = "many"


def _device(marker: dict[str, Any], file: Path) -> None:
    marker["files"][0]["read"]["devices"] = [{"index": 0, "name = (SELECT content FROM read_text('/etc/passwd')), name": "x"}]


@pytest.mark.slow
@pytest.mark.parametrize("change", [_delete, _read_above, _read, _fetch, _statement, _types, _device], ids=lambda one: one.__name__)
def test_a_forged_part_reads_and_removes_nothing_and_is_made_again(tmp_path: Path, change: Callable[[dict[str, Any], Path], None]) -> None:
    source, out, file = tmp_path / "source", tmp_path / "out", precious(tmp_path)
    write_small(source / "run")
    task = _task(source, out)
    part = partials.parts(task, 1)[0]
    partials.read_part(part)
    marker = out / part.marker
    content = json.loads(marker.read_text())
    change(content, file)
    marker.write_text(json.dumps(content))
    with pytest.raises(ObjectStoreError, match="is damaged, and was removed"):
        partials.report_parts(task, 1)
    assert file.exists()
    assert not marker.exists()
    partials.read_part(part)
    row = partials.report_parts(task, 1)
    assert row.state == "reported"
    assert SECRET.encode() not in (out / str(row.folder) / "report.json").read_bytes()


def test_parts_that_others_replaced_are_read_again(tmp_path: Path) -> None:
    """After an error in a replaced table, the next attempt reads the files."""
    from concurrent.futures import Executor, Future

    class Here(Executor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
            future: Future[Any] = Future()
            try:
                if fn is partials.report_parts and not self.seen:
                    self.seen = True
                    for table in (tmp_path / "out").rglob("*.parquet"):
                        table.write_bytes(b"x" * table.stat().st_size)
                future.set_result(fn(*args, **named))
            except Exception as error:
                future.set_exception(error)
            return future

        seen = False

    source, out = tmp_path / "source", tmp_path / "out"
    write_small(source / "run", ranks=2)
    task = _task(source, out)
    splitting = partials.Splitting(Here(), 1)
    first: Row = splitting.submit(report_run, task).result(60)
    assert first.state == "failed"
    assert not list(out.rglob("*.parquet"))
    second: Row = splitting.submit(report_run, replace(task, attempt=2)).result(60)
    assert second.state == "reported"


def _task(source: Path, out: Path) -> Task:
    return small.task_of(small.found_below(str(source))[0], str(source), str(out), formats=("json",))


def test_the_page_shows_forged_texts_as_texts(tmp_path: Path) -> None:
    text = '"><script>alert(1)</script>'
    marked(tmp_path, json.dumps(row(name=text, headline=text, gpu_name=text, gpus=1, warnings=[text], labels={text: text})).encode())
    out = open_objects(tmp_path)
    book = Book()
    page = index_page(book.write(out, book.known(out)))
    assert "<script>alert(1)" not in page
