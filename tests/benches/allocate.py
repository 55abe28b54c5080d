"""A program that keeps allocating and freeing, for as long as it is let: json, a syntax tree, text."""

import ast
import json
import re

SOURCE = "\n".join(f"def f{i}(a, b={i}):\n    return [a * {i}, {{'k': b}}]" for i in range(40))
WORD = re.compile(r"\w+")


def records(seed):
    return [{"id": i, "name": f"item {seed} {i}", "tags": [str(i % 7)] * 3} for i in range(200)]


def work(seed):
    copied = json.loads(json.dumps(records(seed)))
    tree = ast.parse(SOURCE)
    words = [match.group(0).upper() for match in WORD.finditer(SOURCE)]
    return len(copied) + sum(1 for _ in ast.walk(tree)) + len(words)


def main():
    work(0)
    print("running", flush=True)
    held = []
    seed = 0
    while True:
        seed += 1
        work(seed)
        held.append(records(seed))
        if len(held) > 20:
            held.pop(0)


if __name__ == "__main__":
    main()
