"""Runs torch's own clients against the store: every TCPStore method, and a Gloo group with a collective.

Usage: torch_client_test.py STORE_HOST
"""

import datetime
import os
import subprocess
import sys
import unittest

import torch.distributed as dist

from store_host import StoreHost

PROGRAM = None

WORKER = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
sum_of_ranks = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(sum_of_ranks)
group = dist.new_group([0, 1])
dist.barrier(group)
assert sum_of_ranks.item() == 3, sum_of_ranks
dist.destroy_process_group()
"""


def client(host, seconds=60, **options):
    timeout = datetime.timedelta(seconds=seconds)
    return dist.TCPStore("127.0.0.1", host.port, is_master=False, timeout=timeout, **options)


class Methods(unittest.TestCase):
    def setUp(self):
        self.host = StoreHost(PROGRAM)
        self.host.__enter__()
        self.store = client(self.host)

    def tearDown(self):
        del self.store
        self.host.__exit__()

    def test_values(self):
        store = self.store
        store.set("a", "1")
        self.assertEqual(store.get("a"), b"1")
        self.assertEqual(store.add("n", 5), 5)
        self.assertEqual(store.add("n", -7), -2)
        self.assertEqual(store.get("n"), b"-2")
        store.append("a", "23")
        self.assertEqual(store.get("a"), b"123")
        self.assertTrue(store.check(["a", "n"]))
        self.assertFalse(store.check(["a", "none"]))
        self.assertEqual(store.num_keys(), 2)
        self.assertTrue(store.delete_key("a"))
        self.assertFalse(store.delete_key("a"))
        self.assertEqual(store.compare_set("c", "", "first"), b"first")
        self.assertEqual(store.compare_set("c", "other", "second"), b"first")
        self.assertEqual(store.compare_set("c", "first", "second"), b"second")
        store.multi_set(["x", "y"], ["10", "20"])
        self.assertEqual(store.multi_get(["y", "x"]), [b"20", b"10"])

    def test_large_values_come_in_pieces(self):
        value = os.urandom(8 << 20)
        self.store.set("large", value)
        self.assertEqual(self.store.get("large"), value)
        self.store.multi_set([f"k{i}" for i in range(2000)], [str(i) for i in range(2000)])
        self.assertEqual(self.store.multi_get([f"k{i}" for i in range(2000)]), [b"%d" % i for i in range(2000)])

    def test_queues_and_lists(self):
        store = self.store
        if not hasattr(store, "queue_push"):
            self.skipTest("this torch has no queues")
        store.queue_push("q", "1")
        store.queue_push("q", "2")
        self.assertEqual(store.queue_len("q"), 2)
        self.assertEqual(store.queue_pop("q"), b"1")
        self.assertEqual(store.queue_pop("q"), b"2")
        with self.assertRaises(Exception):
            store.queue_pop("q", False)
        store.set("listed", "")
        if hasattr(store, "list_keys"):
            self.assertEqual(store.list_keys(), ["listed"])

    def test_prefixes_and_clones(self):
        nested = dist.PrefixStore("p2", dist.PrefixStore("p1", self.store))
        nested.set("x", "1")
        self.assertEqual(self.store.clone().get("p1/p2/x"), b"1")

    def test_wait_that_times_out_leaves_the_client_usable(self):
        for _ in range(20):
            with self.assertRaisesRegex(dist.DistStoreError, "wait timeout"):
                self.store.wait(["never"], datetime.timedelta(milliseconds=10))
            self.assertEqual(self.store.add("n", 0), 0)

    def test_world_size_counts_in_init(self):
        stores = [client(self.host, world_size=3) for _ in range(2)]
        self.assertEqual(self.store.num_keys(), 1)
        self.assertEqual(len(stores), 2)


class Gloo(unittest.TestCase):
    """Rank 1 runs below a shell and is late: it is reported as missing, and as joined once it has connected."""

    def start_worker(self, port, rank, command):
        environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2",
                           TORCHELASTIC_USE_AGENT_STORE="True", OMP_NUM_THREADS="1")
        process = subprocess.Popen(command, env=environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_all_reduce(self):
        with StoreHost(PROGRAM) as host:
            self.assertEqual(host.ask("begin 1 2"), "ok")
            rank0 = self.start_worker(host.port, 0, [sys.executable, "-c", WORKER])
            self.assertEqual(host.ask(f"register 1 0 here {rank0.pid}"), "ok")
            self.assertEqual(host.ask("until joined = 1"), "ok")
            self.assertEqual(host.ask("missing"), "1:-::0")
            self.assertEqual(host.ask("until waiting = 0:1"), "ok")
            shell = ["bash", "-c", '"$0" -c "$1"; exit $?', sys.executable, WORKER]
            rank1 = self.start_worker(host.port, 1, shell)
            self.assertEqual(host.ask(f"register 1 1 here {rank1.pid}"), "ok")
            self.assertEqual(host.ask("until joined = 2"), "ok")
            self.assertEqual(host.ask("missing"), "")
            self.assertEqual(rank0.wait(), 0)
            self.assertEqual(rank1.wait(), 0)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main(verbosity=2)
