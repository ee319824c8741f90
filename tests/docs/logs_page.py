"""The table of docs/logs.md, from the code. `python -m tests.docs.logs_page` writes the page."""

from __future__ import annotations

import re
from pathlib import Path

from dovetail.kube.log import LOG_FIELDS

PAGE = Path(__file__).parent.parent.parent / "docs" / "logs.md"
TABLE = re.compile(r"<!-- table: fields -->\n(.*?)<!-- end -->\n", re.DOTALL)


def table() -> str:
    rows = "".join(f"| `{name}` | {text} |\n" for name, text in LOG_FIELDS.items())
    return f"\n| field | what it says |\n|---|---|\n{rows}\n"


def filled(page: str) -> str:
    return TABLE.sub(lambda found: f"<!-- table: fields -->\n{table()}<!-- end -->\n", page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
