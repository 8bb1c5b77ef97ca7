"""Measures with one process for each of N actors of a Ray cluster:

    python3 examples/ray/run.py 4 --variable-update horovod --model resnet50 --loader train.py:make_loader

All words after the number are flags of `penstock run`. Each node needs the program, as the wheel penstock-bench installs it.
"""
import socket
import subprocess
import sys

import ray


@ray.remote(num_cpus=1)  # on GPUs: num_gpus=1
class Rank:
    def meeting(self):
        """An address of this actor's node, where the others find rank 0."""
        with socket.socket() as free:
            free.bind(("", 0))
            return f"{ray.util.get_node_ip_address()}:{free.getsockname()[1]}"

    def run(self, rank, size, meeting, flags):
        """The exit code and the output, which only rank 0 has."""
        command = ["penstock", "run", *flags, "--rendezvous", meeting, "--rank", str(rank), "--world-size", str(size)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout


def main():
    ray.init()
    size, flags = int(sys.argv[1]), sys.argv[2:]
    ranks = [Rank.remote() for _ in range(size)]
    meeting = ray.get(ranks[0].meeting.remote())
    results = ray.get([each.run.remote(rank, size, meeting, flags) for rank, each in enumerate(ranks)])
    sys.stdout.write(results[0][1])
    sys.exit(max(code for code, _ in results))


if __name__ == "__main__":
    main()
