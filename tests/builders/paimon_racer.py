"""One process that races others to commit to a table, round after round. Prints the rounds it won.

python -m tests.builders.paimon_racer ADDRESS ROUNDS NAME [S3-ENDPOINT]
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid

from tests.builders.stores import StorageSpec

from lakesweep.formats.paimon.commit import Committer
from lakesweep.formats.paimon.files import TableFiles
from lakesweep.formats.paimon.lists import ListReader
from lakesweep.formats.spec import UnpublishedRemover
from lakesweep.model.errors import CommitConflict, CommitUnknown
from lakesweep.model.location import Location
from lakesweep.storage.registry import open_storage, open_writer
from lakesweep.storage.s3.settings import S3Options


async def race(address: str, rounds: int, name: str, endpoint: str | None) -> list[int]:
    spec = StorageSpec(s3=S3Options(endpoint_url=endpoint, region="us-east-1", path_style=True))
    storage, writer = open_storage(spec), open_writer(spec)
    files = TableFiles(storage=storage, location=Location.parse(address))
    committer = Committer(files, ListReader(files), writer, UnpublishedRemover())
    won = []
    for number in range(1, rounds + 1):
        document = {
            "version": 3,
            "id": number,
            "schemaId": 0,
            "baseManifestList": "b",
            "deltaManifestList": "d",
            "commitUser": name,
            "commitIdentifier": number,
            "commitKind": "COMPACT",
            "timeMillis": 1,
            "uuid": str(uuid.uuid4()),
        }
        try:
            await committer._publish(number, document)
            won.append(number)
        except (CommitConflict, CommitUnknown):
            pass
    await storage.aclose()
    await writer.aclose()
    return won


if __name__ == "__main__":
    address, rounds, name, *endpoint = sys.argv[1:]
    print(json.dumps(asyncio.run(race(address, int(rounds), name, endpoint[0] if endpoint else None))))
