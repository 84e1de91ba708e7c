"""An inventory of S3 instead of a listing: the newest manifest below a URL -> the objects of a source, in order.

S3 writes inventories daily or weekly as CSV or Parquet files, with a manifest.json that names them. A change since then is noticed when a
run is read, as after a listing. Of several rows of a key, the newest counts.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .. import temporary
from ..errors import InputError
from ..ingest.object_store.objects import ObjectInfo, Objects
from ..ingest.object_store.open import open_objects
from ..ingest.object_store.paths import is_ours, problem
from ..ingest.object_store.urls import parse
from ..ingest.store.database import NO_EXTENSIONS, connect, first_line, native_path

if TYPE_CHECKING:
    import duckdb

_MANIFEST: Final = re.compile(r"(?:.*/)?\d{4}-\d\d-\d\dT\d\d-\d\dZ/manifest\.json")
_MOST_MANIFEST: Final = 16 << 20
_COLUMNS: Final = {
    "Bucket": "bucket", "Key": "key", "Size": "size", "LastModifiedDate": "last_modified_date", "ETag": "e_tag", "IsLatest": "is_latest",
    "IsDeleteMarker": "is_delete_marker",
}  # fmt: skip
_NEEDED: Final = ("key", "size", "last_modified_date", "e_tag")
_VERSIONS: Final = {"is_latest": "true", "is_delete_marker": "false"}  # of current objects
_SETTINGS: Final = {"memory_limit": "96MB", "threads": 1, **NO_EXTENSIONS}  # the rest is in files
_CSV: Final = "header = false, auto_detect = false, quote = '\"', escape = '\"', max_line_size = 65536, buffer_size = 1048576"
_LONGEST_PATH: Final = 4096  # characters; longer keys, which no store has, are cut and then left out as too long
_LONGEST_ETAG: Final = 1024  # characters
_GZIP: Final = b"\x1f\x8b"
_OLD: Final = timedelta(days=9)  # a weekly inventory, and the two days until S3 has written the next one


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
    if (written := _written(manifest)) is not None and datetime.now(UTC) - written > _OLD:
        source.left_out.append(
            f"{url}: an inventory of {written:%Y-%m-%d}, without the objects written since; check that S3 still writes it"
        )
    base = f"{of_source.prefix}/" if of_source.prefix else ""
    with temporary.Folder() as folder:
        rows = Path(folder) / "rows.csv"
        _sort(store, url, manifest, base, Path(folder), rows)
        last = None
        with rows.open(encoding="utf-8", newline="") as file:
            for path, size, etag, modified, decoded in csv.reader(file):
                if path == last or path.endswith("/") or is_ours(path):  # the root's own marker has an empty path
                    continue
                last = path
                if wrong := problem(path) if decoded == "true" else "a name that is not UTF-8":
                    source.left_out.append(f"{source.place(path)}: {wrong}")
                elif not size or not modified or size.startswith("-"):
                    raise InputError(f"--inventory {url}: {source.place(path)} has no size or date; give another")
                else:
                    yield ObjectInfo(path, int(size), f'"{etag}"' if etag else None, _nanoseconds(modified))


@lru_cache(4096)  # Many objects were written in the same millisecond; a number of its own for each takes memory
def _nanoseconds(milliseconds: str) -> int:
    return int(milliseconds) * 1_000_000


def _sort(store: Objects, url: str, manifest: Mapping[str, Any], base: str, folder: Path, target: Path) -> None:
    """Write the current objects below ``base`` to a CSV file, ordered by path."""
    import duckdb

    database = connect(native_path(folder / "inventory.duckdb"), dict(_SETTINGS), folder, {})
    try:
        database.execute("CREATE TABLE object (path VARCHAR, size BIGINT, e_tag VARCHAR, modified_ms BIGINT, decoded BOOLEAN)")
        for number, file in enumerate(manifest["files"]):
            path = folder / f"{number}.{manifest['fileFormat'].lower()}"
            if (info := store.head(file["key"])) is None:
                raise InputError(f"--inventory {url}: its file {file['key']} is missing; give a newer inventory")
            store.download(info, path)
            if not _is_sound(path, file):
                raise InputError(f"--inventory {url}: its file {file['key']} is damaged, or not that of the manifest; give another")
            try:
                _insert(database, path, manifest, base)
            except duckdb.Error as error:
                if _lacks_space(error):
                    raise
                raise InputError(
                    f"--inventory {url}: its file {file['key']} cannot be read ({type(error).__name__}); give another"
                ) from error
            path.unlink()
        # The order of bytes, which is that of listings.
        sorted_rows = database.sql("SELECT * FROM object ORDER BY path, modified_ms DESC, size, e_tag")
        sorted_rows.write_csv(native_path(target), header=False)
    except duckdb.Error as error:
        raise InputError(
            f"--inventory {url}: cannot be sorted in {folder} ({first_line(error)}); free some space, or set TMPDIR"
        ) from error
    finally:
        database.close()


def _lacks_space(error: Exception) -> bool:
    return "No space left" in str(error) or "max_temp_directory_size" in str(error)


def _is_sound(path: Path, file: Mapping[str, Any]) -> bool:
    """Compare a file with its checksum in the manifest, if there is one."""
    expected = file.get("MD5checksum")
    if not isinstance(expected, str):
        return True
    with path.open("rb") as data:
        return hashlib.file_digest(data, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == expected.lower()


def _written(manifest: Mapping[str, Any]) -> datetime | None:
    """Return when S3 began to write an inventory; None if that is unknown."""
    with suppress(ValueError, TypeError, OverflowError, OSError):
        return datetime.fromtimestamp(int(manifest.get("creationTimestamp") or "") / 1000, UTC)
    return None


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
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
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


def _insert(database: duckdb.DuckDBPyConnection, path: Path, manifest: Mapping[str, Any], base: str) -> None:
    """Insert the current objects of a file of the inventory."""
    columns = _names(manifest)
    if manifest["fileFormat"] == "CSV":
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
        field = {column: f"c{number}" for number, column in enumerate(columns)}
        types = ", ".join(f"c{number}: 'VARCHAR'" for number in range(len(columns)))
        table = f"read_csv($file, columns = {{{types}}}, compression = '{'gzip' if packed else 'none'}', {_CSV})"
        key, decoded = field["key"], f"try(url_decode(replace({field['key']}, '+', ' ')))"
        path_of = f"CASE WHEN contains({key}, '%') OR contains({key}, '+') THEN {decoded} ELSE {key} END"
        modified = f"nullif({field['last_modified_date']}, '')::TIMESTAMP"
    else:
        field = {column: column for column in columns}
        table, key, path_of, modified = "read_parquet($file)", "key", "key", "last_modified_date"
    flags = [(field[column], value) for column, value in _VERSIONS.items() if column in field]
    current = [f"coalesce(nullif(lower({flag}::VARCHAR), ''), '{value}') = '{value}'" for flag, value in flags]
    database.execute(
        f"""INSERT INTO object SELECT substr(path, length($base) + 1, {_LONGEST_PATH}), size, e_tag, modified_ms, decoded FROM (
            SELECT coalesce({path_of}, {key}) AS path, nullif({field["size"]}::VARCHAR, '')::BIGINT AS size,
                substr({field["e_tag"]}::VARCHAR, 1, {_LONGEST_ETAG}) AS e_tag, epoch_ms({modified}) AS modified_ms,
                {path_of} IS NOT NULL AS decoded
            FROM {table} WHERE {" AND ".join(["true", *current])}
        ) WHERE starts_with(path, $base)""",
        {"base": base, "file": native_path(path)},
    )
