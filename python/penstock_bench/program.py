# SPDX-License-Identifier: Apache-2.0
"""Runs the program `penstock` for the functions of this package: where it is, its arguments, its progress, and how it ends."""
import contextlib
import io
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading

ENDS_WITH_CALLER = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 2); os.execv(sys.argv[1], sys.argv[1:])"
MOST_LINES = 60
FAILED = "failed: "  # before the reason why a run has no result
INTERRUPTED = 130


class PenstockError(Exception):
    """What was attempted, and what to do. `exit_code` is the program's (docs/troubleshooting.md), or None if it did not run."""

    def __init__(self, text, exit_code=None):
        super().__init__(text)
        self.exit_code = exit_code


def path():
    """The program: $PENSTOCK, else that of the wheel, which lies beside the package."""
    named = os.environ.get("PENSTOCK")
    program = pathlib.Path(named) if named else pathlib.Path(__file__).parent / "bin" / "penstock"
    if program.is_file() and os.access(program, os.X_OK):
        return str(program.resolve())
    if named:
        raise PenstockError(f"PENSTOCK is '{named}', where no program is; expected the path of a built penstock, such as build/penstock")
    raise PenstockError(f"there is no program {program}; install the wheel with pip, or set PENSTOCK=build/penstock in a clone")


def words_of(flags):
    """{"num_batches": 20, "verify": True, "args": None} -> ["--num-batches=20", "--verify=true"]"""
    words = []
    for name, value in flags.items():
        if value is None:
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words.append(f"--{name.replace('_', '-')}={text}")
    return words


class Progress:
    """Shows the lines in which the program says how far it is: in a terminal and in a notebook one line that changes, elsewhere
    line by line, on standard error."""

    def __init__(self, shown):
        self.stream = (sys.stdout if in_notebook() else sys.stderr) if shown else None  # a notebook paints the other one red
        self.changes = shown and (in_notebook() or is_terminal(sys.stderr))
        self.width = 0

    def show(self, text):
        if self.stream is None:
            return
        with contextlib.suppress(OSError, ValueError):  # it was closed
            if self.changes:
                self.stream.write(f"\r{text:{self.width}}")
                self.width = len(text)
            else:
                self.stream.write(f"penstock: {text}\n")
            self.stream.flush()

    def end(self):
        if self.changes and self.width:
            self.show("")
            with contextlib.suppress(OSError, ValueError):
                self.stream.write("\r")


def is_terminal(stream):
    try:
        return os.isatty(stream.fileno())
    except (AttributeError, OSError, ValueError, io.UnsupportedOperation):
        return False


def in_notebook():
    shell = sys.modules.get("IPython")
    return bool(shell and shell.get_ipython() and "IPKernelApp" in shell.get_ipython().config)


class Ended:
    """How the program ended: its exit code, what it printed, and whether Ctrl-C ended it."""

    def __init__(self, code, output, errors, interrupted):
        self.code, self.output, self.errors, self.interrupted = code, output, errors, interrupted

    def refuse(self, *accepted):
        """Raises an error unless the exit code is 0 or one of these."""
        if self.interrupted and self.code in (INTERRUPTED, -signal.SIGINT):
            raise KeyboardInterrupt
        if self.code not in (0, *accepted):
            raise PenstockError(self.errors or f"penstock ended with exit code {self.code}", self.code)


def call(verb, words, *, progress=True, host=None, environment=None):
    """Runs a verb until it ends. Ctrl-C is passed on to it, once, and it then writes what it has measured; a second one ends it. With
    a Host, this thread feeds its runs meanwhile."""
    program = path()
    with tempfile.TemporaryFile() as output:
        # In another session, so that a terminal's Ctrl-C reaches it once. It ends with this process.
        process = subprocess.Popen(  # pylint: disable=consider-using-with
            [sys.executable, "-c", ENDS_WITH_CALLER, program, verb, *words], stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.PIPE, env={**os.environ, **(environment or {})}, start_new_session=True)
        running = Running(process, Progress(progress), host)
        try:
            interrupted = running.wait()
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        output.seek(0)
        return Ended(process.returncode, output.read().decode(errors="replace"), running.errors(), interrupted)


class Running:
    """The program while it runs: a thread reads what it says, another one waits for its end."""

    def __init__(self, process, progress, host):
        self.process, self.progress, self.host = process, progress, host
        self.lines = []
        self.ended, self.ends = socket.socketpair()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def read(self):
        with io.TextIOWrapper(self.process.stderr, errors="replace") as said:
            for line in said:
                text = line.rstrip().rpartition("\r")[2]
                if text.endswith(" s left"):
                    self.progress.show(text)
                elif text:
                    self.lines.append(text)
                    del self.lines[:-MOST_LINES]

    def watch(self):
        self.process.wait()
        self.ends.send(b".")

    def wait(self):
        """Whether Ctrl-C ended it."""
        interrupted = False
        while True:
            try:
                if self.host is not None and not interrupted:
                    self.host.serve(self.ended)
                self.process.wait()
                break
            except KeyboardInterrupt:
                if self.process.poll() is not None:
                    break
                if interrupted:
                    self.process.kill()
                    raise
                interrupted = True
                self.process.send_signal(signal.SIGINT)
        self.watcher.join()
        self.ended.close()
        self.ends.close()
        self.reader.join(1)
        self.progress.end()
        return interrupted

    def errors(self):
        """The program's messages, without its name before each; of a run that failed those after its notes."""
        lines = [line.removeprefix("penstock: ") for line in self.lines]
        last = max((number for number, line in enumerate(lines) if line.startswith(FAILED)), default=None)
        return "\n".join(lines[last or 0:]).removeprefix(FAILED)
