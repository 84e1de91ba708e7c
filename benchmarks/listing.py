"""A listing of a million objects of an S3 bucket, or an inventory of them, and the search for runs in it: processor time, memory.

    .venv/bin/python benchmarks/listing.py [--objects 1000000] [--latency 0.1] [--profile] [--shards 8] [--layout dates]
                                           [--inventory CSV|Parquet]

A server in a process of its own, on loopback, makes the pages of ListObjectsV2 as they are requested: 60% of the objects are the traces of
runs (8 each), the rest checkpoints, logs of the training and other files next to them. ``plan`` of a night lists all, as in the first night
(no run is known) and as in the next ones (all are known and unchanged). Each is measured in a process of its own. With ``--shards N`` the
first night is divided into N shards, and each is measured. ``--layout``: the folders of the runs; ``dates``, ``projects`` (40 projects), or
``large`` (runs with 1,400 objects each, without folders above them). Each run was written at another time, its files within some seconds.
``--inventory``: four files with all rows in random order, as S3 writes them for a bucket without versions.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

ROWS = Path("rows.json")  # below the temporary folder of the benchmark
PER_RUN = 14
NAMES = sorted(
    [f"trace-rank{rank}.pt.trace.json.gz" for rank in range(8)]
    + ["checkpoints/epoch-1/model.safetensors", "checkpoints/epoch-1/optimizer.pt", "checkpoints/epoch-2/model.safetensors", "job.json"]
    + ["stdout.txt", "tensorboard/events.out.tfevents.1"]
)
assert len(NAMES) == PER_RUN
RUNS_PER_DAY = 100
LISTS = "lists"  # bucket of the inventory
INVENTORY_FILES = 4


def key(number: int, layout: str = "dates") -> str:
    """Return the key of the object with this number."""
    run, file = divmod(number, PER_RUN)
    if layout == "projects":
        return f"runs/team-{run % 5}/project-{run // 5 % 8}/resnet-{run // 40:05}/{NAMES[file]}"
    if layout == "large":
        return f"runs/resnet-{run // 100:04}/rank{run % 100}/{NAMES[file]}"
    day, of_day = divmod(run, RUNS_PER_DAY)
    return f"runs/{2024 + day // 360}/{day // 30 % 12 + 1:02}/{day % 30 + 1:02}/resnet-{of_day:03}/{NAMES[file]}"


def written(at: int) -> datetime:
    """Return when the object at this place in the order of names was written."""
    run, file = divmod(at, PER_RUN)
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=run, seconds=file // 4)


def etag(at: int) -> str:
    return hashlib.md5(b"%d" % at, usedforsecurity=False).hexdigest()


def inventory(keys: list[str], kind: str) -> dict[str, bytes]:
    """Return the files of an inventory, and its manifest, by key."""
    import polars as pl

    order = list(range(len(keys)))
    random.Random(1).shuffle(order)
    schema = "Bucket, Key, Size, LastModifiedDate, ETag, StorageClass"
    if kind != "CSV":
        schema = "message s3.inventory { required binary bucket (STRING); required binary key (STRING); optional int64 size;" \
            " optional int64 last_modified_date (TIMESTAMP(MILLIS,true)); optional binary e_tag (STRING); }"  # fmt: skip
    files = {}
    for number in range(INVENTORY_FILES):
        part = order[number::INVENTORY_FILES]
        rows = pl.DataFrame({
            "bucket": ["bucket"] * len(part), "key": [keys[at] for at in part], "size": [1000 + at for at in part],
            "last_modified_date": [written(at) for at in part], "e_tag": [etag(at) for at in part],
            "storage_class": ["STANDARD"] * len(part),
        })  # fmt: skip
        rows = rows.with_columns(pl.col("last_modified_date").cast(pl.Datetime("ms", "UTC")))
        file = io.BytesIO()
        if kind == "CSV":
            text = rows.write_csv(include_header=False, quote_style="always", datetime_format="%Y-%m-%dT%H:%M:%S%.3fZ")
            file.write(gzip.compress(text.encode(), 6))
        else:
            rows.write_parquet(file)
        files[f"data/{number}.{kind.lower()}"] = file.getvalue()
    about = {"sourceBucket": "bucket", "fileFormat": kind, "fileSchema": schema, "files": [{"key": name} for name in files]}
    return {**files, "manifest.json": json.dumps(about).encode()}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    keys: ClassVar[list[str]] = []
    files: ClassVar[dict[str, bytes]] = {}
    latency_s: ClassVar[float] = 0.0

    def do_HEAD(self) -> None:
        body = self.files[urlsplit(self.path).path.removeprefix(f"/{LISTS}/")]
        size, wanted = len(body), re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        version = f'"{zlib.crc32(body):08x}"'
        if wanted:
            first, last = int(wanted[1]), min(int(wanted[2] or size), size - 1)
            body = body[first : last + 1]
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", version)
        self.send_header("Last-Modified", "Fri, 20 Nov 2026 06:00:00 GMT")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_GET(self) -> None:
        time.sleep(self.latency_s)
        if self.path.startswith(f"/{LISTS}/"):
            self.do_HEAD()
            return
        query = parse_qs(urlsplit(self.path).query)
        prefix, most = query["prefix"][0], int(query["max-keys"][0])
        delimiter, after = query.get("delimiter", [""])[0], query.get("start-after", [""])[0]
        at = max(bisect_right(self.keys, after), bisect_left(self.keys, prefix))
        parts: list[str] = []
        while at < len(self.keys) and self.keys[at].startswith(prefix) and len(parts) < most:
            cut = self.keys[at].find(delimiter, len(prefix)) if delimiter else -1
            if cut >= 0:
                folder = self.keys[at][: cut + 1]
                parts.append(f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>")
                at = bisect_left(self.keys, folder + "\U0010ffff")
            else:
                parts.append(
                    f"<Contents><Key>{self.keys[at]}</Key><LastModified>{written(at):%Y-%m-%dT%H:%M:%S}.000Z</LastModified>"
                    f"<ETag>&quot;{etag(at)}&quot;</ETag><Size>{1000 + at}</Size><StorageClass>STANDARD</StorageClass></Contents>"
                )
                at += 1
        more = at < len(self.keys) and self.keys[at].startswith(prefix)
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>'
            f"<IsTruncated>{str(more).lower()}</IsTruncated><EncodingType>url</EncodingType>{''.join(parts)}</ListBucketResult>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


def serve(objects: int, latency_s: float, layout: str, kind: str | None) -> None:
    Handler.latency_s = latency_s
    Handler.keys = sorted(key(number, layout) for number in range(objects))
    if kind is not None:
        Handler.files = inventory(Handler.keys, kind)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


def measure(known: bool, profile: bool, shard: tuple[int, int] | None, from_inventory: bool) -> None:
    from postrun.ingest.object_store import listing
    from postrun.ingest.object_store.open import open_objects
    from postrun.nightly import night as nights
    from postrun.nightly import places
    from postrun.nightly.model import ReportOptions, Row
    from postrun.nightly.night import Wanted

    options = ReportOptions()
    source, out = open_objects("s3://bucket/runs"), open_objects("memory://out")
    lists = f"s3://{LISTS}/manifest.json" if from_inventory else None
    wanted = Wanted("s3://bucket/runs", "memory://out", options, now_ns=time.time_ns() + 10**15, settle_ns=1, shard=shard, inventory=lists)
    requests = []
    page = listing.Lister._get
    listing.Lister._get = lambda self, query: requests.append(query) or page(self, query)  # type: ignore[method-assign,func-returns-value]
    rows: dict[str, Row] = {}
    if known:
        # Only what decides about a run; found out by a first plan in another process.
        digest = places.options_digest(options)
        rows = {
            name: Row(id=name, state="reported", kind="traces", fingerprint=fingerprint, options=digest, bytes=0, files=0)
            for name, fingerprint in json.loads(ROWS.read_text()).items()
        }
    before, held = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    profiler = None
    if profile:
        import cProfile

        profiler = cProfile.Profile()
        profiler.enable()
    night = nights.plan(source, out, wanted, rows)
    if profiler is not None:
        import pstats

        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    what = "all known" if known else "first night" if shard is None else f"shard {shard[0]}/{shard[1]}"
    print(
        f"{what}: {len(requests)} requests, {time.process_time() - before:.1f} s processor, {time.monotonic() - began:.1f} s wall,"
        f" peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB ({held >> 10} MiB before), {night.runs_found} runs,"
        f" {sum(one.due for one in night.decisions)} due"
    )
    if not known and shard is None:
        ROWS.write_text(json.dumps({one.run.id: one.run.fingerprint for one in night.decisions}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--shards", type=int)
    parser.add_argument("--layout", choices=("dates", "projects", "large"), default="dates")
    parser.add_argument("--inventory", choices=("CSV", "Parquet"))
    parser.add_argument("--shard", type=int)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--measure", choices=("first", "known"))
    options = parser.parse_args()
    if options.serve:
        serve(options.objects, options.latency, options.layout, options.inventory)
        return
    if options.measure:
        shard = None if options.shard is None else (options.shard, options.shards)
        measure(options.measure == "known", options.profile, shard, options.inventory is not None)
        return
    me = Path(__file__).resolve()
    environment = {name: value for name, value in os.environ.items() if not re.match(r"AWS_|.*_proxy$", name, re.IGNORECASE)}
    words = [
        sys.executable, "-P", str(me), "--objects", str(options.objects), "--latency", str(options.latency), "--layout", options.layout,
        *([] if options.inventory is None else ["--inventory", options.inventory]),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen([*words, "--serve"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        environment |= {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }  # fmt: skip
        try:
            more = ["--profile"] if options.profile else []
            for number in range(options.shards or 0):
                of_shard = ["--measure", "first", "--shard", str(number), "--shards", str(options.shards), *more]
                subprocess.run([*words, *of_shard], check=True, env=environment, cwd=folder)
            for which in ("first", "known"):
                subprocess.run([*words, "--measure", which, *more], check=True, env=environment, cwd=folder)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
