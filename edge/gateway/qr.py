"""QR codes as text."""

from __future__ import annotations

import io

import segno


def qr_lines(text: str) -> list[str]:
    """A QR code of half blocks, for a terminal with light text on a dark background."""
    out = io.StringIO()
    segno.make(text, micro=False, error="l").terminal(out=out, border=2, compact=True)
    return out.getvalue().splitlines()
