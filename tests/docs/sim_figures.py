"""The figures of the simulator in docs/safety.md, from the files that `make sim` leaves in build/."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BEGIN, _END = "<!-- sim: begin -->\n", "<!-- sim: end -->\n"
_NUMBERS = ("stories", "cycles", "calls", "deleted", "faults", "kills", "failed")
_HEAD = (
    "| | stories | cycles | calls | objects deleted | faults | kills | stories that failed | the same again |",
    "|---|---:|---:|---:|---:|---:|---:|---:|---|",
)


_KINDS = {"": "", "-ways": ", with a trash or without listings", "-later": ", in a wider world"}
"""Which files there may be, and what their stories are called."""
_SERVICES = {"-service": ("services", ""), "-subjects": ("services, with a subject", " --first 20000000")}


def table(source: Path) -> str:
    """A row per format and kind of story, and how to see the same."""
    campaigns = {kind: found for kind in _KINDS if (found := _beside(source, kind)) is not None}
    rows = [*_HEAD, *(row for kind, document in campaigns.items() for row in _rows(document, _KINDS[kind]))]
    for kind, (name, first) in _SERVICES.items():
        if (service := _beside(source, kind)) is not None:
            stories, calls, faults, kills, failed = (
                f"{service[key]:,}" for key in ("stories", "calls", "faults", "kills", "failed")
            )
            again = f"`python -m tests.sim --service{first} --stories {service['stories']} --workers 2`"
            rows.append(f"| {name} | {stories} | | {calls} | | {faults} | {kills} | {failed} | {again} |")
    return "\n".join(rows) + f"\n\n{_words(list(campaigns.values()))}\n"


def _rows(document: dict[str, Any], kind: str) -> Iterator[str]:
    first = f" --first {document['first']}" if document["first"] else ""
    for name, told in document["formats"].items():
        numbers = " | ".join(f"{told[key]:,}" for key in _NUMBERS)
        again = f"`python -m tests.sim --format {name}{first} --stories {told['stories']} --workers 2`"
        yield f"| {name.capitalize()}{kind} | {numbers} | {again} |"


def _words(documents: list[dict[str, Any]]) -> str:
    told = [one for document in documents for one in document["formats"].values()]
    cpu = sum(one["cpu_seconds"] for one in told)
    each = cpu * 1000 / max(1, sum(one["stories"] for one in told))
    words = (
        f"That took {cpu / 3600:.1f} hours of processor time, {each:.0f} ms for each story. `make sim` runs all of it."
    )
    if all(document.get("finished") for document in documents):
        return words
    return f"{words} The campaign was not at its end when this was written."


def write(page: Path, source: Path) -> None:
    """Between the two marks."""
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text(f"{before}{_BEGIN}{table(source)}{_END}{after}", encoding="utf-8")


def _beside(source: Path, kind: str) -> dict[str, Any] | None:
    path = source.with_name(f"{source.stem}{kind}.json")
    return json.loads(path.read_text()) if path.is_file() else None
