"""`python -m dovetail` is `dovetail`."""

from __future__ import annotations

from dovetail.cli.main import main

if __name__ == "__main__":
    main()
