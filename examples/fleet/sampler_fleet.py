#!/usr/bin/env python3
"""Runs a statement of docs/fleet on a folder that `samplerd --export parquet:FOLDER` writes to.

    sampler_fleet.py FOLDER by_function            # a table with 95 % intervals
    sampler_fleet.py FOLDER growth --rows 10
    sampler_fleet.py FOLDER builds --where "dt = '2026-11-29'"
    sampler_fleet.py FOLDER folded > out.folded    # for flamegraph.pl, inferno or speedscope

Needs the Python package `duckdb`. With --engine: `chdb` for clickhouse, `pyspark` (and a Java
runtime) for spark, `datafusion` for datafusion.
"""

import argparse
import json
import os
import pathlib
import sys

STATEMENTS = ["by_function", "by_service", "sampled_hosts", "growth", "builds", "folded"]
BYTES = {"allocated", "low", "high", "counted", "held_first", "held_last", "growth", "bytes"}


def texts(path, where=""):
    """The statements of a file. A condition applies to the tables of moments."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("--")]
    for text in "\n".join(lines).split(";"):
        if where and any(f"view {table} " in text for table in ("alloc", "live", "coverage")):
            text += f" where {where}"
        if text.strip():
            yield text


class DuckDb:
    """DuckDB in this process."""

    views = "duckdb.sql"

    def __init__(self):
        import duckdb

        self.connection = duckdb.connect()

    def run(self, text):
        self.connection.execute(text)

    def rows(self, text):
        cursor = self.connection.execute(text)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]


class ClickHouse:
    """ClickHouse in this process."""

    views = "clickhouse.sql"

    def __init__(self):
        from chdb import session

        self.session = session.Session()

    def run(self, text):
        self.session.query(text)

    def rows(self, text):
        # 64-bit integers as numbers: Python has no largest integer.
        text += " settings output_format_json_quote_64bit_integers = 0"
        return json.loads(self.session.query(text, "JSON").bytes())["data"]


class Spark:
    """Spark: two executors on this machine, or the cluster of $SPARK_MASTER."""

    views = "spark.sql"

    def __init__(self):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        from pyspark.sql import SparkSession

        master = os.environ.get("SPARK_MASTER", "local-cluster[2,1,1024]")
        builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
        if master.startswith("local"):
            builder.config("spark.driver.bindAddress", "127.0.0.1")
            builder.config("spark.sql.shuffle.partitions", "4")
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")

    def run(self, text):
        self.session.sql(text)

    def rows(self, text):
        return [row.asDict() for row in self.session.sql(text).collect()]


class DataFusion:
    """DataFusion in this process."""

    views = "datafusion.sql"

    def __init__(self):
        from datafusion import SessionContext

        self.context = SessionContext()

    def run(self, text):
        self.context.sql(text)

    def rows(self, text):
        return self.context.sql(text).to_pylist()


ENGINES = {"duckdb": DuckDb, "clickhouse": ClickHouse, "spark": Spark, "datafusion": DataFusion}
PACKAGES = {"duckdb": "duckdb", "clickhouse": "chdb", "spark": "pyspark", "datafusion": "datafusion"}


def human(name, value, in_percent):
    if value is None:
        return ""
    if in_percent and isinstance(value, float):
        return f"{100 * value:.2f}%"
    if name in BYTES:
        sign, value = "-" if value < 0 else "", abs(value)
        for unit in ["B", "KiB", "MiB", "GiB", "TiB"]:
            if value < 1024 or unit == "TiB":
                return f"{sign}{value:.0f} B" if unit == "B" else f"{sign}{value:.2f} {unit}"
            value /= 1024
    return f"{value:.2g}" if isinstance(value, float) else str(value)


def shown(text):
    """Names come from programs: nothing of them reaches the terminal but printable text."""
    return "".join(c if c.isprintable() else "?" for c in text)


def table(rows, in_percent):
    if not rows:
        return "nothing found"
    names = list(rows[0])
    shares = {"share_1", "share_2", "difference", "low", "high"} if in_percent else set()
    cells = [[shown(human(name, row[name], name in shares)) for name in names] for row in rows]
    widths = [max(len(line[at]) for line in [names, *cells]) for at in range(len(names))]
    is_text = [isinstance(rows[0][name], str) for name in names]
    line = lambda cells: "  ".join(
        cell.ljust(width) if left else cell.rjust(width)
        for cell, width, left in zip(cells, widths, is_text)
    ).rstrip()
    return "\n".join(map(line, [names, *cells]))


def folded(rows):
    """One line a stack, root first: `main;parse;malloc 4096`."""
    stacks, sizes = {}, {}
    for row in rows:
        name = shown(row["function"]).replace(";", ":")
        stacks.setdefault(row["stack_id"], []).append(name)
        sizes[row["stack_id"]] = int(row["bytes"])
    return "\n".join(f"{';'.join(names)} {sizes[id]}" for id, names in stacks.items())


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("statement", nargs="+", help=f"{', '.join(STATEMENTS)}, or a file.sql of yours")
    parser.add_argument("--engine", choices=ENGINES, default="duckdb")
    parser.add_argument("--where", default="", help="condition on the tables of moments")
    parser.add_argument("--rows", type=int, default=30, help="most rows of a table")
    parser.add_argument("--json", action="store_true", help="all rows, a line a statement")
    parser.add_argument("--sql", type=pathlib.Path, default=here / "../../docs/fleet",
                        help="folder of the statements")
    arguments = parser.parse_args()
    sql = arguments.sql.resolve()
    files = {of: sql / f"{of}.sql" if of in STATEMENTS else pathlib.Path(of).resolve()
             for of in arguments.statement}
    for file in files.values():
        if not file.is_file():
            parser.error(f"{file}: is no file and no statement ({', '.join(STATEMENTS)})")
    if not (arguments.folder / "alloc").is_dir():
        sys.exit(f"{arguments.folder}: has no tables (give the FOLDER of samplerd --export parquet:FOLDER)")
    os.chdir(arguments.folder)
    try:
        engine = ENGINES[arguments.engine]()
    except ImportError as error:
        package = PACKAGES[arguments.engine]
        sys.exit(f"--engine {arguments.engine}: {error} (python3 -m pip install {package})")
    for text in texts(sql / engine.views, arguments.where):
        # With --no-live nothing is known of held memory, and only `growth` asks for it.
        if "live" in text and not pathlib.Path("live").is_dir():
            continue
        engine.run(text)
    for statement in arguments.statement:
        (text,) = texts(files[statement])
        rows = engine.rows(text)
        if arguments.json:
            print(json.dumps(rows))
        elif statement == "folded":
            print(folded(rows))
        else:
            print(table(rows[: arguments.rows], statement == "builds"))
            if len(rows) > arguments.rows:
                print(f"{len(rows) - arguments.rows} more rows (--rows {len(rows)})")


if __name__ == "__main__":
    main()
