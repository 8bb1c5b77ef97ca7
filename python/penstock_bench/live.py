# SPDX-License-Identifier: Apache-2.0
"""Lets the program measure a loader that exists in this process.

The program starts its child for loaders, as for a file; that child hands its connection and its text to the socket of a Host, and
this process then does what the child does for a file: the thread that calls serve() asks for the batches, and copies them into
shared memory.
"""
import faulthandler
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import tempfile
import threading
import types

LOADER = "penstock:live"
MODULE = "penstock_live"  # workers that are forked send objects of its classes back
MOST_ORDER = 1 << 22  # bytes
PATIENCE_S = 5


def name_of(loader):
    """What the program calls it: `penstock:live/` and its function or class."""
    name = getattr(loader, "__name__", type(loader).__name__)
    return f"{LOADER}/{re.sub('[^A-Za-z0-9_.]', '_', name)}"


def is_factory(loader):
    """Whether it makes a loader when it is called."""
    return isinstance(loader, type) or callable(loader) and not hasattr(loader, "__iter__") and not hasattr(loader, "__next__")


class Host:
    """Listens while programs measure `loader`, one after the other. Use it as a context manager, in the main thread."""

    def __init__(self, loader):
        self.loader, self.module = loader, None
        self.folder = self.listener = self.path = None
        self.ignores = False  # SIGINT, as a shell makes a program in the background do; Abandonment needs it

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="penstock-")  # that only this user can enter
        self.path = os.path.join(self.folder.name, "live")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        faulthandler.register(signal.SIGUSR2, file=2, all_threads=True)  # the child asks for stacks if the loader is silent
        self.ignores = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        if self.ignores:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return self

    def __exit__(self, *_):
        if self.ignores:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.listener.close()
        faulthandler.unregister(signal.SIGUSR2)
        self.folder.cleanup()
        if sys.modules.get(MODULE) is self.module:
            sys.modules.pop(MODULE, None)

    def serve(self, ended):
        """Feeds each run of the program, until the file descriptor `ended` is readable."""
        while True:
            readable = select.select([self.listener, ended], [], [])[0]
            if ended in readable:
                return
            connection, _ = self.listener.accept()
            with connection:
                order = self.receive(connection)
                if order is not None:
                    self.feed(*order)

    @staticmethod
    def receive(connection):
        """The descriptor of the connection to the program, and the order; None: the child has gone."""
        connection.settimeout(10)
        data, descriptors, _, _ = socket.recv_fds(connection, 4, 1)
        if len(data) < 4 or not descriptors:
            return None
        (size,) = struct.unpack("<I", data)
        text = b""
        while size <= MOST_ORDER and len(text) < size:
            more = connection.recv(size - len(text))
            if not more:
                break
            text += more
        if len(text) < size:
            os.close(descriptors[0])
            return None
        return descriptors[0], json.loads(text)

    def feed(self, descriptor, order):
        if self.module is None:
            self.module = types.ModuleType(MODULE)
            sys.modules[MODULE] = self.module
            self.module.program = order["program"]
            exec(compile(order["program"], "<penstock>", "exec"), self.module.__dict__)  # pylint: disable=exec-used
        self.module.live = self.loader
        with Abandonment(descriptor) as run:
            self.module.feed_and_go_on(descriptor, *order["arguments"])
        if run.error is not None:
            print(f"penstock: {run.error}", file=sys.stderr)


class Abandonment:
    """Interrupts a loader that still makes a batch long after the program has ended the run: it may wait for ever."""

    def __init__(self, descriptor):
        self.connection, self.caller = os.dup(descriptor), threading.get_ident()
        self.wake, self.wakes = os.pipe()
        self.lock, self.ended, self.error = threading.Lock(), False, None
        self.watcher = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self):
        self.watcher.start()
        return self

    def watch(self):
        closed = select.poll()
        closed.register(self.connection, 0)  # the program closes it
        closed.register(self.wake, select.POLLIN)
        closed.poll()
        if select.select([self.wake], [], [], PATIENCE_S)[0]:
            return
        with self.lock:
            if not self.ended:
                self.error = f"the loader was interrupted: it made a batch for {PATIENCE_S} s after its run had ended"
                signal.pthread_kill(self.caller, signal.SIGINT)

    def __exit__(self, kind, *_):
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        try:
            with self.lock:
                self.ended = True
        except KeyboardInterrupt:
            interrupted = True
        os.close(self.wakes)  # readable at the other end
        self.watcher.join()
        os.close(self.wake)
        os.close(self.connection)
        return interrupted and self.error is not None
