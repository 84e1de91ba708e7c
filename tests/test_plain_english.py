"""The lint of English and names: what each of its patterns matches and lets pass, and how its allowance works."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("plain_english", Path(__file__).with_name("plain_english.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
lint = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(lint)

# For each pattern of PHRASES, in their order: a text that it matches, and one that it lets pass.
SNIPPETS = [
    ("The reason is told.", "They can be told apart."),
    ("A file tells its version.", "A checksum can tell damaged blocks apart."),
    ("The trace says the shape.", "NVIDIA says that clocks drift."),
    ("The definition stands in another file.", "n stands for the number of ranks."),
    ("The file lies in a folder.", "The step lies between two kernels."),
    ("A name of which there are several.", "Six files, one of which is empty."),
    ("The first row. Of these the last one counts.", "The end of these rows is known."),
    ("All kernels, of them the longest.", "The sum of them is known."),
    ("What ran on the GPU.", "What does it cost?"),
    ("The list of what ran.", "It depends on what follows."),
    ("Zero where none was recorded.", "The folder where the recorder writes."),
    ("None where there is no trace.", "A place where threads wait."),
    ("Empty where it is unknown.", "The thread where it began."),
    ("Copies are counted, too.", "The range is, too often, empty."),
    ("The file beside the trace.", "Besides, the file is small."),
    ("A number in place of a name.", "The file is replaced in place."),
    ("All of them but for the first.", "Nothing but forks."),
    ("Up to so many rows.", "There are so many rows that the table is cut."),
    ("The rank that has most time.", "It has most of the time."),
    ("The file is no trace.", "There is no trace, and it is no longer read."),
    ("Mends a damaged file.", "An amended commit."),
    ("The reckoned time.", "The computed time."),
    ("The option is heeded.", "The option is needed."),
    ("Two rows were asked for.", "The shell asks a question."),
    ("The rule judges a GPU.", "The judgment of readers."),
    ("Supported from version 12 on.", "The rows from stream 7 on device 2."),
    ("Read as far as possible.", "Read so far."),
    ("Ends whoever waits.", "Ends the caller."),
    ("The run is called off.", "The run is canceled."),
    ("A folder holds the traces.", "The thread holds the lock."),
    ("The rate comes to 3 GB/s.", "The run comes to an end."),
    ("The files are of one node.", "The rows are of equal length."),
    ("The first ten, and further ones.", "No further rows follow."),
    ("It lasts from its begin to its end.", "The row of the begin event, and those of the begin and end events."),
    ("Mean utilisation of a GPU.", "A raised error, an otherwise fine run."),
    ("The colours of neighbouring bars.", "The colors of adjacent bars."),
]


def checks_of(path: str, source: str) -> list[tuple[int, str]]:
    return [(finding.line, finding.check) for finding in lint.file_findings(path, source)]


@pytest.mark.slow  # reads the whole repository; `make lint` does the same
def test_the_repository_is_within_its_allowances(capsys: pytest.CaptureFixture[str]) -> None:
    assert lint.main([]) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "matching", "passing"), [(number, *texts) for number, texts in enumerate(SNIPPETS)], ids=[texts[0] for texts in SNIPPETS]
)
def test_each_pattern_matches_its_phrase_alone(number: int, matching: str, passing: str) -> None:
    pattern, _ = lint.PHRASES[number]
    assert pattern.search(matching)
    assert not pattern.search(passing)


def test_each_pattern_has_a_snippet() -> None:
    assert len(SNIPPETS) == len(lint.PHRASES)


@pytest.mark.parametrize(
    ("path", "source", "line"),
    [
        ("a.py", '"""Title.\n\nThe file tells\nits version."""\n', 3),
        ("a.py", 'class A:\n    b = 1\n    """A file tells its version."""\n', 3),
        ("a.py", "a = 1\n# A file\n# tells its version.\n", 3),
        ("a.py", "a = 1  # a file tells its version\n", 1),
        ("a.c", "int a; /* A file\n * tells its version. */\n", 2),
        ("a.h", "int a;\n// A file is in place\n// of a name.\n", 2),
        ("a.j2", "<p>\n{# A file tells its version. #}\n", 2),
        ("a.md", "# Title\n\nA file tells its version.\n", 3),
        ("a.sh", "set -e # a file tells its version\n", 1),
        ("Makefile", "all: ## a file tells its version\n", 1),
        ("run", "#!/bin/sh\n# a file tells its version\n", 2),
    ],
)
def test_prose_is_read_with_its_line(path: str, source: str, line: int) -> None:
    assert checks_of(path, source) == [(line, "prose")]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("a.py", 'a = "# A file tells its version."\nprint("A file tells")\n'),
        ("a.py", '"""The function ``tells`` of `told`, in the words "which tells it"."""\n'),
        ("a.py", "# the word 'tells' and “it tells”\n"),
        ("a.c", 'char *a = "/* it tells */ // it tells";\n'),
        ("a.j2", "<p>A file tells its version.</p>\n"),
        ("a.md", "Run `tells`:\n\n    tells --all\n\n```\ntells\n```\n\n[Link](it-tells.md)\n"),
        ("a.sh", 'echo "$#tells"\n'),
        ("CHANGELOG.md", "A file tells its version.\n"),
        ("a.txt", "A file tells its version.\n"),
    ],
)
def test_code_and_quoted_text_are_passed_over(path: str, source: str) -> None:
    assert checks_of(path, source) == []


def test_questions() -> None:
    assert checks_of("a.py", '"""Which rows does it write?"""\n') == [(1, "question")]
    assert checks_of("a.py", '"""Which rows,\nand when? Some."""\n') == [(1, "question")]
    assert checks_of("a.py", '"""Rows of a.log. Why? They are short."""\n') == []


def test_summaries() -> None:
    long = "Return " + "a" * 80
    assert checks_of("a.py", f'def f():\n    """{long}"""\n') == [(2, "summary")]
    assert checks_of("a.py", f'def f():\n    """{long[:80]}\n\n    {long}"""\n') == []
    assert checks_of("a.py", f'"""{long}"""\n') == []


@pytest.mark.parametrize(
    "source",
    [
        "one = 1",
        "def f(own): pass",
        "class Told: pass",
        "_SHOWN: int = 8",
        "def given(): pass",
        "import a as other",
        "if (few := 1): pass",
        "self.made = 1",
        "for place in (): pass",
        "with a as both: pass",
        "match a:\n    case [*many]: pass",
    ],
)
def test_banned_names(source: str) -> None:
    assert [check for _, check in checks_of("a.py", source)] == ["name"]


@pytest.mark.parametrize(
    "source", ["[one for one in a]", "sum(own for own in a)", "lambda other: other", "print(one, a.shown)", "someone = 1"]
)
def test_names_that_live_briefly_or_belong_to_others(source: str) -> None:
    assert checks_of("a.py", source) == []


def test_allowances_only_fall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    allowances = tmp_path / "allowances.json"
    monkeypatch.setattr(lint, "ALLOWANCES", allowances)
    tree = tmp_path / "tree"
    (tree / "a").mkdir(parents=True)
    (tree / "a" / "b.py").write_text("# It tells all.\none = 1\n", "utf-8")
    (tree / "c.py").write_text("# It is told.\n", "utf-8")
    allowances.write_text(json.dumps({"a": {"prose": 3, "name": 1}, "gone": {"prose": 2}}), "utf-8")
    assert lint.main(["--root", str(tree)]) == 1
    assert capsys.readouterr().err == ".: prose: 1 findings, 0 allowed\n", "not also that others are fewer than allowed"
    assert lint.main(["--root", str(tree), "--write"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "c.py:1: prose: told: is reported, is passed, is shown\n"
    assert printed.err == ".: prose: 1 findings, 0 allowed\n"
    assert json.loads(allowances.read_text("utf-8")) == {"a": {"prose": 1, "name": 1}}
    (tree / "c.py").write_text("", "utf-8")
    assert lint.main(["--root", str(tree)]) == 0
