"""A service with a leak: a session is forgotten when it ends, but its body stays in a list."""

import json
import time
import zlib

history = []


def parse(number):
    """Work that gives its memory back."""
    text = json.dumps([{"id": number + i, "tags": ["a%d" % i] * 4} for i in range(200)])
    return json.loads(text)


class Session:
    def __init__(self, number):
        self.number = number

    def remember(self, body):
        history.append(zlib.decompress(body))


def handle(number):
    parse(number)
    Session(number).remember(zlib.compress(b"%d lorem ipsum " % number * 1500, 1))


def serve():
    number = 0
    while True:
        for _ in range(5):
            handle(number)
            number += 1
        time.sleep(0.05)


print("waiting", flush=True)
serve()
