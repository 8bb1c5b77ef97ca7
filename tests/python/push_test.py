# SPDX-License-Identifier: Apache-2.0
"""push() against a bare socket, which reads feeders/remote/framed_format.md byte by byte, and against `penstock run`."""
import ast
import contextlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy
import penstock_bench
import zmq

HEADER = struct.Struct("<8s4H2Q3q6I2Q")
BATCH, HELLO, END = 1, 2, 3
PENSTOCK = os.environ["PENSTOCK"]
LIMIT_S = 30


def batch_of(number, images=2, side=8):
    pixels = numpy.arange(number, number + images * side * side * 3).astype(numpy.uint8)
    return pixels.reshape(images, side, side, 3), numpy.arange(images) + number


class HasArray:
    """An array of a library that NumPy does not know."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def __array__(self, dtype=None, copy=None):
        return self.array


class HasDlpack:
    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class LikeDali:
    """A list of DALI in main memory."""

    def __init__(self, array):
        self.array = array

    def shape(self):
        return [image.shape for image in self.array]

    def as_cpu(self):
        return self

    def as_array(self):
        return self.array


class PushTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.endpoint = f"ipc://{self.folder}/feed"

    @contextlib.contextmanager
    def consumer(self, hwm=1000):
        with zmq.Context() as context, context.socket(zmq.PULL) as socket:
            socket.linger, socket.rcvtimeo, socket.rcvhwm = 0, 1000 * LIMIT_S, hwm
            socket.bind(self.endpoint)
            yield socket

    def pushed(self, batches, **options):
        """What push() returns, and headers and batches as a consumer gets them."""
        received = []

        def receive():
            with self.consumer() as socket:
                while not received or received[-1][0][2] != END:
                    frames = socket.recv_multipart()
                    received.append((HEADER.unpack(frames[0]), *frames[1:]))

        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        done = penstock_bench.push(batches, self.endpoint, timeout=LIMIT_S, **options)
        thread.join()
        self.assertEqual([message[0][2] for message in received], [HELLO] + [BATCH] * (len(received) - 2) + [END])
        self.assertEqual(done.batches, len(received) - 2)
        headers = [message[0] for message in received[1:-1]]
        arrays = [(numpy.frombuffer(pixels, numpy.uint8).reshape(header[10:14]), numpy.frombuffer(labels, numpy.int32))
                  for header, pixels, labels in received[1:-1]]
        return done, headers, arrays

    def check(self, arrays, expected):
        self.assertEqual(len(arrays), len(expected))
        for (pixels, labels), (expected_pixels, expected_labels) in zip(arrays, expected):
            numpy.testing.assert_array_equal(pixels, expected_pixels)
            numpy.testing.assert_array_equal(labels, expected_labels)

    def refusal(self, batches, endpoint=None, **options):
        with self.assertRaises(penstock_bench.LoaderError) as caught:
            penstock_bench.push(batches, endpoint or self.endpoint, **options)
        return str(caught.exception)

    def test_batches_arrive_in_order_with_their_labels(self):
        expected = [batch_of(number) for number in range(5)]
        done, headers, arrays = self.pushed(expected)
        self.check(arrays, expected)
        self.assertEqual([header[6] for header in headers], list(range(5)))
        self.assertEqual((done.batches, done.images, done.partial, done.undelivered), (5, 10, 0, 0))
        self.assertRegex(str(done), r"^pushed 5 batches, 10 images, in \d+\.\d\d s: \d+ % next\(loader\), \d+ % convert, "
                                    r"\d+ % wait for room$")

    def test_containers_and_arrays_of_all_kinds(self):
        pixels, labels = batch_of(7)
        planar = numpy.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
        zeros = numpy.zeros(2)
        for batch, expected in [((pixels, labels), labels), ([pixels, labels.astype(numpy.uint8)], labels),
                                ({"image": pixels, "label": labels}, labels), ((planar, labels), labels),
                                ((pixels, labels.reshape(-1, 1)), labels), (pixels, zeros), ((pixels, [7, 8]), labels),
                                ((HasArray(pixels), labels), labels), ((HasDlpack(planar), labels), labels),
                                ((LikeDali(pixels), LikeDali(labels)), labels), ((memoryview(pixels), labels), labels),
                                ((numpy.repeat(pixels, 2, axis=2)[:, :, ::2], labels), labels)]:
            for copy in (True, False):
                with self.subTest(batch=str(batch)[:40], copy=copy):
                    self.check(self.pushed([batch], copy=copy)[2], [(pixels, expected)])

    def test_tensors_of_pytorch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no PyTorch")
        pixels, labels = batch_of(3, side=8)
        tensor = torch.from_numpy(pixels.copy()).permute(0, 3, 1, 2)  # in memory [N,H,W,C]
        for images in (tensor, tensor.contiguous()):
            self.check(self.pushed([(images, torch.from_numpy(labels))], copy=False)[2], [(pixels, labels)])

    def test_an_iterable_may_reuse_its_memory(self):
        def batches():
            pixels = numpy.empty((2, 64, 64, 3), numpy.uint8)
            for number in range(20):
                pixels[:] = number
                yield pixels, [number, number]

        arrays = self.pushed(batches)[2]
        self.check(arrays, [(numpy.full((2, 64, 64, 3), number), [number] * 2) for number in range(20)])

    def test_epochs_repeat_an_iterable_and_a_generator_function(self):
        expected = [batch_of(0), batch_of(1)]

        def batches():
            yield from expected

        for source in (expected, batches):
            self.check(self.pushed(source, epochs=3)[2], expected * 3)

    def test_a_smaller_batch_is_left_out(self):
        done, headers, _ = self.pushed([batch_of(0), batch_of(1), batch_of(2, images=1)], epochs=2)
        self.assertEqual((done.batches, done.images, done.partial), (4, 8, 2))
        self.assertEqual([header[6] for header in headers], [0, 1, 2, 3])
        self.assertIn("; 2 smaller batches were left out", str(done))

    def test_messages_tell_the_work_from_the_wait(self):
        def batches():
            for number in range(3):
                time.sleep(0.05)
                yield batch_of(number)

        done, headers, _ = self.pushed(batches)
        for header in headers:
            begun, ready, sent = header[7:10]
            self.assertGreaterEqual(ready - begun, 50_000_000)
            self.assertGreaterEqual(sent, ready)
        self.assertGreaterEqual(done.get_s, 0.15)

    def test_a_wait_for_room_is_no_work(self):
        received = []

        def consume():
            with self.consumer(hwm=1) as socket:
                while not received or received[-1][2] != END:
                    received.append(HEADER.unpack(socket.recv_multipart()[0]))

        late = threading.Timer(0.6, consume)  # longer than a call of the library waits
        late.start()
        done = penstock_bench.push([batch_of(0)] * 2, self.endpoint, timeout=LIMIT_S)
        late.join()
        begun, ready, sent = received[1][7:10]
        self.assertLess(ready - begun, 300_000_000)
        self.assertGreater(sent - ready, 300_000_000)
        self.assertGreater(done.room_s, 0.3)

    def test_numbers_are_sent_as_they_lie(self):
        pixels, labels = batch_of(3)
        for dtype, number in (("float32", 1), ("float16", 2)):
            for planar in (0, 1):
                values = pixels.astype(dtype) / 255
                values = numpy.ascontiguousarray(values.transpose(0, 3, 1, 2)) if planar else values
                received = []

                def consume():
                    with self.consumer() as socket:
                        received.extend(socket.recv_multipart() for _ in range(2))

                with self.subTest(dtype=dtype, planar=planar):
                    thread = threading.Thread(target=consume, daemon=True)
                    thread.start()
                    penstock_bench.push([(values, labels)], self.endpoint, timeout=LIMIT_S)
                    thread.join()
                    header, sent, _ = received[1]
                    self.assertEqual(tuple(header[76:80]), (number, planar, 0, 0))
                    self.assertEqual(HEADER.unpack(header)[10:14], pixels.shape)
                    self.assertEqual(sent, values.tobytes())

    def test_wrong_batches_are_refused_with_advice(self):
        pixels, labels = batch_of(0)
        for batches, text in [([(pixels.astype(numpy.int64), labels)], "are int64; expected uint8"),
                              ([(pixels[..., :1], labels)], r"\[2, 8, 8, 1\]; expected 3 channels: convert the images to RGB"),
                              ([(pixels[0], labels)], "expected one array of images with four dimensions"),
                              ([], "yielded no batch"),
                              ([(pixels, labels), (pixels[:, :2], labels)], "batch 1 .*shape must not change"),
                              ([(pixels, labels + 2**40)], "batch 0 .*does not fit into 32 bits")]:
            with self.subTest(text=text), self.consumer():
                self.assertRegex(self.refusal(batches, timeout=LIMIT_S), text)
        with self.consumer():
            text = self.refusal(iter([(pixels, labels)]), epochs=2, timeout=LIMIT_S)
        self.assertIn("ended after 1 batches, and yields no other epoch", text)

    def test_wrong_endpoints_and_options_are_refused_with_advice(self):
        for endpoint in ("feed", "http://feed", None):
            with self.assertRaisesRegex(penstock_bench.LoaderError, "expected ipc://PATH or tcp://HOST:PORT"):
                penstock_bench.push([batch_of(0)], endpoint)
        self.assertRegex(self.refusal([batch_of(0)], "tcp://no port"), "cannot connect to tcp://no port.*expected")
        self.assertRegex(self.refusal([batch_of(0)], hwm=0), "hwm is 0; expected 1 or more")
        self.assertRegex(self.refusal([batch_of(0)], curve_secret="none"), "curve_server_key the path of")
        text = self.refusal([batch_of(0)], timeout=0.3)
        self.assertRegex(text, r"no consumer took a batch at ipc://.*/feed within 0\.3 s \(no consumer ever connected\)")

    def test_a_push_ends_when_its_consumer_has_left(self):
        def consume():
            with self.consumer(hwm=1) as socket:
                socket.recv_multipart()
                socket.recv_multipart()

        thread = threading.Thread(target=consume, daemon=True)
        thread.start()
        done = penstock_bench.push([batch_of(0)], self.endpoint, epochs=None, timeout=1)
        thread.join()
        self.assertGreaterEqual(done.batches, 1)

    def test_ctrl_c_ends_a_push_at_once(self):
        program = ("import itertools, numpy, penstock_bench, sys\n"
                   "def batches():\n"
                   "    for number in itertools.count():\n"
                   "        yield numpy.zeros((2, 4, 4, 3), numpy.uint8), [0, 0]\n"
                   "        print(number, flush=True)\n"
                   "penstock_bench.push(batches, sys.argv[1], epochs=None)\n")
        for receives in (True, False):
            with self.consumer(hwm=1) as socket:
                child = subprocess.Popen([sys.executable, "-c", program, self.endpoint], stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True)
                socket.recv_multipart()
                child.stdout.readline()
                if receives:
                    socket.recv_multipart()
                child.send_signal(signal.SIGINT)
                _, errors = child.communicate(timeout=LIMIT_S)
            self.assertEqual((child.returncode, errors), (130, ""))

    def test_a_run_trains_on_what_is_pushed(self):
        def batches():
            for number in range(22):
                time.sleep(0.01)
                yield batch_of(number, images=8, side=32)

        keys = self.folder / "keys"
        for name in ("trainer", "loader"):
            subprocess.run([PENSTOCK, "keygen", "--out", keys / name, "--name", name], check=True, capture_output=True)
        with_keys = dict(curve_secret=keys / "loader/loader.key_secret", curve_server_key=keys / "trainer/trainer.key")
        for options, of_push in [("", dict(copy=False, name="my loader")),
                                 (f",curve_secret={keys}/trainer/trainer.key_secret,curve_allow={keys}/loader", with_keys)]:
            command = [PENSTOCK, "run", "--json", "--fake-location", f"zmq-consume:endpoint={self.endpoint},hwm=2{options}",
                       "--model", "trivial", "--device", "emulated:img_per_s=4000", "--image-size", "32", "--batch-size", "8",
                       "--num-warmup-batches", "2", "--num-batches", "20", "--timeout", f"{LIMIT_S}s"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
                done = penstock_bench.push(batches, self.endpoint, timeout=LIMIT_S, **of_push)
                output, errors = run.communicate(timeout=LIMIT_S)
            self.assertEqual(run.returncode, 0, errors)
            result = json.loads(output)
            self.assertEqual((result["counters"]["images_received"], result["counters"]["messages_rejected"]), (22 * 8, 0))
            self.assertEqual((done.batches, done.undelivered), (22, 0))
            self.assertGreaterEqual(result["facts"]["producing_median_s"], 0.01)
            self.assertLess(result["facts"]["socket_wait_median_s"], 0.01)


class PackageTest(unittest.TestCase):
    def test_nothing_is_imported_before_it_is_used(self):
        program = ("import sys, penstock_bench\nassert 'push' in penstock_bench.__all__\n"
                   "print([name for name in ('numpy', 'zmq', 'torch', 'ctypes') if name in sys.modules])")
        output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
        self.assertEqual(output, "[]\n")
        with self.assertRaises(AttributeError):
            penstock_bench.no_such_name  # pylint: disable=pointless-statement

    def test_the_syntax_is_that_of_python_3_9(self):
        for path in pathlib.Path(penstock_bench.__file__).parent.glob("*.py"):
            ast.parse(path.read_text(), feature_version=(3, 9))


if __name__ == "__main__":
    unittest.main()
