"""pypaimon behind one line of JSON per command. Runs in a virtualenv of its own, since it pins old libraries.

Imports nothing of this project: it is another program that reads and writes the same tables.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

TYPES = {"INT": pa.int32(), "STRING": pa.string(), "DATE": pa.date32(), "BIGINT": pa.int64()}


def opened(command):
    path = Path(command["path"])
    catalog = CatalogFactory.create({"warehouse": str(path.parent.parent)})
    table = catalog.get_table(f"{path.parent.name.removesuffix('.db')}.{path.name}")
    options = {}
    if command.get("snapshot"):
        options["scan.snapshot-id"] = str(command["snapshot"])
    if command.get("tag"):
        options["scan.tag-name"] = command["tag"]
    if command.get("on_branch"):
        options["branch"] = command["on_branch"]
    return table.copy(options) if options else table


def create(command):
    catalog = CatalogFactory.create({"warehouse": command["warehouse"]})
    catalog.create_database(command["database"], True)
    fields = pa.schema([(name, TYPES[kind]) for name, kind in command["fields"]])
    schema = Schema.from_pyarrow_schema(
        fields,
        partition_keys=command.get("partition_keys") or None,
        primary_keys=command.get("primary_keys") or None,
        options=command.get("options") or {},
    )
    catalog.create_table(f"{command['database']}.{command['table']}", schema, False)
    return str(Path(command["warehouse"]) / f"{command['database']}.db" / command["table"])


def write(command):
    table = opened(command)
    builder = table.new_batch_write_builder()
    if command.get("overwrite") is not None:
        builder = builder.overwrite(command["overwrite"])
    writer, commit = builder.new_write(), builder.new_commit()
    names = [field.name for field in table.fields]
    kinds = [TYPES[str(field.type).removesuffix(" NOT NULL").split("(")[0]] for field in table.fields]
    columns = list(zip(*command["rows"], strict=True))
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    writer.write_arrow(pa.table(arrays, schema=pa.schema(list(zip(names, kinds, strict=True)))))
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


def read(command):
    builder = opened(command).new_read_builder()
    if command.get("filter"):
        builder = builder.with_filter(builder.new_predicate_builder().equal(*command["filter"]))
    splits = builder.new_scan().plan().splits()
    rows = builder.new_read().to_arrow(splits).to_pylist() if splits else []
    return sorted("|".join("null" if value is None else str(value) for value in row.values()) for row in rows)


def tag(command):
    opened({"path": command["path"]}).create_tag(command["name"], command["snapshot"])


COMMANDS = {"ping": lambda _: "pong", "create": create, "write": write, "read": read, "tag": tag}


def main():
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"ok": COMMANDS[command["do"]](command)}
        except Exception as exc:  # noqa: BLE001 - every failure is an answer
            answer = {"error": f"{type(exc).__name__}: {exc}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
