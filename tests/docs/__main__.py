"""Make the generated parts of the documentation anew: the settings page (`make docs`), which a test checks, and the
picture of a plan (`make picture`), which is another one each time."""

import sys
from pathlib import Path

from tests.docs import plan_picture

from lakesweep.settings import reference

DOCS = Path(__file__).parents[2] / "docs"


def main(what: str) -> None:
    if what == "settings":
        (DOCS / "settings.md").write_text(reference.page(), encoding="utf-8")
    elif what == "picture":
        (DOCS / "images" / "plan.svg").write_text(plan_picture.draw(), encoding="utf-8")
    else:
        sys.exit("usage: python -m tests.docs settings|picture")


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
