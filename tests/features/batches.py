# SPDX-License-Identifier: Apache-2.0
"""Batches, data sets and feeders."""
import gzip
import json
import math
import os
import pickle
import re
import shutil
import signal
import struct
import subprocess
import sys

from harness import (CPU, EMULATED, JPEGS, LIMIT_S, SHORT, SOURCE, TRAIN, TRIVIAL_BYTES, Skipped, expect, expect_losses,
                     expect_near, expect_said, feature, free_ports, named, received, sent, zeromq)

SERVED = "--model lenet --classes 4 --batch-size 8"
CONSUME = f"--timeout 3s {CPU} --fake-location zmq-consume:endpoint="


@feature(1)
def constant_batches_on_the_device(penstock):
    expect("stages of feeding", penstock.run(f"--fake-location gpu {EMULATED}")["stages"], [])
    seen = penstock.look("--fake-location gpu --image-size 32 --batch-size 8 --num-batches 20")
    expect("batches that differ: one for each slot", seen["different_batches"], 3)


@feature(2, "cpu:pixels")
def random_pixels_are_new_in_each_batch(penstock):
    for pixels, deviation, most in (("uniform", 73.9, 255), ("truncated_normal", 52.8, 247)):
        seen = penstock.look(f"--fake-location cpu:pixels={pixels} --image-size 64 --batch-size 16 --num-batches 10")
        expect("batches that differ", seen["different_batches"], 10)
        for channel in seen["channels"]:
            expect_near("mean", channel["mean"], 127.25, 0.01)
            expect_near("deviation", channel["deviation"], deviation, 0.01)
            expect("largest", channel["max"], most)


@feature(3, "gpu:labels")
def labels_are_redrawn_on_the_device(penstock):
    kept, redrawn = (set(penstock.losses(f"--fake-location {feeder} {CPU} --num-batches 6 --init-learning-rate 1e-12"))
                     for feeder in ("gpu", "gpu:labels=redrawn"))
    expect("losses of the labels that two slots keep", len(kept) <= 2, True)
    expect("losses of labels that are drawn again", len(redrawn) > 2, True)


@feature(4, "fake_location")
def batches_of_the_cpu_are_copied_from_host_slots(penstock):
    for feeder in ("cpu", "host"):
        copy = named(penstock.run(f"--fake-location {feeder} {EMULATED} --num-batches 50")["stages"], "copy")
        expect_near(f"bytes of a copy with {feeder}", copy["bytes"] / copy["items"], TRIVIAL_BYTES, 0.05)


@feature(5, "prefetch")
def the_queue_is_bounded(penstock):
    for slots in (1, 150):
        result = penstock.run(f"--prefetch {slots} --fake-location queue {JPEGS} {CPU}")
        expect("slots", named(result["queues"], "host ring")["slots"], slots)


def write_numbers(penstock):
    """A generator of 20 batches, each of its number."""
    (penstock.folder / "numbers.py").write_text(
        "def make_loader():\n"
        "    for step in range(20):\n"
        "        yield memoryview(bytes([step]) * (8 * 28 * 28 * 3)).cast('B', (8, 28, 28, 3)), [step % 4] * 8\n")


@feature(6, "fake_location", "python:loader")
def generators_of_python_feed_a_run(penstock):
    write_numbers(penstock)
    feeder = "python:loader=numbers.py:make_loader"
    seen = penstock.look(f"--fake-location {feeder} --num-batches 4 --model lenet --batch-size 8")
    expect("largest pixel of four batches", seen["channels"][0]["max"], 3)
    for feeder in ("python", "python-queue", "python-dataset", feeder):
        result = penstock.run(f"--fake-location {feeder} {CPU} --classes 1000")
        expect(f"loss with {feeder}", all(loss > 0 for loss in result["losses"]), True)
        expect(f"passes of {feeder}", result["counters"]["loader_epochs"], 1)


@feature(6, "loop", "loader_per")
def a_loader_sees_the_loop_of_a_training(penstock):
    write_numbers(penstock)
    rings = {}
    for words in ("--loop sync", "--loop ahead=3", "--loader-per device", "--loader-per process"):
        result = penstock.run(f"--loader numbers.py:make_loader {words} --num-gpus 2 --model lenet --device emulated {SHORT}")
        rings[words] = [(queue["name"], queue["slots"]) for queue in result["queues"]]
    expect("slots of a device", [dict(rings[words])["device ring 0"] for words in ("--loop sync", "--loop ahead=3")], [1, 3])
    expect("loaders", [sum(name.startswith("host ring") for name, _ in rings[words])
                       for words in ("--loader-per device", "--loader-per process")], [2, 1])


@feature(7, "fake_location")
@feature(10)
def batches_that_serve_sends_train_as_those_of_this_process(penstock):
    direct = penstock.losses(TRAIN)
    for wire in ("zmq_op", "numpy-frames", "framed", "pickle", "msgpack"):
        result, _ = penstock.serve(f"--endpoint ipc://feed --format {wire} --fake-location queue {JPEGS} {SERVED}",
                                   f"{CONSUME}ipc://feed")
        expect_losses(result["losses"], direct)
        expect(f"messages of {wire} came", result["counters"]["images_received"] >= 32, True)


@feature(8, "--format")
@feature(9, "--format")
@feature(10, "--format")
@feature(86, "--format")
def serve_sends_each_format_as_others_read_it(penstock):
    def frames(wire):
        return received(penstock, f"--format {wire} --fake-location host {SERVED}")
    shapes = [entry["shape"] for entry in json.loads(frames("numpy-frames")[0])]
    expect("shapes of numpy-frames", shapes, [[8, 28, 28, 3], [8]])
    expect("zmq_op", struct.unpack_from("<7iq", frames("zmq_op")[0]), (2, 4, 4, 8, 28, 28, 3, 8 * 28 * 28 * 3))
    expect("a pickle", [array.shape for array in pickle.loads(frames("pickle")[0])], [(8, 28, 28, 3), (8,)])
    expect("a list of two maps of MessagePack", frames("msgpack")[0][:2], b"\x92\x85")
    expect("framed", frames("framed")[0][:8], b"PENSTOCK")


@feature(8)
def python_pushes_batches(penstock):
    (penstock.folder / "push.py").write_text(
        "import numpy, penstock_bench\n"
        "batch = numpy.full((8, 28, 28, 3), 9, numpy.uint8), numpy.zeros(8, numpy.int32)\n"
        "penstock_bench.push([batch] * 5, 'ipc://pushed', timeout=60)\n")
    looking = penstock.start(f"look --json --fake-location zmq-consume:endpoint=ipc://pushed {SERVED} --num-batches 5")
    pushed = subprocess.run([sys.executable, "push.py"], cwd=penstock.folder, env=dict(os.environ, PYTHONPATH=SOURCE / "python"),
                            timeout=LIMIT_S, text=True, capture_output=True, check=False)
    if "cannot load the library" in pushed.stderr:
        looking.kill()
        looking.communicate()
        raise Skipped("needs LD_LIBRARY_PATH with libpenstock_producer.so.0")
    seen, said = looking.communicate(timeout=LIMIT_S)
    expect_said(seen or said + pushed.stderr, '"min": 9')
    expect_said(seen, '"images": 40')


@feature(9)
@feature(10)
def messages_are_recognised_by_their_first_bytes(penstock):
    import numpy
    pixels, labels = numpy.full((8, 28, 28, 3), 7, numpy.uint8), numpy.arange(8, dtype=numpy.int32)
    zmq_op = struct.pack("<i", 2)
    for number, array in ((4, pixels), (3, labels)):
        zmq_op += struct.pack(f"<ii{array.ndim}iq", number, array.ndim, *array.shape, array.nbytes) + array.tobytes()
    for message in (zmq_op, pickle.dumps([pixels, labels]), pickle.dumps([numpy.asfortranarray(pixels), labels])):
        done = sent(penstock, message, f"look --json {SERVED} --classes 8 --num-batches 2")
        seen = json.loads(done[0])
        expect("pixels", {(channel["min"], channel["max"]) for channel in seen["channels"]}, {(7, 7)})
        expect("labels", seen["labels"], {str(label): 2 for label in range(8)})
    arrow = bytes.fromhex("00000000 00000000 02000000 00000000 ffffffff 80010000 10000000 00000a00")
    expect_said(sent(penstock, arrow, f"look {SERVED} --num-batches 1 --timeout 5s")[1], "pyarrow")


@feature(11, "--bind", "--endpoint", "zmq-consume:bind", "zmq-consume:endpoint")
def either_side_binds_any_kind_of_address(penstock):
    name = penstock.folder.name
    for endpoint, serve, consume in (("ipc://feed", "", ""), ("ipc://feed", "--bind", ",bind=false"),
                                     (f"ipc://@{name}", "", ""), (f"tcp://127.0.0.1:{free_ports(1)[0]}", "", "")):
        result, _ = penstock.serve(f"--endpoint {endpoint} {serve} --fake-location host {SERVED}",
                                   f"{CONSUME}{endpoint}{consume}")
        expect("steps", len(result["losses"]), 4)


@feature(12, "zmq-consume:endpoint")
def two_endpoints_feed_one_run(penstock):
    other = penstock.start(f"serve --endpoint ipc://second --format framed --fake-location host {SERVED}")
    try:
        result, _ = penstock.serve(f"--endpoint ipc://first --format framed --fake-location host {SERVED}",
                                   f"{CONSUME}ipc://first+ipc://second,hwm=1 --num-batches 60")
    finally:
        other.send_signal(signal.SIGINT)
        other.communicate(timeout=LIMIT_S)
    expect("producers", result["counters"]["producers_seen"], 2)


@feature(13, "--hwm")
def high_water_marks_bound_what_waits(penstock):
    zmq = zeromq()
    consumer = zmq.Context.instance().socket(zmq.PULL)
    consumer.set_hwm(4)
    consumer.bind(f"ipc://{penstock.folder}/stalled")
    said = penstock.call("serve --endpoint ipc://stalled --hwm 4 --fake-location host --model lenet --batch-size 64 "
                         "--timeout 2s", code=5)
    consumer.close(linger=0)
    sent_batches = int(re.search(r"sent (\d+) batches", said.stdout + said.stderr)[1])
    expect("batches sent: 4 on each side and at most 2 on the way", 8 <= sent_batches <= 10, True)


@feature(14, "eval_data_dir")
def shards_of_training_and_validation_lie_in_one_folder(penstock):
    for part, name in (("train", "records"), ("val", "validation")):
        penstock.call(f"dataset convert --data-dir ds/{part} --to tfrecord --out {name}")
    for shard in (penstock.folder / "validation").glob("train-*"):
        shard.rename(penstock.folder / "records" / shard.name.replace("train", "validation"))
    run = f"--like tf_cnn_benchmarks --data_dir=records --data_name=imagenet {CPU} --eval_during_training_every_n_steps=2"
    for words, images in (("", 16), ("--eval-data-dir ds/train", 80)):
        result = penstock.run(f"{run} {words}")
        expect("images of an epoch", result["examples_per_epoch"], 80)
        expect("images of an evaluation", result["evaluations"][0]["images"], images)


@feature(15, "data_dir")
def class_folders_of_jpegs_train(penstock):
    result = penstock.run(TRAIN)
    expect("images of an epoch", result["examples_per_epoch"], 80)
    expect("damaged images", result["counters"]["bad_samples"], 0)


@feature(16, "--to")
def formats_of_tensorpack_train_as_the_files_that_they_hold(penstock):
    files = penstock.losses(TRAIN)
    for name, target in {"npz": "npz", "lmdb": "lmdb:format=datapoint", "tfrecord": "tfrecord:record=datapoint",
                         "raw": "raw", "hdf5": "hdf5"}.items():
        penstock.call(f"dataset convert --data-dir ds/train --to {target} --out as-{name}")
        expect_said(penstock.call(f"dataset inspect --data-dir as-{name}").stdout, f"format       {name}\n")
        if target == "raw":  # from here on, the images are their pixels
            files = penstock.losses(TRAIN.replace("ds/train", f"as-{name}"))
        expect_losses(penstock.losses(TRAIN.replace("ds/train", f"as-{name}")), files)


@feature(17, "queue:crop", "--data_name")
def cifar_10_is_read_as_distributed(penstock):
    folder = penstock.folder / "cifar"
    folder.mkdir()
    for number in range(1, 6):
        (folder / f"data_batch_{number}.bin").write_bytes(b"".join(bytes([label]) + bytes([200]) * 3072 for label in range(8)))
    for crop, least in (("full", 200), ("pad4", 0)):  # pad4 adds a black border of 4 pixels and crops
        seen = penstock.look(f"--data-dir cifar --fake-location queue:crop={crop} --image-size 32 --batch-size 8 --classes 8 "
                             "--num-batches 5 --order strict --feeder-threads 1")
        expect(f"smallest and largest pixel with crop={crop}", (seen["channels"][0]["min"], seen["channels"][0]["max"]),
               (least, 200))
        expect("labels", seen["labels"], {str(label): 5 for label in range(8)})
    expect_said(penstock.call(f"run {TRAIN} --data_name cifar10", code=2).stderr, "there is no CIFAR-10 in 'ds/train'")


@feature(18, "queue:decode")
def the_library_trains_as_the_decoder_of_penstock(penstock):
    regions, library, whole = (penstock.losses(TRAIN.replace("queue", feeder))
                               for feeder in ("queue", "queue:engine=libjpeg", "queue:decode=full"))
    expect_losses(library, regions, 1e-3)
    expect("a whole image that is decoded has other pixels than a region at a reduced scale", whole != regions, True)


@feature(19, "--resize_method", "queue:resize")
def resize_methods_have_the_flag_of_the_reference(penstock):
    by_flag = [penstock.losses(f"{TRAIN} --resize-method {method}") for method in ("nearest", "bilinear", "bicubic", "area")]
    expect("methods that differ", len({tuple(losses) for losses in by_flag}), 4)
    expect_losses(by_flag[0], penstock.losses(TRAIN.replace("queue", "queue:resize=tf_nearest")))


@feature(20, "queue:crop", "queue:color", "queue:flip", "--distortions")
def crops_flips_and_colours_are_those_of_the_references(penstock):
    def first(words="", options=""):
        return penstock.losses(f"{TRAIN.replace('queue', 'queue' + options)} {words} --num-batches 1")[0]
    expect("distortions", first("--distortions"), first(options=":color=tf_yiq"))
    expect("recipes that differ", len({first(options=options) for options in (
        "", ":color=tf_yiq", ":color=tf", ":color=fbresnet", ":crop=tf_box", ":crop=tensorpack_random", ":flip=false")}), 7)


@feature(21)
@feature(22, "queue:normalise")
@feature(87, "queue:normalise")
def either_side_normalises(penstock):
    bytes_first, floats_first = (penstock.run(f"{TRAIN.replace('queue', feeder)}")
                                 for feeder in ("queue", "queue:normalise=f32"))
    expect_losses(floats_first["losses"], bytes_first["losses"], 1e-5)
    copies = [named(result["stages"], "copy") for result in (bytes_first, floats_first)]
    copied = [copy["bytes"] / copy["items"] for copy in copies]
    expect_near("bytes of floats against bytes", copied[1] / copied[0], 4, 0.02)


@feature(23, "queue:chain")
def each_chain_evaluates_a_part_of_the_image_that_does_not_vary(penstock):
    penstock.run(f"{TRAIN} --num-batches 10 --train-dir chains")
    right = {}
    for chain in ("torchvision", "tf_cnn_benchmarks", "tensorpack"):
        run = f"{TRAIN.replace('queue', f'queue:chain={chain}')} --eval --eval-data-dir ds/train --train-dir chains"
        evaluated = [penstock.run(f"{run} --seed {seed}")["evaluations"][0]["top_1_accuracy"] for seed in (1, 2)]
        expect("accuracy with another seed", evaluated[0], evaluated[1])
        right[chain] = evaluated[0]
    expect("accuracies differ by chain", len(set(right.values())) > 1, True)


@feature(24, "queue:source", "--datasets_repeat_cached_sample")
def records_come_from_memory_and_one_again_and_again(penstock):
    memory = penstock.run(TRAIN.replace("queue", "queue:source=memory"))
    expect_losses(memory["losses"], penstock.losses(TRAIN))
    expect_said(" ".join(memory["notes"]), "memory holds 80 of 80 images")
    result = penstock.run(f"{TRAIN} --datasets_repeat_cached_sample")
    expect_said(" ".join(result["notes"]), "every sample is the first of the set")
    counters = result["counters"]
    expect("bytes of one sample for each", counters["encoded_bytes"] % counters["images_decoded"], 0)


@feature(25, "webdataset:shuffle_buffer")
def compressed_shards_are_shuffled_in_a_buffer(penstock):
    penstock.call("dataset convert --data-dir ds/train --to webdataset --out shards")
    for shard in (penstock.folder / "shards").glob("*.tar"):
        with shard.open("rb") as plain, gzip.open(f"{shard}.gz", "wb", 1) as packed:
            shutil.copyfileobj(plain, packed)
        shard.unlink()
    labels = {}
    for buffered in (1, 1000):
        seen = penstock.look(f"--data-dir shards --fake-location queue:source='webdataset:shuffle_buffer={buffered},readers=1' "
                             "--image-size 32 --classes 4 --batch-size 4 --num-batches 5 --order strict --feeder-threads 1")
        labels[buffered] = len(seen["labels"])
    expect("classes in the first images: those of the file's first one, or of all", (labels[1], labels[1000] > 1), (1, True))


@feature(26, "feeder_threads", "compute_threads", "--processes")
def threads_and_processes_are_stated(penstock):
    cores = len(os.sched_getaffinity(0))
    result = penstock.run(TRAIN.replace("--feeder-threads 1", "--datasets_num_private_threads 3")
                          .replace("--compute-threads 1", f"--compute-threads {cores + 1}"))
    expect("threads that decode", named(result["stages"], "decode")["threads"], 3)
    expect_said(" ".join(result["notes"]), f"{cores + 1} computing and 3 feeding threads share {cores} core")
    result, said = penstock.serve(f"--endpoint ipc://pool --format framed --processes 2 --fake-location host {SERVED}",
                                  f"{CONSUME}ipc://pool,hwm=1 --num-batches 60")
    expect("producers", result["counters"]["producers_seen"], 2)


@feature(27, "device_slots")
def the_device_has_slots_of_its_choice(penstock):
    for slots in (1, 4):
        result = penstock.run(f"--device-slots {slots} --fake-location host {EMULATED}")
        expect("slots", named(result["queues"], "device ring 0")["slots"], slots)


@feature(28, "num_gpus")
def each_device_has_its_own_ring(penstock):
    result = penstock.run(f"--fake-location host {EMULATED} --num-gpus 2")
    expect("rings", [queue["name"] for queue in result["queues"]], ["host ring", "device ring 0", "device ring 1"])


@feature(29, "pinned_memory", "emulated:pageable_gb_per_s")
@feature(87, "pinned_memory")
def copies_from_pageable_memory_take_the_stated_time(penstock):
    run = f"--fake-location host {EMULATED.replace('img_per_s=4000', 'img_per_s=4000,pageable_gb_per_s=0.01')}"
    shortest = [min(penstock.run(f"{run} --pinned-memory={pinned}")["step_ms"]) for pinned in ("true", "false")]
    stated = TRIVIAL_BYTES / 0.01e9 * 1000
    expect("a step waits for the copy only from pageable memory", [step >= 0.9 * stated for step in shortest], [False, True])


@feature(29, "huge_pages")
def huge_pages_are_asked_for(penstock):
    said = {words: " ".join(penstock.run(f"--fake-location host --huge-pages {words} {EMULATED}")["notes"])
            for words in ("explicit", "transparent")}
    expect_said(said["explicit"], "huge pages (--huge-pages explicit)")
    expect("asked for", "--huge-pages explicit" in said["transparent"], False)


@feature(30, "order")
def each_sample_comes_once_and_strictly_in_the_order_of_one_thread(penstock):
    penstock.call(f"run {TRAIN.replace('queue', 'queue:coverage=once').replace('--feeder-threads 1', '--feeder-threads 4')} "
                  "--num-batches 10")
    seen = json.loads((penstock.folder / "once").read_text())["epochs"][0]
    expect("samples of the first epoch", (seen["twice"], seen["seen"]), (0, "f" * 20))
    run = TRAIN.replace("--batch-size 8", "--batch-size 1") + " --num-batches 60"
    expect_losses(penstock.losses(run.replace("--feeder-threads 1", "--feeder-threads 4")), penstock.losses(run))


@feature(31, "on_bad_sample", "--processes")
def an_error_in_a_pool_of_processes_ends_the_run_by_name(penstock):
    folder = penstock.folder / "damaged" / "class0"
    folder.mkdir(parents=True)
    for index in range(4):
        (folder / f"{index}.JPEG").write_bytes(b"\xff\xd8 no image" * 100)
    producer = (f"{penstock.program} serve --endpoint ipc://errors --processes 2 --fake-location queue --data-dir damaged "
                "--model lenet --batch-size 8")
    emulated = EMULATED.replace("trivial", "lenet").split()
    done = subprocess.run([penstock.program, "run", *emulated, "--fake-location",
                           f"zmq-consume:endpoint=ipc://errors,producer='{producer}'"], cwd=penstock.folder, text=True,
                          env=penstock.environment, capture_output=True, timeout=LIMIT_S, check=False)
    expect("exit code", done.returncode, 6)
    expect_said(done.stderr, "damaged/class0/")
    expect_said(done.stderr, "of 2 processes")
    shutil.copytree(penstock.folder / "ds" / "train", penstock.folder / "damaged", dirs_exist_ok=True)
    result = penstock.run(f"{TRAIN.replace('ds/train', 'damaged')} --classes 5 --num-batches 11 --on-bad-sample skip")
    expect("bad samples that were left out", result["counters"]["bad_samples"] >= 4, True)


@feature(32, "batch_group_size")
def the_next_group_waits_until_the_last_one_was_taken(penstock):
    run = "--fake-location host --prefetch 4 --device emulated:img_per_s=200 --model trivial --batch-size 8 --num-batches 12"
    plain, grouped = (named(penstock.run(f"{run} {words}")["queues"], "host ring") for words in ("", "--batch_group_size 4"))
    expect("the ring runs empty between groups only", (plain["empty_percent"] < 10, grouped["empty_percent"] > 10), (True, True))


@feature(33, "model")
def a_feeder_runs_without_a_model(penstock):
    result = penstock.run(f"--model null --image-size 28 --device emulated:copy=none --fake-location queue {JPEGS} "
                          "--batch-size 8 --num-batches 40 --num-warmup-batches 0")
    # Some batches lay ready when the window began.
    expect("images", named(result["stages"], "decode")["images"] >= 32, True)


@feature(34, "--benchmark")
def making_and_encoding_batches_is_measured_alone(penstock):
    for wire in ("zmq_op", "numpy-frames", "framed", "pickle", "msgpack"):
        said = penstock.call(f"serve --benchmark --format {wire} --fake-location host --model lenet --batch-size 8 "
                             "--num-batches 20 --timeout 2s")
        expect_said(said.stdout + said.stderr, "20 batches")


@feature(35, "batch_size", "classes", "image_size", "data_dir")
def batches_and_files_are_looked_at(penstock):
    seen = penstock.look("--data-dir ds/train --image-size 40 --batch-size 10 --num-batches 8 --order strict --feeder-threads 1")
    expect("shape", (seen["batch_size"], seen["height"], seen["width"], seen["images"]), (10, 40, 40, 80))
    expect("labels of one epoch", seen["labels"], {str(label): 20 for label in range(4)})
    seen = penstock.look("--fake-location cpu --image-size 8 --batch-size 64 --classes 3 --num-batches 4")
    expect("labels", sorted(seen["labels"]), ["0", "1", "2"])
    expect_said(penstock.call("dataset inspect --data-dir ds/train").stdout, "80 images in 4 classes")


@feature(36, "memory:from", "--loader")
def parts_of_a_pipeline_nest_and_the_rest_is_python(penstock):
    """Cache, shard and repeat are options that nest; map, batch, join and others are a loader's own."""
    plain = penstock.losses(TRAIN)
    expect_losses(penstock.losses(TRAIN.replace("queue", "queue:source='memory:from=image-folder'")), plain)
    penstock.call(f"run {TRAIN.replace('queue', 'queue:source=memory:from=lmdb')}", code=2)
    (penstock.folder / "pipeline.py").write_text(
        "import itertools\n"
        "def samples(first):\n"
        "    return (bytes([first + step]) * (28 * 28 * 3) for step in range(16))\n"
        "def make_loader():\n"
        "    joined = map(bytearray, itertools.chain(samples(0), samples(100)))\n"
        "    for batch in zip(*[joined] * 8):\n"
        "        yield memoryview(b''.join(batch)).cast('B', (8, 28, 28, 3)), [0] * 8\n")
    seen = penstock.look("--loader pipeline.py:make_loader --num-batches 4")
    expect("images that differ", seen["different_images"], 32)


@feature(41, "data_format")
def either_layout_gives_the_same_losses(penstock):
    expect_losses(penstock.losses(f"{TRAIN} --data_format=NCHW"), penstock.losses(f"{TRAIN} --data_format=NHWC"), 1e-5)
    seen = penstock.look("--fake-location cpu --image-size 32 --batch-size 4 --num-batches 2 --data-format NCHW")
    expect("layout", seen["layout"], "NCHW")


@feature(88, "cpu:entropy_bits")
def pixels_have_the_entropy_that_was_asked_for(penstock):
    for bits, deviation in ((0, 0), (4, 16 / (2 * math.pi * math.e) ** 0.5), (8, 73.9)):  # the entropy of a bell curve
        seen = penstock.look(f"--fake-location cpu:entropy_bits={bits} --image-size 64 --batch-size 8 --num-batches 2")
        for channel in seen["channels"]:
            expect_near(f"deviation of {bits} bits", channel["deviation"], deviation, 0.02)


@feature(92, "zmq-consume:buffer")
def buffers_are_bounded_in_bytes(penstock):
    refused = penstock.call(f"run {CONSUME}ipc://bounded,buffer=1", code=2)
    expect_said(refused.stderr, "expected")


@feature(93, "queue:engine")
def decoding_on_a_gpu_needs_one(penstock):
    said = penstock.call(f"run {TRAIN.replace('queue', 'queue:engine=nvjpeg')}", code=3).stderr
    expect_said(said, "nvjpeg")
