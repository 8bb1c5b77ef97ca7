# SPDX-License-Identifier: Apache-2.0
"""One turn of a case: runs its producers and its consumer as separate processes, and collects their results."""
import json
import os
import re
import socket
import struct
import tempfile

from cases import LATENCY_FACTS, LIMIT_WAYS
from processes import Child, Failed, settle

HERE = os.path.dirname(os.path.abspath(__file__))
COUNTS = ("minor_faults", "voluntary_switches", "involuntary_switches")  # divided by the number of batches
KEY = re.compile(r'(public|secret)-key\s*=\s*"([^"]+)"')


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def zmq_op_message(batch, image):
    """The bytes of a batch of random pixels in the format of feeders/remote/wire/zmq_op.h."""
    pixels = batch * image * image * 3
    return (struct.pack("<3i4iq", 2, 4, 4, batch, image, image, 3, pixels) + os.urandom(pixels) +
            struct.pack("<2iiq", 3, 1, batch, 4 * batch) + bytes(4 * batch))


class Turns:
    """Runs cases, one at a time. `settings` are transport_rates.py's arguments."""

    def __init__(self, settings, abilities):
        self.settings, self.abilities = settings, abilities
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-")
        self.known = {}  # img/s of cases and of transports, to choose the number of batches of a window
        self.count = 0
        with open(self.path("zmq_op"), "wb") as file:
            file.write(zmq_op_message(settings.batch, settings.image))

    def close(self):
        self.folder.cleanup()

    def path(self, *names):
        return os.path.join(self.folder.name, *names)

    def keys(self, name):
        """The public and secret key of a certificate, which is made once."""
        if not os.path.exists(self.path("keys", name + ".key_secret")):
            self.complete([self.settings.penstock, "keygen", "--out", self.path("keys"), "--name", name], "keygen")
        with open(self.path("keys", name + ".key_secret"), encoding="utf-8") as file:
            return dict(KEY.findall(file.read()))

    def complete(self, command, name):
        child = Child(command, self.folder.name, name)
        try:
            if not child.wait(self.settings.limit):
                raise Failed(f"{name} took longer than {self.settings.limit:g} s")
            if child.code != 0:
                raise Failed(child.failure())
        finally:
            child.end()
        return child

    def endpoint(self, case):
        self.count += 1
        if case.transport == "tcp":
            return f"tcp://127.0.0.1:{free_port()}"
        if case.transport == "abstract":
            return f"ipc://@penstock-{os.getpid()}-{self.count}"
        return f"ipc://{self.path(f'feed{self.count}')}"

    def message(self, case):
        """A file with the bytes that push sends."""
        name = case.format.partition(",")[0]
        if not os.path.exists(self.path(name)):
            self.complete(self.python("tensorpack_producer.py", self.path(name), "write"), "message")
        return self.path(name)

    def python(self, script, endpoint, *words):
        own = self.settings
        return [own.python, os.path.join(HERE, script), endpoint, str(own.batch), str(own.image), str(own.hwm), *words]

    # ---- senders ----
    def producer(self, case, endpoint):
        own = self.settings
        if case.producer == "tensorpack":
            return self.python("tensorpack_producer.py", endpoint, "send")
        if case.producer == "serve":
            command = [own.penstock, "serve", "--fake-location", "host", "--model", "null", "--batch-size",
                       str(own.batch), "--image-size", str(own.image), "--hwm", str(own.hwm), "--endpoint", endpoint,
                       *case.serve]
            if case.curve:
                self.keys("producer")
                command += ["--curve-secret", self.path("keys", "producer.key_secret"),
                            "--curve-server-key", self.path("keys", "consumer.key")]
            if case.paced:
                command += ["--img-per-s", str(self.pace(case))]
            return command
        words = self.limit_words(case, endpoint) | {"message": self.message(case)}
        words.pop("malloc", None)
        if case.curve:
            own_keys = self.keys("producer")
            words |= {"server_key": self.keys("consumer")["public"], "public_key": own_keys["public"],
                      "secret_key": own_keys["secret"]}
        if case.paced:
            words["rate"] = own.pace
        return self.limit("push", words)

    def limit_words(self, case, endpoint):
        words = {"endpoint": endpoint, "hwm": self.settings.hwm, **LIMIT_WAYS.get(case.way, {})}
        if case.stamped:
            words["stamp"] = "true"
        return words

    def limit(self, mode, words):
        return [self.abilities.limit, mode, *(f"{key}={value}" for key, value in words.items())]

    # ---- receivers ----
    def consumer(self, case, endpoint):
        own = self.settings
        if case.consumer == "memcpy":
            size = os.path.getsize(self.path("zmq_op"))
            return self.limit("memcpy", {"bytes": size, "slots": own.slots, "seconds": own.seconds})
        if case.consumer == "pull":
            words = self.limit_words(case, endpoint) | {"slots": own.slots, "seconds": own.seconds}
            if case.curve:
                words["secret_key"] = self.keys("consumer")["secret"]
            return self.limit("pull", words)
        if case.consumer == "tensorpack":
            return self.python("tensorpack_consumer.py", endpoint, str(own.seconds))
        if case.consumer == "torch":
            return self.python("torch_loader.py", "-", str(own.slots), str(own.seconds))
        return self.run_command(case, self.feeder(case, endpoint))

    def feeder(self, case, endpoint):
        own = self.settings
        if case.producer == "none":
            return f"host:img_per_s={self.pace(case)}"
        options = [f"endpoint={endpoint}", f"hwm={own.hwm}", *(word.format(hwm=own.hwm) for word in case.consume)]
        if case.curve:
            options += [f"curve_secret={self.path('keys', 'consumer.key_secret')}", "curve_allow=any"]
        return "zmq-consume:" + ",".join(options)

    def run_command(self, case, feeder):
        own = self.settings
        return [own.penstock, "run", "--json", "--model", "null", "--device", "emulated:copy=none", "--batch-size",
                str(own.batch), "--image-size", str(own.image), "--prefetch", str(own.slots), "--num-warmup-batches",
                str(3 * own.hwm + 10), "--num-batches", str(self.batches(case)), "--extend-window", "--timeout",
                f"{max(own.limit, 10):g}s", "--fake-location", feeder]

    def pace(self, case):
        """Images per second of paced cases."""
        own = self.settings
        return own.hand_off_rate if case.group == "hand-off" else own.pace * own.batch

    def batches(self, case):
        """The number of batches that should fill the window, by earlier measurements."""
        own = self.settings
        rate = self.pace(case) if case.paced else self.known.get(case.name, self.known.get(case.transport, 1000))
        return max(20, round(own.seconds * rate / own.batch))

    # ---- the turn ----
    def run(self, case):
        """The result of the turn. Raises Failed."""
        endpoint = self.endpoint(case)
        if case.curve:
            self.keys("consumer")
        children, before = [], 0
        try:
            if case.producer != "none":
                command = self.producer(case, endpoint)
                for number in range(case.producers):
                    children.append(Child(command, self.folder.name, f"producer{number}"))
                settle(children)
                before = sum(child.cpu_seconds() for child in children)
            consumer = self.complete(self.consumer(case, endpoint), "consumer")
            used = sum(child.cpu_seconds() for child in children) - before
        except Failed as error:
            ended = [child.failure() for child in children if child.ended()]
            raise Failed("; ".join([str(error), *ended])) from error
        finally:
            for child in children:
                child.end()
        answer = self.reading(case, json.loads(consumer.output().strip().splitlines()[-1]))
        answer["consumer_peak_rss_bytes"] = consumer.peak_rss_bytes
        sent = sum(child.batches_sent() for child in children)
        if sent > 0:
            answer["producer_cpu_ms"] = 1e3 * used / sent
        if children:
            answer["producer_peak_rss_bytes"] = max(child.peak_rss_bytes for child in children)
        self.known[case.name] = answer["img_per_s"]
        if case.group == "limit":
            self.known[case.transport] = answer["img_per_s"]
        return answer

    def reading(self, case, said):
        """The consumer's answer, with the table's names."""
        batch = self.settings.batch
        if case.consumer != "run":
            batches = said["batches"]
            answer = {"img_per_s": batch * batches / said["seconds"], "consumer_cpu_ms": 1e3 * said["cpu_s"] / batches,
                      "about": said}
            for key in COUNTS:
                if key in said:
                    answer[key] = said[key] / batches
            for key in (*LATENCY_FACTS, "producer_cpu_ms"):
                if key in said:
                    answer[key] = said[key]
            return answer
        if said["status"] not in ("ok", "draining"):
            raise Failed(f"the run is {said['status']}: {said['reason']}")
        if said["counters"].get("messages_rejected", 0) > 0:
            raise Failed("messages were refused: " + " / ".join(said["notes"]))
        batches = said["img_per_s"] * said["window_s"] / batch
        # The lower rate of the two: batches that were ready before the window must not raise it.
        answer = {"img_per_s": min(said["img_per_s"], said["sustained_img_per_s"]),
                  "consumer_cpu_ms": 1e3 * said["process_cpu_s"] / batches,
                  "about": {key: said[key] for key in ("status", "facts", "notes", "window_s")}}
        received = said["counters"].get("images_received", 0) / batch
        for way in ("copied", "lent"):
            if received > 0 and f"bytes_{way}" in said["counters"]:
                answer[f"{way}_bytes"] = said["counters"][f"bytes_{way}"] / received
        for key, fact in LATENCY_FACTS.items():
            if fact in said["facts"]:
                answer[key] = 1e3 * said["facts"][fact]
        return answer
