"""Long listings by ranges: every object once and in order, with few more requests than pages."""

from __future__ import annotations

import random
from bisect import bisect_right
from itertools import islice

import pytest
from postrun.ingest.object_store import ranges, remote
from postrun.ingest.object_store.objects import ObjectInfo, ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from postrun.ingest.object_store.prefixes import Prefixes
from small_s3 import SmallS3, small_s3
from swift_server import clean_environment


class Names:
    """A listing of names with pages of ten."""

    def __init__(self, names: list[str]) -> None:
        self.names = sorted(names)
        self.pages = 0
        self.looks = 0

    def page(self, after: str | None) -> tuple[list[ObjectInfo], str | None]:
        self.pages += 1
        at = 0 if after is None else bisect_right(self.names, after)
        listed = self.names[at : at + 10]
        return [ObjectInfo(name, 1, None, 0) for name in listed], listed[-1] if at + 10 < len(self.names) else None

    def folders(self, folder: str) -> list[str]:
        self.looks += 1
        inner = (name.removeprefix(folder).partition("/") for name in self.names if name.startswith(folder))
        return sorted({f"{folder}{first}/" for first, slash, _ in inner if slash})

    def listed(self) -> list[str]:
        return [info.path for info in ranges.long_listing(self.page, self.folders)]


def test_a_short_listing_is_one_request() -> None:
    names = Names([f"a/{number}" for number in range(10)])
    assert names.listed() == names.names
    assert (names.pages, names.looks) == (1, 0)


@pytest.mark.parametrize("seed", range(20))
def test_every_object_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    words = ["a", "a-", "a0", "a/", "b", "2026", "2027", "11", "x.json", "\u00fc", "\ufffd", "\U0001f600"]
    names = Names(list({"/".join(chance.choices(words, k=chance.randint(1, 5))) + str(chance.randrange(9)) for _ in range(700)}))
    assert names.listed() == names.names


def test_many_small_folders_cost_no_request_each() -> None:
    names = Names([f"run{number:05}/{file}" for number in range(3000) for file in "ab"])
    assert names.listed() == names.names
    assert names.looks == 1
    assert 600 + 100 < names.pages <= 600 + 600 / ranges._PER_REQUEST


def test_a_listing_of_some_pages_more_costs_hardly_more_requests() -> None:
    names = Names([f"run{number:03}/{file}" for number in range(50) for file in "ab"])
    assert names.listed() == names.names
    assert names.pages + names.looks <= 10 + 2


def test_a_server_without_folders_is_listed_in_one_go() -> None:
    names = Names([f"a/{number:03}" for number in range(200)])

    def refused(folder: str) -> list[str]:
        raise ObjectStoreError(folder)

    assert [info.path for info in ranges.long_listing(names.page, refused)] == names.names


def test_folders_of_dates_divide_the_names() -> None:
    names = Names([f"2026/{month:02}/{day:02}/run/{file}" for month in range(1, 13) for day in range(1, 29) for file in range(30)])
    assert names.listed() == names.names
    assert names.looks == 1 + 1 + 12  # the root, the year, its months
    assert 1008 + 100 < names.pages <= 1008 + ranges._RANGES


def test_a_folder_of_many_files_is_bounded_in_memory() -> None:
    names = Names([f"only/{number:06}" for number in range(2000)])
    listing_of_all = ranges.long_listing(names.page, names.folders)
    assert len(list(islice(listing_of_all, 81))) == 81
    assert names.pages <= ranges._FIRST + 2 * ranges._PAGES
    listing_of_all.close()  # type: ignore[attr-defined]


def test_a_server_is_listed_by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    def connected(server: SmallS3) -> None:
        keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_CONFIG_FILE": "/dev/null"}
        clean_environment(monkeypatch, {**keys, "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_ENDPOINT_URL": server.endpoint})

    monkeypatch.setattr(ranges, "_FIRST", 1)
    monkeypatch.setattr(ranges, "_PER_REQUEST", 0.1)
    with small_s3("bucket") as server:
        connected(server)
        names = [f"day {day}/\u00fcber+{file}.json" for day in range(9) for file in range(300)] + ["day 3", "zz"]
        server.buckets["bucket"] = {**{f"p/{name}": b"x" for name in names}, "p/day 4/": b"", "pp": b"1", "o": b"1"}
        assert [one.path for one in open_objects("s3://bucket/p").list()] == sorted(names)
        starts = {query.get("start-after", "") for query in server.listed if "delimiter" not in query}
        assert {"p/day 4/", "p/day 8/"} <= starts
        server.listed.clear()
        assert [one.path for one in open_objects("s3://bucket").list("p/day 7/")] == sorted(
            f"p/{name}" for name in names if name[:6] == "day 7/"
        )
        assert len(server.listed) == 1


def test_many_folders_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    with small_s3("bucket") as server:
        monkeypatch.setattr(remote, "_FOLDER_PAGES", 2)
        monkeypatch.setattr(ranges, "_FIRST", 1)
        keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_CONFIG_FILE": "/dev/null"}
        clean_environment(monkeypatch, {**keys, "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_ENDPOINT_URL": server.endpoint})
        server.buckets["bucket"] = {f"run{number:04}/a": b"" for number in range(2500)}
        assert [one.path for one in open_objects("s3://bucket").list()] == sorted(server.buckets["bucket"])
        looks = [query.get("start-after") for query in server.listed if "delimiter" in query]
        assert looks == [None, "run0999/\U0010ffff"]


@pytest.mark.parametrize("seed", range(20))
def test_the_objects_with_some_beginnings(seed: int) -> None:
    chance = random.Random(seed)
    words = ["a", "a-", "a0", "b", "2026", "2027", "11", "x.json", "\u00fc", "\U0001f600"]
    names = Names(list({"/".join(chance.choices(words, k=chance.randint(1, 4))) + str(chance.randrange(99)) for _ in range(900)}))
    beginnings = {name[: chance.randint(1, 12)] for name in chance.sample(names.names, chance.choice([1, 5, 200]))} | {"a-nothing/"}
    outer = sorted(one for one in beginnings if not any(one != other and one.startswith(other) for other in beginnings))
    wanted = [name for name in names.names if name.startswith(tuple(outer))]

    def page(prefix: str, after: str | None) -> tuple[list[ObjectInfo], str | None]:
        return Names([name for name in names.names if name.startswith(prefix)]).page(after)

    assert [info.path for info in ranges.listing_below(page, Prefixes(outer))] == wanted
    assert [name for name in names.names if Prefixes(outer).of(name) is not None] == wanted
    folders = {name[: at + 1] for name in names.names for at, char in enumerate(name) if char == "/"}
    for folder in folders:
        reached = any(one.startswith(folder) or folder.startswith(one) for one in outer)
        assert Prefixes(outer).below(folder) is reached


def test_pages_without_wanted_objects_are_not_requested() -> None:
    names = Names([f"run{number:03}/{file:02}" for number in range(300) for file in range(50)])
    wanted = [f"run{number:03}/" for number in range(0, 300, 3)]
    prefixes = Prefixes(wanted)
    listed = [info.path for info in ranges.listing_below(lambda prefix, after: names.page(after), prefixes)]
    assert listed == [name for name in names.names if name[:7] in wanted]
    assert names.pages <= 100 * 6 + ranges._PARTS  # 5 of its 1500 pages for each run, and one to see its end
