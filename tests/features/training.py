# SPDX-License-Identifier: Apache-2.0
"""Models, updates and training."""
from harness import (EMULATED, PAIR, TRAIN, expect, expect_losses, expect_said, expect_weights, feature, tested_elsewhere,
                     weights_after)


tested_elsewhere(37, "Models.AgreeWithTorchvision",
                 "Models.VersionTwoOfResNetHasThePublishedParametersAndTheWorkOfVersionOne",
                 "Models.VersionOneOfResNetStridesBeforeItsFirstConvolution")
tested_elsewhere(38, "Models.TrivialHasThreeAffineLayers")
tested_elsewhere(39, "Models.AlexNetCountsByHand", "Models.GoogLeNetAgreesWithCaffes", "Models.InceptionFourAgreesWithOthers",
                 "Models.AgreeWithTorchvision", "Models.LeNetCountsByHand", "Models.OverFeatCountsByHand",
                 "Models.ResNetsForCifarCountByHand")


@feature(40)
def batch_sizes_are_the_models_or_stated(penstock):
    for model, batch in (("resnet50", 64), ("alexnet", 512), ("inception3", 32), ("vgg16", 64), ("trivial", 32)):
        config = penstock.run(f"--model {model} --device emulated:img_per_s=100000 --num-batches 2 --num-warmup-batches 0 "
                              "--fake-location gpu")["config"]
        expect(f"batch of {model}", config["batch_size"], batch)
    expect("batch that was stated", penstock.run(f"--fake-location gpu {EMULATED}")["config"]["batch_size"], 8)


@feature(42)
def a_cpu_trains_with_any_number_of_threads(penstock):
    one = penstock.losses(TRAIN)
    expect_losses(penstock.losses(TRAIN.replace("--compute-threads 1", "--num-intra-threads 2")), one, 1e-5)




@feature(43)
def weights_on_a_server_are_those_of_replicas(penstock):
    replicated = penstock.losses(f"{PAIR} --variable-update replicated")
    expect_losses(penstock.losses(f"{PAIR} --variable-update parameter_server --local_parameter_device=cpu"), replicated)


@feature(44)
def replicas_train_as_one_device_on_the_global_batch(penstock):
    expect_weights(weights_after(penstock, PAIR), weights_after(penstock, TRAIN), 1e-5)


@feature(45)
def independent_replicas_exchange_nothing(penstock):
    result = penstock.run(f"{PAIR} --variable-update independent")
    expect("buckets", result.get("buckets", []), [])


tested_elsewhere(45, "Replicas.IndependentOnesAreSeparateRunsBitForBit")
tested_elsewhere(46, "MpirunUpdates.HorovodHasOneDeviceInEachProcess", "MpirunUpdate.TrainsOverProcesses")
tested_elsewhere(47, "ServedProcesses.BytePsHasTheBitsOfReplicated")
tested_elsewhere(48, "ServedProcesses.TogetherIsASingleReplicaOnTheGlobalBatch",
                 "ServedProcesses.TfSyncAppliesEachWorkersGradients",
                 "ServedProcesses.AsynchronousIsPlainDescentWhereAWorkerIsAlone")
tested_elsewhere(49, "ServedProcesses.TfSyncAppliesEachWorkersGradients", "UpdateContract.WeightsAreWhatItsAgreementSays")
tested_elsewhere(50, "MpirunTraining.TfCnnBenchmarksAllReducesGiveTheWeightsOfReplicatedAndSayHowTheyDiffer")


@feature(50)
def all_reduces_of_other_names_train_as_replicated_and_say_what_differs(penstock):
    replicated = penstock.losses(PAIR)
    for update, words in (("distributed_all_reduce", "controller"), ("collective_all_reduce", "one graph")):
        result = penstock.run(f"{PAIR} --variable-update {update}")
        expect_losses(result["losses"], replicated)
        expect_said(" ".join(result["notes"]), words)


tested_elsewhere(51, "AllReduceSpec.EveryNameOfTheReferenceIsAnAlgorithmOfOurs", "AllReduce.SumsAnyCountOverAnyNumberOfRanks")


@feature(51)
@feature(52)
def algorithms_and_packing_leave_the_weights_alone(penstock):
    plain = weights_after(penstock, PAIR)
    for flag in ("--all-reduce-spec=xring#3", "--all-reduce-spec=pscpu:32k:nccl/rechd", "--all-reduce-spec=psgpu#2", "--gradient-repacking=4",
                 "--agg-small-grads-max-bytes=1024", "--allreduce-merge-scope=3"):
        expect_weights(weights_after(penstock, f"{PAIR} {flag}"), plain, 1e-6)


@feature(53)
def sixteen_bits_on_the_wire_cost_little_accuracy(penstock):
    plain, short = weights_after(penstock, PAIR), weights_after(penstock, f"{PAIR} --compact_gradient_transfer")
    expect_weights(short, plain, 1e-2)
    expect("the wire rounds", short != plain, True)


tested_elsewhere(54, "ServedProcesses.StagedReadsWeightsOneUpdateOld", "UpdateContract.WeightsAreWhatItsAgreementSays",
                 "Checkpoints.AreOfTheWeightsAfterTheirStepsWhateverASteppedDeviceReads")
tested_elsewhere(55, "LossScale.IsDoubledByTheStepAfterTheCountedSteps",
                 "LossScale.IsHalvedByAStepThatIsNotFiniteAndCountsAnew", "CommandLine.ALossScaleThatAdaptsItselfHasTheReferencesFlags")
tested_elsewhere(56, "CommandLine.CompilersMayBeAskedForAndAreThereAnyway", "CommandLine.WithoutACompilerAGpusStepIsNotRecorded")


@feature(56)
def what_the_compilers_flag_changes_is_said(penstock):
    for flag, words in (("--xla_compile", "a step is compiled already"), ("--noxla_compile", "gpu:record=false")):
        expect_said(penstock.call(f"run {TRAIN} {flag}").stderr, words)


tested_elsewhere(57, "TrainingRules.ResNetsForCifarHaveTheirOwnSchedule", "LearningRate.DecaysInStairsDownToItsMinimum",
                 "LearningRate.ResNetsGrowForFiveEpochsAndFallAtFourBoundaries", "LearningRate.GrowsInProportionToTheStep",
                 "TrainingRules.EpochsBecomeStepsOfTheGlobalBatch")


tested_elsewhere(58, "Training.ForwardOnlyLeavesTheWeightsAlone", "BackendContract.ForwardOnlyChangesNothing")


tested_elsewhere(59, "MpirunTraining.EvaluatesAsOneProcessAndStopsAllRanksAtAnAccuracy",
                 "ParameterServerTraining.ResumedEqualsUninterruptedAndEvaluatesAsOneProcess")


@feature(59)
def evaluations_come_during_training_and_end_it(penstock):
    result = penstock.run(f"{TRAIN} --eval-during-training-every-n-steps 2 --stop-at-top-1-accuracy 0.01")
    expect("steps at the accuracy", len(result["losses"]), 2)
    expect("images of the evaluation", result["evaluations"][0]["images"], 16)


tested_elsewhere(60, "MpirunTraining.ResumedRanksEqualUninterruptedOnesAndOneProcess",
                 "MpirunTraining.WhatAnUpdateCarriesIsRestoredOnEveryRank",
                 "ParameterServerTraining.ResumedEqualsUninterruptedAndEvaluatesAsOneProcess", "Checkpoints.GoingOnEqualsNeverHavingStopped", "Checkpoints.AreSavedEverySoManyStepsAndTheNewestAreKept")


@feature(60)
def checkpoints_resume_a_run(penstock):
    whole = penstock.losses(f"{TRAIN} --num-batches 6")
    first = penstock.losses(f"{TRAIN} --num-batches 3 --train-dir halves")
    rest = penstock.losses(f"{TRAIN} --num-batches 6 --train-dir halves")
    expect_losses(first + rest, whole)


tested_elsewhere(61, "BackendContract.RunningStatisticsGrowOverSteps")
