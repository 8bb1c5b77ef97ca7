# SPDX-License-Identifier: Apache-2.0
"""Batches, data sets and feeders."""
import json
import math
import re
import signal
import subprocess

from harness import (CPU, EMULATED, JPEGS, LIMIT_S, SHORT, TRAIN, TRIVIAL_BYTES, expect, expect_losses, expect_near,
                     expect_said, feature, named, tested_elsewhere)


@feature(1)
def constant_batches_on_the_device(penstock):
    result = penstock.run(f"--fake-location gpu {EMULATED}")
    expect("stages of feeding", result["stages"], [])
    expect("steps", len(result["step_ms"]), 4)


@feature(4)
def batches_of_the_cpu_are_copied_from_host_slots(penstock):
    for feeder in ("cpu", "host"):
        copy = named(penstock.run(f"--fake-location {feeder} {EMULATED} --num-batches 50")["stages"], "copy")
        expect_near(f"bytes of a copy with {feeder}", copy["bytes"] / copy["items"], TRIVIAL_BYTES, 0.05)


@feature(5)
def the_queue_is_bounded(penstock):
    for slots in (1, 3, 150):
        result = penstock.run(f"--prefetch {slots} --fake-location queue {JPEGS} {CPU}")
        expect("slots", named(result["queues"], "host ring")["slots"], slots)


@feature(6)
def generators_of_python_feed_a_run(penstock):
    (penstock.folder / "numbers.py").write_text(
        "def make_loader():\n"
        "    for step in range(20):\n"
        "        yield memoryview(bytes([step]) * (8 * 28 * 28 * 3)).cast('B', (8, 28, 28, 3)), [step % 4] * 8\n")
    for feeder in ("python", "python-queue", "python-dataset", "python:loader=numbers.py:make_loader"):
        losses = penstock.losses(f"--fake-location {feeder} {CPU} --classes 1000")
        expect(f"steps with {feeder}", len(losses), 4)
    expect("different losses of a generator's different batches", len(set(losses)), 4)


tested_elsewhere(7, "ZmqFormats.EachIsFoundByItsFirstBytesAndReadBitForBit",
                 "ZmqEndpoints.BatchesOfAllArriveOnceAndEachProducersInItsOrder")


@feature(7)
@feature(8)
def batches_that_serve_sends_train_as_those_of_this_process(penstock):
    direct = penstock.losses(TRAIN)
    for wire in ("zmq_op", "numpy-frames", "framed"):
        result, _ = penstock.serve(f"--endpoint ipc://feed --format {wire} --fake-location queue {JPEGS} --model lenet "
                                   "--classes 4 --batch-size 8",
                                   f"--fake-location zmq-consume:endpoint=ipc://feed {CPU}")
        expect_losses(result["losses"], direct)


tested_elsewhere(8, "serve_program", "example_c_producer", "python_package")
tested_elsewhere(9, "ZmqOp.TakesTheWorkedExampleApart", "ZmqOp.WritesTheHeadersOfTheWorkedExample",
                 "ZmqOp.RefusesEveryTruncation", "ZmqOp.NamesFieldValueExpectationAndOffset")
tested_elsewhere(10, "ZmqFormats.ArraysInFortranOrderAreReadAsTheSamePixels",
                 "LmdbSourceTest.PickledImagesInFortranOrderAreReadAsTheSamePixels",
                 "BatchMessage.PyarrowsMessagesAreRefusedWithTheRemedy", "SenderTest.PythonsOwnPickleAndMsgpackReadWhatIsSent")


@feature(10)
def pickles_and_messagepack_of_serve_train_as_those_of_this_process(penstock):
    direct = penstock.losses(TRAIN)
    for wire in ("pickle", "msgpack"):
        result, _ = penstock.serve(f"--endpoint ipc://feed --format {wire} --fake-location queue {JPEGS} --model lenet "
                                   "--classes 4 --batch-size 8",
                                   f"--fake-location zmq-consume:endpoint=ipc://feed {CPU}")
        expect_losses(result["losses"], direct)


tested_elsewhere(11, "ZmqEndpoints.EachSaysWhetherItIsBoundWhereItIsNotAsTheOptionSays")


@feature(11)
def either_side_binds_any_kind_of_address(penstock):
    for endpoint, serve, consume in (("ipc://feed", "", ""), ("ipc://feed", "--bind", ",bind=false"),
                                     ("ipc://@penstock-features", "", "")):
        result, _ = penstock.serve(f"--endpoint {endpoint} {serve} --fake-location host --model lenet --classes 4 "
                                   "--batch-size 8", f"--fake-location zmq-consume:endpoint={endpoint}{consume} {CPU}")
        expect("steps", len(result["losses"]), 4)


@feature(12)
def two_endpoints_feed_one_run(penstock):
    words = "--fake-location host --model lenet --classes 4 --batch-size 8"
    other = penstock.start(f"serve --endpoint ipc://second --format framed {words}")
    try:
        result, _ = penstock.serve(f"--endpoint ipc://first --format framed {words}",
                                   f"--fake-location zmq-consume:endpoint=ipc://first+ipc://second,hwm=1 {CPU} "
                                   "--num-batches 60")
    finally:
        other.send_signal(signal.SIGINT)
        other.communicate(timeout=LIMIT_S)
    expect("producers", result["counters"]["producers_seen"], 2)


@feature(13)
def high_water_marks_bound_what_waits(penstock):
    try:
        import zmq
    except ImportError:
        print("skipped: a consumer that does not read needs python3-zmq")
        return
    consumer = zmq.Context.instance().socket(zmq.PULL)
    consumer.set_hwm(4)
    consumer.bind(f"ipc://{penstock.folder}/stalled")
    said = penstock.call("serve --endpoint ipc://stalled --hwm 4 --fake-location host --model lenet --batch-size 64 "
                         "--timeout 2s", code=5)
    consumer.close(linger=0)
    sent = int(re.search(r"sent (\d+) batches", said.stdout + said.stderr)[1])
    expect("batches sent: 4 on each side and at most 2 on the way", 8 <= sent <= 10, True)


@feature(14)
def shards_of_training_and_validation_lie_in_one_folder(penstock):
    for part, name in (("train", "records"), ("val", "validation")):
        penstock.call(f"dataset convert --data-dir ds/{part} --to tfrecord --out {name}")
    for shard in (penstock.folder / "validation").glob("train-*"):
        shard.rename(penstock.folder / "records" / shard.name.replace("train", "validation"))
    result = penstock.run(f"--like tf_cnn_benchmarks --data_dir=records --data_name=imagenet {CPU} "
                          "--eval_during_training_every_n_steps=2")
    expect("images of an epoch", result["examples_per_epoch"], 80)
    expect("images of an evaluation", result["evaluations"][0]["images"], 16)


@feature(15)
def class_folders_of_jpegs_train(penstock):
    result = penstock.run(TRAIN)
    expect("images of an epoch", result["examples_per_epoch"], 80)
    expect("damaged images", result["counters"]["bad_samples"], 0)


tested_elsewhere(16, "SerializedSetsTest.PayloadTfRecordsAreReadHereAndByPython",
                 "SerializedSetsTest.DatabasesOfDatapointsAreReadHereAndByPython",
                 "SerializedSetsTest.ArchivesOfNumpyAreReadHereAndByNumpy", "SerializedSetsTest.Hdf5FilesAreReadHereAndByPython",
                 "SerializedSetsTest.ADamagedFileCostsItselfAlone", "TfRecordSourceTest.RecordsMayBeTensorpacksDatapoints")


@feature(16)
def formats_of_tensorpack_train_as_the_files_that_they_hold(penstock):
    files = penstock.losses(TRAIN)
    for name, target in {"npz": "npz", "lmdb": "lmdb:format=datapoint", "tfrecord": "tfrecord:record=datapoint",
                         "numpy": "raw", "hdf5": "hdf5"}.items():
        penstock.call(f"dataset convert --data-dir ds/train --to {target} --out as-{name}")
        if target == "raw":  # from here on, the images are their pixels
            files = penstock.losses(TRAIN.replace("ds/train", f"as-{name}"))
        expect_losses(penstock.losses(TRAIN.replace("ds/train", f"as-{name}")), files)


tested_elsewhere(17, "Cifar10Test.ThePythonVersionHasItsPixelsAndLabels", "Cifar10Test.FeedsATrainingRunAndItsEvaluation",
                 "Cifar10Test.TheBinaryVersionHasItsPixelsAndLabels")
tested_elsewhere(18, "PilPixels.CropsHaveThePixelsThatPilGives",
                 "Augmentation.EveryCropAndResizeEqualsTheFullDecodeAtEveryEdge")


@feature(18)
def the_library_trains_as_the_decoder_of_penstock(penstock):
    regions = penstock.losses(TRAIN)
    expect_losses(penstock.losses(TRAIN.replace("queue", "queue:engine=libjpeg")), regions, 1e-3)


tested_elsewhere(19, "Resample.EveryFilterEqualsItsDefinition", "Augmentation.MethodsTakeTurnsByIndexAndEpoch")


@feature(19)
def resize_methods_have_the_flag_of_the_reference(penstock):
    by_flag = [penstock.losses(f"{TRAIN} --resize-method {method}") for method in ("nearest", "bilinear", "bicubic", "area")]
    expect("methods that differ", len({tuple(losses) for losses in by_flag}), 4)
    expect_losses(by_flag[0], penstock.losses(TRAIN.replace("queue", "queue:resize=tf_nearest")))


tested_elsewhere(20, "TfBoxCrop.PlacesThatCoverATenthOfTheBoxAreUniform",
                 "Augmentation.CropsOfBoxesAreOfTheSamplesBoxes", "TfRandomCrop.HeightsAreUniformBetweenWhatTheAreaAndTheWidthAllow", "Colour.EveryRecipeEqualsItsDefinition",
                 "CropChoice.EveryCropOfEverySizeLiesInTheImage")
tested_elsewhere(21, "NormaliseRuns.LossesEqualTheLossesOfBytes")


@feature(21)
@feature(22)
def either_side_normalises(penstock):
    bytes_first, floats_first = (penstock.run(f"{TRAIN.replace('queue', feeder)}")
                                 for feeder in ("queue", "queue:normalise=f32"))
    expect_losses(floats_first["losses"], bytes_first["losses"], 1e-5)
    copies = [named(result["stages"], "copy") for result in (bytes_first, floats_first)]
    copied = [copy["bytes"] / copy["items"] for copy in copies]
    expect_near("bytes of floats against bytes", copied[1] / copied[0], 4, 0.02)


tested_elsewhere(23, "CentreCrop.TakesSevenEighthsOfTheShorterSide", "TensorpackCentreCrop.RoundsTheLongerSide",
                 "TfCentreCrop.IsTheCentreOfTheImageAt1145OfTheOutput", "DecodeQueueTest.EvaluationTakesTheCentreOfEachChain")


@feature(24)
def records_come_from_memory_and_one_again_and_again(penstock):
    expect_losses(penstock.losses(TRAIN.replace("queue", "queue:source=memory")), penstock.losses(TRAIN))
    result = penstock.run(f"{TRAIN} --datasets_repeat_cached_sample")
    expect_said(" ".join(result["notes"]), "every sample is the first of the set")


tested_elsewhere(25, "StreamSourceTest.TheOrderIsThatOfTheSeedTheEpochAndTheOptions")


@feature(26)
def threads_and_processes_are_stated(penstock):
    result = penstock.run(TRAIN.replace("--feeder-threads 1", "--datasets_num_private_threads 3"))
    expect("threads that decode", named(result["stages"], "decode")["threads"], 3)
    _, said = penstock.serve("--endpoint ipc://pool --processes 2 --fake-location host --model lenet --classes 4 "
                             "--batch-size 8", f"--fake-location zmq-consume:endpoint=ipc://pool {CPU}")
    expect_said(said, "2 processes")


@feature(27)
def the_device_has_slots_of_its_choice(penstock):
    for slots in (1, 2, 4):
        result = penstock.run(f"--device-slots {slots} --fake-location host {EMULATED}")
        expect("slots", named(result["queues"], "device ring 0")["slots"], slots)


tested_elsewhere(30, "DecodeQueueTest.EachFileOncePerEpochOverRanksAndThreads", "DecodeQueueTest.StrictOrderRepeatsEveryByte",
                 "ServeProcesses.EachImageIsSentOnce")


@feature(31)
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
                          capture_output=True, timeout=LIMIT_S, check=False)
    expect("exit code", done.returncode, 6)
    expect_said(done.stderr, "damaged/class0/")


@feature(33)
def a_feeder_runs_without_a_model(penstock):
    result = penstock.run(f"--model null --image-size 28 --device emulated:copy=none --fake-location queue {JPEGS} {SHORT}")
    expect("images", named(result["stages"], "decode")["images"] >= 32, True)

tested_elsewhere(34, "SenderTest.DroppedBatchesAreMadeEncodedAndCounted", "SenderTest.PythonsOwnPickleAndMsgpackReadWhatIsSent")


@feature(34)
def making_and_encoding_batches_is_measured_alone(penstock):
    for wire in ("zmq_op", "numpy-frames", "framed", "pickle", "msgpack"):
        said = penstock.call(f"serve --benchmark --format {wire} --fake-location host --model lenet --batch-size 8 "
                             "--num-batches 20")
        expect_said(said.stdout + said.stderr, "20 batches")


tested_elsewhere(35, "look_program", "BatchSurvey.FiguresOfEveryTypeAndLayoutAreTheSame")


@feature(2)
def random_pixels_are_uniform_and_new_in_each_batch(penstock):
    seen = json.loads(penstock.call("look --json --fake-location cpu --image-size 64 --batch-size 16 --num-batches 10").stdout)
    expect("batches that differ", seen["different_batches"], 10)
    for channel in seen["channels"]:
        expect_near("mean", channel["mean"], 127.5, 0.01)
        expect_near("deviation", channel["deviation"], 73.9, 0.01)


@feature(36)
def parts_of_a_pipeline_nest_and_the_rest_is_python(penstock):
    """Cache, shard and repeat are options that nest; map, batch, join and others are a loader's own."""
    plain = penstock.losses(TRAIN)
    expect_losses(penstock.losses(TRAIN.replace("queue", "queue:source='memory:from=image-folder'")), plain)
    (penstock.folder / "pipeline.py").write_text(
        "import itertools\n"
        "def samples(first):\n"
        "    return (bytes([first + step]) * (28 * 28 * 3) for step in range(16))\n"
        "def make_loader():\n"
        "    joined = map(bytearray, itertools.chain(samples(0), samples(100)))\n"
        "    for batch in zip(*[joined] * 8):\n"
        "        yield memoryview(b''.join(batch)).cast('B', (8, 28, 28, 3)), [0] * 8\n")
    seen = json.loads(penstock.call("look --json --loader pipeline.py:make_loader --num-batches 4").stdout)
    expect("images that differ", seen["different_images"], 32)


tested_elsewhere(2, "SyntheticPixels.OfATruncatedNormalHaveItsMomentsAndBounds")


@feature(3)
def labels_are_redrawn_on_the_device(penstock):
    kept, redrawn = (set(penstock.losses(f"--fake-location {feeder} {CPU} --num-batches 6 --init-learning-rate 1e-12"))
                     for feeder in ("gpu", "gpu:labels=redrawn"))
    expect("losses of the labels that two slots keep", len(kept) <= 2, True)
    expect("losses of labels that are drawn again", len(redrawn) > 2, True)


tested_elsewhere(3, "GpuFeeder.RedrawsLabelsForEveryBatchIfAskedTo")
tested_elsewhere(28, "Ring.StrictOrderDealsBatchesOutInTurn")


@feature(28)
def each_device_has_its_own_ring(penstock):
    result = penstock.run(f"--fake-location host {EMULATED} --num-gpus 2")
    expect("rings", [queue["name"] for queue in result["queues"]], ["host ring", "device ring 0", "device ring 1"])


tested_elsewhere(29, "CudaDriver.SlotsOfTheHostRingArePinnedOrPageable",
                 "EmulatedRuns.CopiesFromPageableMemoryHaveTheirOwnRate")


@feature(29)
@feature(87)
def pinned_memory_is_an_axis(penstock):
    penstock.call("sweep --fake-location host --pinned-memory=true,false --device "
                  f"emulated:img_per_s=4000,pageable_gb_per_s=2 --model trivial {SHORT} --repetitions 1 --rest 0s --out pinned")
    runs = json.loads((penstock.folder / "pinned" / "results.json").read_text())["runs"]
    expect("rows with the feeder host", sorted(run["config"]["pinned_memory"] for run in runs
                                               if run["config"]["fake_location"] == "host"), [False, True])


tested_elsewhere(87, "NormaliseRuns.LossesEqualTheLossesOfBytes", "BatchMessage.PixelsMayBeNumbersAndPlanar")
tested_elsewhere(32, "Ring.AGroupBeginsOnlyWhenTheLastOneWasTaken",
                 "RunnerTest.BatchesAreMadeInGroupsInLockStepWithTheDevice")


@feature(32)
def groups_of_batches_hold_the_same_batches(penstock):
    expect_losses(penstock.losses(f"{TRAIN} --batch_group_size 2"), penstock.losses(TRAIN))


@feature(41)
def either_layout_gives_the_same_losses(penstock):
    expect_losses(penstock.losses(f"{TRAIN} --data_format=NCHW"), penstock.losses(f"{TRAIN} --data_format=NHWC"), 1e-5)
    seen = json.loads(penstock.call("look --json --fake-location cpu --image-size 32 --batch-size 4 --num-batches 2 "
                                    "--data-format NCHW").stdout)
    expect("layout", seen["layout"], "NCHW")


@feature(88)
def pixels_have_the_entropy_that_was_asked_for(penstock):
    for bits, deviation in ((0, 0), (4, 16 / (2 * math.pi * math.e) ** 0.5), (8, 73.9)):  # the entropy of a bell curve
        seen = json.loads(penstock.call(f"look --json --fake-location cpu:entropy_bits={bits} --image-size 64 "
                                        "--batch-size 8 --num-batches 2").stdout)
        for channel in seen["channels"]:
            expect_near(f"deviation of {bits} bits", channel["deviation"], deviation, 0.02)


tested_elsewhere(88, "SyntheticPixels.HaveTheEntropyThatWasAskedFor")
tested_elsewhere(93, "FakeNvjpeg.PixelsAreTheLibrarysAfterCropResizeAndFlip", "Nvjpeg.PixelsAreCloseToLibjpeg",
                 "Nvjpeg.WithoutItTheReasonAndAnotherEngineAreNamed", "example_custom_components")
