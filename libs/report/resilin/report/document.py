"""The frame that every page shares: one file, no scripts, nothing fetched.

Strings of a log are written by users. They enter a page through :func:`escaped` only, and
the page's content security policy forbids scripts and requests altogether, so that a
mistake here would still run nothing.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

__all__ = ["Tile", "document", "escaped", "figure_of", "tile_list"]


@dataclass(frozen=True, slots=True)
class Tile:
    """One headline figure.

    Attributes:
        name: The summary's name for it.
        label: What people call it.
        value: The figure, readable.
        note: What it is measured against; may be empty.
        alarm: Whether it is bad news.
    """

    name: str
    label: str
    value: str
    note: str = ""
    alarm: bool = False


def escaped(text: object) -> str:
    """Make any text safe inside an element and inside a quoted attribute.

    Control characters, which HTML cannot carry, turn into U+FFFD, and directional controls,
    which could rearrange the text around them, become visible.
    """
    cleaned = "".join(_visible(character) for character in str(text))
    return html.escape(cleaned, quote=True)


def _visible(character: str) -> str:
    code = ord(character)
    if code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code <= 0xDFFF or code in _NONCHARACTERS:
        return " " if character in "\t\n\r" else "\N{REPLACEMENT CHARACTER}"
    if code in _DIRECTIONAL:
        return f"<U+{code:04X}>"
    return character


_DIRECTIONAL = frozenset(
    (0x061C, *range(0x200E, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
)
_NONCHARACTERS = frozenset(range(0xFDD0, 0xFDF0)) | {0xFFFE, 0xFFFF}


def figure_of(summary: Mapping[str, Any], name: str) -> float:
    """Look up a figure of a summary.

    Raises:
        ValueError: The summary does not have it as a finite number.
    """
    value = summary.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        msg = (
            f"summary of policy {summary.get('policy')!r}: {name} is "
            f"{'missing' if name not in summary else repr(value)}; "
            "expected a finite number, as Summary.as_dict() has it"
        )
        raise ValueError(msg)
    return value


def tile_list(tiles: Iterable[Tile]) -> str:
    """Lay headline figures out."""
    cells = []
    for tile in tiles:
        alarm = " alarm" if tile.alarm else ""
        note = f'<dd class="against">{escaped(tile.note)}</dd>' if tile.note else ""
        cells.append(
            f'<div class="tile{alarm}"><dt>{escaped(tile.label)}</dt>'
            f'<dd class="value" data-figure="{escaped(tile.name)}">{escaped(tile.value)}</dd>'
            f"{note}</div>"
        )
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def document(title: str, lead: str, sections: Iterable[str]) -> str:
    """Wrap sections into a page.

    Args:
        title: The page's title, as plain text.
        lead: The line below it, as HTML.
        sections: The page's sections, as HTML.
    """
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="generator" content="Resilin">',
            f"<title>{escaped(title)}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            f"<header><h1>{escaped(title)}</h1>",
            f'<p class="lead">{lead}</p></header>',
            "<main>",
            *sections,
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


_CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

# Every text colour has a contrast of 4.5 or more on both backgrounds of its mode, every
# colour of a drawing 3 or more on the panel (WCAG 2.2, 1.4.3 and 1.4.11).
_STYLE = """
:root{--back:#f4f6f8;--panel:#ffffff;--text:#1a2129;--muted:#55616d;--line:#dde3e9;
--held:#4b90cd;--effective:#0d4a80;--working:#55616d;--submitted:#55616d;--admitted:#1668b0;
--completed:#17794a;--declined:#a85400;--late:#c3242b;--met:#17794a;--other:#6d7986;
--alarm:#fdecec}
@media (prefers-color-scheme:dark){:root{--back:#0e1318;--panel:#161d24;--text:#e7ecf0;
--muted:#9daab6;--line:#2b353f;--held:#3d77ab;--effective:#a5d3fb;--working:#9daab6;
--submitted:#9daab6;--admitted:#62aef0;--completed:#4cc58c;--declined:#eda24f;--late:#ff7d76;
--met:#4cc58c;--other:#8a97a4;--alarm:#3a1d20}}
*{box-sizing:border-box}
body{margin:0;padding:2rem clamp(.75rem,3vw,2.5rem) 3rem;background:var(--back);
color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",
Arial,sans-serif;font-variant-numeric:tabular-nums}
header,main{max-width:1180px;margin:0 auto}
h1{margin:0;font-size:1.75rem;line-height:1.2;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{margin:0;font-size:1.1rem;line-height:1.3}
.lead{margin:.35rem 0 1.5rem;color:var(--muted)}
section{margin:0 0 1.25rem;padding:1.15rem 1.35rem 1.25rem;background:var(--panel);
border:1px solid var(--line);border-radius:10px}
.note{margin:.2rem 0 .8rem;color:var(--muted);max-width:100ch}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(160px,1fr));gap:1px;
margin:1.1rem -1.35rem -1.25rem;border-top:1px solid var(--line);
border-radius:0 0 10px 10px;overflow:hidden}
.tile{padding:.8rem 1rem .85rem 1.35rem;box-shadow:0 0 0 1px var(--line)}
.tile dt{color:var(--muted);font-size:.84rem}
.tile dd{margin:0}
.tile .value{font-size:1.35rem;white-space:nowrap;font-weight:650;line-height:1.3;
letter-spacing:-.01em}
.tile .against{color:var(--muted);font-size:.8rem;line-height:1.35}
.tile.alarm{background:var(--alarm)}
.tile.alarm .value{color:var(--late)}
.legend{display:flex;flex-wrap:wrap;gap:.25rem 1.3rem;margin:.2rem 0 .5rem;padding:0;
list-style:none;font-size:.88rem}
.legend svg{width:16px;height:11px;margin-right:.45rem;vertical-align:-1px}
.wide{overflow-x:auto}
.wide>svg.chart{display:block;width:100%;min-width:640px;height:auto}
.shares{display:block;width:100%;height:22px;margin:.7rem 0 .5rem;border-radius:5px}
svg text{fill:var(--muted);font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
font-variant-numeric:tabular-nums}
svg text.strong{fill:var(--text);font-weight:600}
svg text.inside{fill:var(--panel);font-weight:650}
.grid{stroke:var(--line);stroke-width:1;fill:none}
.axis{stroke:var(--muted);stroke-width:1;fill:none}
.area{stroke:none}.stroke{fill:none;stroke-width:2;stroke-linejoin:round}
.hover{fill:transparent}.hover:hover{fill:var(--text);fill-opacity:.08}
.f-held{fill:var(--held)}.f-effective{fill:var(--effective)}.f-late{fill:var(--late)}
.f-met{fill:var(--met)}.f-declined{fill:var(--declined)}.f-other{fill:var(--other)}
.f-admitted{fill:var(--admitted)}
.s-working{stroke:var(--working);stroke-width:1.5}.s-submitted{stroke:var(--submitted)}
.s-admitted{stroke:var(--admitted);stroke-width:4}.s-completed{stroke:var(--completed)}
.s-declined{stroke:var(--declined);stroke-dasharray:7 4}
svg text.t-submitted{fill:var(--submitted)}svg text.t-admitted{fill:var(--admitted)}
svg text.t-completed{fill:var(--completed)}svg text.t-declined{fill:var(--declined)}
.scroll{overflow:auto;max-height:42rem;margin:0 -1.35rem;border-top:1px solid var(--line);
border-bottom:1px solid var(--line)}
.scroll:focus-visible{outline:2px solid var(--admitted);outline-offset:2px}
table{width:100%;border-collapse:collapse;font-size:.88rem}
caption{padding:0 1.35rem .5rem;text-align:left;color:var(--muted)}
th,td{padding:.4rem .6rem;border-bottom:1px solid var(--line);text-align:right;
white-space:nowrap;vertical-align:middle}
th:first-child,td:first-child{padding-left:1.35rem}
th:last-child,td:last-child{padding-right:1.35rem}
thead th{position:sticky;top:0;background:var(--panel);color:var(--muted);font-weight:600;
box-shadow:inset 0 -1px 0 var(--line)}
tbody tr:last-child>*{border-bottom:0}
tbody th{font-weight:600;font-size:.84rem}
.left{text-align:left}
.name{min-width:12.5rem;max-width:17rem;overflow-wrap:anywhere;white-space:normal;
line-height:1.35;unicode-bidi:isolate}
.below{display:block;color:var(--muted);font-size:.8rem;font-weight:400;line-height:1.3}
.why{min-width:14rem;max-width:20rem;line-height:1.35;white-space:normal;overflow-wrap:anywhere}
.quiet{color:var(--muted)}.bad{color:var(--late);font-weight:600}
.badge{font-weight:600}.badge.met,.badge.completed{color:var(--met)}
.badge.late,.badge.failed,.badge.unfinished{color:var(--late)}
.badge.declined{color:var(--declined)}
td.best{font-weight:700;color:var(--met)}
.spark{width:110px;height:22px;display:inline-block;vertical-align:middle}
h2+.multiples,h2+.scroll{margin-top:.9rem}
.multiples{display:grid;grid-template-columns:repeat(auto-fill,minmax(300px,1fr));
gap:1.3rem 2.2rem}
.multiples figure{margin:0}.multiples figcaption{font-weight:600;margin-bottom:.2rem}
.multiples figcaption span,tbody th .quiet{font-weight:400;color:var(--muted)}
.multiples svg{display:block;width:100%;height:auto}
details{color:var(--muted)}summary{cursor:pointer;color:var(--text);font-weight:600}
details dl{display:grid;grid-template-columns:max-content 1fr;gap:.3rem 1.2rem;
margin:.8rem 0 0}
details dt{color:var(--text)}details dd{margin:0;max-width:75ch}
.reasons{margin:.1rem 0 .9rem;padding:0;list-style:none}
.reasons strong{color:var(--declined)}
@media (max-width:560px){section{padding:1rem}.tiles{margin:1rem -1rem -1rem}
.tiles{grid-template-columns:repeat(2,1fr)}.tile{padding:.7rem 1rem}.scroll{margin:0 -1rem}
details dl{grid-template-columns:1fr}}
@media print{body{padding:0;background:#fff}.scroll{max-height:none;overflow:visible}
section{break-inside:avoid}}
"""
