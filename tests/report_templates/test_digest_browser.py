"""The page of a digest in a browser: accessible in both themes, and on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from postrun.nightly.digest_page import digest_page
from test_browser import browse as browse  # with the file below
from test_digest_page import hostile, of, small


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digest") / "digest.html"
    path.write_text(digest_page(of([*small(), *hostile()]), "0.1.0"), encoding="utf-8", errors="replace")
    return path


def test_axe_finds_nothing_and_nothing_is_fetched_or_wider_than_a_telephone(browse: Any) -> None:
    views = [{"scheme": scheme, "width": width, "run": "axe"} for scheme, width in (("light", 1280), ("dark", 1280), ("light", 400))]
    for view, answer in zip(views, browse(views), strict=True):
        assert answer["violations"] == [], view
        assert answer["errors"] == []
        assert answer["overflow"] <= 0
