# SPDX-License-Identifier: Apache-2.0
"""isolate(), run(), compare() and doctor(): the program's verbs for scripts, notebooks and tests."""
import ast
import functools
import json
import numbers
import os
import pathlib
import re
import statistics
import sys
import tempfile
import time
import typing

from penstock_bench import live, program
from penstock_bench.program import PenstockError
from penstock_bench.results import Comparison, Examination, Isolation, Run

UNDECIDED = 7  # an exit code
STARTED = "PENSTOCK_STARTED"  # in the environment of the program's children
STEP_WARM_UP, STEP_CALLS, STEP_LIMIT_S = 3, 50, 5.0
LIVE_DOUBT = ("the loader was measured in one process, in blocks of fresh iterators: differences between processes are not in the intervals; "
              "pass the function that makes it to have them")


Loader = typing.Union[str, typing.Callable[..., typing.Any], typing.Iterable[typing.Any]]
Rate = typing.Union[None, float, str, "os.PathLike[str]", typing.Callable[[typing.Any], typing.Any]]
Result = typing.Union[str, "os.PathLike[str]", Run, Isolation, typing.Sequence[Run]]


def isolate(loader: Loader, *, samples_per_s: Rate = None, budget: typing.Union[None, float, str] = None,
            vary: typing.Optional[typing.Mapping[str, typing.Sequence[typing.Any]]] = None,
            args: typing.Optional[typing.Mapping[str, typing.Any]] = None,
            folder: typing.Union[None, str, "os.PathLike[str]"] = None, progress: bool = True, **flags: typing.Any) -> Isolation:
    """What a loader costs a training, which stage causes it, and what would help. Returns an Isolation.

    loader         a function of a file that makes the loader: each run starts it in a fresh process, as `penstock isolate --loader
                   FILE:FUNCTION`; its text, "my_loader.py:make_loader"; a loader, or any iterable of batches: measured in this
                   process, in blocks of fresh iterators; a function of a notebook, or a lambda: called in this process for each run
    samples_per_s  of the device, without waiting for input: a number; the path of a record of `penstock watch`; or a function that trains
                   on a batch, which is timed with one that lies ready
    budget         time for the whole measurement, in seconds or as "5min"; default: 90 s
    vary           settings to try: {"num_workers": [1, 2, 4]}; arguments of the function, settings of PyTorch's DataLoader, or environment
                   variables, in capitals. It takes `vary_budget` more, 4 min by default
    args           arguments of the function that makes the loader: {"num_workers": 4}
    folder         for isolation.json and report.html; default: none is kept, and Isolation.save() writes them
    progress       whether to show how far it is
    flags          other flags of `penstock isolate --help-all`: verify=True, loop="sync", device="gpu", count="input_ids"

    Ctrl-C ends the measurement and returns what is known. Raises PenstockError, whose text says what to do, and KeyboardInterrupt if
    nothing is known yet.
    """
    refuse_imports("isolate")
    notes: typing.List[str] = []
    words = program.words_of({**flags, **device_of(samples_per_s, flags, loader, args, notes)})
    if budget is not None:
        words += program.words_of({"budget": time_text(budget)})
    if vary:
        refuse_vary(loader, vary)
        words += ["--vary=" + ",".join(f"{name}={','.join(map(setting_text, values))}" for name, values in vary.items())]
    with tempfile.TemporaryDirectory(prefix="penstock-") as own:
        kept = pathlib.Path(folder) if folder else pathlib.Path(own) / "isolate"
        ended, is_live = call("isolate", words + [f"--out={kept}"], loader, args, progress)
        record = read_json(kept / "isolation.json") if ended.code not in (2, 3) else None
        if record is None or record.get("cost") is None:
            ended.refuse(UNDECIDED)
            raise PenstockError(ended.errors or f"no run gave a result:\n{ended.output}", ended.code)
        text = ended.output.partition("\nAgain: ")[0]  # a command of a shell, and a folder that is removed
        page = (kept / "report.html").read_text(encoding="utf-8")
        if is_live:
            notes.append(LIVE_DOUBT)
            text, page = (each.replace("of fresh processes", "of fresh iterators") for each in (text, page))
        record["doubts"] += notes
        return Isolation(record, text, page, ended.interrupted)


def run(loader: Loader, *, samples_per_s: Rate = None, args: typing.Optional[typing.Mapping[str, typing.Any]] = None, progress: bool = True,
        **flags: typing.Any) -> Run:
    """One run, as `penstock run --loader`: whether a loader works, and what it supplies. Returns a Run. `num_batches` is the number of
    steps; the other arguments are those of isolate()."""
    refuse_imports("run")
    notes: typing.List[str] = []
    device = device_of(samples_per_s, flags, loader, args, notes)
    if "from_watch" in device:  # a flag of isolate, which takes the loop of that training too
        device = {"device": f"emulated:trace='{device['from_watch']}'"}
    words = program.words_of({**flags, **device})
    ended, _ = call("run", words + ["--json"], loader, args, progress)
    ended.refuse()
    return Run(json.loads(ended.output), notes)


def compare(before: Result, after: Result, *, margin: typing.Optional[float] = None, allow: typing.Optional[str] = None) -> Comparison:
    """What changed between two results, as `penstock report compare`. Each is a list of at least three Runs, an Isolation, or the path of
    saved results. Returns a Comparison.

    margin   smallest change that matters, in percent; default: 1
    allow    settings that may differ, such as "fake_location", which has the arguments of a loader
    """
    with tempfile.TemporaryDirectory(prefix="penstock-") as own:
        paths = []
        for name, result in (("before", before), ("after", after)):
            if isinstance(result, (str, os.PathLike)):
                paths.append(os.fspath(result))
                continue
            paths.append(os.path.join(own, f"{name}.json"))
            texts = [json.dumps(each.of_runs()) for each in ([result] if isinstance(result, (Run, Isolation)) else result)]
            pathlib.Path(paths[-1]).write_text("\n".join(texts), encoding="utf-8")
        words = ["compare", *paths, *program.words_of({"margin": margin, "allow": allow})]
        ended = program.call("report", [*words, "--format=json"], progress=False)
        ended.refuse(1, UNDECIDED)
        text = program.call("report", words, progress=False).output
    return Comparison(json.loads(ended.output), text)


def ab(command: typing.Sequence[str], *, progress: bool = True, **flags) -> Comparison:
    """Runs a command in two versions of a code in turns, as `penstock ab`: is the later one slower? Returns a Comparison.

    command   words: ["python3", "bench.py"]; {a|b} in one is a in the base, b in the head
    flags     those of `penstock ab`: base="origin/main", head=".", metric="time", budget="2min", pairs=5
    """
    with tempfile.TemporaryDirectory(prefix="penstock-") as own:
        words = [*program.words_of(flags), f"--out={own}", "--format=json", "--", *command]
        ended = program.call("ab", words, progress=progress)
        ended.refuse(1, UNDECIDED)
        return Comparison(json.loads(ended.output), pathlib.Path(own, "ab.md").read_text(encoding="utf-8"))


def doctor(pid: int, *, seconds: typing.Union[float, str] = 5) -> Examination:
    """What of the machine is in the way of a running training, as `penstock doctor`. Returns an Examination."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as own:
        path = os.path.join(own, "doctor.json")
        ended = program.call("doctor", [str(pid), f"--seconds={time_text(seconds)}", f"--json={path}"], progress=False)
        record = read_json(path)
        if record is None:
            raise PenstockError(ended.errors or ended.output, ended.code)
        return Examination(record, ended.output)


# ---- arguments --------------------------------------------------------------------


def refuse_imports(name):
    """A file that measures its own loader is imported by the processes that measure."""
    if STARTED in os.environ:
        raise PenstockError(f"penstock_bench.{name}() is called while a file is imported for its loader; put the call under "
                            "if __name__ == '__main__': in that file")


def call(verb, words, loader, args, progress):
    """How the program ended, and whether the loader was measured in this process."""
    reference = reference_of(loader)
    words = [*words, f"--loader={reference or live.name_of(loader)}", f"--python={sys.executable}"]
    if args and reference:
        words.append("--loader-args=" + ",".join(f"{name}={argument_text(name, value)}" for name, value in args.items()))
    elif args and not live.is_factory(loader):
        raise PenstockError("args are arguments of a function that makes the loader; this loader is made already: pass the function")
    elif args:
        loader = functools.partial(loader, **args)
    host = None if reference else live.Host(loader)
    if host is None:
        # Its children import what this process can import.
        paths = os.pathsep.join(os.path.abspath(each) for each in sys.path if each and os.path.exists(each))
        return program.call(verb, words, progress=progress, environment={"PYTHONPATH": paths}), False
    with host:
        return program.call(verb, words, progress=progress, host=host, environment={"PENSTOCK_LIVE": host.path}), True


def reference_of(loader):
    """ "FILE.py:FUNCTION" or "MODULE:FUNCTION" if another process can import it, else None."""
    if isinstance(loader, str):
        return loader
    name, module = getattr(loader, "__qualname__", ""), sys.modules.get(getattr(loader, "__module__", None))
    if not live.is_factory(loader) or module is None or not name.replace(".", "_").isidentifier():
        return None  # a loader, or a function inside of another one
    spec = getattr(module, "__spec__", None)
    if spec is not None and "." in spec.name:
        return f"{spec.name}:{name}"
    file = getattr(module, "__file__", None)
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{os.path.abspath(file)}:{name}" if file and file.endswith(".py") and os.path.isfile(file) and found is loader else None


def device_of(samples_per_s, flags, loader, args, notes):
    """The flags that say which device trains."""
    if samples_per_s is None:
        if not any(flags.get(name) for name in ("device", "from_watch")):
            raise PenstockError("the rate of the device is missing; expected samples_per_s=2400, the path of a record of `penstock watch`, "
                                "a function that trains on a batch, or device='gpu'")
        return {}
    if flags.get("device"):
        raise PenstockError("samples_per_s and device both say which device trains; leave one out")
    if callable(samples_per_s):
        step_s = time_step(samples_per_s, loader, args, notes)
        return {"device": f"emulated:step_time={1000 * step_s:.4f}ms"}
    if isinstance(samples_per_s, (str, os.PathLike)):
        return {"from_watch": os.fspath(samples_per_s)}
    if not isinstance(samples_per_s, numbers.Real) or not samples_per_s > 0:
        raise PenstockError(f"samples_per_s is {samples_per_s!r}; expected a number above 0, the path of a record of `penstock watch`, or "
                            "a function that trains on a batch")
    return {"device": f"emulated:samples_per_s={float(samples_per_s):g}"}


def time_step(train, loader, args, notes):
    """Seconds that train(batch) takes with a batch that lies ready."""
    if isinstance(loader, str):
        raise PenstockError("samples_per_s is a function, which needs a batch, and the loader is a text; pass the function that makes the "
                            "loader")
    made = loader(**(args or {})) if live.is_factory(loader) else loader
    batches = iter(made)
    try:
        batch = next(batches)
    except StopIteration:
        raise PenstockError("the loader yielded no batch") from None
    del batches, made  # its workers end
    times, began = [], time.monotonic()
    while len(times) < STEP_WARM_UP + STEP_CALLS and (len(times) < STEP_WARM_UP + 2 or time.monotonic() - began < STEP_LIMIT_S):
        begin = time.perf_counter()
        train(batch)
        wait_for_gpu()
        times.append(time.perf_counter() - begin)
    kept = sorted(times[STEP_WARM_UP:])
    name = getattr(train, "__name__", type(train).__name__)
    notes.append(f"a step of the device is {1000 * statistics.median(kept):.2f} ms, the median of {len(kept)} calls of {name} with a batch "
                 f"that lay ready ({1000 * kept[0]:.2f} to {1000 * kept[-1]:.2f} ms)")
    return statistics.median(kept)


def wait_for_gpu():
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()


def refuse_vary(loader, vary):
    if not isinstance(vary, dict) or not all(isinstance(values, (list, tuple, range)) and values for values in vary.values()):
        raise PenstockError(f"vary is {vary!r}; expected names and lists of values, such as {{'num_workers': [1, 2, 4]}}")
    if reference_of(loader):
        return
    if not live.is_factory(loader):
        raise PenstockError("vary makes the loader anew with each setting, and this loader is made already; pass the function that makes it, "
                            "as isolate(make_loader, vary=...)")
    variables = [name for name in vary if name.isupper()]
    if variables:
        raise PenstockError(f"vary has the environment variable {variables[0]}, which needs fresh processes, and this function is in no "
                            "file that they could import; move it into one")


def argument_text(name, value):
    """As the processes that measure read it."""
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    try:
        if ast.literal_eval(repr(value)) == value:
            return repr(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    raise PenstockError(f"args has {name}={value!r}, which cannot be written as text for other processes; expected numbers, text, True, False, "
                        "None, or lists and dictionaries of these: let the function make such an object")


def setting_text(value):
    text = str(value)
    if not text or re.search(r"[,=\s]", text):
        raise PenstockError(f"vary has the value {value!r}; expected numbers, True, False, or words without commas, blanks and '='")
    return text


def time_text(value):
    return value if isinstance(value, str) else f"{float(value):g}s"


def read_json(path):
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
