"""Real programs' work, in the protocol of `cost.c`: a line `CASE COUNT` is answered by nanoseconds of CPU time."""
import json
import re
import sqlite3
import sys
import time


def parse(count):
    text = json.dumps({str(i): ["word " * 200, i * 1.5, {"k": "v" * 600}] for i in range(40)})
    for _ in range(count):
        value = json.loads(text)
        re.sub("w(o)rd", r"\1", json.dumps(value))


def database(count):
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (a integer, b text)")
    for _ in range(count):
        rows = ((i * 7919 % 1000, "name %d" % i) for i in range(300))
        connection.executemany("insert into t values (?, ?)", rows)
        query = "select a, group_concat(b) from t group by a order by 2 desc limit 10"
        connection.execute(query).fetchall()
        connection.execute("delete from t")


print("waiting", flush=True)
for line in sys.stdin:
    case, count = line.split()
    begin = time.process_time_ns()
    {"parse": parse, "database": database}[case](int(count))
    print(time.process_time_ns() - begin, flush=True)
