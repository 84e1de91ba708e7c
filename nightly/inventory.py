"""An inventory of S3 instead of a listing: the newest manifest below a URL -> the objects of a source, in order.

S3 writes inventories daily or weekly as CSV or Parquet files, with a manifest.json that names them. A change since then is noticed when a
run is read, as after a listing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote_plus

import polars as pl

from .. import temporary
from ..errors import InputError
from ..ingest.object_store.objects import ObjectInfo, Objects
from ..ingest.object_store.open import open_objects
from ..ingest.object_store.paths import is_ours, problem
from ..ingest.object_store.urls import parse

_MANIFEST: Final = re.compile(r"(?:.*/)?\d{4}-\d\d-\d\dT\d\d-\d\dZ/manifest\.json")
_MOST_MANIFEST: Final = 16 << 20
_COLUMNS: Final = {
    "Bucket": "bucket", "Key": "key", "Size": "size", "LastModifiedDate": "last_modified_date", "ETag": "e_tag", "IsLatest": "is_latest",
    "IsDeleteMarker": "is_delete_marker",
}  # fmt: skip
_NEEDED: Final = ("key", "size", "last_modified_date", "e_tag")
_ROWS: Final = 10_000


def listing(url: str, source: Objects) -> Iterator[ObjectInfo]:
    """Yield the objects of a source that an inventory contains, in order.

    Raise InputError for an inventory that cannot be used.
    ``url``: of a manifest.json, or a folder of dated inventories. ``source``: in a bucket of S3."""
    if not all(place.startswith(("s3://", "s3a://")) for place in (source.url, url)):
        raise InputError(f"--inventory {url}: inventories are those of S3; give s3:// URLs for it and for the source")
    of_source, of_inventory = parse(source.url), parse(url)
    store = open_objects(f"s3://{of_inventory.bucket}", side="source")
    manifest = _manifest(store, url, of_inventory.prefix)
    if manifest["sourceBucket"] != of_source.bucket:
        raise InputError(f"--inventory {url}: this is an inventory of the bucket {manifest['sourceBucket']}; the source is {source.url}")
    base = f"{of_source.prefix}/" if of_source.prefix else ""
    with temporary.Folder() as folder:
        parts = []
        for number, file in enumerate(manifest["files"]):
            path = Path(folder) / f"{number}.{manifest['fileFormat'].lower()}"
            if (info := store.head(file["key"])) is None:
                raise InputError(f"--inventory {url}: its file {file['key']} is missing; give a newer inventory")
            store.download(info, path)
            try:
                parts.append(_objects(path, manifest, base))
            except pl.exceptions.PolarsError as error:
                raise InputError(
                    f"--inventory {url}: its file {file['key']} cannot be read ({type(error).__name__}); give another"
                ) from error
            path.unlink()
        table = pl.concat(parts).sort("path") if parts else pl.DataFrame(schema=["path", "size", "e_tag", "modified"])
        del parts
    last = ""
    for rows in table.iter_slices(_ROWS):
        for path, size, etag, modified in rows.iter_rows():
            if path == last or path.endswith("/") or is_ours(path):  # the root's own marker has an empty path
                continue
            last = path
            if wrong := problem(path):
                source.left_out.append(f"{source.place(path)}: {wrong}")
            else:
                yield ObjectInfo(path, size, f'"{etag}"' if etag else None, modified * 1_000_000)


def _manifest(store: Objects, url: str, prefix: str) -> Mapping[str, Any]:
    """Return the manifest at ``prefix``, or the newest one below it."""
    name = prefix
    if not prefix.endswith("manifest.json"):
        below = [info.path for info in store.list(f"{prefix}/" if prefix else "") if _MANIFEST.fullmatch(info.path)]
        if not below:
            raise InputError(
                f"--inventory {url}: there is no manifest.json of an inventory; check the URL, and whether one was written yet"
            )
        name = max(below, key=lambda path: path.split("/")[-2])
    try:
        manifest: dict[str, Any] = json.loads(store.read(name, count=_MOST_MANIFEST))
        kind, columns = manifest["fileFormat"], _names(manifest)
        known = isinstance(manifest["sourceBucket"], str) and all(isinstance(file["key"], str) for file in manifest["files"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"--inventory {store.place(name)}: not a manifest of an S3 inventory; check the URL") from None
    if not known or kind not in ("CSV", "Parquet"):
        raise InputError(f"--inventory {store.place(name)}: an inventory as {kind}; configure it as CSV or Parquet")
    if missing := [column for column in _NEEDED if column not in columns]:
        raise InputError(
            f"--inventory {store.place(name)}: without {', '.join(missing)}; add size, last modified date and ETag to its fields"
        )
    return manifest


def _names(manifest: Mapping[str, Any]) -> list[str]:
    """Return the names of the columns, as in Parquet."""
    schema = manifest["fileSchema"]
    if manifest["fileFormat"] == "Parquet":
        return re.findall(r"(?:optional|required) \w+ (\w+)", schema)
    return [_COLUMNS.get(name.strip(), name.strip()) for name in schema.split(",")]


def _objects(path: Path, manifest: Mapping[str, Any], base: str) -> pl.DataFrame:
    """Return the current objects below ``base``: path, size, e_tag, modified (ms)."""
    columns = _names(manifest)
    is_csv = manifest["fileFormat"] == "CSV"
    table = (
        pl.read_csv(path, has_header=False, new_columns=columns, infer_schema=False) if is_csv else pl.read_parquet(path, columns=columns)
    )
    for name, wanted in (("is_latest", "true"), ("is_delete_marker", "false")):
        if name in columns:
            table = table.filter(pl.col(name).cast(pl.String).str.to_lowercase() == wanted)
    written = pl.col("last_modified_date")
    if is_csv:
        written = written.str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_unit="ms")
        table = table.with_columns(pl.Series("key", [unquote_plus(key) for key in table["key"]], pl.String))
    path_of = pl.col("key").str.strip_prefix(base)
    size, modified = pl.col("size").cast(pl.Int64), written.dt.timestamp("ms")
    return table.filter(pl.col("key").str.starts_with(base)).select(path=path_of, size=size, e_tag="e_tag", modified=modified)
