"""Comparison of texts that name a GPU by its UUID, or its kind by a product name."""

from __future__ import annotations

import re


def plain(uuid: str | None) -> str | None:
    """Return a UUID without its notation (``GPU-``, dashes, case), or None for zeros."""
    text = re.sub(r"^(gpu|mig)-|-", "", (uuid or "").strip().lower())
    return text if text.strip("0") else None


def model(name: str) -> str:
    """Return the product name of a GPU without the vendor, which some tools leave out."""
    return re.sub(r"^(nvidia|tesla)\s+", "", re.sub(r"^nvidia\s+", "", name.strip().lower()))
