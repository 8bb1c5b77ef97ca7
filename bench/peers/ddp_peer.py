#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training over two hosts: Penstock under mpirun and PyTorch's DistributedDataParallel over
Gloo, in turns, on the same model, hosts and link.

The hosts are the network namespaces of `tests/net/hosts.sh`, with links of a chosen rate:

    tests/net/hosts.sh 2 bench/peers/ddp_peer.py build/penstock /path/to/python

or other hosts: --hosts gives their names and addresses, and --agent is a command that runs a program on a
host, such as ssh. Prints the median img/s of both with the lowest and highest turn, the median of the
ratios of neighbouring turns, and how much of the exchange Penstock hid behind backward, relative to the
most that could be hidden.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

from report import spread

HERE = os.path.dirname(os.path.abspath(__file__))
HOSTS_SCRIPT = os.path.join(HERE, "..", "..", "tests", "net", "hosts.sh")


def fail(command, error):
    sys.exit(f"failed: {shlex.join(command)}\n{error}")


def penstock(arguments, flags):
    names = [name for name, _ in arguments.hosts]
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = ["mpirun", "-np", str(len(names)), "-H", ",".join(f"{name}:1" for name in names),
                   arguments.penstock, "run", "--device=cpu", "--variable-update=horovod", "--fake-location=gpu",
                   f"--model={arguments.model}", f"--batch-size={arguments.batch}", f"--num-batches={arguments.steps}",
                   f"--num-warmup-batches={arguments.warmup}", f"--compute-threads={arguments.threads}",
                   "--optimizer=momentum:nesterov=false", f"--out={out.name}", *flags]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        if child.returncode != 0:
            fail(command, child.stderr)
        result = json.load(open(out.name, encoding="utf-8"))
    step_ms = statistics.median(result["step_ms"])
    return {"img_per_s": len(names) * arguments.batch / step_ms * 1e3, "step_ms": step_ms, **result["facts"]}


def pytorch(arguments, turn):
    address = arguments.hosts[0][1]
    children = []
    for rank, (name, _) in enumerate(arguments.hosts):
        command = [*arguments.agent, name, "env", "CUDA_VISIBLE_DEVICES=", arguments.python,
                   os.path.join(HERE, "pytorch_ddp.py"), "--rank", str(rank), "--ranks", str(len(arguments.hosts)),
                   "--address", address, "--port", str(29500 + turn), "--interface", arguments.interface,
                   "--bucket-mib", str(arguments.ddp_bucket_mib), "--model", arguments.model, "--batch",
                   str(arguments.batch), "--threads", str(arguments.threads), "--steps", str(arguments.steps),
                   "--warmup", str(arguments.warmup), "--channels-last"]
        children.append((command, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)))
    texts = []
    for command, child in children:
        text, error = child.communicate()
        if child.returncode != 0:
            fail(command, error)
        texts.append(text)
    result = json.loads(texts[0])
    return {"img_per_s": result["img_per_s_median"], "step_ms": result["step_ms_median"],
            "alone_ms": result["step_without_exchange_ms_median"]}


def hidden_share(turn):
    exchange, exposed, hideable = (turn[f"exchange_{part}ms_per_step"] for part in ("", "exposed_", "hideable_"))
    return 100 * max(exchange - exposed, 0) / hideable if hideable > 0 else 0


def hosts_of_environment():
    """The hosts of tests/net/hosts.sh, with addresses that end with 1, 2, ..."""
    names = os.environ.get("PENSTOCK_HOSTS", "").split()
    network = os.environ.get("OMPI_MCA_btl_tcp_if_include", "").rpartition(".")[0]
    return [(name, f"{network}.{index + 1}") for index, name in enumerate(names)]


def host(text):
    name, _, address = text.partition("=")
    if not address:
        raise argparse.ArgumentTypeError(f"is '{text}'; expected NAME=ADDRESS")
    return name, address


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("penstock", help="the program")
    parser.add_argument("python", help="a Python that has PyTorch")
    parser.add_argument("--hosts", nargs="+", type=host, default=hosts_of_environment(), metavar="NAME=ADDRESS")
    parser.add_argument("--agent", type=shlex.split, default=[HOSTS_SCRIPT, "on"])
    parser.add_argument("--interface", default="eth0", help="network interface of the hosts, for Gloo")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1, help="compute threads of each rank")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ddp-bucket-mib", type=float, default=25)
    parser.add_argument("--ways", nargs="+", default=["", "--bucket-mib=0"], help="Penstock's flags; one argument for each variant")
    arguments = parser.parse_args()
    if len(arguments.hosts) < 2:
        parser.error("two hosts are needed: start it through tests/net/hosts.sh 2, or pass --hosts")

    ours = {way: [] for way in arguments.ways}
    peers = []
    for turn in range(arguments.rounds):
        peers.append(pytorch(arguments, turn))
        for way in arguments.ways:
            ours[way].append(penstock(arguments, shlex.split(way)))
        print(f"round {turn + 1} of {arguments.rounds}", file=sys.stderr, flush=True)

    print("| program | img/s (lowest to highest turn) | step ms | ratio to PyTorch | exchange ms | exposed ms | hidden, "
          "of what could be % |\n|---|---|---|---|---|---|---|")
    rates = [turn["img_per_s"] for turn in peers]
    exposed = [turn["step_ms"] - turn["alone_ms"] for turn in peers]
    print(f"| PyTorch DDP, Gloo | {spread(rates, 2)} | {spread([turn['step_ms'] for turn in peers], 0)} | 1 | | "
          f"{spread(exposed, 0)} | |")
    for way, turns in ours.items():
        ratios = [turn["img_per_s"] / rate for turn, rate in zip(turns, rates)]
        print(f"| Penstock {way} | {spread([turn['img_per_s'] for turn in turns], 2)} | "
              f"{spread([turn['step_ms'] for turn in turns], 0)} | {spread(ratios, 2)} | "
              f"{spread([turn['exchange_ms_per_step'] for turn in turns], 0)} | "
              f"{spread([turn['exchange_exposed_ms_per_step'] for turn in turns], 0)} | "
              f"{spread([hidden_share(turn) for turn in turns], 0)} |", flush=True)


if __name__ == "__main__":
    main()
