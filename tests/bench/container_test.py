#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs penstock as containers do: as a user without a name or a home, with a /dev/shm of 64 MiB, and as process 1. Needs root and
namespaces; without them it exits with 77 and says why. Usage: container_test.py PENSTOCK [CLASS]
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PENSTOCK = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
START_RANKS = ROOT / "tests" / "support" / "start_ranks.py"
TIMEOUT_S = 100
PYTHON = "/usr/bin/python3"  # every user may run it
USER = ["setpriv", "--reuid", "123456", "--regid", "0", "--clear-groups", "env", "-i", "HOME=/", "PATH=/usr/bin:/bin"]
READ_ALL = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
EMULATED = ["--device", "emulated:img_per_s=2000", "--fake-location", "host", "--model", "resnet50", "--batch-size", "8",
            "--num-batches", "20"]

# Takes shared memory as the workers of PyTorch's DataLoader do: it fails as theirs if there is too little of it. "Bus" touches
# what the file system does not have, as libraries do that only set a file's size.
LOADER = """
import array, ctypes, errno, mmap, os, signal

class Data:
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return memoryview(bytes(3 * 224 * 224 * 4)), index

class DataLoader:
    num_workers, prefetch_factor, batch_size, pin_memory, dataset = 2, 2, 64, False, Data()

    def __init__(self, bus):
        self.bus = bus  # "worker" or "loader": that process gets a bus error

    def __iter__(self):
        size = self.batch_size * 3 * 224 * 224 * 4
        files = []
        for number in range(4):
            files.append(os.open("/dev/shm", os.O_TMPFILE | os.O_RDWR))
            os.ftruncate(files[-1], size)
            try:
                if not self.bus:
                    os.posix_fallocate(files[-1], 0, size)
                elif self.bus == "loader" or os.fork() == 0:
                    memory = mmap.mmap(files[-1], size)
                    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 1, size)
                    if not self.bus == "loader":
                        os._exit(0)
                elif os.wait()[1] == signal.SIGBUS:
                    raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's "
                                       "workers are out of shared memory. Please try to raise your shared memory limit.")
            except OSError as error:
                raise RuntimeError(f"unable to allocate shared memory(shm) for file </torch_7_{number}>: {error.strerror} (28)")
        while True:
            yield memoryview(bytes(size)).cast("B").cast("f", (self.batch_size, 3, 224, 224)), array.array("i", range(64))

def make_loader(bus=""):
    return DataLoader(bus)
"""


def why_not():
    if os.geteuid() != 0:
        return "only root may make namespaces and become other users"
    missing = [name for name in ("unshare", "setpriv", "mount") if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)} of util-linux"
    tried = subprocess.run(["unshare", "-mpf", "--mount-proc", "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", "/dev/shm"],
                           stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False)
    return f"this machine has no namespaces: {tried.stderr.strip()}" if tried.returncode else None


class Container(unittest.TestCase):
    prefix = []

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o775)  # group 0 may write, as OpenShift requires of images

    def run_words(self, words, code=0):
        """What a command printed, with its messages last; it has to end with that code."""
        done = subprocess.run([*self.prefix, *map(str, words)], cwd=self.folder, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=TIMEOUT_S, check=False,
                              env=os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout


class UserWithoutNameAndHome(Container):
    """The program may stand below a folder that is closed to others, such as /root: the user may read all files then."""
    prefix = USER

    @classmethod
    def setUpClass(cls):
        if subprocess.run([*USER, "test", "-x", PENSTOCK], check=False).returncode != 0:
            cls.prefix = [USER[0], *READ_ALL, *USER[1:]]

    def test_makes_data_and_trains_on_them(self):
        self.run_words([PENSTOCK, "dataset", "make", "--data-dir", "data", "--images", "24", "--val-images", "3", "--classes", "3"])
        self.run_words([PENSTOCK, "run", "--device", "cpu", "--model", "tiny_cnn", "--compute-threads", "1", "--fake-location",
                        "queue", "--data-dir", "data/train", "--batch-size", "8", "--num-batches", "20", "--out", "result.json"])
        self.assertEqual(len(json.loads((self.folder / "result.json").read_text())["step_ms"]), 20)

    def test_measures_and_watches_a_python_loader(self):
        loader = ["--loader", f"{ROOT}/examples/loaders/spin.py:make_loader", "--loader-args", "ms=1,images=8,size=32"]
        self.assertIn("total images/sec", self.run_words([PENSTOCK, "run", *loader, "--device", "emulated:img_per_s=2000",
                                                          "--num-batches", "20"]))
        self.run_words([PENSTOCK, "watch", "--json", "watch.json", "--", PYTHON, f"{ROOT}/examples/loaders/watched.py"])
        self.assertEqual(len(json.loads((self.folder / "watch.json").read_text())["ranks"]), 1)

    def test_runs_several_processes(self):
        text = self.run_words([PYTHON, START_RANKS, 3, PENSTOCK, "run", "--variable-update", "horovod", *EMULATED])
        self.assertIn("rank 2 on ", text)

    def test_is_told_what_to_do_where_it_may_not_write(self):
        self.folder.chmod(0o755)
        text = self.run_words([PENSTOCK, "run", *EMULATED, "--out", "result.json"], code=2)
        self.assertIn("cannot write 'result.json': Permission denied; name a file in a folder", text)


class SmallSharedMemory(Container):
    prefix = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "sh"]

    def loader(self, *more):
        (self.folder / "loader.py").write_text(LOADER)
        return ["--loader", "loader.py:make_loader", "--device", "emulated:img_per_s=2000", *more]

    def expect_advice(self, text):
        for words in ("/dev/shm has 64 MiB", "5 batches (2 workers) need about 184 MiB", "--shm-size", "emptyDir", "medium: Memory"):
            self.assertIn(words, " ".join(text.split()))

    def test_too_small_for_the_workers_of_a_loader_is_said_with_what_they_need(self):
        self.expect_advice(self.run_words([PENSTOCK, "run", *self.loader(), "--num-batches", "20"], code=6))
        self.expect_advice(self.run_words([PENSTOCK, "isolate", *self.loader(), "--budget", "5s"], code=6))

    def test_a_bus_error_of_a_worker_is_said_in_the_same_way(self):
        self.expect_advice(self.run_words([PENSTOCK, "run", *self.loader("--loader-args", "bus=worker"), "--num-batches", "20"], code=6))

    def test_a_bus_error_of_the_loader_itself_names_the_shared_memory(self):
        text = self.run_words([PENSTOCK, "run", *self.loader("--loader-args", "bus=loader"), "--num-batches", "20"], code=6)
        self.assertIn("left of /dev/shm; enlarge that (docker run --shm-size", text)

    def test_is_enough_for_processes_that_exchange_gradients(self):
        command = [PENSTOCK, "run", "--variable-update", "horovod", *EMULATED]
        self.assertIn("rank 7 on ", self.run_words([PYTHON, START_RANKS, 8, *command]))

    def test_is_enough_for_batches_in_shared_memory(self):
        if "zmq-consume" not in self.run_words([PENSTOCK, "list", "feeder"]):
            self.skipTest("needs a program with ZeroMQ")
        serve = f"{PENSTOCK} serve --fake-location host --batch-size 64 --shared-memory --endpoint ipc:///{self.folder}/batches"
        run = ["run", "--fake-location", f"zmq-consume:endpoint=ipc:///{self.folder}/batches,credit=2,shared_memory=true,producer='{serve}'",
               "--device", "emulated:img_per_s=2000", "--batch-size", "64", "--num-batches", "30"]
        self.assertIn("total images/sec", self.run_words([PENSTOCK, *run]))


class GroupLimits(Container):
    """Files of a control group of version 2 that allows one core and 96 MiB, in place of those of this machine."""
    prefix = ["unshare", "-m", "sh", "-c", '''set -e; mount -t tmpfs tmpfs /sys/fs/cgroup; cd /sys/fs/cgroup
echo 100000 100000 > cpu.max; echo 100663296 > memory.max; echo 20971520 > memory.current; echo inactive_file 0 > memory.stat
cd "$0"; exec "$@"''']

    def setUp(self):
        super().setUp()
        self.prefix = [*self.prefix, str(self.folder)]

    def test_threads_are_as_many_as_the_cores_of_the_quota(self):
        self.run_words([PENSTOCK, "run", *EMULATED, "--out", "result.json"])
        result = json.loads((self.folder / "result.json").read_text())
        self.assertEqual(result["environment"]["usable_cores"], 1)
        self.assertEqual((result["config"]["compute_threads"], result["config"]["feeder_threads"]), (1, 1))

    def test_memory_that_the_group_does_not_allow_is_refused_before_it_is_taken(self):
        text = self.run_words([PENSTOCK, "run", *EMULATED[:4], "--batch-size", "1024"], code=2)
        self.assertIn("not enough memory", text)
        self.assertIn("and 80 MB are available", text)

    def test_workers_of_a_loader_are_compared_with_the_cores_of_the_quota(self):
        (self.folder / "loader.py").write_text(LOADER.replace("64", "2").replace("224", "32"))
        text = self.run_words([PENSTOCK, "run", "--loader", "loader.py:make_loader", "--device", "emulated:img_per_s=2000",
                               "--num-batches", "20"])
        self.assertIn("2 workers share 1 usable core", text)


class ProcessOne(Container):
    """The kernel gives process 1 no default actions for signals, and all orphans of its container."""

    def start(self, words):
        outer = subprocess.Popen(["unshare", "-pf", "--kill-child", "--mount-proc", *map(str, words)], cwd=self.folder, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(outer.stdout.close)
        self.addCleanup(outer.kill)
        return outer

    def inner(self, outer):
        """Its number outside; waits until it measures."""
        deadline, files = time.monotonic() + TIMEOUT_S, self.folder / "result.steps.jsonl"
        while time.monotonic() < deadline:
            if files.exists() and files.stat().st_size > 4096 or outer.poll() is not None:
                break
            time.sleep(0.05)
        self.assertIsNone(outer.poll(), "it ended by itself")
        return int(pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text())

    def test_a_signal_ends_it_with_its_results(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            outer = self.start([PENSTOCK, "run", *EMULATED[:-1], 1000000, "--out", "result.json"])
            os.kill(self.inner(outer), number)
            text = outer.communicate(timeout=TIMEOUT_S)[0]
            self.assertEqual(outer.returncode, code, text)
            result = json.loads((self.folder / "result.json").read_text())
            self.assertEqual((result["status"], result["exit_code"]), ("partial", code), text)
            self.assertGreater(len(result["step_ms"]), 0)
            (self.folder / "result.json").unlink()

    def test_orphans_of_a_command_do_not_hold_its_end_up(self):
        orphans = "for i in 1 2 3; do (setsid sleep 0.0$i &); done; (setsid sleep 1000 &); sleep 0.2; exit 3"
        outer = self.start([PENSTOCK, "watch", "--", "sh", "-c", orphans])
        text = outer.communicate(timeout=TIMEOUT_S)[0]
        self.assertEqual(outer.returncode, 3, text)


if __name__ == "__main__":
    if reason := why_not():
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main()
