"""A comparison as a self-contained page and as a PDF: safe, complete, and reproducible."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pikepdf
import pytest
from conftest import HOSTILE, MAKERS
from markdown_reading import assert_no_reference, read
from postrun.analysis.compare.build import compare
from postrun.analysis.report import Generator, Report
from postrun.analysis.report.comparison import Amount, Basis, Comparison, OperatorChange, VerdictChange
from postrun.errors import UsageError
from postrun.report_templates.blocks.tables import Col
from postrun.report_templates.comparing import tables, words
from postrun.report_templates.comparing.operators import operators
from postrun.report_templates.comparing.time import time
from postrun.report_templates.figures.before_after import Pair, before_after
from postrun.report_templates.output.comparison_markdown import MOST_TOKENS, markdown
from postrun.report_templates.output.comparison_page import SECTIONS, pages, render_comparison, run_names
from postrun.report_templates.text.markdown import tokens

GENERATOR = Generator("postrun", "0.1.0", 1_795_243_200 * 10**9, {})
VOID = {"meta", "img", "input", "br", "wbr"}
FIGURES = ["time-parts", "time-step", "steps-distribution", "precision-shares"]


class Reading(HTMLParser):
    """Elements with their attributes and the text; every element must be closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("script", "style"):
            self.text += data


def changed(report: Report) -> Report:
    """Return the run with longer steps, longer and missing kernels, and another GPU."""
    steps = tuple(dataclasses.replace(step, duration_ns=step.duration_ns * 2, start_ns=step.start_ns * 2) for step in report.steps.steps)
    kernels = tuple(dataclasses.replace(k, total_ns=3 * k.total_ns, min_ns=3 * k.min_ns, mean_ns=3 * k.mean_ns) for k in report.kernels[1:])
    devices = tuple(dataclasses.replace(device, name=f"{HOSTILE[0]} X") for device in report.devices)
    return dataclasses.replace(report, steps=dataclasses.replace(report.steps, steps=steps), kernels=kernels, devices=devices)


def made_of(name: str) -> Comparison:
    report = MAKERS[name]()
    return compare(report, changed(report), generator=GENERATOR, given=("runs/a", "runs/b"))


@pytest.fixture(scope="module", params=sorted(MAKERS))
def any_comparison(request: pytest.FixtureRequest) -> Comparison:
    return made_of(request.param)


@pytest.fixture(scope="module")
def rich_made() -> Comparison:
    return made_of("rich")


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_nothing_is_loaded_and_nothing_hostile_is_markup(any_comparison: Comparison, target: str) -> None:
    text = pages(any_comparison, target)
    for tag, attributes in Reading(text).elements:
        for key, value in attributes.items():
            if key in ("src", "href", "xlink:href", "action", "data", "srcset"):
                assert value is not None
                assert value.startswith(("#", "data:")), (tag, key, value[:80])
            assert key.startswith("xmlns") or not key.startswith("on"), (tag, key)
    assert "alert(1)</script>" not in text
    assert not re.search(r"<(link|iframe|object|embed|base|form)\b", text)


def test_the_markdown_fits_and_is_plain(any_comparison: Comparison) -> None:
    data = markdown(any_comparison)
    assert tokens(data.decode()) <= MOST_TOKENS
    parts = read(data)
    assert "strong_open" in [part.type for part in parts[:4]]
    assert_no_reference(parts)


def test_base_runs_are_listed_and_defined(rich_made: Comparison) -> None:
    run = dataclasses.replace(rich_made.base, given="runs/main-2")
    text = Reading(pages(dataclasses.replace(rich_made, baselines=(run,)), "html")).text
    assert ("base run" in text, "runs/main-2" in text, "repeatability limit of the base runs" in text) == (True, True, True)
    assert "repeatability limit" not in Reading(pages(rich_made, "html")).text


def test_only_the_script_of_the_report_may_run(rich_made: Comparison) -> None:
    text = pages(rich_made, "html")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_links_lead_somewhere_and_ids_are_unique(any_comparison: Comparison, target: str) -> None:
    elements = Reading(pages(any_comparison, target)).elements
    ids = [attributes["id"] for _, attributes in elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    targets = {str(attributes["href"])[1:] for tag, attributes in elements if tag == "a" and str(attributes.get("href")).startswith("#")}
    assert targets <= set(ids)


def test_every_section_and_figure_is_there_with_its_words(rich_made: Comparison) -> None:
    for target, tag, attribute in (("html", "svg", "aria-label"), ("pdf", "img", "alt")):
        reading = Reading(pages(rich_made, target))
        ids = {attributes.get("id") for _, attributes in reading.elements}
        assert {build(rich_made).id for build in SECTIONS} <= ids
        drawn = [attributes for name, attributes in reading.elements if name == tag and attributes.get(attribute) is not None]
        assert [one.get("id") for name, one in reading.elements if name == "figure"] == FIGURES
        assert all(attributes[attribute] for attributes in drawn)
    text = Reading(pages(rich_made, "html")).text
    assert re.sub(r"\W+", "", rich_made.headline) in re.sub(r"\W+", "", text)
    limits = [one for one in rich_made.differences if one.limits]
    assert limits
    # The verdict comes first, and the limits of the conclusion precede the figures.
    assert text.index("On different GPUs") < text.index("GPU model:") < text.index("Computation per")


def test_the_page_shows_the_figures_of_the_comparison(rich_made: Comparison) -> None:
    """The table contains every changed kernel, each with its effect."""
    text = pages(rich_made, "html")
    table = text[text.index('id="kernels-table"') :]
    rows = re.findall(r"<tr><th scope=\"row\".*?</tr>", table[: table.index("</tbody>")], re.DOTALL)
    assert len(rows) == len(rich_made.kernels)
    effects = [float(re.findall(r'data-sort="([^"]*)"', row)[1]) for row in rows]
    assert effects == pytest.approx([one.effect_ns for one in rich_made.kernels])


def test_bars_are_as_long_as_the_effects_of_their_table(rich_made: Comparison) -> None:
    parts = tuple(dataclasses.replace(part, effect_ns=effect) for part, effect in zip(rich_made.parts, (-4e6, 1e6, 2e6, 0.0), strict=True))
    assert rich_made.whole is not None
    # Communication, which is not a part of the sum, has the largest effect of the table.
    within = (dataclasses.replace(rich_made.whole, name="communication", effect_ns=8e6),)
    text = pages(dataclasses.replace(rich_made, parts=parts, within=within, basis=Basis("second", 1.0, 1.0, "")), "html")
    table = text[text.index('id="time-table"') :].partition("</table>")[0]
    bars = {name: float(share) for name, share in re.findall(r'<th scope="row"[^>]*>([^<]*)</th>(?:(?!</tr>).)*?--p:([\d.]+)', table)}
    assert bars == pytest.approx(
        {"computation": 0.46, "exposed memory operations": 0.23, "exposed communication": 0.115, "communication": 0.92}
    )


def test_a_change_beyond_twice_the_base_is_a_factor_in_words_and_tables() -> None:
    # 8 to 39.9 ms is 4.99 times, 8 to 12 is 1.5 times.
    assert (words.change(100 * 31.9 / 8).text, words.ratio(8.0, 39.9)) == ("5.0×", "5.0×")
    assert [words.change(value).text for value in (50.0, -75.0, 100.0, None)] == ["+50.0%", "−75.0%", "+100%", "—"]


def test_parts_that_neither_run_has_are_left_out(rich_made: Comparison) -> None:
    first, second, *others = rich_made.parts
    parts = (first, dataclasses.replace(second, base_ns=0.0, new_ns=0.0, effect_ns=0.0), *others)
    section = time(dataclasses.replace(rich_made, parts=parts))
    names = [cells[0].text for cells in section.tables["table"].rows]
    assert (second.name in names, first.name in names) == (False, True)
    assert second.name not in section.figures["parts"].alt


def test_rows_without_an_effect_are_only_counted() -> None:
    effects = {"a": 5e6, "b": 0.4, "c": -3e5, "d": 0.0, "e": 2e5}  # 0.4 ns is shown as 0 ns
    rows = [Amount(name, 1e7, 1e7 + effect, effect, effect / 1e5, "grown" if name == "a" else "same") for name, effect in effects.items()]
    listed = words.changes_table("t", "Caption", rows, Col("Name", lambda row: row.name), note="Sums.", most=2)
    assert listed is not None
    assert ([cells[0].text for cells in listed.rows], listed.note) == (["a", "c"], "2\u00a0others unchanged. Sums.")
    assert words.changes_table("t", "Caption", rows[1:2], Col("Name", lambda row: row.name)) is None


def test_parts_that_cancel_leave_no_dust() -> None:
    cell = words.effect(0.1 + 0.2 - 0.3)
    assert (cell.text.replace("\xa0", " "), cell.sort) == ("0 ns", 0.0)
    assert words.effect(-2.38e-7).sort == 0.0


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_what_is_undecided_is_so_on_card_and_table(rich_made: Comparison, target: str) -> None:
    parts = tuple(dataclasses.replace(one, state="undecided" if one.name == "idle" else "same") for one in rich_made.parts)
    text = pages(dataclasses.replace(rich_made, parts=parts), target)
    assert re.search(r"Idle per [^<]+</(a|span)>\s*<span class=\"value[^\"]*\">undecided<", text)
    assert "? undecided" in text
    assert "Too few steps to tell: idle" in Reading(text).text


@pytest.mark.parametrize("target", ["html", "pdf"])
def test_runs_without_gpus_show_the_parts_of_the_host(target: str) -> None:
    host = (Amount("forward", 15e6, 40e6, 25e6, 166.7, "grown"), Amount("cpu_op", 2e6, 2e6, 0.0, 0.0, "same"))
    comparison = dataclasses.replace(made_of("cpu"), host_parts=host)
    assert comparison.whole is None
    read = Reading(pages(comparison, target))
    for phrase in ("forward", "1\xa0other unchanged", "15.0\xa0ms", "40.0\xa0ms", "▲ grew", "Parts of the average step"):
        assert phrase in read.text
    for wrong in ("second of GPU time", "the GPUs' span", "cannot be divided"):
        assert wrong not in read.text


def test_states_are_words_beside_signs(rich_made: Comparison) -> None:
    text = pages(rich_made, "html")
    for phrase in ("▲ grew", "✕ vanished"):
        assert phrase in text


def test_rules_have_the_verdicts_of_the_reports(rich_made: Comparison) -> None:
    def rule(name: str, base: str | None, *, informs: bool) -> VerdictChange:
        return VerdictChange(name, base, "NoIssuesFound", "same", None, None, False, informs)

    rules = rule("Informs", "NoIssuesFound", informs=True), rule("Finds", "NoIssuesFound", informs=False), rule("New", None, informs=False)
    section = tables.verdicts(dataclasses.replace(rich_made, rules=rules))
    assert [[cell.text for cell in cells[:3]] for cells in section.tables["table"].rows] == [
        ["Informs", "i Informational", "i Informational"],
        ["Finds", "✓ Passed", "✓ Passed"],
        ["New", "—", "✓ Passed"],
    ]
    report = MAKERS["rich"]()
    informing = dataclasses.replace(report.rules[0], rule="Informs", category="trace", verdict="NoIssuesFound", informs=True)
    report = dataclasses.replace(report, rules=(informing,))
    assert [change.informs for change in compare(report, report, generator=GENERATOR).rules] == [True]


@pytest.mark.parametrize(("different", "sizes"), [(True, {"value words"}), (False, {"value"})])
def test_the_values_of_the_tiles_have_one_size(rich_made: Comparison, different: bool, sizes: set[str]) -> None:
    text = pages(dataclasses.replace(rich_made, different_programs=different), "pdf")
    assert {*re.findall(r'class="(value[^"]*)"', text)} == sizes


def test_the_threshold_of_a_part_is_a_share_of_a_step(rich_made: Comparison) -> None:
    part = Amount("computation", 1e6, 0.5e6, -0.5e6, -50.0, "same")
    comparison = dataclasses.replace(rich_made, basis=Basis("step", 10.0, 10.0, None), parts=(part,), threshold_percent=3.0)
    assert words.amount_state(part, words.least(comparison)).text == "≈ below 3% of a step"
    text = Reading(pages(comparison, "html")).text
    assert "≈ below 3% of a step" in text
    assert "1.00\xa0ms → 500\xa0µs, below 3% of a step" in text
    assert "The effect on a part is smaller than 3% of a step" in text


def test_the_pdf_lists_all_rules(rich_made: Comparison) -> None:
    rules = tuple(VerdictChange(f"Rule{i}", "NoIssuesFound", "NoIssuesFound", "same", None, None, False) for i in range(31))
    read = Reading(pages(dataclasses.replace(rich_made, rules=rules), "pdf"))
    assert all(rule.rule in read.text for rule in rules)


def test_runs_of_one_name_are_told_by_what_was_given(rich_made: Comparison) -> None:
    assert run_names(rich_made).endswith(": a → b")
    same = dataclasses.replace(rich_made, new=dataclasses.replace(rich_made.new, name="other"))
    assert run_names(same) == f"{rich_made.base.name} → other"


@pytest.mark.parametrize(
    ("inputs", "paths"),
    [
        (("/data/monday/run", "/data/tuesday/run/report.json"), ("monday/run", "tuesday/run")),
        (("runs", "runs/new"), ("runs", "new")),
        (("runs/a", "runs/a/b"), ("a", "b")),
        (("demo", "/data/demo3"), ("demo", "demo3")),
        (("job", "/job"), ("job", "/job")),
        (("runs/a", "runs/a"), None),
        (("runs/a", None), None),
    ],
)
def test_runs_of_one_name_have_their_paths(rich_made: Comparison, inputs: tuple[str, str | None], paths: tuple[str, str] | None) -> None:
    base, new = (dataclasses.replace(side, given=path) for side, path in zip((rich_made.base, rich_made.new), inputs, strict=True))
    comparison = dataclasses.replace(rich_made, base=base, new=new)
    assert words.sources(comparison) == paths
    if paths:
        text = Reading(pages(comparison, "pdf")).text
        assert f"Base: {paths[0]} · " in text
        assert f"New: {paths[1]} · " in text
        table = tables.alike(comparison).tables["runs"]
        column = next(i for i in table.columns_for("pdf") if table.columns[i].label == "Source")
        assert [row[column].text for row in table.rows] == list(paths)


def test_several_reasons_of_an_operator_are_in_the_pdf_without_a_bar(rich_made: Comparison) -> None:
    call = OperatorChange(
        "aten::copy_", None, None, "more calls", ("more calls", "other shape", "other type"), "operator", "[2]", "[4]", "float", "half",
        ("a",), ("b",), None, None, 0.167, 0.5, 1e6, 2e6, 1e6, 100.0,
    )  # fmt: skip
    table = operators(dataclasses.replace(rich_made, basis=Basis("step", 6.0, 2.0, None), operator_calls=(call,))).tables["table"]
    columns = table.columns_for("pdf")
    assert [table.columns[i].label for i in columns] == [
        "Operator", "Verdict", "Effect", "Base", "New", "Calls per step, base", "Calls per step, new",
    ]  # fmt: skip
    assert [table.rows[0][i].bar for i in columns] == [None] * 7


@pytest.mark.slow
def test_files_in_the_same_bytes_each_time(tmp_path: Path) -> None:
    comparison = made_of("cpu")
    first, second = (render_comparison(comparison, tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in first.values()] == ["comparison.html", "comparison.pdf", "comparison.json"]
    assert [path.read_bytes() for path in first.values()] == [path.read_bytes() for path in second.values()]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["comparison.html", "comparison.json", "comparison.pdf"]
    with pikepdf.open(first["pdf"]) as document:
        (attached,) = document.attachments.values()
        assert attached.get_file().read_bytes() == first["json"].read_bytes()
        assert list(document.attachments) == ["comparison.json"]
    assert json.loads(first["json"].read_text("utf-8"))["headline"] == comparison.headline


@pytest.mark.slow
def test_hostile_names_reach_the_pdf(rich_made: Comparison, tmp_path: Path) -> None:
    written = render_comparison(rich_made, tmp_path, ["pdf"], paper="Letter")
    with pikepdf.open(written["pdf"]) as document:
        assert 4 <= len(document.pages) <= 14
        box = document.pages[0].mediabox
        assert (round(float(box[2])), round(float(box[3]))) == (612, 792)


def test_what_is_no_format_or_paper_is_refused(rich_made: Comparison, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="docx is not a format of a comparison"):
        render_comparison(rich_made, tmp_path, ["docx"])
    with pytest.raises(UsageError, match="A5 is not a paper size"):
        render_comparison(rich_made, tmp_path, ["json"], paper="A5")
    assert list(tmp_path.iterdir()) == []


def rectangles(svg: str) -> list[tuple[float, float]]:
    return [(float(x), float(width)) for x, width in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg)]


def test_pairs_of_bars_are_as_long_as_their_values() -> None:
    drawn = before_after([Pair("a", "computation", 10.0, 5.0, "−50%"), Pair("b", "idle", 0.0, 2.5, "")], "ms", ("base", "new"))
    after = [width for _, width in rectangles(drawn)][1:]  # the first is that of the legend
    before = [float(right) - float(left) for left, right in re.findall(r'd="M([\d.]+) [\d.]+H([\d.]+)', drawn)][1:]
    assert before[0] / after[0] == pytest.approx(2, abs=0.01)
    assert after[0] / after[1] == pytest.approx(2, abs=0.01)
    assert before[1] == 0
    assert "−50%" in drawn
