# SPDX-License-Identifier: Apache-2.0
"""Runs of several processes, which mpirun or this module starts."""
import copy
import json
import re

from harness import EMULATED, LIMIT_S, TRAIN, Skipped, expect, expect_near, expect_said, expect_weights, feature, free_ports, \
    weights_after, weights_in

RANK = TRAIN.replace("--batch-size 8", "--batch-size 4")


def launch(penstock, words):
    done = penstock.done(f"launch -np 2 -- run {words}")
    if done.returncode == 3:
        raise Skipped(done.stderr)
    expect(f"exit code of {words}; {done.stderr}", done.returncode, 0)
    return done.stdout


@feature(46, "variable_update")
@feature(84, "num_processes")
def ranks_of_mpirun_train_as_one_device_and_have_one_total(penstock):
    result = json.loads(launch(penstock, f"--json {RANK} --variable-update horovod --train-dir ranks"))
    expect_weights(weights_in(penstock.folder / "ranks"), weights_after(penstock, TRAIN), 1e-5)
    expect("images of a step of all ranks", result["images_per_step"], 8)
    emulated = json.loads(launch(penstock, f"--json --fake-location gpu {EMULATED.replace('4000', '200')} --num-batches 10"))
    expect("ranks", len(emulated["ranks"]), 2)
    expect("a total of more than one rank's, and of no more than two", 200 < emulated["img_per_s"] < 400.1, True)
    expect_said(penstock.call(f"run {RANK} --num-gpus 2 --variable-update horovod", code=2).stderr, "one device in each process")
    expect_said(penstock.call(f"run {RANK} --num-processes 2", code=2).stderr, "this one alone was started")


@feature(94, "--rendezvous", "--rank", "--world_size", "--alone")
def ranks_that_meet_over_tcp_train_as_one_device(penstock):
    [port] = free_ports(1)
    flags = f"--rendezvous 127.0.0.1:{port} --world-size 2 --timeout 10s {RANK} --variable-update horovod"
    for way in ("", "--all-reduce-spec xring"):  # shared memory, and messages
        ranks = [penstock.start(f"run --rank {rank} {flags} {way} --train-dir met{way[-5:]}") for rank in range(2)]
        said = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
        expect(f"exit codes; {said}", [rank.returncode for rank in ranks], [0, 0])
        expect("totals of both ranks", sum(text.count("total images/sec") for text, _ in said), 1)
        expect_weights(weights_in(penstock.folder / f"met{way[-5:]}"), weights_after(penstock, TRAIN), 1e-5)
    launched = copy.copy(penstock)
    launched.environment = {**penstock.environment, "PMI_RANK": "0", "PMI_SIZE": "2"}
    expect_said(launched.call(f"run {RANK}", code=2).stderr, "PMI_RANK says that this is rank 0 of 2 processes")
    launched.call(f"run {RANK} --alone")


@feature(67, "--format")
def each_rank_has_a_line_and_horovods_report_a_mean(penstock):
    run = f"{RANK} --variable-update horovod"
    ranks = re.findall(r"^rank (\d) on \S+: [\d.]+ images/sec$", launch(penstock, run), re.M)
    expect("lines of ranks", ranks, ["0", "1"])
    expect_said(launch(penstock, f"{run} --format horovod"), "Total img/sec on 2 CPU(s): ")


def served(penstock, words, more=""):
    """The result of a parameter server and two workers."""
    ports = [f"127.0.0.1:{port}" for port in free_ports(3)]
    cluster = f"--ps-hosts {ports[0]} --worker-hosts {ports[1]},{ports[2]} --rendezvous-timeout 20s"
    tasks = [penstock.start(f"run --job-name ps {cluster}")]
    tasks += [penstock.start(f"run --job-name worker --task-index {number} {cluster} {RANK} {words} {more}")
              for number, more in ((1, ""), (0, more))]
    said = [task.communicate(timeout=LIMIT_S) for task in tasks]
    expect(f"exit codes of {words}; {said}", [task.returncode for task in tasks], [0, 0, 0])
    return said[-1][0]


@feature(47, "variable_update")
@feature(48, "parameter_server:sync", "--job_name")
@feature(49)
def servers_in_processes_train_as_one_device(penstock):
    whole = weights_after(penstock, TRAIN)
    for update in ("parameter_server", "byteps"):
        served(penstock, f"--variable-update {update} --train-dir {update}")
        expect_weights(weights_in(penstock.folder / update), whole, 1e-5)
    for update in ("parameter_server:sync=tf", "distributed_replicated"):
        served(penstock, f"--variable-update {update} --train-dir each-{update}")
        one_by_one = weights_in(penstock.folder / f"each-{update}")
        expect("gradients that are applied one by one give other weights", one_by_one != whole, True)
    counters = json.loads(served(penstock, "--variable-update parameter_server:sync=false", "--json"))["counters"]
    expect("updates between a pull and its push are counted", any(name.startswith("updates_stale") for name in counters), True)


@feature(68, "--ranks")
@feature(69)
@feature(70)
@feature(79)
def a_ladder_of_ranks_has_its_ideal_for_each_model(penstock):
    done = penstock.done(f"scale --fake-location gpu {EMULATED} -m trivial:8,lenet:4 --ranks 1,3 --repetitions 1 --out ladder")
    if done.returncode == 3:
        raise Skipped(done.stderr)
    for name, model in (("trivial_b8", "trivial"), ("lenet_b4", "lenet")):
        folder = penstock.folder / "ladder"
        rates, ideal = ([line.split(",") for line in (folder / f"{name}{suffix}").read_text().splitlines()]
                        for suffix in (".csv", ".csv.ideal"))
        expect("ranks", [[ranks for ranks, _ in lines] for lines in (rates, ideal)], [["1", "3"]] * 2)
        expect("the first rung is ideal", ideal[0], rates[0])
        expect_near("three times the first rung", float(ideal[1][1]), 3 * float(rates[0][1]), 1e-3)
        expect_said((folder / f"{name}.svg").read_text(), "number of devices")
        run = json.loads((folder / f"{name}_g3" / "runs.json").read_text())
        expect("a run", (run["config"]["model"], run["images_per_step"], len(run["ranks"])), (model, 3 * int(name[-1]), 3))


@feature(78, "--hosts", "--ssh")
def other_machines_are_reached_by_ssh(penstock):
    agent = penstock.folder / "agent"
    agent.write_text("#!/bin/sh\necho no route to \"$@\" >&2\nexit 255\n")
    agent.chmod(0o755)
    done = penstock.done(f"scale --fake-location gpu {EMULATED} --hosts nodea:2 --ssh {agent} --repetitions 1 --max-gpu 1")
    expect("exit code", done.returncode, 3)
    expect_said(done.stderr, "no route to nodea")
    expect("files of runs", (penstock.folder / "logs").exists(), False)
