"""The page of all runs in a browser: accessible in both themes, on a phone, and without script; with filters that stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from postrun.nightly.page import index_page
from test_browser import browse as browse  # with the file below
from test_index_page import DAY, START, hostile, made_of, run, small

ROW_COUNT = 150


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = [
        run(
            f"bert/{i:03}", name=f"bert-{i:03}", started_ns=START - i * DAY, step_median_ns=(i * 37) % ROW_COUNT + 10**6, status="completed"
        )
        for i in range(ROW_COUNT)
    ]
    path = tmp_path_factory.mktemp("index") / "index.html"
    path.write_text(index_page(made_of([*small(), *hostile(), *more])), encoding="utf-8", errors="replace")
    return path


def test_axe_finds_nothing_and_nothing_is_fetched_or_wider_than_a_telephone(browse: Any) -> None:
    views = [{"scheme": scheme, "width": width, "run": "axe"} for scheme, width in (("light", 1280), ("dark", 1280), ("light", 400))]
    for view, answer in zip(views, browse(views), strict=True):
        assert answer["violations"] == [], view
        assert answer["errors"] == []
        assert answer["overflow"] <= 0


COMMON = """
  const rows = () => [...document.querySelectorAll(".runs tbody tr")].filter((row) => !row.hidden);
  const names = () => rows().map((row) => row.querySelector(".run .note").textContent);
  const field = (label) => [...document.querySelectorAll(".filters label")].find((one) => one.firstChild.textContent === label).lastChild;
  const set = (label, value) => { const at = field(label); at.value = value; at.dispatchEvent(new Event("input")); };
  const status = () => document.querySelector(".filters [role=status]").textContent;
"""
CHOOSE = f"""(() => {{ {COMMON}
  const before = rows().length;
  set("Family", "gpt");
  const family = names();
  set("State", "running");
  const running = rows().length;
  set("State", "");
  set("Verdict", "regression");
  const regressed = [names(), status(), location.hash];
  set("Verdict", "IOBottleneck");
  const issue = names();
  set("Verdict", "");
  set("Family", "");
  set("Text", "BERT 149");
  return {{ before, family, running, regressed, issue, text: [names(), location.hash] }};
}})()"""
SORT = f"""(() => {{ {COMMON}
  set("Family", "bert");
  [...document.querySelectorAll(".filters button")].find((one) => one.textContent.startsWith("Show all")).click();
  const head = document.querySelector("th[data-column=step]");
  head.querySelector("button").click();
  const steps = rows().map((row) => Number(row.cells[head.cellIndex].dataset.sort));
  return {{ steps, sorted: head.getAttribute("aria-sort"), hash: location.hash }};
}})()"""
KEPT = f"""(async () => {{ {COMMON}
  location.hash = "#family=bert&q=14&sort=step%3Aup";
  await new Promise((done) => setTimeout(done, 100));
  const first = [names().length, field("Family").value, field("Text").value, status()];
  location.hash = "#families";
  await new Promise((done) => setTimeout(done, 100));
  return {{ first, second: names().length }};
}})()"""
PLAIN = """({ rows: [...document.querySelectorAll(".runs tbody tr")].filter((row) => row.offsetParent !== null).length,
  dead: document.querySelectorAll("button, input, select").length })"""


def test_what_is_chosen_is_shown_and_stands_in_the_address(browse: Any, file: Path) -> None:
    views = [{"scheme": "light", "width": 1280, "run": one} for one in (CHOOSE, SORT, KEPT)]
    chosen, by_step, kept = (answer["value"] for answer in browse(views))
    assert chosen["before"] == 100
    assert chosen["family"] == [f"gpt/{day}" for day in range(5, -1, -1)]
    assert chosen["running"] == 0  # the active run has no name yet that determines its family
    names, status, address = chosen["regressed"]
    assert (names, address) == (["gpt/5"], "#family=gpt&verdict=regression")
    assert status.startswith("1 of ")
    assert chosen["issue"] == ["gpt/5"]
    assert chosen["text"] == [["bert/149"], "#q=BERT+149"]
    assert by_step["steps"] == sorted(((i * 37) % ROW_COUNT + 10**6 for i in range(ROW_COUNT)), reverse=True)
    assert (by_step["sorted"], by_step["hash"]) == ("descending", "#family=bert&sort=step%3Adown&all=1")
    assert kept["first"][1:3] == ["bert", "14"]
    assert 0 < kept["first"][0] < ROW_COUNT
    assert kept["second"] == kept["first"][0]  # a link within the page changes nothing


def test_without_script_every_row_is_there_and_no_dead_button(browse: Any) -> None:
    (answer,) = browse([{"scheme": "light", "width": 1280, "script": False, "run": PLAIN}])
    assert answer["value"] == {"rows": len(small()) + len(hostile()) + ROW_COUNT, "dead": 0}
