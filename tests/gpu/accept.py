#!/usr/bin/env python3
"""Runs the acceptance suite of GPU recording: python3 tests/gpu/accept.py --out DIR [--part 1|2].

It needs a GPU, PyTorch, nvcc, a C compiler and CMake; docs/gpu-acceptance.md describes the cases and the results.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # Python may run with -P

from acceptance.command import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve()))
