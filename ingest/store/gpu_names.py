"""When do two texts name the same GPU, or the same kind of GPU?"""

from __future__ import annotations

import re


def plain(uuid: str | None) -> str | None:
    """A UUID without what is written in several ways: ``GPU-`` before it, dashes, case. None where it says nothing."""
    text = re.sub(r"^(gpu|mig)-|-", "", (uuid or "").strip().lower())
    return text if text.strip("0") else None


def model(name: str) -> str:
    """The product name of a GPU without the maker, which some tools leave out."""
    return re.sub(r"^(nvidia|tesla)\s+", "", re.sub(r"^nvidia\s+", "", name.strip().lower()))
