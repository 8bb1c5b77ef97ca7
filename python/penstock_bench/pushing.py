# SPDX-License-Identifier: Apache-2.0
"""Pushes the batches of any iterable to `penstock run --fake-location zmq-consume`."""
import dataclasses
import itertools
import time

from penstock_bench.feed_loader import Layout, LoaderError
from penstock_bench.producer import NoConsumerError, Producer


@dataclasses.dataclass
class Pushed:
    """What push() did. str() of it is a sentence."""

    batches: int = 0
    images: int = 0
    partial: int = 0  # batches that were left out, because they were smaller than the first one
    undelivered: int = 0  # batches that are known not to have arrived
    get_s: float = 0.0  # in the iterable's `next`
    convert_s: float = 0.0  # finding, checking and copying pixels and labels
    room_s: float = 0.0  # waiting until a consumer had room

    def __str__(self):
        total = max(self.get_s + self.convert_s + self.room_s, 1e-9)
        shares = ", ".join(f"{100 * seconds / total:.0f} % {what}" for what, seconds in (
            ("next(loader)", self.get_s), ("convert", self.convert_s), ("wait for room", self.room_s)))
        left_out = f"; {self.partial} smaller batches were left out" if self.partial else ""
        lost = f"; {self.undelivered} batches did not arrive" if self.undelivered else ""
        return f"pushed {self.batches} batches, {self.images} images, in {total:.2f} s: {shares}{left_out}{lost}"


def check_layout(layout):
    if (layout.shape[1] if layout.planar else layout.shape[3]) != 3:
        raise LoaderError(f"the loader's pixels have shape {list(layout.shape)}; expected 3 channels: convert the images to RGB")


def as_array(leaf):
    import numpy

    if leaf.torch is not None:
        import torch

        values = leaf.torch.cpu()
        return (values.view(torch.int16) if leaf.dtype == "bfloat16" else values).numpy()
    return numpy.asarray(leaf.buffer) if leaf.numpy is None else leaf.numpy


def labels_of(leaf, number, images):
    """Labels as the message has them; 0 if the batch has none."""
    import numpy

    if leaf is None:
        return numpy.zeros(images, numpy.int32)
    values = as_array(leaf).reshape(-1)
    labels = numpy.ascontiguousarray(values, numpy.int32)
    if (labels != values).any():
        raise LoaderError(f"batch {number} of the loader has a label that does not fit into 32 bits")
    return labels


def convert(batch, number, layout, producer, copy):
    """Pixels, whether they lie in the producer's memory, and labels. None: the batch is smaller than others."""
    import numpy

    found, labels, _ = layout.find(batch)
    if not layout.check(number, found, labels):
        return None
    pixels = as_array(found)
    if pixels.dtype != producer.dtype:  # the bits of bfloat16
        pixels = pixels.view(producer.dtype)
    if layout.planar and not producer.planar:
        pixels = pixels.transpose(0, 2, 3, 1)
    ours = copy or not pixels.flags.c_contiguous
    if ours:
        memory = producer.memory(pixels.shape)
        numpy.copyto(memory, pixels)
        pixels = memory
    return pixels, ours, labels_of(labels, number, layout.images)


def push(batches, endpoint, *, epochs=1, bind=False, hwm=4, copy=True, timeout=None, checksum=False, name=None,
         curve_secret=None, curve_server_key=None):
    """Sends the batches of an iterable to `penstock run --fake-location zmq-consume:endpoint=ENDPOINT`.

    batches   an iterable, or a function that makes one, such as a generator function. A batch is what `penstock run
              --loader` takes: a tuple, list or dict that holds [N,H,W,3] or [N,3,H,W], and N integers. Bytes are sent as
              [N,H,W,3]; float32, float16 and bfloat16 as they lie, and the consumer needs pixels=f32, f16 or bf16, and for
              [N,3,H,W] planar=true
    endpoint  ipc://PATH or tcp://HOST:PORT, the same as the consumer's
    epochs    how many times to go through the iterable; None: until Ctrl-C
    bind      whether this side binds the endpoint; the consumer then needs bind=false
    hwm       most batches that wait here
    copy      False: pixels that lie as they are sent are sent from the iterable's memory, which must not change later
    timeout   seconds to wait for a consumer that has room; then push() returns, or raises if no batch was taken; None: no limit
    checksum  whether the consumer checks the bytes of each batch
    name      of this producer in the consumer's messages; None: the name of the program
    curve_secret, curve_server_key   paths of a .key_secret file of `penstock keygen` and of the consumer's .key file

    Each message says when its batch was begun, complete and sent, so `penstock isolate` can tell the producer from the
    network. Returns a Pushed when consumers have read everything or have left. Raises LoaderError, whose text says what to do. Ctrl-C
    closes the socket and raises SystemExit with code 130.
    """
    make = batches if callable(batches) and not hasattr(batches, "__iter__") else lambda: batches
    producer = Producer(endpoint, bind, hwm, timeout, checksum, name, curve_secret, curve_server_key)
    done = Pushed()
    wait_s = 0  # for consumers, when the producer is closed
    try:
        try:
            push_batches(make, producer, epochs, copy, done)
            producer.end()
            wait_s = 30 if timeout is None else timeout
        except NoConsumerError:
            if done.batches == 0:
                raise
        finally:
            done.undelivered = producer.close(wait_s)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    return done


def push_batches(make, producer, epochs, copy, done):
    layout, number = None, 0  # number: of the batch, counted through all epochs
    clock = time.perf_counter
    for _ in itertools.count() if epochs is None else range(epochs):
        iterator, first = iter(make()), number
        while True:
            producer.begin()
            began = clock()
            try:
                batch = next(iterator)
            except StopIteration:
                break
            got = clock()
            if layout is None:
                layout = Layout(batch)
                check_layout(layout)
                producer.set_pixels(layout.dtype, layout.planar and not layout.channels_last and layout.dtype != "uint8")
            message = convert(batch, number, layout, producer, copy)
            ready = clock()
            if message:
                producer.send(*message)
                done.batches += 1
                done.images += layout.images
            else:
                done.partial += 1
            number += 1
            done.get_s, done.convert_s, done.room_s = (done.get_s + got - began, done.convert_s + ready - got,
                                                       done.room_s + clock() - ready)
        if number == first:
            raise LoaderError("the loader yielded no batch" if number == 0 else
                              f"the loader ended after {number} batches, and yields no other epoch; expected a function that "
                              "makes it, or an iterable that can be iterated again")
