"""A service that grows twice: a page cache without a limit in Python, and a log in a C library.

`cache.py LIBRARY` runs until its standard input ends, and keeps less than 500 MB.
"""

import ctypes
import json
import sys
import threading
import time
import zlib

KEPT_MAX = 30_000

pages = {}
over = threading.Event()


def fetch_page(number):
    """A page's text, as if it came from far away."""
    return zlib.compress(b"%d lorem ipsum dolor " % number * 300, 1)


def cache_page(number):
    """Keeps every page: a leak in Python."""
    pages[number % KEPT_MAX] = zlib.decompress(fetch_page(number))


def parse_feed(number):
    """Builds a large tree and drops it."""
    text = json.dumps([{"id": number + i, "tags": ["a%d" % i, "b"]} for i in range(60)])
    return len(json.loads(text))


def serve():
    number = 0
    while not over.is_set():
        for _ in range(10):
            cache_page(number)
            parse_feed(number)
            number += 1
        time.sleep(0.02)


ctypes.CDLL(sys.argv[1]).start_log()
threading.Thread(target=serve).start()
sys.stdin.read()
over.set()
