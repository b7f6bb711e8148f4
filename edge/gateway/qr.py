"""QR codes as text."""

from __future__ import annotations

import io

import segno


def qr_lines(text: str) -> list[str]:
    """A QR code in half blocks, as a terminal with light text on dark ground shows it."""
    out = io.StringIO()
    segno.make(text, micro=False, error="l").terminal(out=out, border=2, compact=True)
    return out.getvalue().splitlines()
