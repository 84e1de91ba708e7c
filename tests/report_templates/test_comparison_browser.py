"""The page of a comparison in a browser: accessible in both themes and on a phone, with the measurements behind the causes folded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from postrun.report_templates.output.comparison_page import pages
from test_browser import browse as browse  # with the file below
from test_comparison_page import made_of


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("comparison") / "comparison.html"
    path.write_text(pages(made_of("rich"), "html"), encoding="utf-8", errors="replace")
    return path


VIEWS = (("light", 1440), ("dark", 1440), ("light", 400), ("dark", 400))


def test_axe_finds_nothing_and_nothing_is_fetched_or_wider_than_a_telephone(browse: Any) -> None:
    views = [{"scheme": scheme, "width": width, "run": "axe"} for scheme, width in VIEWS]
    for view, answer in zip(views, browse(views), strict=True):
        assert answer["violations"] == [], view
        assert answer["errors"] == []
        assert answer["overflow"] <= 0


UNFOLDED = """(async () => {
  const shown = () => [...document.querySelectorAll("main section[id]")]
    .filter((part) => [...part.children].some((child) => child.tagName === "DETAILS" ? child.open : child.tagName === "DIV"))
    .map((part) => part.id);
  const first = shown();
  location.hash = "#steps";
  await new Promise((done) => setTimeout(done, 100));
  const more = shown().filter((id) => !first.includes(id));
  return { first, more };
})()"""


def test_causes_are_open_and_a_link_unfolds_the_rest(browse: Any) -> None:
    (answer,) = browse([{"scheme": "light", "width": 1440, "run": UNFOLDED}])
    assert answer["value"] == {"first": ["summary", "time", "kernels"], "more": ["steps"]}
