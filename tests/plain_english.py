"""Finds unidiomatic English in docstrings, comments and documents, and names that are not terms of the field.

    python3 tests/plain_english.py              findings of the folders that exceed their allowance; the exit status is 1 if there are any
    python3 tests/plain_english.py PATH...      all findings of these files and folders
    python3 tests/plain_english.py --count      how many findings each folder has
    python3 tests/plain_english.py --write      lowers the allowances to the present counts; never raises one

tests/data/plain_english.json contains the allowance: top-level folder -> check -> number of findings. The checks:

    prose       a phrase in PHRASES
    question    a docstring whose first sentence is a question
    summary     a function whose docstring has a first line of more than 80 characters
    name        a variable, parameter, attribute, function or class whose name is in BANNED_NAMES

Code, quoted text, and string literals other than docstrings are not checked. The phrases below are such literals.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ALLOWANCES = Path(__file__).resolve().parent / "data" / "plain_english.json"
CHECKS = ("prose", "question", "summary", "name")
MAX_SUMMARY = 80  # characters: a first line fits into the list of an editor or of help()

BANNED_NAMES = frozenset(
    ("one", "other", "found", "made", "given", "said", "told", "shown", "own", "whole", "both", "many", "few", "place"),
)

# Fragments of the patterns below. A space also matches a line break. Lookaheads after a banned word let its idiomatic uses pass.
START = r"(?:^|\n\n|[.;:?!]\s+)(?:[-*|]\s+)?"  # of a sentence, paragraph or list item
END = r"(?=\s*(?:[.,;:)]|\Z|\n\n))"  # of a clause
THEM = r"(?:it|these|those|them)\b"
LESS = r"(?:longer|more|less|fewer|different|better|worse|later|earlier|larger|smaller|need|one\b)"  # "is no longer"
NOUN = r"(?:(?:the|a|an|all|its|their|no|only|every|each|one|two|at|what|how|rows|names)\b)"
BRITISH_ISE = "util|initial|synchron|optim|normal|serial|organ|recogn|visual|summar|categor|minim|maxim|priorit|special|general"
BRITISH_OUR = "neighbour|colour|behaviour|favour|flavour|honour|labour"
BRITISH = "centre|metre|fibre|grey|licence|catalogue|cancelling|labelled|labelling|modelling|travelling|signalled|analys(?:e|ed|ing)"

PHRASES = [
    (re.compile(pattern.replace(" ", r"\s"), re.IGNORECASE), advice)
    for pattern, advice in (
        (r"\btold\b(?! (?:apart|otherwise)\b)", "is reported, is passed, is shown"),
        (r"\btells?\b(?! (?:\S+ ){0,4}apart\b| (?:whether|if|which|what|why|how)\b|[).,;])", "reports, shows, lists, records, contains"),
        (r"(?<!user )\b(?:says?|said)\b(?! (?:that|so)\b)", "states, reports, shows, is stated"),
        (r"\b(?:stands?|stood)\b(?! (?:in )?for\b|-|alone| out\b)", "is, appears, is written"),
        (r"\b(?:lies|lie|lay)\b(?! (?:between|within|inside|outside|before|after|out)\b)", "is, are, is stored"),
        (r"(?<!one )(?<!some )(?<!all )(?<!most )(?<!each )(?<!both )(?<!none )(?<!two )\bof which\b", "whose, or a sentence of its own"),
        (rf"{START}of {THEM}", "name the subject"),
        (rf"(?:,|;| and| or) of {THEM}", "name the noun"),
        (rf"{START}(?-i:What) (?![^.]*\?)", "a noun: GPU activity, the rows, the files that ..."),
        (r"\b(?:of|from|than|besides|beside|without|except) what\b(?! (?:if|follows)\b)", "a noun: the rows, the files that ..."),
        (r"\bwhere (?:none|nothing|neither|no|not)\b", "if, when"),
        (r"\bwhere there (?:is|are|was|were)\b", "if there is, with"),
        (r"\bwhere (?:it|this|that|they|these) (?:is|are|was|were|does|do|has|have|can)\b", "if, when"),
        (rf", too(?:{END}|(?=\s+(?:and|or|but|if|when|where|unless)\b))", "also"),
        (r"\bbeside\b", "next to, with, besides"),
        (r"\bin (?:the )?place of\b", "instead of"),
        (r"\bbut for\b", "except, except for"),
        (r"\bso (?:many|much)\b(?!(?: \S+){0,6} that\b)", "this many, N, as many"),
        (r"\b(?:has|have|had|takes?|took|with) (?:the )?most\b(?! (?:of|likely|recent|common|recently|one)\b)", "the largest share is"),
        (rf"(?<!there )\b(?:is|are|was|were) no (?!{LESS})[a-z]", "is not a, is an unknown"),
        (r"\bmend(?:s|ed|ing)?\b", "fix"),
        (r"\breckon(?:s|ed|ing)?\b", "compute"),
        (r"\bheed(?:s|ed|ing)?\b", "use, follow"),
        (r"\bask(?:s|ed|ing)? for\b", "request, require"),
        (r"\bjudg(?:e|es|ed|ing)\b", "evaluate"),
        (rf"\bfrom (?!now|then|here|there)(?:[\w.+-]+ ){{1,4}}on(?:{END}|(?= (?:and|is|are)\b))", "from X, at least X, starting with X"),
        (r"\bas far as\b", "up to, if"),
        (r"\bwhoever\b", "the caller, the user"),
        (r"\bcall(?:s|ed|ing)? off\b", "cancel"),
        (rf"\bholds? (?={NOUN})(?!(?:the|a|its) (?:lock|GIL|subscription))", "contains"),
        (r"\b(?:comes?|came) to (?!be\b|an end|the same|light|rest)", "reaches, is"),
        (r"\b(?:is|are|was|were) of (?:one|them|all|several|none|both)\b", "belong to, come from, have"),
        (r"\bfurther ones\b", "others, more"),
        (r"\b(?:the|its|their) begin\b(?! (?:and end )?events?\b)", "start"),
        (rf"\b\w*(?:{BRITISH_ISE})is(?:e|es|ed|er|ing|ation|ations)\b", "US spelling: -ize"),
        (rf"\b(?:{BRITISH_OUR})\w*|\b(?:{BRITISH})s?\b", "US spelling"),
    )
]

QUESTION = re.compile(r"(?:[^.!?]|[.!?](?=\S))*\?(?=\s|\Z)")  # matches a text whose first sentence is a question

# Kinds of syntax nodes that bind a name, with the field that contains it.
BINDING_FIELDS = {
    ast.Name: "id",
    ast.Attribute: "attr",
    ast.arg: "arg",
    ast.alias: "asname",
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.ExceptHandler: "name",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
}
BRIEF = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda  # their names may be short

_QUOTED = re.compile(
    r"``.+?``|`[^`]+`"  # inline code
    r'|"[^"\n]{1,80}(?:\n[^"\n]{0,80})?"|“[^”]{1,200}”'
    r"|(?<![\w'])'[^'\n]{1,60}'(?!\w)"
    r"|\]\([^)\s]+\)|https?://\S+|</?[a-z][^>\n]*>",  # link targets, addresses, HTML tags
    re.DOTALL,
)

# Comments of each language. A pattern also matches string literals, so that a "#" or "//" inside one is passed over.
_LITERAL = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
_LONG_LITERAL = r'"""(?:\\.|[^\\])*?"""|\'\'\'(?:\\.|[^\\])*?\'\'\''
_PYTHON = re.compile(rf"{_LONG_LITERAL}|{_LITERAL}|(?:^[ \t]*#[^\n]*\n)+|#[^\n]*", re.DOTALL | re.MULTILINE)
_C = re.compile(rf"{_LITERAL}|/\*.*?\*/|(?:^[ \t]*//[^\n]*\n)+|//[^\n]*", re.DOTALL | re.MULTILINE)
_JINJA = re.compile(r"\{#.*?#\}", re.DOTALL)
_HASH = re.compile(r"(?:^[ \t]*#+(?:[ \t][^\n]*)?\n)+|(?<=[ \t])##? [^\n]*", re.MULTILINE)
_BY_SUFFIX = {".c": _C, ".h": _C, ".cu": _C, ".j2": _JINJA} | dict.fromkeys((".sh", ".toml", ".yml", ".yaml", ".cmake"), _HASH)
_MARKERS = re.compile(r"^[ \t]*(?:/\*+|//+|\*(?!/)|\{#-?|#+)|\*/|-?#\}", re.MULTILINE)

_FENCE = re.compile(r"^([ \t]*)(```|~~~).*?^[ \t]*\2[ \t]*$", re.MULTILINE | re.DOTALL)
_INDENTED_CODE = re.compile(r"(?:(?<=\n\n)|\A)(?:    [^\n]*(?:\n|\Z)|\n(?=    ))+")


class Finding(NamedTuple):
    path: str
    line: int
    check: str
    words: str
    advice: str


class Passage(NamedTuple):
    """A comment, a docstring or a document, with the number of its first line."""

    line: int
    text: str


def _blank(match: re.Match[str]) -> str:
    """Keep the line breaks of a match, so that later lines keep their numbers."""
    return "X" + "\n" * match[0].count("\n")


def prose_findings(path: str, passage: Passage) -> Iterator[Finding]:
    text = _QUOTED.sub(_blank, passage.text).replace("\t", " ")
    text = re.sub(r" *\n *", "\n", re.sub(" +", " ", text)).strip(" ")  # each line break is kept, and counted below
    for pattern, advice in PHRASES:
        for match in pattern.finditer(text):
            words = match[0].strip(" \t\n.;:?!,-*|") or match[0]
            start = match.start() + match[0].find(words)
            yield Finding(path, passage.line + text.count("\n", 0, start), "prose", " ".join(words.split()), advice)


def comments(source: str, pattern: re.Pattern[str]) -> Iterator[Passage]:
    """Yield the comments that `pattern` finds, without their markers."""
    for match in pattern.finditer(source):
        if match[0].lstrip().startswith(("#", "//", "/*", "{#")):
            yield Passage(source.count("\n", 0, match.start()) + 1, _MARKERS.sub(" ", match[0]))


def markdown(source: str) -> Iterator[Passage]:
    yield Passage(1, _INDENTED_CODE.sub(_blank, _FENCE.sub(_blank, source)))


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree outside comprehensions and lambdas."""
    nodes = deque([tree])
    while nodes:
        node = nodes.popleft()
        yield node
        if not isinstance(node, BRIEF):
            nodes.extend(ast.iter_child_nodes(node))


def docstrings(node: ast.AST, lines: list[str]) -> Iterator[tuple[Passage, bool]]:
    """Yield docstrings of a node and of its attributes; True for a function's."""
    for number, statement in enumerate(getattr(node, "body", ())):
        if isinstance(statement, ast.Expr) and isinstance(value := statement.value, ast.Constant) and isinstance(value.value, str):
            text = "\n".join(lines[value.lineno - 1 : value.end_lineno])
            text = re.sub(r"^\s*[rR]?(\"\"\"|'''|\"|')(.*)\1[^\n]*$", r"\2", text, flags=re.DOTALL)
            yield Passage(value.lineno, text), number == 0 and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def bound_name(node: ast.AST) -> str:
    """Return the name that a node binds, or an empty text."""
    field = BINDING_FIELDS.get(type(node))
    if field is None or isinstance(getattr(node, "ctx", None), ast.Load | ast.Del):
        return ""
    return getattr(node, field) or ""


def docstring_findings(path: str, passage: Passage, of_function: bool) -> Iterator[Finding]:
    yield from prose_findings(path, passage)
    summary = passage.text.strip().split("\n", 1)[0].strip()
    if QUESTION.match(passage.text):
        yield Finding(path, passage.line, "question", summary, "a statement: what the code provides or does")
    if of_function and len(summary) > MAX_SUMMARY:
        yield Finding(path, passage.line, "summary", f"{summary[:40]}...", f"{len(summary)} characters, at most {MAX_SUMMARY}")


def python_findings(path: str, source: str) -> Iterator[Finding]:
    for passage in comments(source, _PYTHON):
        yield from prose_findings(path, passage)
    lines = source.splitlines()
    for node in walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for passage, of_function in docstrings(node, lines):
                yield from docstring_findings(path, passage, of_function)
        name = bound_name(node)
        if name.strip("_").lower() in BANNED_NAMES:
            yield Finding(path, getattr(node, "lineno", 1), "name", name, "a noun of the field: device, matched_rules")


def file_findings(path: str, source: str) -> list[Finding]:
    """Return the findings of a file in line order; `path` decides the language."""
    file = Path(path)
    interpreter = source.partition("\n")[0] if source.startswith("#!") else ""
    if file.suffix in (".py", ".pyi") or "python" in interpreter:
        return sorted(python_findings(path, source))
    if file.suffix == ".md" and file.name != "CHANGELOG.md":
        passages = markdown(source)
    elif pattern := _BY_SUFFIX.get(file.suffix):
        passages = comments(source, pattern)
    elif file.name in ("Makefile", "CMakeLists.txt") or "sh" in interpreter:
        passages = comments(source, _HASH)
    else:
        return []
    return sorted(finding for passage in passages for finding in prose_findings(path, passage))


def tracked_files(root: Path) -> list[str]:
    """List the tracked files of a checkout, or all files of a folder that is not one."""
    if (root / ".git").exists():
        listing = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
        return [path for path in listing.split("\0") if path and (root / path).is_file()]
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def tree_findings(root: Path, paths: Iterable[str] = ()) -> list[Finding]:
    """Return the findings of the tracked files at or below `paths`, or of all."""
    wanted = [(Path.cwd() / path).resolve() for path in paths]
    findings = []
    for path in tracked_files(root):
        file = root / path
        if wanted and not any(file == parent or parent in file.parents for parent in wanted):
            continue
        try:
            source = file.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        findings += file_findings(path, source)
    return findings


def folder_of(path: str) -> str:
    return path.split("/", 1)[0] if "/" in path else "."


def counts_of(findings: Iterable[Finding]) -> Counter[tuple[str, str]]:
    """Count findings by folder and check."""
    return Counter((folder_of(finding.path), finding.check) for finding in findings)


def read_allowances() -> Counter[tuple[str, str]]:
    data = json.loads(ALLOWANCES.read_text("utf-8")) if ALLOWANCES.exists() else {}
    return Counter({(folder, check): number for folder, checks in data.items() for check, number in checks.items()})


def write_allowances(numbers: Counter[tuple[str, str]]) -> None:
    data = {folder: {check: numbers[folder, check] for check in CHECKS if numbers[folder, check]} for folder, _ in sorted(numbers)}
    ALLOWANCES.write_text(json.dumps({folder: checks for folder, checks in data.items() if checks}, indent=2) + "\n", "utf-8")


def print_counts(counts: Counter[tuple[str, str]]) -> None:
    print(f"{'folder':20}" + "".join(f"{check:>10}" for check in CHECKS))
    for folder in sorted({folder for folder, _ in counts}):
        print(f"{folder:20}" + "".join(f"{counts[folder, check]:10}" for check in CHECKS))
    print(f"{'total':20}" + "".join(f"{sum(number for key, number in counts.items() if key[1] == check):10}" for check in CHECKS))


def print_findings(findings: Iterable[Finding]) -> None:
    for finding in findings:
        print(f"{finding.path}:{finding.line}: {finding.check}: {finding.words}: {finding.advice}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check docstrings, comments and documents for unidiomatic English.")
    parser.add_argument("paths", nargs="*", help="list all findings of these files and folders")
    parser.add_argument("--count", action="store_true", help="print how many findings each folder has")
    parser.add_argument("--write", action="store_true", help="lower the allowances to the present counts")
    parser.add_argument("--root", type=Path, default=ROOT, help="check this tree instead of this checkout")
    options = parser.parse_args(arguments)
    findings = tree_findings(options.root.resolve(), options.paths)
    counts = counts_of(findings)
    if options.count:
        print_counts(counts)
        return 0
    if options.paths:
        print_findings(findings)
        return 1 if findings else 0
    allowances = read_allowances()
    exceeded = {key for key, number in counts.items() if number > allowances[key]}
    print_findings(finding for finding in findings if (folder_of(finding.path), finding.check) in exceeded)
    for folder, check in sorted(exceeded):
        print(f"{folder}: {check}: {counts[folder, check]} findings, {allowances[folder, check]} allowed", file=sys.stderr)
    if options.write:
        write_allowances(Counter({key: min(number, allowances[key]) for key, number in counts.items()}))
    elif not exceeded and any(counts[key] < number for key, number in allowances.items()):
        print("Fewer findings than allowed: lower the allowances with tests/plain_english.py --write.", file=sys.stderr)
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
