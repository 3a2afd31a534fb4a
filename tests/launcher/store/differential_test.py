"""Compares the store with torch's own server: the same random requests must get byte-identical replies from both.

Every step ends with a PING on every connection, so that "no reply" is proven rather than inferred from a pause. A few
known bugs of torch's server are avoided (a COMPARE_SET that fails on a missing key wakes waiters; a client woken by a
queue stays listed there): COMPARE_SET uses its own keys, for which no client waits, and one connection waits for the
queue only.

Usage: differential_test.py STORE_HOST. DDPRUN_TEST_SEED repeats a run, DDPRUN_TEST_STEPS makes it longer.
"""

import os
import random
import socket
import struct
import sys

import torch
import torch.distributed as dist

from store_host import StoreHost

VALIDATE = b"\x00" + struct.pack("<I", 0x3C85F7CE)
CONNECTIONS = 5
QUEUE_WAITER = 4
PLAIN_KEYS = [b"/a", b"/b", b"/c", b"/d", "/é".encode(), b"/\0z", b""]
SWAPPED_KEYS = [b"/s1", b"/s2"]
QUEUE_KEYS = [b"/q1", b"/q2"]
VALUES = [b"", b"1", b"x", b"-5", b"12abc", b" 7", b"+3", b"+-3", b"0x1f", b"\0\xff"]
VALUES += [b"9" * 30, b"y" * 300, b"z" * 70000]
HAS_BARRIER = tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 13)


def u32(number):
    return struct.pack("<I", number)


def u64(number):
    return struct.pack("<Q", number)


def i64(number):
    return struct.pack("<q", number)


def text(data):
    return u64(len(data)) + data


def texts(items):
    return u64(len(items)) + b"".join(map(text, items))


class Connection:
    """A raw connection; `closed` is set once the server has closed it."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pings = 0
        self.closed = False
        self.send(VALIDATE)

    def send(self, data):
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.closed = True

    def ping(self):
        self._pings += 1
        self._mark = u32(0xABC00000 | (self._pings & 0xFFFFF))
        self.send(b"\x0d" + self._mark)

    def replies(self):
        """All bytes before the reply of the last ping; None once closed."""
        got = b""
        while not self.closed and not got.endswith(self._mark):
            try:
                piece = self._socket.recv(1 << 16)
            except ConnectionResetError:
                piece = b""
            self.closed = not piece
            got += piece
        return None if self.closed else got[:-4]

    def close(self):
        self._socket.close()


def random_request(chance, connection):
    """Name and bytes of a random request."""
    plain = PLAIN_KEYS + SWAPPED_KEYS

    def key():
        return chance.choice(plain)

    def value():
        return chance.choice(VALUES)

    def keys(least):
        return [key() for _ in range(chance.randint(least, 4))]

    def wait():
        if connection == QUEUE_WAITER:
            return texts([QUEUE_KEYS[0]])
        return texts([chance.choice(PLAIN_KEYS) for _ in range(chance.randint(0, 4))])

    def multi_set():
        items = keys(0)
        return u64(len(items)) + b"".join(text(item) + text(value()) for item in items)

    def swapped():
        return text(chance.choice(SWAPPED_KEYS)) + text(value()) + text(value())

    makers = {
        "SET": lambda: b"\x01" + text(key()) + text(value()),
        "COMPARE_SET": lambda: b"\x02" + swapped(),
        "GET": lambda: b"\x03" + text(key()),
        "ADD": lambda: b"\x04" + text(key()) + i64(chance.choice([0, 1, -3, 1000, 2**62])),
        "CHECK": lambda: b"\x05" + texts(keys(1)),
        "WAIT": lambda: b"\x06" + wait(),
        "NUM_KEYS": lambda: b"\x07",
        "DELETE_KEY": lambda: b"\x08" + text(key()),
        "APPEND": lambda: b"\x09" + text(key()) + text(value()),
        "MULTI_GET": lambda: b"\x0a" + texts(keys(0)),
        "MULTI_SET": lambda: b"\x0b" + multi_set(),
        "CANCEL_WAIT": lambda: b"\x0c",
        "QUEUE_PUSH": lambda: b"\x0e" + text(chance.choice(QUEUE_KEYS)) + text(value()),
        "QUEUE_POP": lambda: b"\x0f" + text(chance.choice(QUEUE_KEYS)),
        "QUEUE_LEN": lambda: b"\x10" + text(chance.choice(QUEUE_KEYS)),
        "LIST_KEYS": lambda: b"\x11",
    }
    weights = {"WAIT": 4, "DELETE_KEY": 4, "QUEUE_PUSH": 2, "QUEUE_POP": 2, "MULTI_SET": 0.4, "CANCEL_WAIT": 0.3}
    if HAS_BARRIER and connection != QUEUE_WAITER:
        makers["BARRIER"] = lambda: b"\x12" + text(chance.choice(PLAIN_KEYS)) + i64(chance.choice([0, 1, 2, 3, 3]))
    if chance.random() < 0.005:
        return "BAD", chance.choice(
            [b"\x63", b"\x01" + u64(9000), b"\x01" + text(b"/a") + u64((8 << 20) + 1), b"\x06" + u64(131073), VALIDATE])
    name = chance.choices(list(makers), [weights.get(name, 1) for name in makers])[0]
    return name, makers[name]()


def comparable(name, reply):
    """Sorts the reply of LIST_KEYS, which has no defined order."""
    if name != "LIST_KEYS" or reply is None:
        return reply
    keys, at = [], 8
    for _ in range(struct.unpack_from("<q", reply)[0]):
        size = struct.unpack_from("<Q", reply, at)[0]
        keys.append(reply[at + 8:at + 8 + size])
        at += 8 + size
    return sorted(keys), reply[at:]


def compare_random(port, real_port, seed, steps):
    chance = random.Random(seed)
    ours = [Connection(port) for _ in range(CONNECTIONS)]
    real = [Connection(real_port) for _ in range(CONNECTIONS)]
    waiting = [False] * CONNECTIONS
    history = []
    for step in range(steps):
        at = chance.randrange(CONNECTIONS)
        if ours[at].closed:
            for side, side_port in ((ours, port), (real, real_port)):
                side[at].close()
                side[at] = Connection(side_port)
            waiting[at] = False
        # A waiting client can only cancel.
        name, request = ("CANCEL_WAIT", b"\x0c") if waiting[at] else random_request(chance, at)
        if waiting[at] and chance.random() < 0.8:
            continue
        history.append((at, name, request[:100]))
        replies = []
        # First the connection itself, so that its request is complete before the others are queried.
        for group in ([at], [other for other in range(CONNECTIONS) if other != at]):
            for index in group:
                for side in (ours, real):
                    if index == at:
                        side[index].send(request)
                    side[index].ping()
            for index in group:
                sent = name if index == at else ""
                replies.append((index, [comparable(sent, side[index].replies()) for side in (ours, real)]))
        for index, (our_reply, real_reply) in replies:
            if our_reply != real_reply:
                print(f"step {step}: connection {index} differs: ours {our_reply!r:.200} torch's {real_reply!r:.200}")
                print("last requests (connection, name, first bytes):", *history[-15:], sep="\n  ")
                return False
            if index != at and our_reply == b"\0":
                waiting[index] = False
        if name == "CANCEL_WAIT":
            waiting[at] = False
        elif name in ("WAIT", "BARRIER"):
            waiting[at] = replies[0][1][0] == b""
    for connection in ours + real:
        connection.close()
    return True


def boundary_cases():
    """Yields (name, requests): sizes at and beyond the limits, and values that ADD has to parse."""
    ping = b"\x0d" + u32(7)
    for size in (8191, 8192, 8193):
        yield f"key of {size}", [b"\x01" + text(b"k" * size) + text(b"v"), ping]
    for size in (8 << 20, (8 << 20) + 1):
        yield f"value of {size}", [b"\x01" + text(b"/v") + text(b"v" * size), b"\x03" + text(b"/v"), ping]
    yield "append beyond 8 MiB", [b"\x09" + text(b"/v") + text(b"v" * 1000), b"\x03" + text(b"/v"), ping]
    for count in (131072, 131073):
        yield f"check of {count}", [b"\x05" + texts([b"k"] * count), ping]
    for value in (b"", b"x", b"12abc", b" \t7", b"+", b"+-1", b"9223372036854775807", b"9223372036854775808"):
        yield f"add to {value}", [b"\x01" + text(b"/e") + text(value), b"\x04" + text(b"/e") + i64(1), ping]
    yield "second VALIDATE", [VALIDATE, ping]
    yield "unknown request", [b"\x7f", ping]
    yield "get of a missing key", [b"\x03" + text(b"/missing"), ping]
    yield "cancel without a wait", [b"\x0c", ping]
    yield "ping while waiting", [b"\x06" + texts([b"/never"]), ping]


def compare_boundaries(port, real_port):
    same = True
    for name, requests in boundary_cases():
        results = []
        for side_port in (port, real_port):
            connection = Connection(side_port)
            for request in requests:
                connection.send(request)
            connection.ping()
            results.append(connection.replies())
            connection.close()
        if results[0] != results[1]:
            print(f"{name}: ours {results[0]!r:.200} torch's {results[1]!r:.200}")
            same = False
    return same


def main():
    seed = int(os.environ.get("DDPRUN_TEST_SEED", random.SystemRandom().randrange(2**32)))
    steps = int(os.environ.get("DDPRUN_TEST_STEPS", 6000))
    print(f"torch {torch.__version__}, DDPRUN_TEST_SEED={seed}, {steps} steps")
    same = True
    # Fresh servers for each part.
    for part in (lambda *ports: compare_random(*ports, seed, steps), compare_boundaries):
        real = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        with StoreHost(sys.argv[1]) as host:
            same = part(host.port, real.port) and same
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
