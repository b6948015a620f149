"""The report as one HTML file: no server, no network, no script. Names of tables and tenants are text, never markup.

Every piece of text from outside goes through `_text`; nothing else puts text into the page.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from lakesweep.cli import report_leftovers, screen
from lakesweep.model import lake_report
from lakesweep.model.lake_report import Day

TABLES_SHOWN = 500
"""Rows of the page. The JSON document has all of them."""

_PARTS = (
    ("live", "referenced by what stays"),
    ("young", "unreferenced, inside the grace period"),
    ("reserved", "kept by the format's own rules"),
    ("foreign", "not a name that the format writes"),
    ("expired", "only expired snapshots use it: can be deleted"),
    ("orphan", "nothing uses it: can be deleted"),
)

_STYLE = """
:root { color-scheme: light dark; --text: light-dark(#1c2430, #e3e9f0); --quiet: light-dark(#56637a, #9fb0c3);
  --paper: light-dark(#f5f7f9, #12171d); --card: light-dark(#fff, #1a212a); --line: light-dark(#dde3ea, #2f3a47);
  --live: light-dark(#3b6fb6, #6ea3e8); --young: light-dark(#6fa8c9, #4d7f9b); --reserved: light-dark(#8b7fb8, #8f84c4);
  --foreign: light-dark(#98a4b3, #6d7a89);
  --expired: light-dark(#d08a1d, #e0ad4a); --orphan: light-dark(#c2432f, #ef7a68);
  --freed: light-dark(#1d8a5c, #53c793); }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 78rem; background: var(--paper); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 1.5rem; } h2 { margin: 0 0 .8rem; font-size: 1.1rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.2rem;
  margin-top: 1.2rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: 1rem; }
.tiles b { display: block; font-size: 1.7rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.quiet, th, figcaption { color: var(--quiet); } .scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; } th { text-align: left; font-weight: 500; font-size: .85rem; }
th, td { padding: .4rem .9rem .4rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.name { overflow-wrap: anywhere; min-width: clamp(10rem, 18vw, 20rem); }
.why { overflow-wrap: anywhere; min-width: 14rem; }
.code { font-weight: 600; white-space: nowrap; } .time { white-space: nowrap; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--quiet); font: 12px system-ui, sans-serif; }
ul.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; padding: 0; margin: .8rem 0 0; }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: 3px;
  margin-right: .4rem; vertical-align: -1px; }
.live { fill: var(--live); background: var(--live); } .young { fill: var(--young); background: var(--young); }
.reserved { fill: var(--reserved); background: var(--reserved); }
.foreign { fill: var(--foreign); background: var(--foreign); }
.expired { fill: var(--expired); background: var(--expired); }
.orphan { fill: var(--orphan); background: var(--orphan); } .freed { fill: var(--freed); background: var(--freed); }
.axis { stroke: var(--line); } .area { fill: var(--orphan); fill-opacity: .25; }
.line { fill: none; stroke: var(--orphan); stroke-width: 2; }
.slim { display: none; }
@media screen and (max-width: 48rem) { body { padding: .8rem; } section { padding: .8rem; }
  .tiles { grid-template-columns: 1fr 1fr; } .tiles b { font-size: 1.3rem; } thead, .bar, .wide { display: none; }
  .slim { display: block; } table, tbody { display: block; } tr { display: grid; gap: .2rem .8rem; padding: .5rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(8rem, 45%), 1fr)); border-bottom: 1px solid var(--line); }
  tr:last-child { border: 0; } td, td.number { display: block; border: 0; padding: 0; min-width: 0; text-align: left; }
  .name, .why { grid-column: 1 / -1; } .name { font-weight: 600; } .code, .time { white-space: normal; }
  td:not(.name)::before { content: attr(data-title); display: block; color: var(--quiet); font-size: .8rem;
  font-weight: 400; } }
@media print { :root { color-scheme: light; } body { max-width: none; padding: 0; font-size: 10pt; background: none; }
  section { border: 0; padding: 0; } tr, figure { break-inside: avoid; } thead { display: table-header-group; }
  .scroll { overflow: visible; } * { print-color-adjust: exact; } }
"""
_WIDTH, _SLIM, _HEIGHT = 900, 360, 220
_LEFT, _BOTTOM, _TOP = 70, 24, 10


def page(found: lake_report.Report) -> str:
    sections = [_tiles(found), _holdings(found), _trend(found), _tenants(found), _waiting(found), _tables(found)]
    sections += [_leftovers(found), _ghosts(found)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>Lakesweep report</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        "<header><h1>Lakesweep report</h1>"
        f'<p class="quiet">{_text(screen.moment(found["generated_at"]))}</p></header>\n'
        f"<main>\n{''.join(section for section in sections if section)}</main>\n</body>\n</html>\n"
    )


def _text(value: object) -> str:
    return html.escape(screen.printable(str(value)), quote=True)


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{_text(title)}</h2>\n{body}\n</section>\n"


def _tiles(found: lake_report.Report) -> str:
    totals = found["totals"]
    money = screen.money(totals["cost_per_month"], found["currency"])
    waiting = sum(bool(row["why"] and row["why"]["needs_person"]) for row in found["tables"])
    tiles = [
        (screen.size(totals["waste_bytes"]), "could be deleted"),
        (money, "a month, the cost of that"),
        (screen.size(totals["freed_bytes_30_days"]), "freed in the last 30 days"),
        (screen.count(totals["tables"]), f"tables, {screen.count(totals['planned'])} of them planned"),
        (screen.count(waiting), "tables wait for a person"),
    ]
    return (
        '<section class="tiles">'
        + "".join(f"<div><b>{_text(value)}</b>{_text(label)}</div>" for value, label in tiles)
        + "</section>\n"
    )


def _holdings(found: lake_report.Report) -> str:
    figures, files = found["totals"]["bytes"], found["totals"]["files"]
    sizes = [(name, int(figures[name])) for name, _ in _PARTS]  # type: ignore[literal-required]
    legend = "".join(
        f'<li><span class="key {name}"></span>{name} {_text(screen.size(size))}, '
        f"{_text(screen.counted(int(files[name]), 'file'))} "  # type: ignore[literal-required]
        f'<span class="quiet">({_text(meaning)})</span></li>'
        for (name, size), (_, meaning) in zip(sizes, _PARTS, strict=True)
    )
    bar = _stacked(sizes, label="Bytes by verdict")
    return _section("What storage holds", f'<figure style="margin:0">{bar}</figure><ul class="legend">{legend}</ul>')


def _trend(found: lake_report.Report) -> str:
    if len(found["trend"]) < 2:
        return ""
    legend = (
        '<ul class="legend"><li><span class="key orphan"></span>could be deleted, at the end of each day</li>'
        '<li><span class="key freed"></span>freed that day</li></ul>'
    )
    charts = _chart(found["trend"], "wide") + _chart(found["trend"], "slim")
    return _section("Over time", charts + legend)


def _tenants(found: lake_report.Report) -> str:
    most = max((part["waste_bytes"] for part in found["tenants"]), default=0)
    rows = [
        f'<tr><td class="name">{_text(part["name"])}</td><td class="number">{screen.count(part["tables"])}</td>'
        f'<td class="number">{_text(screen.size(part["bytes"]["live"]))}</td>'
        f'<td class="number">{_text(screen.size(part["waste_bytes"]))}</td>'
        f'<td class="number">{_text(screen.money(part["cost_per_month"], found["currency"]))}</td>'
        f'<td class="bar">{_bar(part["waste_bytes"], most)}</td></tr>'
        for part in [*found["tenants"], *(found["datasets"] if len(found["datasets"]) > len(found["tenants"]) else [])]
    ]
    head = ("Tenant or dataset", "!Tables", "!Live", "!Deletable", "!Cost a month", "")
    return _section("By tenant", _table(head, rows))


def _waiting(found: lake_report.Report) -> str:
    rows = [
        f'<tr><td class="name">{_text(row["table"])}</td><td class="code">{_text(why["code"])}</td>'
        f'<td class="why">{_text(row["problem"] or "")}<br>'
        f'<span class="quiet">{_text(why["advice"] or "")}</span></td></tr>'
        for row in found["tables"]
        if (why := row["why"]) and why["needs_person"]
    ]
    body = _table(("Table", "Code", "Why, and what to do"), rows)
    return f'<div class="waits">{_section("What waits for a person", body)}</div>' if rows else ""


def _leftovers(found: lake_report.Report) -> str:
    rows = [
        f'<tr><td class="name">{_text(row.owner)}</td>'
        + "".join(f'<td class="number">{_text(size)}</td>' for size in row.sizes)
        + f'<td class="number">{screen.count(row.files)}</td><td class="number">{_text(row.cost)}</td></tr>'
        for row in report_leftovers.rows(found)[:TABLES_SHOWN]
    ]
    lines = [*report_leftovers.sentences(found), *report_leftovers.advice(found)]
    paragraphs = "".join(f"<p>{_text(line[0].upper() + line[1:])}</p>" for line in lines)
    head = ("Whose", "!Trash", "!Noncurrent versions", "!Incomplete uploads", "!Files", "!Cost a month")
    return _section("Stored beside the tables' files", paragraphs + (_table(head, rows) if rows else ""))


def _ghosts(found: lake_report.Report) -> str:
    if not found["ghosts"]:
        return ""
    rows = [
        f'<tr><td class="name">{_text(one["location"])}</td><td>{_text(one["format"])}</td>'
        f'<td class="number">{_text(screen.size(one["bytes"]))}</td>'
        f'<td class="number">{screen.count(one["files"])}</td>'
        f'<td class="time">{_text(screen.moment(one["newest_modified_at"]))}</td></tr>'
        for one in found["ghosts"]
    ]
    seen = f'<p class="quiet">As of {_text(screen.moment(found["ghosts_looked_at"]))}</p>'
    head = ("Directory", "Format", "!Bytes", "!Files", "Last changed")
    left = found["totals"]["former_tables"] - len(rows)
    more = f'<p class="quiet">… and {_text(screen.counted(left, "more ghost"))}</p>' if left > 0 else ""
    return _section("Ghosts: directories that nobody claims", seen + _table(head, rows) + more)


def _tables(found: lake_report.Report) -> str:
    most = max((row["waste_bytes"] for row in found["tables"]), default=0)
    rows = [_row(row, most, found["currency"]) for row in found["tables"][:TABLES_SHOWN]]
    head = ("Table", "Format", "!Deletable", "!Expired", "!Live", "!Cost a month", "Planned", "In the way", "")
    left = len(found["tables"]) - TABLES_SHOWN
    more = f'<p class="quiet">… and {_text(screen.counted(left, "more table"))}</p>' if left > 0 else ""
    return _section("Tables, the most wasteful first", _table(head, rows) + more)


def _row(row: lake_report.ReportTable, most: int, currency: str) -> str:
    figures = row["bytes"]
    return (
        f'<tr><td class="name">{_text(row["table"])}</td><td>{_text(row["format"])}</td>'
        f'<td class="number">{_text(screen.size(row["waste_bytes"]) if figures else "–")}</td>'
        f'<td class="number">{_text(screen.size(figures["expired"]) if figures else "–")}</td>'
        f'<td class="number">{_text(screen.size(figures["live"]) if figures else "–")}</td>'
        f'<td class="number">{_text(screen.money(row["cost_per_month"], currency))}</td>'
        f'<td class="time">{_text(screen.moment(row["last_planned_at"]) if row["last_planned_at"] else "never")}</td>'
        f"<td>{_text(row['why']['code'] if row['why'] else '')}</td>"
        f'<td class="bar">{_bar(row["waste_bytes"], most)}</td></tr>'
    )


def _table(head: Sequence[str], rows: Iterable[str]) -> str:
    """A column whose title begins with `!` holds numbers."""
    titles = "".join(
        f'<th class="number">{_text(title[1:])}</th>' if title.startswith("!") else f"<th>{_text(title)}</th>"
        for title in head
    )
    return (
        f'<div class="scroll"><table><thead><tr>{titles}</tr></thead><tbody>\n'
        + "\n".join(_titled(row, head) for row in rows)
        + "\n</tbody></table></div>"
    )


def _titled(row: str, head: Sequence[str]) -> str:
    """Every cell has the title of its column: a phone shows each row as a card. Text has no `<` here."""
    before, *cells = row.split("<td")
    named = [f'<td data-title="{_text(title.lstrip("!"))}"{cell}' for title, cell in zip(head, cells, strict=True)]
    return before + "".join(named)


def _stacked(parts: Sequence[tuple[str, int]], *, label: str) -> str:
    """One bar of all parts; each part's name is its class."""
    total = sum(size for _, size in parts)
    drawn, start = [], 0.0
    for name, size in parts:
        width = size / total * _WIDTH if total else 0
        if size:
            drawn.append(
                f'<rect class="{name}" x="{start:.1f}" y="0" width="{max(width, 1.5):.1f}" height="28">'
                f"<title>{name} {screen.size(size)}</title></rect>"
            )
        start += width
    return f'<svg viewBox="0 0 {_WIDTH} 28" role="img" aria-label="{label}">{"".join(drawn)}</svg>'


def _bar(value: int, most: int) -> str:
    width = value / most * 120 if most else 0
    shown = f'<rect class="orphan" width="{max(width, 1):.1f}" height="10" rx="2"/>' if value else ""
    return f'<svg viewBox="0 0 120 10" width="120" height="10" aria-hidden="true" style="width:7.5rem">{shown}</svg>'


def _chart(days: Sequence[Day], kind: str) -> str:
    """What could be deleted as a line, what was freed as bars, on one scale. `slim` is drawn for a phone."""
    all_across = _SLIM if kind == "slim" else _WIDTH
    most = max((max(day["waste_bytes"], day["freed_bytes"]) for day in days), default=0) or 1
    width = max(2.0, min(14.0, (all_across - _LEFT) / max(1, len(days)) * 0.6))
    left, right, up = _LEFT + width / 2, all_across - width / 2, _HEIGHT - _TOP - _BOTTOM
    step = (right - left) / max(1, len(days) - 1)

    def y(value: int) -> float:
        return _TOP + up * (1 - value / most)

    points = [(left + index * step, y(day["waste_bytes"])) for index, day in enumerate(days)]
    line = " ".join(f"{x:.1f},{height:.1f}" for x, height in points)
    floor = _TOP + up
    bars = "".join(
        f'<rect class="freed" x="{left + index * step - width / 2:.1f}" y="{y(day["freed_bytes"]):.1f}" '
        f'width="{width:.1f}" height="{floor - y(day["freed_bytes"]):.1f}"><title>{day["date"]}: '
        f"{screen.size(day['freed_bytes'])} freed</title></rect>"
        for index, day in enumerate(days)
        if day["freed_bytes"]
    )
    scale = "".join(
        f'<line class="axis" x1="{_LEFT}" x2="{all_across}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        f'<text x="{_LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{screen.size(value)}</text>'
        for value in (0, most // 2, most)
    )
    return (
        f'<svg class="{kind}" viewBox="0 0 {all_across} {_HEIGHT}" role="img" '
        f'aria-label="Waste and deletions over time">{scale}'
        f'<polygon class="area" points="{left:.1f},{floor} {line} {points[-1][0]:.1f},{floor}"/>{bars}'
        f'<polyline class="line" points="{line}"/>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{days[0]["date"]}</text>'
        f'<text x="{all_across}" y="{_HEIGHT - 6}" text-anchor="end">{days[-1]["date"]}</text></svg>'
    )
