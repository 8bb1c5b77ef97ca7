# SPDX-License-Identifier: Apache-2.0
"""Models, updates and training."""
import json

from harness import (CPU, EMULATED, JPEGS, PAIR, SHORT, TRAIN, Skipped, expect, expect_losses, expect_near, expect_said,
                     expect_weights, feature, trained, weights_after, weights_in)


def graph_of(penstock, model):
    penstock.call(f"run --fake-location gpu --model {model} --device emulated:img_per_s=100000 --batch-size 1 --num-batches 1 "
                  "--num-warmup-batches 0 --graph-file graph.json")
    return json.loads((penstock.folder / "graph.json").read_text())


@feature(37, "model")
@feature(38, "model")
@feature(39, "model")
def models_have_the_published_parameters_and_work(penstock):
    """Parameters in millions and 10^9 multiplications for an image: torchvision's, or of the papers."""
    for model, parameters, work in (("resnet50", 25.557, 3.86), ("resnet50_v1.5", 25.557, 4.09), ("resnet50_v2", 25.549, 3.86),
                                    ("trivial", 4.259_780, 0.004_254_683), ("alexnet", 61.8, 0.84), ("inception3", 23.83, 5.71),
                                    ("vgg16", 138.36, 15.5), ("googlenet", 7.0, 1.58)):
        graph = graph_of(penstock, model)
        expect_near(f"parameters of {model}", graph["parameter_count"] / 1e6, parameters, 0.005)
        expect_near(f"work of {model}", graph["forward_macs_per_image"] / 1e9, work, 0.01)


@feature(40, "batch_size")
def batch_sizes_are_the_models_or_stated(penstock):
    for model, batch in (("resnet50", 64), ("alexnet", 512), ("inception3", 32), ("vgg16", 64), ("trivial", 32)):
        result = penstock.run(f"--model {model} --device emulated:img_per_s=100000 --num-batches 2 --num-warmup-batches 0 "
                              "--fake-location gpu")
        expect(f"batch of {model}", result["images_per_step"], batch)
    expect("batch that was stated", penstock.run(f"--fake-location gpu {EMULATED}")["images_per_step"], 8)


@feature(42, "device")
def a_cpu_trains_with_any_number_of_threads(penstock):
    one = penstock.losses(TRAIN)
    expect("losses of a device that computes", all(loss > 0 for loss in one), True)
    expect_losses(penstock.losses(TRAIN.replace("--compute-threads 1", "--num-intra-threads 2")), one, 1e-5)
    for options in ("layout=channels_last", "isa=avx2"):
        expect_losses(penstock.losses(TRAIN.replace("--device cpu", f"--device cpu:{options}")), one, 1e-4)
    notes = penstock.run(TRAIN.replace("--device cpu", "--device cpu:isa=avx2"))["notes"]
    expect("the instruction set that ran", [note.split()[-1] for note in notes if "computes with" in note], ["avx2"])
    refused = penstock.call(f"run {TRAIN.replace('--device cpu', '--device cpu:isa=mmx')}", 2)
    expect_said(refused.stderr, "no instruction set 'mmx'")


@feature(43, "variable_update")
def weights_on_a_server_are_those_of_replicas(penstock):
    replicated = penstock.losses(f"{PAIR} --variable-update replicated")
    served = penstock.run(f"{PAIR} --variable-update parameter_server --local_parameter_device=cpu")
    expect_losses(served["losses"], replicated)
    expect("buckets of an all-reduce", served.get("buckets", []), [])


@feature(44, "num_gpus")
@feature(81, "variable_update")
def updates_train_as_one_device_on_the_global_batch(penstock):
    whole = weights_after(penstock, TRAIN)
    for update in ("replicated", "parameter_server", "distributed_replicated", "sync-sgd"):
        expect_weights(weights_after(penstock, f"{PAIR} --variable-update {update}"), whole, 1e-5)
    apart = [penstock.losses(f"{PAIR} --variable-update {update}")[2] for update in ("sma", "replicated")]
    expect("an average of models has other losses", abs(apart[0] - apart[1]) > 0.1, True)


@feature(44, "bucket_mib", "first_bucket_mib", "--fusion_threshold_mb")
def gradients_are_exchanged_in_buckets(penstock):
    for words, buckets in (("", 2), ("--first-bucket-mib 0", 1), ("--bucket-mib 1", 3), ("--fusion-threshold-mb 0", 8)):
        expect(f"buckets with '{words}'", len(penstock.run(f"{PAIR} {words}")["buckets"]), buckets)


@feature(45, "variable_update")
def independent_replicas_exchange_nothing(penstock):
    result = penstock.run(f"{PAIR} --variable-update independent")
    expect("buckets", result.get("buckets", []), [])
    expect("the second loss is that of the replica alone", result["losses"][1] != penstock.losses(PAIR)[1], True)


@feature(46, "gradient_reduction")
def a_sum_of_gradients_is_a_mean_at_a_higher_rate(penstock):
    summed = penstock.losses(f"{PAIR} --gradient-reduction sum --weight-decay 0 --init-learning-rate 0.005")
    expect_losses(summed, penstock.losses(f"{PAIR} --gradient-reduction mean --weight-decay 0 --init-learning-rate 0.01"), 1e-4)


@feature(49, "variable_update")
@feature(50, "variable_update")
def updates_of_other_names_train_as_replicated_and_say_what_differs(penstock):
    replicated = penstock.losses(PAIR)
    for update, words in (("distributed_all_reduce", "controller"), ("collective_all_reduce", "one graph")):
        result = penstock.run(f"{PAIR} --variable-update {update}")
        expect_losses(result["losses"], replicated)
        expect_said(" ".join(result["notes"]), words)
    shadow = penstock.run(f"{PAIR} --variable-update distributed_replicated")
    expect_losses(shadow["losses"], replicated)
    expect("buckets of a shadow copy", shadow.get("buckets", []), [])


@feature(51, "all_reduce_spec")
def algorithms_leave_the_weights_alone(penstock):
    plain = weights_after(penstock, PAIR)
    for spec, words in (("xring#3", "ring in 3 pieces"), ("pscpu:32k:nccl/rechd", "gather-add"), ("psgpu#2", "gather-add in 2")):
        result, weights = trained(penstock, f"{PAIR} --all-reduce-spec={spec}")
        expect_said(" ".join(result["notes"]), f"exchange through {words}")
        expect_weights(weights, plain, 1e-6)


@feature(52, "gradient_repacking", "agg_small_grads_max_bytes", "agg_small_grads_max_group", "--allreduce_merge_scope")
def packing_changes_the_messages_and_leaves_the_weights_alone(penstock):
    plain = weights_after(penstock, PAIR)
    small = "--agg-small-grads-max-bytes=1000000"
    for words, buckets in (("--gradient-repacking=4", 4), ("--agg-small-grads-max-bytes=1024", 8), (small, 3),
                           (f"{small} --agg-small-grads-max-group=2", 5), ("--allreduce-merge-scope=3", 3)):
        result, weights = trained(penstock, f"{PAIR} {words}")
        expect(f"messages with {words}", len(result["buckets"]), buckets)
        expect_weights(weights, plain, 1e-6)


@feature(53, "gradient_wire", "--compact_gradient_transfer")
def sixteen_bits_on_the_wire_cost_little_accuracy(penstock):
    plain, *short = (weights_after(penstock, f"{PAIR} {words}") for words in ("", "--gradient-wire fp16", "--compact_gradient_transfer"))
    for weights in short:
        expect_weights(weights, plain, 1e-2)
        expect("the wire rounds", weights != plain, True)


@feature(54, "--variable_consistency", "--staged_vars")
def weights_may_be_one_update_old(penstock):
    """So the second step has the weights of the first one."""
    fresh = penstock.losses(f"{PAIR} --init-learning-rate 1e-20")[1]
    for words in ("--variable-consistency relaxed", "--variable-update parameter_server --staged-vars"):
        expect_near(f"second loss with {words}", penstock.losses(f"{PAIR} {words}")[1], fresh, 1e-6)


@feature(55, "precision")
def a_device_trains_in_16_bits_or_says_that_it_cannot(penstock):
    done = penstock.done(f"run --json {TRAIN} --precision bf16")
    if done.returncode == 3:
        expect_said(done.stderr, "no bf16 instructions")
        raise Skipped("fp16 needs a GPU, and bf16 a CPU with avx512_bf16")
    short, plain = json.loads(done.stdout)["losses"], penstock.losses(TRAIN)
    expect_near("first loss", short[0], plain[0], 0.1)
    expect("bf16 rounds", short != plain, True)


@feature(56)
def what_the_compilers_flag_changes_is_said(penstock):
    for flag, words in (("--xla_compile", "a step is compiled already"), ("--noxla_compile", "gpu:record=false")):
        expect_said(penstock.call(f"run {TRAIN} {flag}").stderr, words)


@feature(57, "optimizer", "momentum", "rmsprop_decay", "rmsprop_momentum", "rmsprop_epsilon", "adam_beta1", "adam_beta2",
         "adam_epsilon")
def flags_of_optimizers_are_their_options(penstock):
    plain = {}
    for optimizer, flag, option, value in (
            ("momentum", "momentum", "momentum", 0.3), ("rmsprop", "rmsprop_decay", "decay", 0.5),
            ("rmsprop", "rmsprop_momentum", "momentum", 0.3), ("rmsprop", "rmsprop_epsilon", "epsilon", 0.1),
            ("adam", "adam_beta1", "beta1", 0.5), ("adam", "adam_beta2", "beta2", 0.5), ("adam", "adam_epsilon", "epsilon", 0.1)):
        run = f"{TRAIN} --init-learning-rate 0.001 --optimizer {optimizer}"
        by_option = penstock.losses(f"{run}:{option}={value}")
        expect_losses(penstock.losses(f"{run} --{flag} {value}"), by_option)
        plain[optimizer] = plain.get(optimizer) or penstock.losses(run)
        expect(f"{flag} changes the losses", by_option != plain[optimizer], True)
    expect("losses of different optimizers", len(set(map(tuple, plain.values()))), 3)


@feature(57, "init_learning_rate", "piecewise_learning_rate_schedule", "num_epochs_per_decay", "learning_rate_decay_factor",
         "minimum_learning_rate", "num_learning_rate_warmup_epochs")
def learning_rates_follow_their_schedule(penstock):
    """An epoch has 10 steps; the update of step 11 is the first of the second epoch, so the loss of step 12 shows it."""
    def losses(words):
        return penstock.losses(f"{TRAIN} --num-batches 13 {words}")
    fixed, piecewise = losses("--init-learning-rate 0.01"), losses("--piecewise-learning-rate-schedule 0.01;1;0.001")
    expect_losses(piecewise[:11], fixed[:11])
    expect("the rate falls after an epoch", piecewise[11] != fixed[11], True)
    decay = "--init-learning-rate 0.01 --num-epochs-per-decay 1 --learning-rate-decay-factor"
    expect_losses(losses(f"{decay} 0.1"), piecewise, 1e-6)
    expect_losses(losses(f"{decay} 0.01 --minimum-learning-rate 0.001"), piecewise, 1e-6)
    warm = losses("--init-learning-rate 0.01 --num-learning-rate-warmup-epochs 1")
    expect("the rate grows from 0", (warm[0] == fixed[0], abs(warm[1] - fixed[1]) > 1e-4), (True, True))


@feature(57, "resnet_base_lr")
def resnets_have_their_schedules(penstock):
    run = f"--device cpu --model resnet20 --fake-location cpu --compute-threads 1 {SHORT} --seed 3"
    expect_losses(penstock.losses(f"{run} --resnet-base-lr 1"), penstock.losses(f"{run} --init-learning-rate 0.1"))


@feature(57, "weight_decay", "gradient_clip")
def weights_decay_and_gradients_are_clipped(penstock):
    """The loss has half the weight decay times the squares of all weights; a clipped gradient moves a bias by rate * bound."""
    bare, some, more = (penstock.losses(f"{TRAIN} --weight-decay {decay} --num-batches 1")[0] for decay in (0, 0.1, 0.2))
    expect("the loss grows with the weights", some > bare + 1, True)
    expect_near("twice the decay adds twice as much", more - bare, 2 * (some - bare), 1e-4)
    weights = weights_after(penstock, f"{TRAIN} --gradient-clip 1e-6 --init-learning-rate 0.5")
    expect_near("largest bias after 4 steps", max(map(abs, weights["affine1.bias"])), 4 * 0.5 * 1e-6, 1e-3)


@feature(58, "forward_only")
def forward_only_changes_no_weights(penstock):
    run = f"--fake-location gpu {CPU} --num-batches 6 --init-learning-rate 0.1"
    expect("losses of the batches of two slots", len(set(penstock.losses(f"{run} --forward-only"))) <= 2, True)
    expect("losses of a training differ", len(set(penstock.losses(run))) > 2, True)


@feature(59, "eval_during_training_every_n_steps", "eval_during_training_every_n_epochs",
         "eval_during_training_at_specified_steps", "eval_during_training_at_specified_epochs")
def evaluations_come_during_training(penstock):
    for words, steps in (("every-n-steps 2", [2, 4]), ("every-n-epochs 0.3", [3]), ("at-specified-steps 1,3", [1, 3]),
                         ("at-specified-epochs 0.2,0.4", [2, 4])):
        evaluations = penstock.run(f"{TRAIN} --eval-during-training-{words}")["evaluations"]
        expect(f"steps with {words}", [evaluation["step"] for evaluation in evaluations][:len(steps)], steps)
        expect("images of an evaluation", evaluations[0]["images"], 16)


@feature(59, "eval", "eval_data_dir", "eval_batch_size", "num_eval_batches", "num_eval_epochs", "stop_at_top_1_accuracy",
         "num_epochs", "train_dir")
def an_evaluation_has_its_own_data_and_length_and_may_end_the_training(penstock):
    result = penstock.run(f"{TRAIN.replace('--num-batches 4', '--num-epochs 0.5')} --eval-during-training-every-n-steps 2 --train-dir evaluated")
    expect("steps of half an epoch", len(result["losses"]), 5)
    run = f"{TRAIN} --eval --train-dir evaluated"
    for words, images in (("", 16), ("--eval-data-dir ds/train", 80), ("--num-eval-batches 1", 8), ("--num-eval-epochs 2", 32),
                          ("--eval-batch-size 4 --num-eval-batches 1", 4)):
        result = penstock.run(f"{run} {words}")
        expect(f"images with '{words}'", [evaluation["images"] for evaluation in result["evaluations"]], [images])
        expect("steps of training", result["losses"], [])
    stopped = penstock.run(f"{TRAIN} --eval-during-training-every-n-steps 2 --stop-at-top-1-accuracy 0.01")
    expect("steps at the accuracy", len(stopped["losses"]), 2)


@feature(60, "train_dir")
def checkpoints_resume_a_run(penstock):
    whole = penstock.losses(f"{TRAIN} --num-batches 6")
    first = penstock.losses(f"{TRAIN} --num-batches 3 --train-dir halves")
    rest = penstock.losses(f"{TRAIN} --num-batches 6 --train-dir halves")
    expect_losses(first + rest, whole)


@feature(60, "save_model_steps", "save_model_secs", "max_ckpts_to_keep")
def checkpoints_are_saved_on_the_way_and_the_newest_are_kept(penstock):
    def files_with(words):
        folder = f"kept{len(list(penstock.folder.iterdir()))}"
        penstock.run(f"{TRAIN} --train-dir {folder} {words}")
        return len(list((penstock.folder / folder).glob("*.safetensors")))
    expect("checkpoints", files_with(""), 1)
    expect("checkpoints, one a step", files_with("--save-model-steps 1"), 4)
    expect("checkpoints, the newest two", files_with("--save-model-steps 1 --max-ckpts-to-keep 2"), 2)
    expect("checkpoints, one each ms", files_with("--save-model-secs 0.001 --num-batches 40") > 1, True)


@feature(61)
def statistics_of_batch_norms_are_those_of_the_first_device(penstock):
    """Batches are dealt out in turn, so the first device's first batch is that of a run with one device."""
    def run(words):
        return f"--fake-location queue {JPEGS} --device cpu --model tiny_cnn --classes 4 --compute-threads 1 --batch-size 4 {words}"
    means = []
    for number, words in enumerate(("--num-gpus 1 --num-batches 1", "--num-gpus 2 --num-batches 1", "--num-gpus 1 --num-batches 2")):
        penstock.run(run(f"{words} --num-warmup-batches 0 --train-dir norms{number}"))
        means.append({name: values for name, values in weights_in(penstock.folder / f"norms{number}").items() if "mean" in name})
    expect("there are running means", len(means[0]) > 0, True)
    expect_weights(means[1], means[0], 1e-6)
    expect("they go on", means[2] != means[0], True)


@feature(57, "on_nonfinite")
def a_loss_that_is_not_finite_ends_the_run_or_is_counted(penstock):
    penstock.call(f"run {TRAIN} --init-learning-rate 1e30", code=8)
    result = penstock.run(f"{TRAIN} --init-learning-rate 1e30 --on-nonfinite continue")
    expect("steps that are not finite", result["counters"]["nonfinite_steps"] >= 1, True)
