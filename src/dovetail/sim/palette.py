"""Colours of policies, distinct with any colour vision: Okabe and Ito's, in a darker set and a lighter set."""

from __future__ import annotations

LIGHT = ("#0b62b0", "#c8510a", "#0a8462", "#a8508a", "#6b5bd0", "#8a6d00", "#2f8fc4", "#6a7078")
DARK = ("#6cb2f5", "#ff9a57", "#45cfa4", "#ec9fd2", "#b0a4ff", "#e3c04a", "#8ad4ff", "#b6bdc6")
DASHES = ("", "6 3", "2 3")  # for the first, second and third use of a colour


def colour(at: int) -> str:
    return LIGHT[at % len(LIGHT)]


def dash(at: int) -> str:
    return DASHES[at // len(LIGHT) % len(DASHES)]
