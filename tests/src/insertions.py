"""Plays insertions into the tables of docs/fleet/clickhouse_tables.sql, and runs statements.

    insertions.py CREATE.sql FOLDER STATEMENT.sql…

FOLDER has a file of Parquet for each insertion, and a line "TABLE TOKEN FILE" in `insertions`.
Prints a line of JSON for each statement.
"""

import json
import pathlib
import sys

from chdb import session


def texts(path):
    lines = [line for line in pathlib.Path(path).read_text().splitlines() if not line.startswith("--")]
    return [text for text in "\n".join(lines).split(";") if text.strip()]


create, folder, *statements = sys.argv[1:]
folder = pathlib.Path(folder)
engine = session.Session()
for text in texts(create):
    engine.query(text)
for line in (folder / "insertions").read_text().splitlines():
    table, token, file = line.split()
    engine.query(
        f"insert into {table} from infile '{folder / file}' "
        f"settings insert_deduplication_token = '{token}', async_insert = 0 format Parquet"
    )
for statement in statements:
    (text,) = texts(statement)
    text += " settings output_format_json_quote_64bit_integers = 0"
    print(json.dumps(json.loads(engine.query(text, "JSON").bytes())["data"]))
