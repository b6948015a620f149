"""deltalake's vacuum, dry, on one table: `python -m tests.bench.deltalake_peer ADDRESS`.

Prints the seconds that opening the table and vacuuming it took (the start of the process is not counted), then the
files it found, one per line.
"""

from __future__ import annotations

import sys
import time

from deltalake import DeltaTable
from tests.servers.seaweedfs import ACCESS_KEY, REGION, SECRET_KEY


def main(address: str, endpoint: str | None) -> None:
    """Open, vacuum, tell."""
    options = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_ALLOW_HTTP": "true",
    }
    started = time.perf_counter()
    table = DeltaTable(address, storage_options=options if endpoint else None)
    found = table.vacuum(dry_run=True, full=True)
    print(time.perf_counter() - started)
    sys.stdout.writelines(f"{path}\n" for path in found)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
