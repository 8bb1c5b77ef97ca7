# SPDX-License-Identifier: Apache-2.0
"""Runs one turn of one loader in a separate process; loader_peers.py starts it.

Usage: worker.py TURN.json. The file describes the turn and names the file for the answer, which is JSON, too.
"""
import glob
import importlib
import json
import os
import resource
import sys

import common

MODULES = {"penstock": "penstock", "libjpeg-turbo": "libjpeg_turbo", "torchvision-pil": "torchvision_pil",
           "torchvision": "torchvision_tensor", "dali": "dali", "tf.data": "tf_data", "spdl": "spdl_io",
           "ffcv": "ffcv_loader", "opencv": "opencv"}


def parse(text, options):
    """The options of NAME:key=value,..., merged over the loader's defaults."""
    for word in filter(None, text.split(",")):
        key, _, value = word.partition("=")
        if key not in options:
            raise ValueError(f"'{key}' is no option; there are: {', '.join(options) or 'none'}")
        options = {**options, key: value}
    return options


def task_of(turn, options, data_dir):
    files = sorted(glob.glob(os.path.join(glob.escape(data_dir), "*", "*")))
    classes = {folder: index for index, folder in enumerate(sorted({os.path.dirname(file) for file in files}))}
    return common.Task(data_dir=data_dir, files=files, labels=[classes[os.path.dirname(file)] for file in files],
                       threads=len(turn["cores"]), batch=turn["batch"], seconds=turn["seconds"],
                       warmup=turn["warmup"], scratch=turn["scratch"], penstock=turn["penstock"],
                       decode_peer=turn["decode_peer"], options=options)


def answer(turn):
    if turn["mode"] == "sets":
        importlib.import_module("agreement").make_sets(task_of(turn, {}, turn["data_dir"]).files, turn["scratch"])
        return {}
    name, _, words = turn["loader"].partition(":")
    if name not in MODULES:
        raise ValueError(f"there is no loader '{name}'; there are: {', '.join(MODULES)}")
    loader = importlib.import_module(MODULES[name])
    options = parse(words, loader.OPTIONS)
    task = task_of(turn, options, turn["data_dir"])
    if turn["mode"] == "rate":
        return loader.rate(task)
    found = {"settings": loader.settings(options), "options": options, "versions": loader.versions(task)}
    if hasattr(loader, "evaluate"):
        agreement = importlib.import_module("agreement")
        found["difference"] = agreement.differences(loader, task, lambda folder: task_of(turn, options, folder))
        found["versions"] = loader.versions(task)
    return found


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        turn = json.load(file)
    os.sched_setaffinity(0, turn["cores"])
    try:
        result = answer(turn)
    except BaseException as error:  # whatever the error, the other loaders continue
        lines = str(error).strip().splitlines()
        result = {"failed": f"{type(error).__name__}: {lines[-1] if lines else ''}"[:200]}
        if not isinstance(error, (ImportError, KeyboardInterrupt)):
            sys.excepthook(*sys.exc_info())
    result["peak_rss_bytes"] = 1024 * max(resource.getrusage(who).ru_maxrss
                                          for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    with open(turn["answer"], "w", encoding="utf-8") as file:
        json.dump(result, file)
    sys.stderr.flush()
    os._exit(0)  # threads and processes that read ahead would prevent a normal exit


if __name__ == "__main__":
    main()
