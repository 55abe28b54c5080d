"""Threads that do the same work again and again and compare what comes of it, while something is put into the process and taken out again.

At each line it says how often, `{"blocks":N,"wrong":N}`; at `exit` it ends with 0 if every result was the first one.
"""
import hashlib
import json
import re
import sys
import threading

state = {"blocks": 0, "wrong": 0}
ends = threading.Event()


def work(seed):
    rows = {f"key{i}": [seed, i, str(i * seed) * 3, {"nested": [i] * (i % 7)}] for i in range(400)}
    text = json.dumps(rows, sort_keys=True)
    words = re.findall(r"[0-9]{3,}", text)
    again = json.dumps(json.loads(text), sort_keys=True)
    return hashlib.sha256((again + "".join(sorted(words))).encode()).hexdigest()


def loop(seed, first):
    while not ends.is_set():
        # Threads that come and go, too.
        results = []
        thread = threading.Thread(target=lambda: results.append(work(seed)))
        thread.start()
        thread.join()
        state["wrong"] += results != [first]
        state["blocks"] += 1


threads = [threading.Thread(target=loop, args=(seed, work(seed))) for seed in (3, 5, 7, 11)]
for thread in threads:
    thread.start()
print("waiting", flush=True)
for line in sys.stdin:
    if line.startswith("exit"):
        break
    print(json.dumps(state), flush=True)
ends.set()
for thread in threads:
    thread.join()
sys.exit(3 if state["wrong"] else 0)
