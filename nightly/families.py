"""The families of jobs: name, id and labels of a run -> the name of its family."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from ..errors import UsageError

LABEL: Final = "family"  # a run's label; it takes precedence over all patterns
_OF_JOBS: Final = r"runs?|jobs?|exp|experiment|build|night|nightly|train|training"
_WITHIN_JOBS: Final = (
    r"attempts?|try|tries|trial|restart|retry|rep|repeat|seed|iter|iteration|part|number|no|id"
    r"|output|outputs|out|logs?|profile|trace|traces|kineto|postrun[-_]runs"
)
_WORDS: Final = rf"{_OF_JOBS}|{_WITHIN_JOBS}"
_DATE: Final = (
    r"(?:19|20)\d\d[-_.]?(?:0[1-9]|1[0-2])[-_.]?(?:0[1-9]|[12]\d|3[01])"
    r"(?:[T_\s.-]{0,3}(?:[01]\d|2[0-3])[-_:.h]?[0-5]\d(?:[-_:.m]?[0-5]\d(?:[.,]\d+)?)?)?Z?"
)
_UUID: Final = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
_HASH: Final = r"(?=[0-9a-f]{0,63}\d)(?=[0-9a-f]{0,63}[a-f])[0-9a-f]{7,64}"
_COUNTER: Final = rf"(?:(?:{_WORDS})[-_.\s]?)?\#?\d+|\(\d+\)|\[\d+\]"
_END: Final = re.compile(rf"(?:^|[-_.\s/:@\#+,~]+|(?=[(\[]))(?:{_UUID}|{_DATE}|{_HASH}|{_COUNTER})$", re.IGNORECASE)
_SEPARATORS: Final = "-_. /:@#+,~\t\n"
_GENERIC: Final = re.compile(rf"(?:{_WORDS})", re.IGNORECASE)
_JOB: Final = re.compile(rf"(?:{_OF_JOBS})", re.IGNORECASE)
_COUNTED: Final = re.compile(rf"({_WORDS})[-_.\s]?\#?\d+", re.IGNORECASE)


def patterns_of(texts: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """Compile regular expressions. Raise UsageError for an invalid one."""
    patterns = []
    for text in texts:
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            raise UsageError(f"{text!r} is not a regular expression: {error}; write it like '^(gpt-[0-9]+b)'") from None
    return tuple(patterns)


def family_of(name: str | None, run_id: str, labels: Mapping[str, str], patterns: Sequence[re.Pattern[str]] = ()) -> str:
    """Return the family of a run.

    It is the label ``family``, else the match of the first pattern in the name or the id, else the name without dates, counters and hashes
    at its end. If the name contains nothing else, or only a word such as run, the nearest folder above that is more specific counts.
    Without one, it is the nearest word for jobs (train, run), then the nearest word for a part of a job (attempt, seed), then the entire
    name."""
    label = labels.get(LABEL)
    if isinstance(label, str) and label.strip():
        return label.strip()
    for pattern in patterns:
        for text in (name, run_id):
            if text and (match := pattern.search(text)):
                groups = [match["family"]] if "family" in pattern.groupindex else match.groups()
                return " ".join(group for group in groups if group) or pattern.pattern
    stems = [stem for text in (name, *reversed(run_id.split("/"))) if text and (stem := stem_of(text))]
    names = (stem for stem in stems if not _GENERIC.fullmatch(stem))
    words = (stem for stem in stems if _JOB.fullmatch(stem))
    return next(chain(names, words, stems), name or run_id)


@lru_cache(65_536)
def stem_of(text: str) -> str:
    """Remove dates, counters and hashes at the end; the result may be empty."""
    text = text[-256:].strip(_SEPARATORS)
    while text and (shorter := _END.sub("", text).rstrip(_SEPARATORS)) != text:
        if not shorter and (counted := _COUNTED.fullmatch(text)):
            return counted[1]
        text = shorter
    return text
