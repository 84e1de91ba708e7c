"""An S3 inventory instead of a listing: the same runs with the same fingerprints, from CSV and Parquet."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import polars as pl
import pytest
from call_nightly import nightly, told
from postrun.errors import InputError
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import inventory
from small_s3 import SmallS3, small_s3
from swift_server import clean_environment

CSV = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass"
PARQUET = (
    "message s3.inventory { required binary bucket (STRING); required binary key (STRING); optional int64 size;"
    " optional int64 last_modified_date (TIMESTAMP(MILLIS,true)); optional binary e_tag (STRING); }"
)
NAMES = [
    "p/job b/trace-rank0.json",
    "p/job b/trace-rank1.json",
    "p/a+b/\u00fc.pt.trace.json",
    'p/x,"y/trace.json',
    "p/notes.txt",
    "other/trace.json",
]
WORDS = ["s3://runs/p", "--out", "s3://reports", "--settle", "0", "--dry-run"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallS3]:
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_CONFIG_FILE": "/dev/null"}
    with small_s3("runs", "reports", "lists") as started:
        clean_environment(monkeypatch, {**keys, "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_ENDPOINT_URL": started.endpoint})
        started.buckets["runs"] = {name: f'{{"traceEvents": [], "name": "{number}"}}'.encode() for number, name in enumerate(NAMES)}
        yield started


def put(server: SmallS3, date: str, data: dict[str, bytes], **manifest: Any) -> None:
    lists = server.buckets["lists"]
    lists.update({f"inv/runs/daily/data/{name}": content for name, content in data.items()})
    about = {"sourceBucket": "runs", "files": [{"key": f"inv/runs/daily/data/{name}"} for name in data], **manifest}
    lists[f"inv/runs/daily/{date}/manifest.json"] = json.dumps(about).encode()


def rows(server: SmallS3) -> list[dict[str, Any]]:
    listed = {f"{bucket}/{one.path}": one for bucket in ("runs",) for one in open_objects(f"s3://{bucket}").list()}
    return [
        {
            "bucket": "runs", "key": name.removeprefix("runs/"), "size": one.size, "e_tag": (one.etag or "").strip('"'),
            "last_modified_date": datetime.fromtimestamp(one.modified_ns / 1e9),
        }
        for name, one in reversed(listed.items())
    ]  # fmt: skip


def csv(server: SmallS3) -> bytes:
    lines = []
    for row in rows(server):
        size, etag = row["size"], row["e_tag"]
        lines.append(
            f'"runs","{quote_plus(row["key"], safe="/")}","v1","true","false","{size}","2026-11-20T06:00:00.000Z","{etag}","STANDARD"'
        )
    lines.append('"runs","p/job+b/trace-rank9.json","v0","false","false","7","2026-11-20T06:00:00.000Z","0f","STANDARD"')
    lines.append('"runs","p/job+b/trace-rank8.json","v0","true","true","","2026-11-20T06:00:00.000Z","","STANDARD"')
    return gzip.compress("\n".join(lines).encode())


def test_csv(server: SmallS3) -> None:
    put(server, "2026-11-19T01-00Z", {}, fileFormat="CSV", fileSchema=CSV)
    put(server, "2026-11-20T01-00Z", {"1.csv.gz": csv(server), "2.csv.gz": csv(server)}, fileFormat="CSV", fileSchema=CSV)
    by_listing = told(*WORDS)
    server.listed.clear()
    assert told(*WORDS, "--inventory", "s3://lists/inv/runs/daily/") == by_listing
    assert [run["id"] for run in by_listing["runs"]] == ["a+b", "job b", 'x,"y']
    assert "p/" not in {query["prefix"] for query in server.listed}
    assert told(*WORDS, "--inventory", "s3://lists/inv/runs/daily/2026-11-20T01-00Z/manifest.json") == by_listing


def test_parquet(server: SmallS3) -> None:
    file = io.BytesIO()
    pl.DataFrame(rows(server)).with_columns(pl.col("last_modified_date").dt.replace_time_zone("UTC")).write_parquet(file)
    put(server, "2026-11-20T01-00Z", {"1.parquet": file.getvalue()}, fileFormat="Parquet", fileSchema=PARQUET)
    by_listing = told(*WORDS)
    assert told(*WORDS, "--inventory", "s3://lists/inv/runs/daily") == by_listing


def test_names_that_no_file_can_have(server: SmallS3) -> None:
    line = '"runs","p/..%2Fx/trace.json","v1","true","false","7","2026-11-20T06:00:00.000Z","0f","STANDARD"\n'
    put(server, "2026-11-20T01-00Z", {"1.csv.gz": gzip.compress(line.encode())}, fileFormat="CSV", fileSchema=CSV)
    source = open_objects("s3://runs/p")
    assert list(inventory.listing("s3://lists/inv/runs/daily", source)) == []
    assert source.left_out == ["s3://runs/p/../x/trace.json: a part . or .. in the name"]


def test_a_name_longer_than_any_store_has(server: SmallS3) -> None:
    file = io.BytesIO()
    (row,) = rows(server)[:1]
    table = pl.DataFrame([{**row, "key": "p/" + 200_000 * "a"}]).with_columns(pl.col("last_modified_date").dt.replace_time_zone("UTC"))
    table.write_parquet(file)
    put(server, "2026-11-20T01-00Z", {"1.parquet": file.getvalue()}, fileFormat="Parquet", fileSchema=PARQUET)
    source = open_objects("s3://runs/p")
    assert list(inventory.listing("s3://lists/inv/runs/daily", source)) == []
    (left,) = source.left_out
    assert left.endswith(": a name longer than 1024 bytes")


def test_a_manifest_that_no_parser_can_read(server: SmallS3) -> None:
    server.buckets["lists"]["inv/runs/daily/2026-11-20T01-00Z/manifest.json"] = b"[" * 100_000
    with pytest.raises(InputError, match="not a manifest of an S3 inventory"):
        list(inventory.listing("s3://lists/inv/runs/daily", open_objects("s3://runs/p")))


def test_names_in_order_and_names_that_are_not_utf_8(server: SmallS3) -> None:
    names = ["z", "a", "a/b", "a-", "\U0001f600", "\ufffd", "B", 'q"u', "new%0Aline", "100%25", "x+y", "%FF", "u%CC%88", "a"]
    line = '"runs","p/{}","v1","true","false","7","2026-11-20T06:00:00.125Z","0f","STANDARD"\n'
    text = "".join(line.format(name.replace('"', '""')) for name in names)
    put(server, "2026-11-20T01-00Z", {"1.csv": text.encode()}, fileFormat="CSV", fileSchema=CSV)
    source = open_objects("s3://runs/p")
    listed = list(inventory.listing("s3://lists/inv/runs/daily", source))
    assert [one.path for one in listed] == ["100%", "B", "a", "a-", "a/b", 'q"u', "u\u0308", "x y", "z", "\ufffd", "\U0001f600"]
    assert {(one.size, one.etag, one.modified_ns) for one in listed} == {(7, '"0f"', 1_795_154_400_125_000_000)}
    assert source.left_out == ["s3://runs/p/%FF: a name that is not UTF-8", "s3://runs/p/new\\nline: a control character in the name"]


def line(name: str, size: int = 7, written: str = "2026-11-20T06:00:00.000Z") -> str:
    return f'"runs","p/{name}","v1","true","false","{size}","{written}","0f","STANDARD"\n'


def listed(server: SmallS3, data: bytes, **manifest: Any) -> list[tuple[str, int]]:
    """The paths and sizes of an inventory with one file."""
    put(server, "2026-11-20T01-00Z", {"1": data}, **{"fileFormat": "CSV", "fileSchema": CSV, **manifest})
    return [(one.path, one.size) for one in inventory.listing("s3://lists/inv/runs/daily", open_objects("s3://runs/p"))]


def test_the_newest_row_of_a_key_counts(server: SmallS3) -> None:
    text = line("a") + line("a", 9, "2026-11-21T06:00:00.000Z") + line("a", 8)
    assert listed(server, text.encode()) == [("a", 9)]
    assert listed(server, gzip.compress(line("a").encode()) + gzip.compress(line("b", 8).encode())) == [("a", 7), ("b", 8)]


def test_versions_that_are_not_known_to_be_old_count(server: SmallS3) -> None:
    flags = {"a": (None, None), "b": (True, False), "c": (False, False), "d": (True, True), "e": (True, None)}
    (row,) = rows(server)[:1]
    table = pl.DataFrame([{**row, "key": f"p/{key}", "is_latest": of[0], "is_delete_marker": of[1]} for key, of in flags.items()])
    file = io.BytesIO()
    table.with_columns(pl.col("last_modified_date").dt.replace_time_zone("UTC"), e_tag=pl.lit(200_000 * "f")).write_parquet(file)
    schema = PARQUET.replace("}", "optional boolean is_latest; optional boolean is_delete_marker; }")
    assert [path for path, _ in listed(server, file.getvalue(), fileFormat="Parquet", fileSchema=schema)] == ["a", "b", "e"]


def test_checksums_of_the_manifest(server: SmallS3) -> None:
    def of(data: bytes, md5: str) -> list[tuple[str, int]]:
        return listed(server, data, files=[{"key": "inv/runs/daily/data/1", "size": len(data), "MD5checksum": md5}])

    text = (line("a") + line("b")).encode()
    md5 = hashlib.md5(text, usedforsecurity=False).hexdigest()
    assert of(text, md5) == of(text, md5.upper()) == [("a", 7), ("b", 7)]
    with pytest.raises(InputError, match=r"data/1 is damaged, or not that of the manifest"):
        of(line("a").encode(), md5)


def test_an_old_inventory_is_named(server: SmallS3) -> None:
    for days, old in ((8, False), (30, True)):
        written = datetime.now(UTC) - timedelta(days=days)
        text = gzip.compress(line("a").encode())
        put(
            server, "2026-11-20T01-00Z", {"1": text}, fileFormat="CSV", fileSchema=CSV,
            creationTimestamp=str(int(written.timestamp() * 1000)),
        )  # fmt: skip
        source = open_objects("s3://runs/p")
        assert [one.path for one in inventory.listing("s3://lists/inv/runs/daily", source)] == ["a"]
        note = f"s3://lists/inv/runs/daily: an inventory of {written:%Y-%m-%d}, without the objects written since"
        assert source.left_out == ([f"{note}; check that S3 still writes it"] if old else [])


def test_a_full_disk(server: SmallS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "_SETTINGS", {**inventory._SETTINGS, "memory_limit": "8MB", "max_temp_directory_size": "0KB"})
    text = "".join(line(f"{number * 7919 % 100_003}{200 * 'x'}") for number in range(100_000))
    with pytest.raises(InputError, match=r"cannot be sorted in .*; free some space, or set TMPDIR"):
        listed(server, text.encode())


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (None, "there is no manifest.json"),
        ({"fileFormat": "ORC", "fileSchema": "struct<bucket:string>"}, "an inventory as ORC"),
        ({"fileFormat": "CSV", "fileSchema": "Bucket, Key, Size"}, "without last_modified_date, e_tag"),
        ({"fileFormat": "CSV"}, "not a manifest"),
        ({"fileFormat": "CSV", "fileSchema": CSV, "sourceBucket": "others"}, "an inventory of the bucket others"),
        ({"fileFormat": "CSV", "fileSchema": CSV, "files": [{"key": "gone.csv.gz"}]}, "gone.csv.gz is missing"),
        ({"fileFormat": "CSV", "fileSchema": CSV, "files": [{"key": "damaged.csv"}]}, "damaged.csv cannot be read"),
        ({"fileFormat": "CSV", "fileSchema": CSV, "files": [{"key": "empty.csv"}]}, "s3://runs/p/a has no size or date"),
        ({"fileFormat": "CSV", "fileSchema": CSV, "files": [{"key": "negative.csv"}]}, "s3://runs/p/a has no size or date"),
        ({"fileFormat": "CSV", "fileSchema": CSV, "files": [{"key": "packed.csv.gz"}]}, "packed.csv.gz cannot be read"),
        ({"fileFormat": "CSV", "fileSchema": CSV, "files": [{"key": "short.csv"}]}, "short.csv cannot be read"),
        ({"fileFormat": "CSV", "fileSchema": CSV, "files": [{"key": "latin.csv"}]}, "latin.csv cannot be read"),
        ({"fileFormat": "CSV", "fileSchema": CSV, "files": [{"key": "../x"}]}, "a part . or .. in the name"),
        ({"fileFormat": "Parquet", "fileSchema": PARQUET, "files": [{"key": "damaged.csv"}]}, "damaged.csv cannot be read"),
    ],
)
def test_inventories_that_cannot_be_used(server: SmallS3, manifest: dict[str, Any] | None, message: str) -> None:
    server.buckets["lists"]["damaged.csv"] = b'"runs","p/a","v","true","false","seven","2026-11-20T06:00:00.000Z","0f","STANDARD"'
    server.buckets["lists"]["negative.csv"] = b'"runs","p/a","v","true","false","-7","2026-11-20T06:00:00.000Z","0f","STANDARD"'
    server.buckets["lists"]["empty.csv"] = b'"runs","p/a","v","true","false","","2026-11-20T06:00:00.000Z","0f","STANDARD"'
    server.buckets["lists"]["short.csv"] = b'"runs","p/a","7"\n'
    server.buckets["lists"]["latin.csv"] = line("\u00fc").encode("latin-1")
    server.buckets["lists"]["packed.csv.gz"] = gzip.compress(b"x" * 1000)[:-20]
    if manifest is not None:
        put(server, "2026-11-20T01-00Z", {}, **manifest)
    done = nightly(*WORDS, "--inventory", "s3://lists/inv/runs/daily")
    assert (done.exit_code, message in done.output) == (4, True), done.output


def test_a_local_source_has_no_inventory(server: SmallS3, tmp_path: Path) -> None:
    done = nightly(tmp_path, "--out", tmp_path / "out", "--inventory", "s3://lists/inv/runs/daily", "--dry-run")
    assert (done.exit_code, "inventories are those of S3" in done.output) == (4, True)
