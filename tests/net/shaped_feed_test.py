#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Feeding over ZeroMQ between two hosts, over a link of a known rate that is cut for three seconds, or permanently.

Usage: hosts.sh 2 shaped_feed_test.py PENSTOCK TRANSPORT_PEER, with PENSTOCK_LINK_RATE=200mbit.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import hosts

LINK_BITS_PER_S = 200e6
BATCH = 4
IMAGE_BYTES = 224 * 224 * 3
BATCHES = 200
LIMIT_S = 60


def check(condition, text):
    if not condition:
        sys.exit(f"failed: {text}")


class Pair:
    """A consumer on one host and a producer on the other, with their output in files."""

    def __init__(self, folder, penstock, peer):
        self.folder, self.penstock, self.peer = pathlib.Path(folder), penstock, peer
        self.consuming, self.producing = hosts.names()
        self.endpoint = f"tcp://{hosts.address(self.consuming)}:5555"
        self.children = []

    def start(self, host, name, command):
        with open(self.folder / f"{name}.out", "wb") as out, open(self.folder / f"{name}.err", "wb") as err:
            child = subprocess.Popen(hosts.on(host, command), stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        self.children.append(child)
        return child

    def run(self, batches, options, timeout="30s"):
        return self.start(self.consuming, "run", [
            self.penstock, "run", "--out", str(self.folder / "result.json"), "--model", "trivial", "--image-size",
            "224", "--device", "emulated:img_per_s=100000", "--batch-size", str(BATCH), "--num-warmup-batches", "4",
            "--num-batches", str(batches - 4), "--display-every", "1", "--timeout", timeout,
            "--fake-location", f"zmq-consume:endpoint={self.endpoint},hwm=2,{options}"])

    def serve(self, batches, options, timeout="30s"):
        return self.start(self.producing, "serve", [
            self.penstock, "serve", "--image-size", "224", "--batch-size", str(BATCH), "--fake-location", "host",
            "--hwm", "2", "--num-batches", str(batches), "--endpoint", self.endpoint, "--timeout", timeout, *options])

    def text(self, name):
        return (self.folder / name).read_text(errors="replace")

    def result(self):
        return json.loads(self.text("result.json"))

    def await_lines(self, name, count):
        deadline = time.monotonic() + LIMIT_S
        while self.text(name).count("\n") < count:
            check(time.monotonic() < deadline, f"{name} has {self.text(name)!r}")
            time.sleep(0.02)

    def link(self, state):
        hosts.set_link(self.producing, state)

    def expect(self, child, code, name):
        found = child.wait(LIMIT_S)
        check(found == code, f"{name}: exit code {found}, not {code}: {self.text(name + '.err')}")

    def end(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
                child.wait()


def keys(pair):
    """The key options of consumer and producer."""
    folder = pair.folder / "keys"
    for name in ("consumer", "producer"):
        subprocess.run([pair.penstock, "keygen", "--out", str(folder), "--name", name], timeout=20, check=True,
                       stdout=subprocess.DEVNULL)
    return (f"curve_secret={folder}/consumer.key_secret,curve_allow={folder}/producer.key",
            ["--curve-secret", f"{folder}/producer.key_secret", "--curve-server-key", f"{folder}/consumer.key"])


def link_bounds_the_rate(pair, for_run, for_serve):
    run, serve = pair.run(BATCHES, for_run), pair.serve(BATCHES, for_serve)
    pair.expect(run, 0, "run")
    pair.expect(serve, 0, "serve")
    result, bound = pair.result(), LINK_BITS_PER_S / 8 / IMAGE_BYTES
    print(f"{result['img_per_s']:.1f} img/s over a link of {bound:.1f} img/s")
    # Batches in sockets when the window begins, and the shaper's burst, are a few per cent of a window.
    check(0.3 * bound < result["img_per_s"] < 1.1 * bound, f"{result['img_per_s']} img/s; the link has {bound}")
    check(result["counters"]["messages_received"] == BATCHES, result["counters"])
    check(result["counters"]["messages_rejected"] == 0, result["counters"])


def the_link_is_blamed(pair):
    """`penstock isolate` must blame the network if a device and a producer are many times faster than the link. The steps
    of the device are long enough that it keeps its rate on a busy machine, so that a verdict needs few blocks."""
    serve = pair.start(pair.producing, "serve", [
        pair.penstock, "serve", "--image-size", "224", "--batch-size", str(BATCH), "--fake-location", "host", "--hwm",
        "2", "--format", "framed", "--endpoint", pair.endpoint])
    isolate = pair.start(pair.consuming, "isolate", [
        pair.penstock, "isolate", "--out", str(pair.folder / "isolate"), "--model", "trivial", "--image-size", "224",
        "--device", "emulated:img_per_s=2000", "--batch-size", str(BATCH), "--budget", "6s",
        "--fake-location", f"zmq-consume:endpoint={pair.endpoint},hwm=2,insecure"])
    check(isolate.wait(LIMIT_S) == 0, pair.text("isolate.out") + pair.text("isolate.err"))
    check(serve.poll() is None, pair.text("serve.err"))
    delivery = json.loads(pair.text("isolate/isolation.json"))["delivery"]
    print({key: delivery[key] for key in ("blame", "making_percent", "held_percent", "waits_in_percent",
                                          "batches_ready", "batches_under_way")})
    check(delivery["blame"] == "network", delivery)


def cut_and_healed(pair, for_run, for_serve):
    run, serve = pair.run(BATCHES, for_run), pair.serve(BATCHES, for_serve)
    pair.await_lines("run.out", 40)
    pair.link("down")
    time.sleep(3)  # the fault
    check(run.poll() is None and serve.poll() is None, "a cut of three seconds ended them")
    pair.link("up")
    pair.expect(run, 0, "run")
    pair.expect(serve, 0, "serve")
    check(pair.result()["counters"]["messages_received"] == BATCHES, pair.result()["counters"])
    check(pair.result()["window_s"] > 3, f"the window is {pair.result()['window_s']} s: there was no cut")


def every_batch_once_across_a_cut(pair):
    """The same with batches that are identified by name."""
    count = 400
    consumer = pair.start(pair.consuming, "consumer",
                          [pair.peer, "consume", f"endpoint={pair.endpoint},hwm=2,insecure", str(count)])
    producer = pair.start(pair.producing, "producer", [pair.peer, "produce", pair.endpoint, "zmq_op", "5", str(count)])
    pair.await_lines("consumer.out", 40)
    pair.link("down")
    time.sleep(3)
    check(pair.text("consumer.out").count("\n") < count, "all had come before the cut")
    pair.link("up")
    pair.await_lines("consumer.out", count)
    check(pair.text("consumer.out") == "".join(f"5 {batch}\n" for batch in range(count)), pair.text("consumer.out"))
    check(consumer.poll() is None and producer.poll() is None, pair.text("consumer.err") + pair.text("producer.err"))


def cut_for_good(pair):
    run, serve = pair.run(10000, "insecure", "4s"), pair.serve(10000, [], "4s")
    pair.await_lines("run.out", 40)
    pair.link("down")
    pair.expect(run, 5, "run")
    pair.expect(serve, 5, "serve")
    pair.link("up")
    for name, part in (("run.err", f"no batch came over {pair.endpoint}"), ("run.err", "within 4 s"),
                       ("serve.err", f"no consumer took a batch at {pair.endpoint}"), ("serve.err", "within 4 s")):
        check(part in pair.text(name), f"no '{part}' in {name}: {pair.text(name)}")
    check(4 < pair.result()["counters"]["messages_received"] < 10000, pair.result()["counters"])


def main():
    penstock, peer = sys.argv[1:]
    cases = {
        "a link bounds the rate": lambda pair: link_bounds_the_rate(pair, "insecure", []),
        "the same with keys": lambda pair: link_bounds_the_rate(pair, *keys(pair)),
        "a link is blamed": the_link_is_blamed,
        "cut for three seconds, with keys": lambda pair: cut_and_healed(pair, *keys(pair)),
        "every batch once across a cut": every_batch_once_across_a_cut,
        "cut for good": cut_for_good,
    }
    for name, case in cases.items():
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            pair = Pair(folder, penstock, peer)
            try:
                case(pair)
            finally:
                pair.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
