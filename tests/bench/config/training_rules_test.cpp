// SPDX-License-Identifier: Apache-2.0
#include "bench/config/training_rules.h"

#include <gtest/gtest.h>

#include "dataflow/error.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

constexpr ModelEntry kResNet{.name = "resnet50", .image = {224, 224, 3}, .residual = true};
constexpr ModelEntry kOther{.name = "trivial", .image = {227, 227, 3}};
constexpr double kExamples = 25600;  // 100 steps of 256 images

RunConfig config_of_256() {
  RunConfig config;
  config.batch_size = 64;
  config.num_gpus = 4;
  config.gradient_reduction = "mean";
  return config;
}

TEST(TrainingRules, TheDefaultLearningRateIsTheReferences) {
  EXPECT_FLOAT_EQ(learning_rate(learning_rate_plan(config_of_256(), kOther, kExamples), 0), 0.005F);
}

TEST(TrainingRules, EpochsBecomeStepsOfTheGlobalBatch) {
  RunConfig config = config_of_256();
  config.init_learning_rate = 0.2;
  config.num_epochs_per_decay = 2;
  config.learning_rate_decay_factor = 0.1;
  config.num_learning_rate_warmup_epochs = 0.5;
  const LearningRatePlan plan = learning_rate_plan(config, kOther, kExamples);
  EXPECT_EQ(plan.decay_steps, 200);
  EXPECT_EQ(plan.warmup_steps, 50);
  EXPECT_FLOAT_EQ(learning_rate(plan, 25), 0.1F);
  EXPECT_FLOAT_EQ(learning_rate(plan, 200), 0.02F);
}

TEST(TrainingRules, ResNetsOfImageNetsSizeHaveTheirScheduleOnlyWithABaseRate) {
  RunConfig config = config_of_256();
  EXPECT_FLOAT_EQ(learning_rate(learning_rate_plan(config, kResNet, kExamples), 600), 0.005F);
  apply_like(config, "tf_cnn_benchmarks");
  config.variable_update = "replicated";
  config.gradient_reduction = resolve_gradient_reduction(config);
  EXPECT_EQ(config.gradient_reduction, "sum");
  // 0.128 for 256 images, divided by four devices whose gradients are summed.
  EXPECT_FLOAT_EQ(learning_rate(learning_rate_plan(config, kResNet, kExamples), 600), 0.032F);
  EXPECT_FLOAT_EQ(learning_rate(learning_rate_plan(config, kOther, kExamples), 600), 0.005F);
  config.init_learning_rate = 0.5;
  EXPECT_FLOAT_EQ(learning_rate(learning_rate_plan(config, kResNet, kExamples), 600), 0.5F);
}

TEST(TrainingRules, ResNetsForCifarHaveTheirOwnSchedule) {
  constexpr ModelEntry kCifar{.name = "resnet20", .image = {32, 32, 3}, .residual = true};
  RunConfig config = config_of_256();
  EXPECT_FLOAT_EQ(learning_rate(learning_rate_plan(config, kCifar, kExamples), 0), 0.005F);
  apply_like(config, "tf_cnn_benchmarks");
  config.gradient_reduction = "sum";  // changes nothing here
  // int(50000 / 256) = 195 steps per epoch; rates change after the steps of 82, 123 and 300.
  const LearningRatePlan plan = learning_rate_plan(config, kCifar, kExamples);
  const std::pair<std::int64_t, float> rates[] = {{0, 0.1F},
                                                  {82 * 195, 0.1F},
                                                  {82 * 195 + 1, 0.01F},
                                                  {123 * 195, 0.01F},
                                                  {123 * 195 + 1, 0.001F},
                                                  {300 * 195, 0.001F},
                                                  {300 * 195 + 1, 0.0002F}};
  for (const auto& [step, rate] : rates) EXPECT_FLOAT_EQ(learning_rate(plan, step), rate) << step;
  config.init_learning_rate = 0.5;
  EXPECT_FLOAT_EQ(learning_rate(learning_rate_plan(config, kCifar, kExamples), 0), 0.5F);
  config = config_of_256();
  apply_like(config, "tf_cnn_benchmarks");
  constexpr ModelEntry kAlexNet{.name = "alexnet_cifar10", .image = {32, 32, 3}};
  EXPECT_FLOAT_EQ(learning_rate(learning_rate_plan(config, kAlexNet, kExamples), 0), 0.005F);
}

TEST(TrainingRules, RefusesRatesThatContradictEachOther) {
  RunConfig config = config_of_256();
  config.piecewise_learning_rate_schedule = "0.1;1;0.01";
  config.init_learning_rate = 0.1;
  EXPECT_THROW(learning_rate_plan(config, kOther, kExamples), ConfigError);
  config = config_of_256();
  config.num_epochs_per_decay = 2;
  EXPECT_THROW(learning_rate_plan(config, kOther, kExamples), ConfigError);
}

TEST(TrainingRules, OptimizerFlagsBecomeOptions) {
  RunConfig config;
  config.optimizer = "momentum:nesterov=false";
  config.momentum = 0.5;
  EXPECT_EQ(optimizer_text(config), "momentum:nesterov=false,momentum=0.5");
  config = {};
  config.optimizer = "adam";
  config.adam_beta1 = 0.25;
  config.adam_epsilon = 0.125;
  EXPECT_EQ(optimizer_text(config), "adam:beta1=0.25,epsilon=0.125");
}

TEST(TrainingRules, OptimizerFlagsOfAnotherOptimizerAreRefused) {
  RunConfig config;
  config.momentum = 0.5;
  EXPECT_TRUE(
      says(thrown_by<ConfigError>([&] { optimizer_text(config); }), "add --optimizer momentum"));
}

TEST(TrainingRules, ReductionsAreTheMeanUnlessASystemsRuleSaysOtherwise) {
  struct Case {
    const char *word, *update, *resolved;
  };
  for (const Case& c : {Case{"default", "replicated", "mean"},
                        {"sum", "parameter_server", "sum"},
                        {"tf_cnn_benchmarks", "replicated", "sum"},
                        {"tf_cnn_benchmarks", "parameter_server", "mean-sum"},
                        {"tf_cnn_benchmarks", "independent", "mean"},
                        {"tensorpack", "replicated", "sum"},
                        {"tensorpack", "parameter-server", "mean"}}) {
    RunConfig config;
    config.gradient_reduction = c.word;
    config.variable_update = c.update;
    EXPECT_EQ(resolve_gradient_reduction(config), c.resolved) << c.word << ", " << c.update;
  }
}

TEST(TrainingRules, BatchesHaveTheSizeAndClassesThatWereAskedFor) {
  RunConfig config;
  config.batch_size = 8;
  config.classes = 12;
  EXPECT_EQ(batch_spec(config, kOther).image, (ImageShape{227, 227, 3}));
  config.image_size = 64;
  EXPECT_EQ(batch_spec(config, kOther).image, (ImageShape{64, 64, 3}));
  EXPECT_EQ(batch_spec(config, kOther).classes, 12);
}

TEST(LossScale, IsOfFp16Alone) {
  RunConfig config;
  for (const char* precision : {"fp32", "tf32", "bf16"}) {
    config.precision = precision;
    config.fp16_loss_scale = 64;
    EXPECT_EQ(loss_scale_of(config), 1) << precision;
  }
  config.precision = "fp16";
  EXPECT_EQ(loss_scale_of(config), 64);
  config.fp16_loss_scale.reset();
  EXPECT_EQ(loss_scale_of(config), 128);
  EXPECT_THROW(find_config_key("fp16_loss_scale").set(config, "0"), ConfigError);
  EXPECT_THROW(find_config_key("fp16_loss_scale").set(config, "-1"), ConfigError);
}

TEST(ShortWeights, AreOfThePrecision) {
  RunConfig config;
  EXPECT_EQ(stored_weights(config), DType::f32);
  find_config_key("fp16_vars").set(config, "true");
  EXPECT_THROW(stored_weights(config), ConfigError);
  config.precision = "fp16";
  EXPECT_EQ(stored_weights(config), DType::f16);
  config.precision = "bf16";
  EXPECT_EQ(stored_weights(config), DType::bf16);
}

TEST(LossScale, AdaptsItselfInFp16WhereThatIsAskedFor) {
  RunConfig config;
  EXPECT_EQ(counted_steps_of_loss_scale(config), 0);
  config.fp16_enable_auto_loss_scale = true;
  EXPECT_EQ(counted_steps_of_loss_scale(config), 0) << "fp32 needs none";
  config.precision = "fp16";
  EXPECT_EQ(counted_steps_of_loss_scale(config), 1000);
  find_config_key("fp16_inc_loss_scale_every_n").set(config, "20");
  EXPECT_EQ(counted_steps_of_loss_scale(config), 20);
  for (const char* text : {"0", "-1", "16777217"}) {
    EXPECT_THROW(find_config_key("fp16_inc_loss_scale_every_n").set(config, text), ConfigError);
  }
}

TEST(CacheDir, IsThatOfTheXdgSpecification) {
  const auto with = [](const char* xdg, const char* home) {
    ::setenv("XDG_CACHE_HOME", xdg, 1);
    ::setenv("HOME", home, 1);
    return default_cache_dir();
  };
  EXPECT_EQ(with("/x/cache", "/home/u"), "/x/cache/penstock");
  EXPECT_EQ(with("", "/home/u"), "/home/u/.cache/penstock");
  EXPECT_EQ(with("relative", "/home/u"), "/home/u/.cache/penstock");
  EXPECT_EQ(with("", ""), "");
}

}  // namespace
}  // namespace penstock
