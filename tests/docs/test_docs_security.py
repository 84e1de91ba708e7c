"""Every promise in docs/security.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_exists() -> None:
    tests: dict[str, list[str]] = {}
    for name in re.findall(r"`(tests/[\w/]+\.py|test_\w+)`", PAGE):
        if name.startswith("tests/"):
            file = name
            tests.setdefault(file, [])
        else:
            tests[file].append(name)
    assert len(tests) > 15
    missing = [
        f"{file}::{name}"
        for file, names in tests.items()
        for name in names
        if not (ROOT / file).is_file() or not re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert not missing + [file for file in tests if not (ROOT / file).is_file()]


def test_every_promise_names_a_test() -> None:
    promises = re.split(r"^\* ", PAGE, flags=re.MULTILINE)[1:]
    assert len(promises) > 20
    assert not [promise for promise in promises if "`tests/" not in promise.partition("\n\n")[0]]
