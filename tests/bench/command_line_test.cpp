// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "bench/cli.h"
#include "bench/config/run_config.h"
#include "bench/config/run_flags.h"
#include "bench/dataset/default_dataset.h"
#include "bench/record/result_json.h"
#include "dataflow/error.h"
#include "feeders/feeder.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

RunConfig parse(const std::vector<std::string>& arguments) {
  RunConfig config;
  apply_like_of(config, arguments);
  parse_flags({.verb = "run"}, run_flags(config), arguments);
  return config;
}

std::string error_of(const std::vector<std::string>& arguments) {
  return thrown_by<ConfigError>([&] { parse(arguments); });
}

TEST(CommandLine, TakesEverySpellingOfAFlag) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--num_gpus=3"},
                                                    {"--num-gpus", "3"},
                                                    {"-num_gpus=3"},
                                                    {"-num-gpus", "3"},
                                                    {"--num_gpus", "3"}}) {
    EXPECT_EQ(parse(arguments).num_gpus, 3) << arguments[0];
  }
  EXPECT_EQ(parse({"--batch", "16"}).batch_size, 16);
  EXPECT_EQ(parse({"--tf_random_seed=7"}).seed, 7U);
}

TEST(CommandLine, TakesTheFlagsOfHorovodsScripts) {
  EXPECT_EQ(parse({"--num-iters=3"}).num_batches, 30);
  EXPECT_EQ(parse({"--num-batches-per-iter=4"}).num_batches, 40);
  EXPECT_EQ(parse({"--num-iters=3", "--num-batches-per-iter=4"}).num_batches, 12);
  EXPECT_EQ(parse({"--num-batches-per-iter=4", "--num-iters=3"}).num_batches, 12);
  EXPECT_EQ(parse({"--no-cuda"}).device, "cpu");
  EXPECT_EQ(parse({"--fp16-allreduce"}).gradient_wire, "fp16");
  EXPECT_EQ(error_of({"--num-iters=0"}), "--num-iters is 0; expected a whole number of at least 1");
}

TEST(CommandLine, TakesWhatTfCnnBenchmarksDoesToImages) {
  const auto feeder = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), "--resize-method=area");
    flags.push_back("--fake-location=queue:chain=tf_cnn_benchmarks");
    return parse(flags).fake_location;
  };
  const std::string queue = "queue:chain=tf_cnn_benchmarks";
  EXPECT_EQ(feeder({}), queue + ",resize=area");
  EXPECT_EQ(feeder({"--resize_method=round_robin"}), queue + ",resize=tf_round_robin");
  EXPECT_EQ(feeder({"--nodistortions"}), queue + ",resize=area");
  EXPECT_EQ(feeder({"--distortions"}), queue + ",resize=area,color=tf_yiq");
  EXPECT_EQ(feeder({"--nodistort_color_in_yiq", "--distortions"}), queue + ",resize=area,color=tf");
  EXPECT_EQ(feeder({"--nodistort_color_in_yiq"}), queue + ",resize=area");
  EXPECT_EQ(parse({"--fake-location=queue", "--distortions"}).fake_location, "queue:color=tf_yiq");
  EXPECT_EQ(feeder({"--datasets_repeat_cached_sample"}),
            queue + ",resize=area,repeat_cached_sample=true");
  EXPECT_EQ(feeder({"--nodatasets-repeat-cached-sample"}), queue + ",resize=area");
  EXPECT_TRUE(says(error_of({"--fake-location=gpu", "--distortions"}), "queue:color=tf_yiq"));
  EXPECT_TRUE(says(error_of({"--fake-location=queue:resize=area", "--resize-method=area"}),
                   "leave one of them out"));
  EXPECT_TRUE(says(error_of({"--fake-location=queue", "--resize-method=lanczos"}), "round_robin"));
}

TEST(CommandLine, CompilersMayBeAskedForAndAreThereAnyway) {
  const auto said = [](const char* device, const char* flag) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(parse({device, flag}).device, std::string(device).substr(9)) << flag;
    return ::testing::internal::GetCapturedStderr();
  };
  for (const char* flag : {"--use_xla_compile", "--xla", "--xla_compile"}) {
    EXPECT_EQ(said("--device=cpu", flag),
              "penstock: --use-xla-compile changes nothing with --device cpu: a step is compiled "
              "already\n");
    EXPECT_EQ(said("--device=emulated:a100-80gb-tf32", flag),
              "penstock: --use-xla-compile changes nothing with --device emulated:a100-80gb-tf32: "
              "a step takes its stated time\n");
    EXPECT_EQ(said("--device=gpu:fused=on", flag),
              "penstock: --use-xla-compile changes nothing with --device gpu:fused=on: a step is "
              "compiled and recorded as one graph already\n");
  }
  for (const char* flag : {"--xla=false", "--noxla_compile", "--xla_compile=false"}) {
    for (const std::string device : {"cpu", "auto"}) {
      EXPECT_EQ(said(("--device=" + device).c_str(), flag),
                "penstock: --nouse-xla-compile changes nothing with --device " + device +
                    ": a step is always compiled; with a stated --device gpu this flag is "
                    "gpu:record=false\n");
    }
  }
}

TEST(CommandLine, WithoutACompilerAGpusStepIsNotRecorded) {
  for (const char* flag : {"--xla=false", "--noxla_compile", "--nouse_xla_compile"}) {
    EXPECT_EQ(parse({flag, "--device=gpu"}).device, "gpu:record=false");
    EXPECT_EQ(parse({flag, "--device=gpu:fused=off"}).device, "gpu:fused=off,record=false");
    EXPECT_TRUE(says(error_of({flag, "--device=gpu:record=true"}), "leave one of them out"));
  }
}

TEST(CommandLine, NamesOfDataChooseTheSource) {
  const auto feeder = [](const char* fake_location, const char* name) {
    return parse({fake_location, name}).fake_location;
  };
  EXPECT_EQ(feeder("--fake-location=queue", "--data_name=imagenet"), "queue");
  EXPECT_EQ(feeder("--fake-location=queue:crop=pad4", "--data_name=cifar10"),
            "queue:crop=pad4,source=cifar10");
  EXPECT_EQ(feeder("--fake-location=gpu", "--data_name=cifar10"), "gpu");
  EXPECT_TRUE(says(error_of({"--data-name=coco"}), "imagenet or cifar10"));
}

TEST(CommandLine, BooleansComeBareNegatedOrWithAValue) {
  EXPECT_TRUE(parse({"--extend_window"}).extend_window);
  EXPECT_TRUE(parse({"--extend-window=true"}).extend_window);
  EXPECT_FALSE(parse({"--extend-window", "--noextend_window"}).extend_window);
  EXPECT_FALSE(parse({"--no-extend-window"}).extend_window);
  EXPECT_TRUE(says(error_of({"--extend-window", "false"}), "'false' is not a flag"));
  EXPECT_TRUE(says(error_of({"/tmp"}), "'/tmp' is not a flag; give data as --data-dir=/tmp"));
}

TEST(CommandLine, CountsBelowOneAreRefusedByTheFlagsName) {
  EXPECT_EQ(error_of({"--num-gpus", "0"}),
            "--num-gpus is 0; expected a whole number of at least 1");
  EXPECT_TRUE(says(error_of({"--num_batches=-1"}), "--num-batches is -1"));
  EXPECT_TRUE(says(error_of({"--prefetch", "-3"}), "--prefetch is -3"));
  EXPECT_TRUE(says(error_of({"--batch-size=99999999999999999999"}), "--batch-size"));
}

TEST(CommandLine, UnknownFlagsNameTheNearest) {
  EXPECT_TRUE(says(error_of({"--fake-locaton=gpu"}), "did you mean --fake-location?"));
}

TEST(CommandLine, FlagsOfTheReferencesThatMeanNothingSayWhatToUse) {
  EXPECT_EQ(error_of({"--load=x"}),
            "--load is unsupported: use --train-dir, whose newest checkpoint is restored");
  EXPECT_THROW(parse({"--nouse_datasets"}), ConfigError);
  EXPECT_TRUE(says(error_of({"--num_inter_threads=4"}), "is unsupported"));
}

TEST(CommandLine, FlagsOfTheReferencesSayWhatToUseInEveryForm) {
  for (const char* flag :
       {"--gpu_kt_max_interval=1", "--gpu_kt_max_bytes=1", "--gpu_kt_max_pending=1", "--ml_perf",
        "--eval_interval_secs=3", "--collect_eval_results_async", "--batches-per-allreduce=2",
        "--nofuse_decode_and_crop", "--use_resource_vars", "--mkl"}) {
    EXPECT_TRUE(says(error_of({flag}), "is unsupported: ")) << flag << ": " << error_of({flag});
  }
  EXPECT_TRUE(says(error_of({"--nofuse_decode_and_crop"}), "queue:decode=full"));
  EXPECT_TRUE(says(error_of({"--datasets_use_caching"}), "queue:source=memory"));
  EXPECT_TRUE(says(error_of({"--use_numa_affinity"}), "queue:numa="));
}

TEST(CommandLine, AFlagOfTheReferenceWithItsDefaultThereIsAccepted) {
  for (const std::vector<std::string>& line :
       std::vector<std::vector<std::string>>{{"--summary_verbosity=0"},
                                             {"--summary_verbosity", "0"},
                                             {"--use_datasets"},
                                             {"--noml_perf"},
                                             {"--no-mkl"},
                                             {"--hierarchical_copy=False"},
                                             {"--horovod_device="},
                                             {"--gpu_memory_frac_for_testing=0.0"},
                                             {"--server_protocol=grpc"},
                                             {"--trt_max_workspace_size_bytes=4294967296"},
                                             {"--fuse_decode_and_crop=True"}}) {
    EXPECT_NO_THROW(parse(line)) << line.front();
  }
  EXPECT_EQ(parse({"--num_inter_threads", "0", "--batch-size", "7"}).batch_size, 7);
  for (const char* flag : {"--nouse_datasets", "--horovod_device=gpu", "--use_datasets=maybe",
                           "--kmp_settings=0", "--debugger=", "--load="}) {
    EXPECT_TRUE(says(error_of({flag}), "is unsupported")) << flag;
  }
}

TEST(CommandLine, AllFlagsThatAreRefusedAreNamedAtOnce) {
  const std::string error = error_of({"--kmp_blocktime", "5", "--batch-szie=3", "--trt_mode=FP16",
                                      "--batch-size=7", "--server_protocol=grpc+verbs"});
  for (const char* const part :
       {"--kmp-blocktime is unsupported: ", "unknown flag --batch-szie; did you mean --batch-size?",
        "--trt-mode is unsupported: ", "--server-protocol is unsupported: "}) {
    EXPECT_TRUE(says(error, part)) << error;
  }
  EXPECT_FALSE(says(error, "5")) << "the value of a flag is no flag";
}

TEST(CommandLine, ADataDirectoryMeansRealDataUnlessAFeederIsNamed) {
  EXPECT_EQ(parse({"--data_dir=/imagenet"}).fake_location, "queue");
  EXPECT_EQ(parse({"--data", "/imagenet"}).fake_location, "queue");
  EXPECT_EQ(parse({"--like=tf_cnn_benchmarks", "--data_dir=/imagenet", "--data_name=imagenet"})
                .fake_location,
            "queue");
  EXPECT_EQ(parse({"--data_dir=/cifar", "--data_name=cifar10"}).fake_location,
            "queue:source=cifar10");
  EXPECT_EQ(parse({"--distortions", "--data_dir=/imagenet"}).fake_location, "queue:color=tf_yiq");
  EXPECT_EQ(parse({"--data_dir=/imagenet", "--fake_location=gpu"}).fake_location, "gpu");
  EXPECT_EQ(parse({"--data_name=imagenet"}).fake_location, "gpu");
}

TEST(CommandLine, ADataDirectoryThatDoesNotExistIsRefusedWhicheverFeederWouldReadIt) {
  RunConfig config;
  config.data_dir = "/no/such/folder";
  for (const char* name : {"gpu", "cpu", "queue"}) {
    const FeederEntry& feeder = find_entry(feeder_table(), name);
    EXPECT_THROW(dataset::ensure_data_of(config, feeder, {}), ConfigError) << name;
  }
  config.data_dir = "/";
  EXPECT_NO_THROW(dataset::ensure_data_of(config, find_entry(feeder_table(), "gpu"), {}));
}

TEST(CommandLine, ASlipInTheOptionsOfAFeederIsRefusedBeforeADataSetIsMade) {
  RunConfig config;
  config.fake_location = "queue:thread=2";
  EXPECT_THROW(dataset::ensure_data_of(config, find_entry(feeder_table(), "queue"), {}),
               ConfigError);
}

TEST(CommandLine, AFlagThatIsGivenTwiceSaysWhichValueHolds) {
  const auto said = [](const std::vector<std::string>& arguments) {
    testing::internal::CaptureStderr();
    parse(arguments);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said({"--batch_size=8", "--num-gpus=2", "--batch", "16"}),
            "penstock: --batch-size is given twice, as '8' and as '16'; '16' holds\n");
  EXPECT_EQ(parse({"--batch_size=8", "--batch=16"}).batch_size, 16);
  EXPECT_EQ(said({"--forward-only", "--noforward-only"}),
            "penstock: --forward-only is given twice, as 'true' and as 'false'; 'false' holds\n");
  EXPECT_EQ(said({"--batch_size=8", "--batch_size=8"}), "") << "both say the same";
}

TEST(CommandLine, NumbersOfStepsThatExcludeEachOtherAreRefused) {
  EXPECT_EQ(error_of({"--num-batches=20", "--num-iters=3"}),
            "--num-batches and --num-iters exclude each other; keep one");
  EXPECT_THROW(parse({"--num-batches=20", "--num-batches-per-iter=3"}), ConfigError);
}

TEST(CommandLine, LikeSetsDefaultsThatFlagsOverride) {
  const RunConfig tensorpack = parse({"--prefetch=3", "--like", "tensorpack"});
  EXPECT_EQ(tensorpack.num_warmup_batches, 50);
  EXPECT_EQ(tensorpack.prefetch, 3);
  EXPECT_EQ(parse({"--like=tf_cnn_benchmarks"}).model, "trivial");
  EXPECT_TRUE(says(error_of({"--like=caffe"}), "tensorpack"));
}

TEST(CommandLine, ModelsKeepOneName) {
  EXPECT_EQ(parse({"--model=tensorpack"}).model, "resnet50");
  EXPECT_EQ(parse({"--model", "ResNet152V2"}).model, "resnet152_v2");
  EXPECT_EQ(parse({"--model=resnet50:depth=18"}).model, "resnet50:depth=18");  // refused later
}

TEST(CommandLine, FlagsOfTrainingWorkAsTheReferencesTypeThem) {
  const RunConfig config =
      parse({"--optimizer=momentum", "--momentum=0.8", "--init_learning_rate=0.1",
             "--piecewise_learning_rate_schedule", "0.1;30;0.01", "--weight_decay=1e-4",
             "--forward_only", "--loss_type_to_report=base_loss", "--print_training_accuracy",
             "--gradient_reduction=mean_sum"});
  EXPECT_EQ(config.momentum, 0.8);
  EXPECT_EQ(config.init_learning_rate, 0.1);
  EXPECT_EQ(config.piecewise_learning_rate_schedule, "0.1;30;0.01");
  EXPECT_EQ(config.weight_decay, 1e-4);
  EXPECT_TRUE(config.forward_only);
  EXPECT_EQ(config.loss_type_to_report, "base_loss");
  EXPECT_EQ(config.gradient_reduction, "mean-sum");
  EXPECT_TRUE(says(error_of({"--piecewise_learning_rate_schedule=0.1;30"}), "rate0;epoch1;rate1"));
  EXPECT_TRUE(says(error_of({"--weight-decay=-1"}), "--weight-decay is -1"));
}

TEST(CommandLine, WeightsOnTheCpuAreAnOptionOfUpdatesWithAParameterDevice) {
  const std::string cpu = "--local_parameter_device=cpu";
  EXPECT_EQ(parse({cpu, "--variable_update=parameter_server"}).variable_update,
            "parameter_server:memory=host");
  EXPECT_EQ(parse({"--variable_update=parameter_server", cpu, "--staged_vars"}).variable_update,
            "parameter_server:staged=true,memory=host");
  EXPECT_EQ(
      parse({"--variable_update=parameter_server", "--local_parameter_device=gpu"}).variable_update,
      "parameter_server");
  for (const char* update : {"replicated", "distributed_replicated", "independent", "horovod"}) {
    EXPECT_EQ(parse({cpu, std::string("--variable_update=") + update}).variable_update, update);
  }
  EXPECT_TRUE(says(error_of({"--local_parameter_device=tpu"}), "expected one of cpu, gpu"));
}

TEST(CommandLine, KnowsWhatWasTyped) {
  const std::vector<std::string> arguments = {"--num_batches=5", "-num-epochs", "2", "json"};
  EXPECT_TRUE(is_typed("num_batches", arguments));
  EXPECT_TRUE(is_typed("num_epochs", arguments));
  EXPECT_FALSE(is_typed("json", arguments));
  EXPECT_FALSE(is_typed("batches", arguments));
}

TEST(CommandLine, EvaluationsAndCheckpointsHaveTheReferencesFlags) {
  const RunConfig config =
      parse({"--eval_during_training_at_specified_epochs=0.5,1", "--stop_at_top_1_accuracy=0.75",
             "--train_dir=ckpt", "--save_model_steps=100", "--max_ckpts_to_keep", "2",
             "--eval_batch_size=16", "--num_eval_batches=7", "--num_epochs=1.5"});
  EXPECT_EQ(config.eval_during_training_at_specified_epochs, "0.5,1");
  EXPECT_EQ(config.stop_at_top_1_accuracy, 0.75);
  EXPECT_EQ(config.train_dir, "ckpt");
  EXPECT_EQ(config.save_model_steps, 100);
  EXPECT_EQ(config.max_ckpts_to_keep, 2);
  EXPECT_EQ(config.num_eval_batches, 7);
  EXPECT_EQ(config.num_epochs, 1.5);
  EXPECT_EQ(parse(to_flags(config)), config);
  EXPECT_TRUE(says(error_of({"--eval_dir=x"}), "--eval-data-dir"));
}

TEST(CommandLine, HalfPrecisionHasTwoNames) {
  EXPECT_EQ(parse({"--use_fp16"}).precision, "fp16");
  EXPECT_EQ(parse({"--nouse_fp16"}).precision, "fp32");
  EXPECT_EQ(parse({"--precision=bf16", "--use_fp16=false"}).precision, "bf16");
}

TEST(CommandLine, ALossScaleThatAdaptsItselfHasTheReferencesFlags) {
  EXPECT_FALSE(parse({}).fp16_enable_auto_loss_scale);
  EXPECT_EQ(parse({}).fp16_inc_loss_scale_every_n, 1000);
  const RunConfig config = parse({"--use_fp16", "--fp16_enable_auto_loss_scale",
                                  "--fp16_inc_loss_scale_every_n=200", "--fp16-loss-scale=64"});
  EXPECT_TRUE(config.fp16_enable_auto_loss_scale);
  EXPECT_EQ(config.fp16_inc_loss_scale_every_n, 200);
  EXPECT_EQ(config.fp16_loss_scale, 64);
  EXPECT_EQ(parse(to_flags(config)), config);
}

TEST(CommandLine, BucketsHaveHorovodsNameToo) {
  EXPECT_EQ(parse({}).first_bucket_mib, 1);
  EXPECT_EQ(parse({}).bucket_mib, 25);
  const RunConfig config = parse({"--first-bucket-mib=0.5", "--bucket-mib", "4"});
  EXPECT_EQ(config.first_bucket_mib, 0.5);
  EXPECT_EQ(config.bucket_mib, 4);
  EXPECT_EQ(parse(to_flags(config)), config);
  EXPECT_EQ(parse({"--fusion-threshold-mb=64"}).bucket_mib, 64);
  EXPECT_EQ(parse({"--fusion-threshold-mb=64"}).first_bucket_mib, 0);
  EXPECT_EQ(parse({"--fusion-threshold-mb=0"}).bucket_mib, 1.0 / (1 << 20)) << "one byte";
  EXPECT_TRUE(says(error_of({"--bucket-mib=-1"}), "--bucket-mib is -1"));
  EXPECT_EQ(parse({"--gradient_repacking=8"}).gradient_repacking, 8);
  EXPECT_EQ(parse({"--agg_small_grads_max_bytes=1024"}).agg_small_grads_max_bytes, 1024);
  EXPECT_EQ(parse({"--agg_small_grads_max_group=5"}).agg_small_grads_max_group, 5);
  EXPECT_EQ(parse({"--allreduce_merge_scope=1"}).agg_small_grads_max_bytes, 0);
  EXPECT_EQ(parse({"--allreduce_merge_scope=7"}).agg_small_grads_max_group, 7);
  EXPECT_EQ(parse({"--allreduce_merge_scope=7"}).agg_small_grads_max_bytes, std::int64_t{1} << 40);
  EXPECT_THROW(parse({"--allreduce_merge_scope=0"}), ConfigError);
  EXPECT_THROW(parse({"--allreduce_merge_scope=7", "--agg_small_grads_max_bytes=64"}), ConfigError);
}

TEST(CommandLine, FlagsOfUpdatesStandForTheirOptions) {
  const auto update = [](const std::vector<std::string>& arguments) {
    return parse(arguments).variable_update;
  };
  EXPECT_EQ(update({"--variable_consistency=relaxed"}), "replicated:consistency=relaxed");
  EXPECT_EQ(update({"--variable_consistency=strong", "--variable_update=sma"}), "sma");
  EXPECT_EQ(
      update({"--staged_vars", "--ps_placement=greedy", "--variable_update=parameter_server"}),
      "parameter_server:staged=true,placement=greedy");
  EXPECT_EQ(update({"--nostaged_vars"}), "replicated");
  EXPECT_EQ(update({"--kungfu=async_sgd"}), "async-sgd");
  EXPECT_EQ(update({"--kf-optimizer", "sma"}), "sma");
  EXPECT_EQ(update({"--like=kungfu"}), "sync-sgd");
  EXPECT_EQ(
      error_of({"--staged_vars"}),
      "--staged-vars applies to --variable-update parameter_server, but that is 'replicated'; "
      "pass --variable-update parameter_server:staged=true, or leave --staged-vars out");
  EXPECT_EQ(error_of({"--ps_placement=last"}),
            "--ps-placement is 'last'; expected first, greedy or split");
  EXPECT_EQ(parse({}).gradient_wire, "fp32");
  EXPECT_EQ(parse({"--gradient-wire=bf16"}).gradient_wire, "bf16");
  EXPECT_EQ(parse({"--compact_gradient_transfer=true"}).gradient_wire, "fp16");
  EXPECT_EQ(parse({"--compact-gradient-transfer=false"}).gradient_wire, "fp32");
  EXPECT_EQ(parse({"--fp16-allreduce"}).gradient_wire, "fp16");
  EXPECT_EQ(error_of({"--gradient-wire=fp8"}),
            "--gradient-wire is 'fp8'; expected fp32, fp16 or bf16");
  EXPECT_TRUE(
      says(error_of({"--gradient-wire=bf16", "--fp16-allreduce"}), "leave one of them out"));
  EXPECT_EQ(parse({"--all_reduce_spec=pscpu:32k:xring"}).all_reduce_spec, "pscpu:32k:xring");
  EXPECT_TRUE(says(error_of({"--all-reduce-spec=rings"}), "no algorithm 'rings'"));
  EXPECT_EQ(error_of({"--kungfu=ada-sgd"}),
            "--kungfu is 'ada-sgd'; expected one of sync-sgd, async-sgd, sma");
}

TEST(RunConfig, FlagsRoundTrip) {
  RunConfig config;
  config.fake_location = "zmq-consume:endpoint=ipc://x,hwm=2";
  config.num_gpus = 4;
  config.timeout = 2.5;
  config.extend_window = true;
  config.on_bad_sample = "skip:limit=3";
  config.data_dir = "/a b/c";
  config.momentum = 0;
  config.adam_epsilon = 1e-8;
  config.piecewise_learning_rate_schedule = "0.1;1;0.01";
  config.loss_type_to_report = "base_loss";
  EXPECT_EQ(parse(to_flags(config)), config);
}

TEST(RunConfig, AndResultsRoundTripThroughJson) {
  RunResult result;
  result.config.device = "emulated:img_per_s=359";
  result.config.seed = 99;
  result.config.order = "strict";
  result.config.rmsprop_decay = 0.75;
  result.status = Status::draining;
  result.reason = "a \"quoted\" reason";
  result.step_ms = {1.5, 2.25};
  result.counters["bad_samples"] = 3;
  result.facts["oversleep_us_p50"] = 12;
  result.losses = {7.5, 6.25};
  result.evaluations = {{.step = 3, .images = 8, .top1 = 0.5, .top5 = 0.75, .complete = true}};
  const RunResult back = result_from_json(to_json(result));
  EXPECT_EQ(back.config, result.config);
  EXPECT_EQ(to_json(back), to_json(result));
  EXPECT_THROW(result_from_json(nlohmann::ordered_json{{"status", "ok"}}), DataError);
}

}  // namespace
}  // namespace penstock
