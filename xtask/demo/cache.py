"""A service that grows: a page cache without a limit, beside work that gives its memory back.

Runs until its standard input ends, and keeps less than 300 MB.
"""

import json
import sys
import threading
import time
import zlib

KEPT_MAX = 30_000

pages = {}
index = {}
log = bytearray()
over = threading.Event()


def fetch_page(number):
    """A page's text, as if it came from far away."""
    return zlib.compress(b"%d lorem ipsum dolor " % number * 300, 1)


def cache_page(number):
    """Keeps every page: the leak that the profile shows."""
    pages[number % KEPT_MAX] = zlib.decompress(fetch_page(number))


def index_words(number):
    """Keeps a few small objects for every page."""
    index[number % KEPT_MAX] = ["word %d of %d" % (word, number) for word in range(8)]


def parse_feed(number):
    """Builds a large tree and drops it."""
    text = json.dumps([{"id": number + i, "tags": ["a%d" % i, "b"]} for i in range(60)])
    return len(json.loads(text))


def write_log(number):
    """Grows a buffer and now and then starts again."""
    log.extend(b"served page %d\n" % number * 4)
    if len(log) > 4 << 20:
        log.clear()


def serve():
    number = 0
    while not over.is_set():
        for _ in range(30):
            cache_page(number)
            index_words(number)
            parse_feed(number)
            write_log(number)
            number += 1
        time.sleep(0.02)


threading.Thread(target=serve).start()
sys.stdin.read()
over.set()
