#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reference systems' command lines, with `penstock` and its verb in place of their script: each runs and prints the
expected output, or is refused with the reason. If a command leaves them open, steps are few and batches small.

Usage: reference_commands_test.py PENSTOCK [--launched]. With --launched it runs only the commands that start mpirun,
else all others. Exit code 77: Open MPI's mpirun is missing.
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

LIMIT_S = 60
# mpirun refuses root unless these variables allow it; ranks of one machine need no network.
ENVIRONMENT = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                            "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
TOTAL = "total images/sec: "
SHORT = "--num_batches=3 --num_warmup_batches=1 "
FEW = "--num-iters 1 --num-batches-per-iter 3 --num-warmup-batches 1 "
MULTIGPU = "run --like tensorpack " + SHORT

# Purpose of the command, its words, its exit code, and the expected text on either stream.
COMMANDS = (
    # tf_cnn_benchmarks
    ("a parameter server in one process trains", "run --like tf_cnn_benchmarks --num_gpus=1 --batch_size=32 "
     "--model=resnet50 --variable_update=parameter_server " + SHORT, 0, TOTAL),
    ("eight devices train replicated",
     "run --num_gpus=8 --batch_size=64 --model=resnet50 --variable_update=replicated " + SHORT, 0, TOTAL),
    *((f"eight devices train with the CPU as parameter device, {update}",
       f"run --num_gpus=8 --batch_size=64 --model=resnet50 --variable_update={update} --local_parameter_device=cpu "
       + SHORT, 0, TOTAL) for update in ("replicated", "parameter_server")),
    ("a parameter server on devices reads a folder", "run --local_parameter_device=gpu --num_gpus=8 --batch_size=8 "
     "--model=inception3 --data_dir=images/train --variable_update=parameter_server --nodistortions " + SHORT, 0, TOTAL),
    ("a worker says which server of another machine is missing",
     "run --local_parameter_device=gpu --num_gpus=8 --batch_size=64 --model=resnet50 "
     "--variable_update=distributed_replicated --job_name=worker --ps_hosts=127.0.0.1:2,127.0.0.2:2 "
     "--worker_hosts=127.0.0.1:3,127.0.0.2:3 --task_index=0 --rendezvous-timeout=1s", 5, "127.0.0.1:2"),
    ("a server of another machine is refused with what to use",
     "run --local_parameter_device=gpu --num_gpus=8 --batch_size=64 --model=resnet50 "
     "--variable_update=distributed_replicated --job_name=ps --ps_hosts=10.0.0.1:50000,10.0.0.2:50000 "
     "--worker_hosts=10.0.0.1:50001,10.0.0.2:50001 --task_index=0", 2, "--insecure"),
    ("two updates in one word are refused", "run --variable_update=replicated/parameter_server", 2,
     "parameter_server, "),
    ("batches have the layout that is asked for", "run --like tf_cnn_benchmarks --model=trivial --data_format=NCHW "
     "--fake-location=cpu --batch_group_size=2 --force_gpu_compatible=False " + SHORT, 0, "Data format: NCHW"),
    ("NCCL without GPUs is refused with what to use", "run --like tf_cnn_benchmarks --model=resnet50 --num_gpus=2 "
     "--variable_update=replicated --all_reduce_spec=nccl", 2, "use xring"),
    ("a copy in two levels is refused with what to use", "run --like tf_cnn_benchmarks --num_gpus=2 "
     "--variable_update=replicated --hierarchical_copy", 2, "--all-reduce-spec hierarchical adds in two levels on"),
    ("a copy in two levels is done as that advice says", "run --like tf_cnn_benchmarks --num_gpus=4 --model=trivial "
     "--variable_update=replicated --device=emulated --all-reduce-spec hierarchical " + SHORT, 0, TOTAL),
    ("a forward pass alone runs", "run --like tf_cnn_benchmarks --model=vgg16 --forward_only " + SHORT, 0,
     "forward only"),
    ("synthetic data are the default", "run --like tf_cnn_benchmarks --model=trivial " + SHORT, 0,
     "imagenet (synthetic)"),
    ("a folder of data that is not there is no synthetic run",
     "run --like tf_cnn_benchmarks --model=trivial --data_dir=no-such-folder --data_name=imagenet " + SHORT, 2,
     "no-such-folder"),
    ("image flags change what queue does", "run --like tf_cnn_benchmarks --model=trivial --batch_size=4 "
     "--data_dir=images/train --data_name=imagenet --resize_method=round_robin --distortions "
     "--datasets_repeat_cached_sample " + SHORT, 0, TOTAL),
    ("training and validation shards of one folder are told apart",
     "run --like tf_cnn_benchmarks --model=trivial --batch_size=4 --data_dir=records --data_name=imagenet "
     "--num_epochs=1 --num_warmup_batches=1 --eval_during_training_every_n_epochs=1", 0, "[4 examples]"),
    ("training takes the training shards alone", "run --like tf_cnn_benchmarks --model=trivial --batch_size=4 "
     "--data_dir=records --num_epochs=2 --num_warmup_batches=0 --json", 0, '"num_batches":4'),
    ("a check of such a folder says which set it reads", "dataset check --data-dir records", 0,
     "the training set is read"),
    # tensorpack's resnet-multigpu.py
    ("data on the device feed one process", MULTIGPU + "--fake-location gpu --variable-update=horovod", 0, TOTAL),
    ("data on the device feed replicas", MULTIGPU + "--fake-location gpu --variable-update=replicated", 0, TOTAL),
    ("half precision trains", MULTIGPU + "--fake-location gpu --variable-update=replicated --use-fp16", 0, TOTAL),
    ("larger batches train",
     MULTIGPU + "--fake-location gpu --variable-update=replicated --use-fp16 --batch 128", 0, TOTAL),
    ("BytePS without servers exchanges as replicated does",
     MULTIGPU + "--fake-location gpu --variable-update=byteps", 0, "byteps has no servers that are processes"),
    ("a list of GPUs is refused with what to use", MULTIGPU + "--gpu 0,1 --variable-update=replicated", 2,
     "use --num-gpus"),
    ("a compiler's switch says what it changes", MULTIGPU + "--fake-location gpu --variable-update=replicated "
     "--use-fp16 --batch 128 --use-xla-compile", 0, "--use-xla-compile changes nothing"),
    ("a compiler that is switched off has another answer", "run --like tf_cnn_benchmarks --model=trivial "
     "--noxla_compile " + SHORT, 0, "--nouse-xla-compile changes nothing with --device auto"),
    ("data of the CPU are copied", MULTIGPU + "--fake-location cpu --batch 4 --variable-update=parameter_server", 0,
     TOTAL),
    *((f"{place} feeds constant batches of Python", MULTIGPU + f"--fake-location {place} --batch 4", 0, TOTAL)
      for place in ("python", "python-queue", "python-dataset")),
    # Single-process benchmarks of Horovod and KungFu
    ("Horovod's synthetic benchmark trains",
     "run --like horovod --model resnet50 --batch-size 32 --fp16-allreduce " + FEW, 0, TOTAL),
    ("KungFu's update trains", "run --kungfu=sync-sgd --model=ResNet50 --batch-size=64 " + SHORT, 0, TOTAL),
    *((f"a {job} of replicated weights is refused, with the updates that have servers",
       f"run --ps_hosts=127.0.0.1:2 --worker_hosts=127.0.0.1:3 --job_name={job} --task_index=0 --model=ResNet50 "
       "--batch-size=64 --variable_update=replicated", 2, "has no servers; use parameter_server")
      for job in ("ps", "worker")),
    # tfperftest
    ("a node file is read", "scale -h nodes -m inceptionv3 -g 16 -b 32 -x 128", 2,
     "ranks do not fit: 2 machines take 32 of them"),
    ("-h alone asks for help", "scale -h", 0, "--hosts"),
)
LAUNCHED = (
    ("mpirun starts ranks with Horovod's flags", "mpirun -np 2 -H localhost:2 -bind-to none -map-by slot "
     "-x NCCL_DEBUG=INFO -x PATH -mca pml ob1 -mca btl ^openib {penstock} run --model resnet101 --batch_size 64 "
     "--variable_update horovod " + SHORT, 0, TOTAL),
    ("ranks without their data end", "mpirun -np 2 -H localhost:2 {penstock} run --model resnet101 --batch_size 64 "
     "--variable_update horovod --data_dir no-such-folder --data_name imagenet --num_batches=2000", 2,
     "no-such-folder"),
    ("mpirun starts KungFu's Horovod benchmark", "mpirun -np 2 -H localhost:2 {penstock} run --variable-update horovod "
     "--model=ResNet50 --batch-size=64 " + FEW, 0, TOTAL),
    ("launch takes -H as mpirun does",
     "{penstock} launch -np 2 -H localhost:2 -- run --kungfu=sync-sgd --model=ResNet50 --batch-size=64 " + SHORT, 0,
     TOTAL),
    ("asynchronous ranks train", "{penstock} launch -np 2 -- run --kungfu=async-sgd --model=ResNet50 --batch-size=64 "
     + SHORT, 0, TOTAL),
    ("a ladder's files have the model's name as it was typed",
     "{penstock} scale -h here -m inceptionv3 -g 1 -b 32 -r {folder}/copy -x 1 --ssh {folder}/agent --repetitions 1 "
     + SHORT, 0, "logs/inceptionv3_b32.csv"),
)


def say_and_exit(text):
    print(f"failed: {text}", file=sys.stderr)
    sys.exit(1)


def check(name, command, code, text, folder):
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != code or text not in done.stdout:
        say_and_exit(f"{name}: `{' '.join(command)}` ended with {done.returncode}, expected {code} and '{text}'; "
                     f"it said:\n{done.stdout}")
    print(f"ok: {name}")


def make_data(penstock, folder):
    """images/train and images/val, and both as TFRecord files in one folder, named like tf_cnn_benchmarks' files."""
    for words in ("make --images 8 --val-images 4 --classes 4 --data-dir images",
                  "convert --data-dir images/train --to tfrecord --out records",
                  "convert --data-dir images/val --to tfrecord --out validation"):
        subprocess.run([penstock, "dataset", *words.split()], cwd=folder, check=True, timeout=LIMIT_S,
                       stdout=subprocess.DEVNULL)
    for shard in (folder / "validation").glob("train-*"):
        shard.rename(folder / "records" / shard.name.replace("train", "validation"))


def check_producer(penstock, folder):
    """tensorpack's two processes, which share a working directory."""
    flags = "--fake-location {} --batch 4 --prefetch 4 --model trivial --variable-update=replicated"
    producer = subprocess.Popen([penstock, "run", *flags.format("zmq-serve").split()], cwd=folder,
                                stderr=subprocess.PIPE, text=True)
    try:
        said = producer.stderr.readline()
        if "is `penstock serve --fake-location=host --hwm=4" not in said:
            say_and_exit(f"zmq-serve is not said to be serve: {said}")
        check("zmq-serve feeds zmq-consume",
              [penstock, "run", *(flags.format("zmq-consume") + " " + SHORT).split()], 0, TOTAL, folder)
    finally:
        producer.send_signal(signal.SIGINT)
        producer.communicate(timeout=LIMIT_S)
    if producer.returncode != 130:
        say_and_exit(f"zmq-serve ended with {producer.returncode} when it was interrupted, expected 130")


def check_servers(penstock, folder):
    """The parameter-server script: one server and two workers, which state no update."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    task = (f"run --ps_hosts=127.0.0.1:{port} --worker_hosts=127.0.0.1:1,127.0.0.1:2 --model=ResNet50 --batch-size=8 "
            + SHORT).split()
    others = [subprocess.Popen([penstock, *task, f"--job_name={job}", f"--task_index={index}"], cwd=folder)
              for job, index in (("ps", 0), ("worker", 1))]
    try:
        check("the parameter-server script trains", [penstock, *task, "--job_name=worker", "--task_index=0"], 0, TOTAL,
              folder)
        for process in others:
            if process.wait(LIMIT_S) != 0:
                say_and_exit(f"{process.args} ended with {process.returncode}")
    finally:
        for process in others:
            process.kill()


def why_no_launcher():
    """The reason why Open MPI's mpirun is missing; empty if it is there."""
    if shutil.which("mpirun") is None:
        return "there is no mpirun"
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return "" if "Open MPI" in version.stdout else "mpirun is not Open MPI's"


def check_commands(penstock, folder):
    make_data(penstock, folder)
    (folder / "nodes").write_text("localhost first\n127.0.0.1 second\n")
    for what, words, code, text in COMMANDS:
        check(what, [penstock, *words.split()], code, text, folder)
    check_producer(penstock, folder)
    check_servers(penstock, folder)


def check_launched(penstock, folder):
    if why := why_no_launcher():
        print(f"skipped: {len(LAUNCHED)} commands, since {why}")
        sys.exit(77)
    (folder / "here").write_text("localhost localhost\n")
    (folder / "agent").write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')  # runs the command on this machine
    (folder / "agent").chmod(0o755)
    for what, words, code, text in LAUNCHED:
        check(what, words.format(penstock=penstock, folder=folder).split(), code, text, folder)
    if not (folder / "logs" / "inceptionv3_b32.csv.ideal").is_file():
        say_and_exit("the ladder wrote no inceptionv3_b32.csv.ideal")


def main():
    penstock = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        (check_launched if "--launched" in sys.argv else check_commands)(penstock, pathlib.Path(name))


if __name__ == "__main__":
    main()
