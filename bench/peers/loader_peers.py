#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Image preprocessing for training on the CPU: Penstock's `queue` feeder and other loaders, in turns.

    bench/peers/loader_peers.py build/penstock /path/to/python --json out/loaders.json

Each loader reads the same JPEG files from the page cache, takes a random resized crop to 224 with an antialiased
bilinear filter, mirrors every other image, and supplies batches of bytes to a consumer that drops them. Each turn is
a separate process on the first N cores, in another order in each round. Prints, in Markdown, for each number of
cores the median img/s with the lowest and highest turn and the median of the ratios of Penstock to the loader in the
same round; and for each loader its versions, its settings, and how far its pixels are from Pillow's. If a loader fails
or is not installed, the reason is printed and the others continue. loaders/README.md says how to install them.
"""
import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys

from report import absolute, cpu_model, say, spread

HERE = os.path.dirname(os.path.abspath(__file__))
LOADERS = ["penstock", "penstock:shrink=false", "penstock:upsampling=plain", "libjpeg-turbo", "torchvision-pil",
           "torchvision", "dali", "tf.data", "tf.data:antialias=false", "spdl", "ffcv", "opencv", "opencv:resize=linear"]
OURS = "penstock"
NO_CHAIN = "libjpeg-turbo"  # decodes only: no crop, resize or flip
# Pixels count as equal to Pillow's if the mean difference is below this, in levels of 255.
EQUAL_MEAN = 0.5


class Turns:
    """Runs turns, and remembers why a loader is excluded."""

    def __init__(self, arguments, data_dir):
        self.arguments, self.data_dir = arguments, data_dir
        self.failed = {}
        os.makedirs(arguments.work, exist_ok=True)

    def run(self, loader, mode, cores):
        """The worker's answer, or None if it failed."""
        own = self.arguments
        files = [os.path.join(own.work, name) for name in ("turn.json", "answer.json", "worker.log")]
        turn_file, answer_file, log_file = files
        for file in files:
            if os.path.exists(file):
                os.remove(file)
        decode_peer = os.path.join(os.path.dirname(own.penstock), "penstock_decode_peer")
        with open(turn_file, "w", encoding="utf-8") as file:
            json.dump({"loader": loader, "mode": mode, "cores": cores, "batch": own.batch, "seconds": own.seconds,
                       "warmup": own.warmup, "scratch": own.work, "data_dir": self.data_dir,
                       "penstock": own.penstock, "decode_peer": decode_peer, "answer": answer_file}, file)
        environment = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2", "OMP_NUM_THREADS": str(len(cores)),
                       "PYTHONDONTWRITEBYTECODE": "1"}
        with open(log_file, "wb") as log:
            child = subprocess.Popen([own.python, os.path.join(HERE, "loaders", "worker.py"), turn_file],
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                     env={**os.environ, **environment})
            try:
                child.wait(timeout=own.limit)
                reason = f"ended with {child.returncode}"
            except subprocess.TimeoutExpired:
                reason = f"took longer than {own.limit:g} s"
            finally:
                # Kill its reader processes, too, so that they do not disturb the next turn.
                try:
                    os.killpg(child.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                child.wait()
        answer = {"failed": reason}
        if os.path.exists(answer_file):
            with open(answer_file, encoding="utf-8") as file:
                answer = json.load(file)
        if "failed" not in answer:
            return answer
        self.failed[loader] = answer["failed"]
        say(f"{loader}: {answer['failed']}")
        with open(log_file, encoding="utf-8", errors="replace") as log:
            say("".join("    " + line for line in log.readlines()[-8:]).rstrip())
        return None


def data_of(arguments):
    """The folder of images; it is created if none was given."""
    if arguments.data_dir:
        return os.path.abspath(arguments.data_dir)
    folder = os.path.join(arguments.work, "data")
    subprocess.run([arguments.penstock, "dataset", "make", "--data-dir", folder, "--images", str(arguments.images),
                    "--val-images", "8"], check=True, stdout=sys.stderr)
    return os.path.join(folder, "train")


def read_all(folder):
    """Reads all files into the page cache. Returns their number and mean size."""
    sizes = []
    for directory, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(directory, name), "rb") as file:
                sizes.append(len(file.read()))
    if not sizes:
        sys.exit(f"there are no images in {folder}")
    return {"folder": folder, "files": len(sizes), "mean_bytes": round(statistics.mean(sizes))}


def machine():
    return {"cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)), "system": platform.platform(),
            "load_before": os.getloadavg()[0]}


def ratios(ours, theirs):
    return [ours[turn] / theirs[turn] for turn in sorted(ours) if turn in theirs]


def print_rates(count, rates, cpu_us, failed, loaders):
    print(f"\n{count} core{'s' if count > 1 else ''}:\n")
    print("| loader | img/s (lowest to highest turn) | img/s per core | CPU us/img | "
          "Penstock / loader (lowest to highest round) |\n|---|---|---|---|---|")
    ours = rates.get(OURS, {})
    for loader in loaders:
        turns = rates.get(loader, {})
        if not turns:
            print(f"| {loader} | not measured: {failed.get(loader, 'no turn ended')} | | | |")
            continue
        pairs = ratios(ours, turns)
        print(f"| {loader} | {spread(turns.values(), 0)} | {statistics.median(turns.values()) / count:.0f} | "
              f"{statistics.median(cpu_us[loader]):.0f} | "
              f"{spread(pairs, 2) if pairs and loader != OURS else ''} |")


def equal_quality(about):
    """Whether all measured pixels of a loader at ImageNet's size equal Pillow's."""
    return about.get("difference", {}).get("1.5x", {}).get("mean", 255) < EQUAL_MEAN


def print_fastest(count, rates, about):
    chains = {loader: turns for loader, turns in rates.items()
              if turns and not loader.startswith((OURS, NO_CHAIN)) and ratios(rates.get(OURS, {}), turns)}
    for words, chosen in (("fastest peer", chains),
                          ("fastest peer of equal quality",
                           {loader: turns for loader, turns in chains.items() if equal_quality(about[loader])})):
        if chosen:
            best = max(chosen, key=lambda loader: statistics.median(chosen[loader].values()))
            print(f"\nPenstock / {words}, {best}: {spread(ratios(rates[OURS], chosen[best]), 2)}")


def print_quality(about, peaks, loaders):
    print("\nSettings, the memory of the largest process, and differences from Pillow in levels of 255 (mean; largest) where a crop is reduced so much:\n")
    print("| loader | versions | decodes | antialiased | DCT | scaling in the DCT | chroma | output | MiB | 1.5x | 3x |\n"
          "|---|---|---|---|---|---|---|---|---|---|---|")
    for loader in loaders:
        if loader not in about:
            continue
        found = about[loader]
        chosen = found["settings"]
        cells = [", ".join(f"{name} {version}" for name, version in found["versions"].items())]
        cells += [chosen[key] for key in ("decode", "antialias", "dct", "dct_scaling", "chroma", "output")]
        cells.append(f"{peaks[loader] / 2**20:.0f}" if loader in peaks else "-")
        for name in ("1.5x", "3x"):
            difference = found.get("difference", {}).get(name)
            cells.append(f"{difference['mean']:.2f}; {difference['max']}" if difference else "-")
        print(f"| {loader} | {' | '.join(cells)} |")
    print(f"\nEqual quality: a mean difference below {EQUAL_MEAN} at 1.5x.")


def core_counts(text, available):
    counts = [available if word == "all" else int(word) for word in text.split(",")]
    if any(not 1 <= count <= available for count in counts):
        raise ValueError(f"--cores {text}: this process may use {available}")
    return sorted(set(counts))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("penstock", help="the program; penstock_decode_peer must be in the same folder")
    parser.add_argument("python", help="a Python with the other loaders")
    parser.add_argument("--data-dir", help="folder of class folders of JPEGs; default: synthetic ones, made once")
    parser.add_argument("--images", type=int, default=2000, help="number of images in the synthetic data set")
    parser.add_argument("--work", default="out/loaders", help="folder for data, converted data and links")
    parser.add_argument("--loaders", nargs="+", default=LOADERS, metavar="NAME[:OPTION=VALUE,...]",
                        help="loaders, with options; default: %(default)s")
    parser.add_argument("--cores", default="1,all", help="numbers of cores, separated by commas")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=8, help="measured seconds of a turn")
    parser.add_argument("--warmup", type=float, default=2, help="warm-up seconds after the first batch")
    parser.add_argument("--limit", type=float, default=300, help="time limit of a turn, in seconds")
    parser.add_argument("--json", help="file for all results")
    arguments = parser.parse_args()
    arguments.penstock, arguments.python = absolute(arguments.penstock), absolute(arguments.python)
    arguments.work = os.path.abspath(arguments.work)
    return arguments


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # ends the turn's processes, too
    cores = sorted(os.sched_getaffinity(0))
    counts = core_counts(arguments.cores, len(cores))
    result = {"machine": machine()}
    turns = Turns(arguments, data_of(arguments))
    result["data"] = read_all(turns.data_dir)
    result["settings"] = {key: getattr(arguments, key) for key in ("batch", "rounds", "seconds", "warmup")}

    say("how far pixels are from Pillow's")
    turns.run("the images for it", "sets", cores)
    about = {}
    for loader in arguments.loaders:
        if answer := turns.run(loader, "about", cores):
            about[loader] = answer
    rates, cpu_us = ({count: {} for count in counts} for _ in range(2))
    peaks = {}
    for number in range(arguments.rounds):
        for count in counts:
            first = number % len(arguments.loaders)
            order = arguments.loaders[first:] + arguments.loaders[:first]
            for loader in order:
                if loader in turns.failed:
                    continue
                if answer := turns.run(loader, "rate", cores[:count]):
                    rates[count].setdefault(loader, {})[number] = answer["img_per_s"]
                    cpu_us[count].setdefault(loader, []).append(answer["cpu_us"])
                    peaks[loader] = max(peaks.get(loader, 0), answer["peak_rss_bytes"])
                    say(f"round {number + 1} of {arguments.rounds}, {count} of {len(cores)} cores, {loader}: "
                        f"{answer['img_per_s']:.0f} img/s")
    result["machine"]["load_after"] = os.getloadavg()[0]
    result.update(loaders=about, failed=turns.failed, peak_rss_bytes_of_largest_process=peaks,
                  img_per_s={str(count): {loader: list(found.values()) for loader, found in of.items()}
                             for count, of in rates.items()},
                  cpu_us_per_image={str(count): of for count, of in cpu_us.items()})
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)

    data = result["data"]
    print(f"{result['machine']['cpu']}, {len(cores)} cores; {data['files']} files of {data['mean_bytes'] / 1e3:.1f} kB "
          f"on average; {arguments.rounds} rounds of {arguments.seconds:g} s, batches of {arguments.batch}")
    for count in counts:
        print_rates(count, rates[count], cpu_us[count], turns.failed, arguments.loaders)
        print_fastest(count, rates[count], about)
    print_quality(about, peaks, arguments.loaders)
    return 0 if any(rates.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
