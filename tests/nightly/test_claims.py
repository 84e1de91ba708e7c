"""Exactly one night has a claim; a claim becomes free when its night ends; no night loses a live claim."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from postrun.ingest.object_store.folder import Folder
from postrun.ingest.object_store.objects import Objects
from postrun.ingest.object_store.open import open_objects
from postrun.nightly.claims import Claims, creates_once

S = 10**9


class Clock:
    def __init__(self) -> None:
        self.now = 1_000 * S

    def __call__(self) -> int:
        return self.now


@pytest.fixture(params=["folder", "memory"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    return open_objects(tmp_path / "out" if request.param == "folder" else f"memory://{tmp_path.name}")


def elsewhere(out: Objects, path: str) -> None:
    """A claim reads as if another machine had made it."""
    out.write(path, json.dumps({**json.loads(out.read(path)), "host": "another-machine"}).encode())


def test_a_claim_is_had_once_and_again_after_it_was_given_back(out: Objects) -> None:
    with Claims(out) as first, Claims(out) as second:
        assert first.take("c.json")
        assert not second.take("c.json")
        assert first.take("c.json")  # still its own
        assert "process" in (second.holder("c.json") or "")
        second.give_back("c.json")  # not its own
        assert not second.take("c.json")
        first.give_back("c.json")
        assert second.holder("c.json") is None
        assert second.take("c.json")
        assert not first.take("c.json")
    assert list(out.list()) == []


def test_a_claim_that_ran_out_is_taken_over_and_not_given_back_by_its_first_night(out: Objects) -> None:
    clock = Clock()
    dead, heir = Claims(out, clock=clock, lease_s=100), Claims(out, clock=clock, lease_s=100)
    assert dead.take("c.json")
    elsewhere(out, "c.json")
    clock.now += 99 * S
    assert not heir.take("c.json")
    clock.now += 2 * S
    assert heir.take("c.json")
    dead.give_back("c.json")
    assert json.loads(out.read("c.json"))["night"] == heir.night
    for claims in (dead, heir):
        claims.__exit__(None, None, None)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"expires_ns": "soon"}', b'{"expires_ns": 99999999999999999999999}', b"\xff"])
def test_a_damaged_claim_holds_nobody_up(out: Objects, text: bytes) -> None:
    out.write("c.json", text)
    with Claims(out) as claims:
        assert claims.take("c.json")


def test_the_claim_of_a_process_of_this_machine_that_has_ended_is_free_at_once(tmp_path: Path) -> None:
    code = (
        "import os\nfrom postrun.ingest.object_store.open import open_objects\nfrom postrun.nightly.claims import Claims\n"
        f"assert Claims(open_objects({str(tmp_path)!r})).take('c.json')\nos._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 9
    assert (tmp_path / "c.json").exists()
    with Claims(open_objects(tmp_path)) as claims:
        assert claims.take("c.json")


def test_a_claim_is_renewed_while_its_night_lives(out: Objects) -> None:
    with Claims(out, lease_s=0.4) as earlier, Claims(out, lease_s=0.4) as second:
        assert earlier.take("c.json")
        first = json.loads(out.read("c.json"))["expires_ns"]
        until = time.monotonic() + 10
        while json.loads(out.read("c.json"))["expires_ns"] == first:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert not second.take("c.json")
        earlier.give_back("c.json")
        time.sleep(0.3)
        assert out.head("c.json") is None  # renewing does not bring it back


def test_of_many_threads_one_has_each_claim(out: Objects) -> None:
    nights = [Claims(out) for _ in range(8)]
    start = threading.Barrier(8)

    def go(claims: Claims) -> list[bool]:
        start.wait()
        return [claims.take(f"{i}.json") for i in range(20)]

    with ThreadPoolExecutor(8) as threads:
        had = list(threads.map(go, nights))
    assert [sum(each) for each in zip(*had, strict=True)] == [1] * 20
    for claims in nights:
        claims.__exit__(None, None, None)
    assert list(out.list()) == []


def test_of_many_that_see_a_claim_run_out_one_takes_it_over(out: Objects) -> None:
    clock = Clock()
    for i in range(10):
        out.write(f"{i}.json", json.dumps({"night": "x", "host": "another-machine", "pid": 1, "expires_ns": clock.now - 1}).encode())
    nights = [Claims(out, clock=clock) for _ in range(6)]
    start = threading.Barrier(6)

    def go(claims: Claims) -> list[bool]:
        start.wait()
        return [claims.take(f"{i}.json") for i in range(10)]

    with ThreadPoolExecutor(6) as threads:
        had = list(threads.map(go, nights))
    assert [sum(each) for each in zip(*had, strict=True)] == [1] * 10
    for claims in nights:
        claims.__exit__(None, None, None)


def test_of_several_processes_one_has_each_claim(tmp_path: Path) -> None:
    code = (
        "import json, sys\nfrom postrun.ingest.object_store.open import open_objects\nfrom postrun.nightly.claims import Claims\n"
        f"claims = Claims(open_objects({str(tmp_path / 'out')!r}))\nprint('ready', flush=True)\nsys.stdin.readline()\n"
        "print(json.dumps([claims.take(f'{i}.json') for i in range(50)]), flush=True)\nsys.stdin.readline()\n"
    )
    command = [sys.executable, "-P", "-c", code]
    nights = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    try:
        for night in nights:
            assert night.stdout is not None
            assert night.stdout.readline() == "ready\n"
        for night in nights:
            assert night.stdin is not None
            night.stdin.write("\n")
            night.stdin.flush()
        had = [json.loads(night.stdout.readline()) for night in nights if night.stdout]
        assert [sum(each) for each in zip(*had, strict=True)] == [1] * 50
    finally:
        for night in nights:
            night.kill()
            night.communicate()


def test_alone_waits_for_the_other(out: Objects) -> None:
    order: list[str] = []
    with Claims(out) as first, Claims(out) as another:
        inside = threading.Event()

        def second() -> None:
            inside.wait()
            with another.alone("index.claim.json"):
                order.append("second")

        thread = threading.Thread(target=second)
        thread.start()
        with first.alone("index.claim.json"):
            inside.set()
            time.sleep(0.2)
            order.append("first")
        thread.join()
    assert order == ["first", "second"]


def test_the_claim_of_a_process_with_the_id_of_another_is_free_at_once(out: Objects) -> None:
    """A container that is started again has the same name and the same process ids."""
    with Claims(out) as before, Claims(out) as night:
        assert before.take("c.json")
        claim = json.loads(out.read("c.json"))
        out.write("c.json", json.dumps({**claim, "began": f"another-boot {claim['began'].split()[1]}"}).encode())
        assert not night.take("c.json")  # another machine with this name
        out.write("c.json", json.dumps({**claim, "began": claim["began"] + "1"}).encode())
        assert night.take("c.json")


def test_claims_of_a_dead_night_are_freed_and_those_of_a_living_one_given_up(out: Objects) -> None:
    with Claims(out, lease_s=2) as living, Claims(out, lease_s=2) as night:
        assert living.take("living.json")
        out.write("dead.json", json.dumps({**json.loads(out.read("living.json")), "host": "gone", "night": "x"}).encode())
        out.write("living.json", json.dumps({**json.loads(out.read("living.json")), "host": "another-machine"}).encode())
        began = time.monotonic()
        assert list(night.freed(["living.json", "dead.json", "given-back.json"])) == ["given-back.json", "dead.json"]
        assert time.monotonic() - began < 10
        assert night.take("dead.json")
        assert not night.take("living.json")


def test_a_living_night_of_this_machine_is_not_waited_for(out: Objects) -> None:
    with Claims(out) as living, Claims(out) as night:
        assert living.take("c.json")
        began = time.monotonic()
        assert list(night.freed(["c.json"])) == []
        assert time.monotonic() - began < 60  # a lease is 300 s


class Careless(Folder):
    """A store that ignores conditions and answers that it wrote, as some S3 servers do."""

    def create(self, path: str, data: bytes) -> bool:
        self.write(path, data)
        return True


def test_a_store_that_ignores_conditions_is_recognized(out: Objects, tmp_path: Path) -> None:
    assert creates_once(out)
    assert not creates_once(Careless(tmp_path / "careless"))
    assert list(out.list()) == list(open_objects(tmp_path / "careless").list()) == []


def test_a_night_in_another_container_of_this_machine_keeps_its_claims(tmp_path: Path) -> None:
    """Containers may share a host name, and do not see each other's processes."""
    unshared = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*unshared, "true"], capture_output=True).returncode:
        pytest.skip("no unshare, or no permission for it")
    out = open_objects(tmp_path / "out")
    code = (
        "from postrun.ingest.object_store.open import open_objects\nfrom postrun.nightly.claims import Claims\n"
        f"print(Claims(open_objects({str(tmp_path / 'out')!r})).take('c.json'))\n"
    )
    with Claims(out, lease_s=30) as night:
        assert night.take("c.json")
        done = subprocess.run([*unshared, sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "False\n"


def test_the_claim_of_a_dead_container_of_this_machine_expires(out: Objects) -> None:
    with Claims(out, lease_s=2) as before, Claims(out, lease_s=2) as night:
        assert before.take("c.json")
        boot, ticks = json.loads(out.read("c.json"))["began"].split()
        out.write("dead.json", json.dumps({**json.loads(out.read("c.json")), "night": "x", "began": f"{boot}0 {ticks}"}).encode())
        assert not night.take("dead.json")
        assert list(night.freed(["dead.json"])) == ["dead.json"]
