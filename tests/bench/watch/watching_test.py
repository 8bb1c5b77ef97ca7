#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What penstock_bench.watching writes about loops, on a clock that only the loops move.

Usage: watching_test.py SOURCE_DIRECTORY
"""
import copy
import itertools
import json
import multiprocessing.popen_fork  # which imports what must stay in sys.modules after a patch of it
import os
import pathlib
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock

FOLDER = tempfile.TemporaryDirectory(prefix="penstock-watching-")
os.environ["PENSTOCK_WATCH_DIR"] = FOLDER.name
sys.path.insert(0, str(pathlib.Path(sys.argv.pop(1)) / "python"))
from penstock_bench import watching  # noqa: E402
for launcher in watching.LAUNCHERS:
    os.environ.pop(launcher["rank"][0], None)


class Tensor:
    def __init__(self, *shape):
        self.shape = shape


class Clock:
    """Milliseconds, as the loops of these tests use them."""

    def __init__(self):
        self.ns = 0

    def __call__(self):
        return self.ns

    def pass_ms(self, ms):
        self.ns += int(ms * 1e6)


class Loader:
    """Takes opening_ms in iter and wait_ms in each next; end_ms to find the end."""

    def __init__(self, clock, batches=4, wait_ms=3, opening_ms=10, end_ms=1):
        self.clock, self.batches = clock, batches
        self.wait_ms, self.opening_ms, self.end_ms = wait_ms, opening_ms, end_ms

    def __iter__(self):
        self.clock.pass_ms(self.opening_ms)
        return self.make()

    def make(self):
        for _ in range(self.batches):
            self.clock.pass_ms(self.wait_ms)
            yield [Tensor(8, 3, 2, 2), None]
        self.clock.pass_ms(self.end_ms)

    def __len__(self):
        return self.batches


class Cuda:
    """torch.cuda with a stream on each GPU, which works while the clock passes. Notes what would disturb a training."""

    def __init__(self, clock, memory=(1,)):
        self.clock, self.memory = clock, memory  # allocated bytes of each GPU
        self.current, self.backend = 0, "native"
        self.free_ns = [0] * len(memory)
        self.contexts = set()  # GPUs on which CUDA was called
        self.capturing = None  # the GPU whose current stream captures a graph
        self.broken_graphs = 0

    def is_initialized(self):
        return True

    def get_allocator_backend(self):
        return self.backend

    def device_count(self):
        return len(self.memory)

    def memory_allocated(self, gpu):
        return self.memory[gpu]

    def device(self, gpu):
        return Device(self, gpu)

    def call(self):
        """CUDA makes a context on the current GPU if it has none. The events of `watch` break a captured graph."""
        self.contexts.add(self.current)
        self.broken_graphs += self.capturing is not None

    def is_current_stream_capturing(self):
        return self.capturing == self.current

    def enqueue(self, ms, gpu):
        self.free_ns[gpu] = max(self.free_ns[gpu], self.clock.ns) + int(ms * 1e6)

    def Event(self, enable_timing):
        assert enable_timing
        return Event(self)


class Device:
    """Makes a GPU the current one within `with`, any number of times."""

    def __init__(self, cuda, gpu):
        self.cuda, self.gpu = cuda, gpu

    def __enter__(self):
        self.before, self.cuda.current = self.cuda.current, self.gpu

    def __exit__(self, *_):
        self.cuda.current = self.before


class Event:
    def __init__(self, cuda):
        self.cuda, self.ns = cuda, 0

    def record(self):
        self.cuda.call()
        self.ns = max(self.cuda.free_ns[self.cuda.current], self.cuda.clock.ns)

    def query(self):
        self.cuda.call()
        return self.cuda.clock.ns >= self.ns

    def elapsed_time(self, end):
        self.cuda.call()
        return (end.ns - self.ns) / 1e6


class ForkingLoader:
    """As PyTorch's DataLoader: a fetcher loads the samples, in this process or in one that is forked for each epoch."""

    prefetch_factor = 2

    def __init__(self, num_workers):
        self.num_workers, self.dataset = num_workers, list(range(9))

    def __iter__(self):
        return ForkingLoader.Iterator(self)

    class Iterator:
        def __init__(self, loader):
            self.fetch = self.fetch_here
            if loader.num_workers == 0:
                self._dataset_fetcher = Fetcher(loader.dataset)
            else:
                self.pipe, childs = multiprocessing.Pipe()
                self.process = multiprocessing.get_context("fork").Process(
                    target=self.work, args=(loader.dataset, childs), daemon=True)
                self.process.start()
                self.fetch = self.fetch_there
            self.indices = iter(([0, 1, 2], [3, 4, 5], [6, 7, 8]))

        def __iter__(self):
            return self

        def __next__(self):
            return self.fetch(next(self.indices))

        def fetch_here(self, index):
            return self._dataset_fetcher.fetch(index)

        def fetch_there(self, index):
            self.pipe.send(index)
            return self.pipe.recv()

        @staticmethod
        def work(dataset, pipe):
            fetcher = Fetcher(dataset)
            sys.modules["torch.utils.data"].get_worker_info = lambda: types.SimpleNamespace(id=1)
            while True:
                pipe.send(fetcher.fetch(pipe.recv()))


class Fetcher:
    auto_collation = True

    def __init__(self, dataset):
        self.dataset, self.collate_fn = dataset, slow_collate

    def fetch(self, index):
        return self.collate_fn([self.dataset[i] for i in index])


def slow_collate(samples):
    time.sleep(0.002)
    return samples


def data_modules():
    """Stand-ins for the modules of PyTorch that load samples."""
    data = types.SimpleNamespace(get_worker_info=lambda: None, DataLoader=ForkingLoader)
    fetch = types.SimpleNamespace(_MapDatasetFetcher=Fetcher)
    watching.watch_loader_class(ForkingLoader)
    return {"torch.utils.data": data, "torch.utils.data._utils.fetch": fetch}


class OwnIterator(Loader):
    """Its iterator is a class with attributes, as DataLoader's."""

    class Iterator:
        def __init__(self, loader):
            self.left, self.loader = loader.batches, loader

        def __iter__(self):
            return self

        def __next__(self):
            if self.left == 0:
                raise StopIteration
            self.left -= 1
            self.loader.clock.pass_ms(self.loader.wait_ms)
            return {"image": Tensor(4, 3, 2, 2)}

    def make(self):
        return self.Iterator(self)


class Nested:
    """As a nested tensor of PyTorch."""

    @property
    def shape(self):
        raise RuntimeError("no shape")


class Watching(unittest.TestCase):
    def setUp(self):
        self.clock = watching.clock = Clock()
        watching.LOG.every = int(30e9)
        watching.LOG.reset()

    def lines(self):
        """What was written since the last call about batches and ends of epochs."""
        return [line for line in self.all_lines() if line["step_us"] or line["ends_us"]]

    def all_lines(self):
        watching.LOG.write()
        lines = []
        for path in pathlib.Path(FOLDER.name).glob("*.jsonl"):
            lines += [json.loads(line) for line in path.read_text().splitlines()]
            path.unlink()
        return lines

    def train(self, batches, step_ms=7):
        for _ in batches:
            self.clock.pass_ms(step_ms)

    def test_waits_and_steps_are_exact(self):
        loader = watching.watch(Loader(self.clock), "train")
        self.assertEqual(len(loader), 4)
        self.train(loader)
        self.train(loader)
        (line,) = self.lines()
        self.assertEqual(line["wait_us"], [13000, 3000, 3000, 3000] * 2)
        self.assertEqual(line["step_us"], [20000, 10000, 10000, 10000] * 2)
        self.assertEqual((line["images"], line["begins"]), ([8] * 8, [0, 4]))
        self.assertEqual(line["ends_us"], [1000, 1000])
        self.assertEqual((line["schema"], line["pid"], line["rank"]), (1, os.getpid(), 0))
        self.assertEqual(line["loop"], "train")
        self.assertEqual((line["cuda"], line["in_thread"]), (False, False))

    def test_a_loop_is_named_by_its_line(self):
        for _ in watching.watch(Loader(self.clock)):
            pass
        self.assertRegex(self.lines()[0]["loop"], r"^watching_test.py:\d+$")

    def test_a_batch_without_a_following_next_does_not_count(self):
        for _ in watching.watch(Loader(self.clock), "broken"):
            break
        iterator = iter(watching.watch(Loader(self.clock), "broken"))
        next(iterator)
        next(iterator)
        (line,) = self.lines()
        self.assertEqual((len(line["wait_us"]), line["begins"], line["ends_us"]), (1, [0], []))

    def test_only_new_steps_are_written_and_at_intervals(self):
        watching.LOG.every = int(50e6)
        path = pathlib.Path(FOLDER.name) / f"{os.getpid()}.jsonl"
        self.train(watching.watch(Loader(self.clock, batches=20, opening_ms=0)))
        # Before the first batch and after it; then steps of 10 ms are written at 60, 110 and 160 ms, while the loop runs.
        self.assertEqual(len(path.read_text().splitlines()), 2 + 3)
        lines = self.lines()
        self.assertEqual(sum(len(line["wait_us"]) for line in lines), 20)
        self.assertEqual([line["begins"] for line in lines], [[0]] + [[]] * (len(lines) - 1))
        self.assertEqual(self.lines(), [])

    def test_loaders_keep_their_type_and_attributes(self):
        class Patched(OwnIterator):
            pass

        watching.watch_loader_class(Patched)
        loader = Patched(self.clock)
        self.assertIs(type(iter(loader)), OwnIterator.Iterator)
        self.train(loader)
        self.train(loader)
        (line,) = [line for line in self.lines() if line["wait_us"]]
        self.assertEqual(line["wait_us"], [13000, 3000, 3000, 3000] * 2)
        self.assertEqual(line["images"], [4] * 8)
        # An iterator of a loader that is not watched is not measured.
        self.train(OwnIterator(self.clock))
        self.assertEqual(self.lines(), [])

    def test_samples_are_timed_where_they_are_loaded(self):
        with unittest.mock.patch.dict(sys.modules, data_modules()):
            for workers in (0, 2):
                watching.LOG.reset()
                loader = ForkingLoader(workers)
                for _ in range(2):
                    batches = list(loader)
                    self.assertEqual(batches, [[0, 1, 2], [3, 4, 5], [6, 7, 8]])
                    self.assertIs(type(loader.dataset), list)
                line = self.lines()[-1]
                self.assertEqual(line["settings"], {"num_workers": workers, "prefetch_factor": 2})
                loading = line["loading"]
                self.assertEqual((loading["batches"], loading["samples"]), (6, 18))
                self.assertGreaterEqual(loading["collate_us"], 6 * 2000)
                self.assertGreaterEqual(loading["slowest_batch_us"], 2000)
                self.assertLess(loading["samples_us"] + loading["collate_us"], 6 * loading["slowest_batch_us"] + 6)

    def test_samples_of_a_loader_without_pytorchs_fetcher_are_not_known(self):
        class Patched(OwnIterator):
            pass

        watching.watch_loader_class(Patched)
        self.train(Patched(self.clock))
        self.assertNotIn("loading", self.lines()[-1])

    def test_generators_of_a_loader_class_are_measured_too(self):
        class Patched(Loader):
            pass

        watching.watch_loader_class(Patched)
        self.train(Patched(self.clock))
        self.assertEqual(self.lines()[0]["wait_us"], [13000, 3000, 3000, 3000])

    def test_a_loader_inside_a_watched_loop_is_part_of_its_wait(self):
        class Patched(OwnIterator):
            pass

        watching.watch_loader_class(Patched)

        def outer():
            for batch in Patched(self.clock):
                self.clock.pass_ms(2)
                yield batch

        self.train(watching.watch(outer(), "outer"))
        (line,) = self.lines()
        # From one yield to the next: 2 ms after the yield's batch, 3 ms for the following one.
        self.assertEqual((line["loop"], line["wait_us"]), ("outer", [15000, 5000, 5000, 5000]))

    def test_loaders_of_one_loop_wait_one_after_the_other(self):
        slow, fast = Loader(self.clock, wait_ms=6, opening_ms=0), Loader(self.clock, wait_ms=1, opening_ms=0)
        for _ in range(2):
            for _ in zip(watching.watch(slow, "zip"), watching.watch(fast, "zip")):
                self.clock.pass_ms(3)
        (line,) = self.lines()
        self.assertEqual(line["wait_us"], [7000] * 8)
        self.assertEqual(line["step_us"], [10000] * 8)
        self.assertEqual(line["begins"], [0, 4])

    def test_an_object_that_raises_does_not_end_the_training(self):
        self.train(watching.watch([Nested()] * 3, "nested"))
        self.assertEqual(self.lines()[0]["images"], [0] * 3)

    def test_a_thread_is_marked(self):
        loader = watching.watch(Loader(self.clock), "prefetch")
        thread = threading.Thread(target=lambda: self.train(loader))
        thread.start()
        thread.join()
        self.assertEqual([line["in_thread"] for line in self.lines()], [True])

    def test_ranks_come_from_the_launcher(self):
        names = ("PMIX_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX", "PET_NODE_RANK", "RANK", "PMI_RANK", "FLUX_TASK_RANK",
                 "OMPI_COMM_WORLD_RANK")
        for value, variable in enumerate(names, 1):
            os.environ[variable] = str(value)
            self.assertEqual(watching.rank(), value, variable)
        os.environ["OMPI_COMM_WORLD_RANK"] = "first"
        self.assertEqual(watching.rank(), 7)
        os.environ["TORCHELASTIC_RUN_ID"] = "none"
        self.assertEqual(watching.rank(), 5, "torchrun started by another launcher")
        for variable in (*names, "TORCHELASTIC_RUN_ID"):
            del os.environ[variable]

    def test_ranks_are_places_in_a_list(self):
        peers = {"KUNGFU_INIT_PEERS": "10.0.0.1:9,10.0.0.2:9", "KUNGFU_SELF_SPEC": "10.0.0.2:9"}
        with unittest.mock.patch.dict(os.environ, peers):
            self.assertEqual(watching.rank(), 1)
        cluster = {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": "1"}}
        with unittest.mock.patch.dict(os.environ, TF_CONFIG=json.dumps(cluster)):
            self.assertEqual(watching.rank(), 2)
        for text in ("{}", "[]", "no json", json.dumps({**cluster, "task": {"type": "ps", "index": 0}})):
            with unittest.mock.patch.dict(os.environ, TF_CONFIG=text):
                self.assertEqual(watching.rank(), 0, text)

    def test_a_rank_of_torch_distributed_outlives_its_group(self):
        class Group:
            alive = True

            def is_initialized(self):
                return self.alive

            def get_rank(self):
                return 5

        group = sys.modules["torch.distributed"] = Group()
        try:
            self.train(watching.watch(Loader(self.clock)))
            group.alive = False
            self.assertEqual([line["rank"] for line in self.lines()], [5])
        finally:
            del sys.modules["torch.distributed"]

    def train_in_child(self):
        self.train(watching.watch(Loader(self.clock), "child"))

    def train_on_gpu(self, loader, host_ms, gpu_ms, cuda=None):
        """The waits of the last GPU, which works gpu_ms on each step, which the loop enqueues in host_ms."""
        cuda = cuda or Cuda(self.clock)
        with unittest.mock.patch.dict(sys.modules, torch=types.SimpleNamespace(cuda=cuda)):
            for _ in loader:
                cuda.enqueue(gpu_ms, gpu=len(cuda.memory) - 1)
                self.clock.pass_ms(host_ms)
            (line,) = self.lines()
        self.assertTrue(line["cuda"])
        return line

    def test_a_gpu_waits_from_the_end_of_its_work_until_the_batch_comes(self):
        loader = watching.watch(Loader(self.clock, batches=6, wait_ms=10), "train")
        line = self.train_on_gpu(loader, host_ms=1, gpu_ms=4)
        self.assertEqual(line["wait_us"][1:], [10000] * 5)
        # A batch comes 11 ms after the one before it, and the GPU works for 4 ms. Events tell from the second step on.
        self.assertEqual(line["gpu_wait_us"], [None] + [7000] * 5)

    def test_a_gpu_that_has_work_does_not_wait(self):
        loader = watching.watch(Loader(self.clock, batches=50, wait_ms=10), "train")
        line = self.train_on_gpu(loader, host_ms=1, gpu_ms=20)
        known = [wait for wait in line["gpu_wait_us"] if wait is not None]
        self.assertGreater(len(known), 20)  # the loop is ahead of the GPU: its last steps are not over
        self.assertEqual(set(known), {0})

    def test_only_the_gpu_that_has_memory_is_asked(self):
        cuda = Cuda(self.clock, memory=(0, 1))
        loader = watching.watch(Loader(self.clock, batches=6, wait_ms=10), "train")
        line = self.train_on_gpu(loader, host_ms=1, gpu_ms=4, cuda=cuda)
        self.assertEqual(line["gpu_wait_us"], [None] + [7000] * 5)
        self.assertEqual((cuda.contexts, cuda.current), ({1}, 0))

    def test_no_gpu_is_asked_if_the_training_uses_none_or_several_or_another_allocator(self):
        for memory, backend in (((0, 0), "native"), ((1, 1), "native"), ((0, 1), "cudaMallocAsync")):
            cuda = Cuda(self.clock, memory)
            cuda.backend = backend
            loader = watching.watch(Loader(self.clock, batches=6), "train")
            line = self.train_on_gpu(loader, host_ms=1, gpu_ms=4, cuda=cuda)
            self.assertEqual(len(line["wait_us"]), 6)
            self.assertNotIn("gpu_wait_us", line)
            self.assertEqual(cuda.contexts, set())

    def test_only_the_main_thread_asks_a_gpu(self):
        for in_threads in ((True,), (False, True, False)):  # the iterator is made in the main thread
            cuda = Cuda(self.clock)
            iterator = iter(watching.watch(Loader(self.clock, batches=10), "train"))
            for in_thread in in_threads:
                cuda.contexts.clear()
                train = threading.Thread(target=self.train_on_gpu, args=(itertools.islice(iterator, 3), 1, 4, cuda))
                if in_thread:
                    train.start()
                    train.join()
                else:
                    train.run()
                self.assertEqual(cuda.contexts, set() if in_thread else {0})

    def test_a_gpu_is_not_asked_while_its_stream_captures_a_graph(self):
        cuda = Cuda(self.clock, memory=(0, 1))

        def batches():
            for batch in range(8):
                cuda.capturing = 1 if batch in (2, 3) else None  # begins and ends within a `next`
                self.clock.pass_ms(10)
                yield Tensor(8)

        line = self.train_on_gpu(watching.watch(batches(), "train"), host_ms=1, gpu_ms=4, cuda=cuda)
        self.assertEqual(cuda.broken_graphs, 0)
        self.assertEqual(line["gpu_wait_us"], [None, 7000, None, None, None, 7000, 7000, 7000])

    def test_events_that_fail_do_no_harm(self):
        loader = watching.watch(Loader(self.clock, batches=6), "train")
        with unittest.mock.patch.object(Event, "record", side_effect=RuntimeError("the context is gone")):
            line = self.train_on_gpu(loader, host_ms=1, gpu_ms=4)
        self.assertEqual(len(line["wait_us"]), 6)
        self.assertNotIn("gpu_wait_us", line)

    def test_workers_are_not_measured_and_forked_ranks_are(self):
        self.train(watching.watch(Loader(self.clock), "parent"))
        context = multiprocessing.get_context("fork")
        for daemon in (True, False):
            process = context.Process(target=self.train_in_child, daemon=daemon)
            process.start()
            process.join()
            loops = [(line["loop"], line["pid"] == os.getpid()) for line in self.lines()]
            expected = [("parent", True)] if daemon else [("child", False)]
            self.assertEqual(sorted(loops), expected)

    def test_a_loop_that_waits_for_its_first_batch_says_so(self):
        told = []

        def batches():
            told.extend(self.all_lines())
            yield Tensor(5)
            told.extend(self.all_lines())

        loader = watching.watch(batches(), "slow")
        self.assertEqual(self.all_lines(), [])
        for _ in loader:
            told.extend(self.all_lines())
        self.assertEqual([(line["loop"], line.get("waits_for_first", False), len(line["step_us"])) for line in told],
                         [("slow", True, 0), ("slow", False, 0), ("slow", False, 1)])

    def test_sizes_of_batches(self):
        sizes = ((Tensor(5, 2), 5), ([[Tensor(6)]], 6), ({"x": (Tensor(7), 1)}, 7), (Tensor(), 0),
                 ("text", 0), ([], 0), ({}, 0), (None, 0), (Tensor(None, 3), 0), (Tensor(-1), 0),
                 (Tensor(1 << 40), 0), (memoryview(b"abc"), 3))
        for batch, images in sizes:
            self.assertEqual(watching.Loop("loop", False).count(batch), images, batch)

    def test_iterators_stay_iterators(self):
        iterator = watching.watch(iter(range(3)), "numbers")
        self.assertEqual([next(iterator), next(iterator), next(iterator), next(iterator, None)],
                         [0, 1, 2, None])
        (line,) = self.lines()
        self.assertEqual((len(line["wait_us"]), len(line["ends_us"])), (3, 1))

    def test_watched_loaders_look_like_the_loader(self):
        loader = watching.watch(Loader(self.clock), "x" * 1000)
        self.assertEqual((loader.wait_ms, len(loader), bool(loader)), (3, 4, True))
        self.assertEqual(copy.copy(loader).batches, 4)
        self.assertTrue(watching.watch(x for x in ()))
        self.train(loader)
        self.assertEqual(self.lines()[0]["loop"], "x" * 200)

    def test_a_folder_that_is_gone_does_no_harm(self):
        watching.LOG.folder = FOLDER.name + "/none"
        try:
            self.train(watching.watch(Loader(self.clock)))
            watching.LOG.write()
        finally:
            watching.LOG.folder = FOLDER.name
        self.assertEqual(self.lines(), [])


if __name__ == "__main__":
    unittest.main()
