"""What does ``python -m postrun`` do? The same as the command."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main(prog_name="postrun")
