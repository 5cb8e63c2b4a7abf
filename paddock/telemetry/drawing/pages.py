"""Pages that people open: HTML in one file, without anything from elsewhere, for screens of any width, light or dark,
and for paper. A page may bring one script of its own, and runs no other: its policy names it by its hash."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from typing import Literal

from paddock.telemetry.drawing.svg import STYLE

Mood = Literal["good", "bad", "plain"]
LAYOUT = """
* { box-sizing: border-box; } html { background: var(--surface); color: var(--ink); }
body { margin: 0 auto; padding: 24px 20px 48px; max-width: 920px; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 32px 0 8px; } p { margin: 6px 0; } code { overflow-wrap: anywhere; }
.soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); }
.badge { display: inline-block; padding: 2px 12px; margin-bottom: 10px; border: 1.5px solid currentColor;
  border-radius: 999px; font-weight: 600; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 10px; margin: 18px 0 6px; }
.tile { border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px; }
.tile b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums; } .tile span { color: var(--soft); }
.scroll { overflow-x: auto; } .scroll + .scroll { margin-top: 16px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line); }
td { overflow-wrap: break-word; } td.number { white-space: nowrap; } th { color: var(--soft); font-weight: 500; }
ul { padding-left: 1.2em; margin: 6px 0; } li { overflow-wrap: anywhere; margin: 3px 0; }
footer { margin-top: 36px; color: var(--soft); font-size: 0.9rem; overflow-wrap: anywhere; }
@media (max-width: 560px) { body { padding: 16px 14px 32px; } h1 { font-size: 1.25rem; }
  table { font-size: 0.87rem; } th, td { padding-right: 9px; } }
@media print { body { padding: 0; max-width: none; font-size: 11pt; } figure, .tile, tr, li { break-inside: avoid; }
  h2 { break-after: avoid; } }
"""


def page(title: str, body: Sequence[str], footer: str = "", *, style: str = "", script: str = "") -> str:
    """A whole page; the parts of its body are HTML already."""
    allowed = f" script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}';" if script else ""
    policy = f"default-src 'none'; style-src 'unsafe-inline';{allowed}".removesuffix(";")
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}{LAYOUT}{style}</style></head><body>",
            *body,
            f"<footer>{escape(footer)}</footer>" if footer else "",
            f"<script>{script}</script>" if script else "",
            "</body></html>\n",
        ]
    )


def heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str, mood: str = "") -> str:
    return f'<p class="{mood}">{escape(text)}</p>' if mood else f"<p>{escape(text)}</p>"


def badge(text: str, mood: Mood) -> str:
    return f'<span class="badge {mood}">{escape(text)}</span>'


def tiles(values: Sequence[tuple[str, str, str, Mood]]) -> str:
    """Numbers that one looks at first: a name, the number, a word on it, and how good it is."""
    cells = [
        f'<div class="tile"><span>{escape(name)}</span><b class="{mood}">{escape(number)}</b>'
        f"<span>{escape(more)}</span></div>"
        for name, number, more, mood in values
    ]
    return f'<div class="tiles">{"".join(cells)}</div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str | tuple[str, Mood]]]) -> str:
    """A table; a cell may have a mood."""
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(map(cell, row)) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def cell(content: str | tuple[str, Mood]) -> str:
    """A cell of a table, which may have a mood."""
    text, mood = content if isinstance(content, tuple) else (content, "")
    breakable = re.sub(r"(?<=\w)([._/])(?=[a-zA-Z])", r"\1<wbr>", escape(text))
    return f'<td class="{mood}{" number" if text[:1].isdigit() and len(text) < 16 else ""}">{breakable}</td>'


def bullets(lines: Sequence[str], mood: Mood = "plain") -> str:
    return f'<ul class="{mood}">' + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def figure(svg: str) -> str:
    return f'<figure style="margin:10px 0">{svg}</figure>'
