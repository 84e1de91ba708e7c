"""What does the index page of a night say, and in which words?"""
from __future__ import annotations
from typing import Any
def index_page(index: Any, *, most_families: int = 60) -> str:
    return ""
