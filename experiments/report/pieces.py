"""Parts of the page that several sections have: tables, targets, verdicts, things that open."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from nearsight.experiments.report.collecting import Target
from nearsight.experiments.report.comparison import number
from nearsight.experiments.report.markup import Markup, tag, together

_LONGEST_NUMBER = 30
REACHED, MISSED = "✓ reached", "✗ missed"


def data_table(
    columns: Sequence[object], rows: Sequence[Sequence[object]], caption: str = "", *, whole: bool = False
) -> Markup:
    """A table that scrolls by itself if it is wide, or long unless ``whole``; numbers stand to the right."""
    right = [_numeric([str(row[place]) for row in rows]) for place in range(len(columns))]
    head = tag("tr", *(_cell("th", name, right[place], scope="col") for place, name in enumerate(columns)))
    body = (tag("tr", *(_cell("td", cell, right[place]) for place, cell in enumerate(row))) for row in rows)
    heading = tag("caption", caption) if caption else ""
    table = tag("table", heading, tag("thead", head), tag("tbody", together(body)))
    return tag(
        "div",
        table,
        class_="scroll whole" if whole else "scroll",
        tabindex="0",
        role="region",
        aria_label=caption or "table",
    )


def targets_table(targets: Iterable[Target]) -> Markup:
    """Verdict, text and value of every target; the missed ones first."""
    ordered = sorted(targets, key=lambda target: target.reached)
    rows = [(verdict(target.reached), told(target), measured(target.value)) for target in ordered]
    return data_table(("", "target", "measured"), rows)


def told(target: Target) -> Markup:
    """Its text, and what is to be known about it."""
    return together([target.text, tag("p", target.note, class_="note") if target.note else ""])


def verdict(reached: bool) -> Markup:
    """In words, sign and colour: none of them alone."""
    return tag("span", REACHED if reached else MISSED, class_="reached" if reached else "missed")


def tally(targets: Sequence[Target], of: str = "") -> Markup:
    """How many of the targets were reached."""
    reached = sum(target.reached for target in targets)
    if not targets:
        return tag("span", "no targets", class_="tally none")
    kind = "all" if reached == len(targets) else "some"
    return tag("span", f"{reached} of {len(targets)} {of}".strip(), class_=f"tally {kind}")


def opens(summary: object, *content: object, opened: bool = False, class_: str = "") -> Markup:
    """Something that opens when it is asked for, and always in print."""
    return tag("details", tag("summary", summary), *content, open=opened, class_=class_)


def shell(command: str) -> Markup:
    """A command to type."""
    return tag("code", command, class_="command")


def notice(text: str, typed: str = "") -> Markup:
    """A line that asks for attention, with the command that helps."""
    return tag("p", text, " " if typed else "", shell(typed) if typed else "", class_="notice")


def paragraphs(text: str) -> Markup:
    """Plain text with empty lines between paragraphs; what stands in backquotes is code."""
    found = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))
    return together(tag("p", _with_code(part)) for part in found if part)


def measured(value: float) -> str:
    """Four digits; thousands apart."""
    if not math.isfinite(value):
        return "none"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def moment(stored: object) -> str:
    """Time as it is stored, as a person reads it: "2026-11-21 06:44 UTC"."""
    try:
        found = datetime.fromisoformat(str(stored))
    except ValueError:
        return str(stored)
    return f"{found:%Y-%m-%d %H:%M} {found.tzname() or ''}".strip()


def anchor(name: str) -> str:
    """Of the experiment's section."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _with_code(text: str) -> Markup:
    parts = re.split(r"(`+[^`]+`+)", text)
    return together(tag("code", part.strip("`")) if part.startswith("`") else part for part in parts)


def _numeric(cells: Sequence[str]) -> bool:
    """Whether a column holds numbers, or things as short that begin with one, such as "12.3 ± 0.4"."""
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(number(cell) is not None and len(cell) <= _LONGEST_NUMBER for cell in filled)


def _cell(name: str, content: object, right: bool, **attributes: str) -> Markup:
    return tag(name, content, class_="number" if right else "", **attributes)
