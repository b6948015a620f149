"""Make the generated parts of the documentation anew: the settings page (`make docs`), which a test checks, the
picture of a plan (`make picture`), another one each time, and the figures of the simulator after `make sim`."""

import sys
from pathlib import Path

from tests.docs import plan_picture, settings_page, sim_figures

DOCS = Path(__file__).parents[2] / "docs"


def main(what: str, source: str = "build/sim.json") -> None:
    if what == "settings":
        (DOCS / "settings.md").write_text(settings_page.page(), encoding="utf-8")
    elif what == "picture":
        (DOCS / "images" / "plan.svg").write_text(plan_picture.draw(), encoding="utf-8")
    elif what == "sim":
        sim_figures.write(DOCS / "safety.md", Path(source))
    elif what == "dashboard":
        from tests.docs import dashboard_picture  # noqa: PLC0415 - needs a browser

        dashboard_picture.draw(DOCS / "images" / "dashboard.png")
    else:
        sys.exit("usage: python -m tests.docs settings|picture|dashboard|sim [build/sim.json]")


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
