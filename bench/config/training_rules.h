// SPDX-License-Identifier: Apache-2.0
// What a configuration's words about training mean: batches, optimizer, reduction, learning rates.
#pragma once

#include <cstdint>
#include <string>

#include "bench/run_config.h"
#include "dataflow/batch.h"
#include "feeders/feeder.h"
#include "trainer/backend.h"
#include "trainer/buckets.h"
#include "trainer/learning_rate.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"
#include "trainer/update_strategy.h"

namespace penstock {

/// Training images of ILSVRC-2012, by which epochs are counted where the data's own size is not
/// known.
constexpr double kImageNetImages = 1281167;

/// The learning rate where nothing says another one: tf_cnn_benchmarks'.
constexpr double kDefaultLearningRate = 0.005;

/// Of gradients in fp16 where --fp16-loss-scale is not given: tf_cnn_benchmarks'.
constexpr double kFp16LossScale = 128;

/// The batches of a resolved configuration.
BatchSpec batch_spec(const RunConfig& config, const ModelEntry& model);

/// The precision that a configuration names.
Precision parse_precision(const std::string& text);

/// What weights and biases are stored as. Throws ConfigError for --fp16-vars in a precision of 32
/// bits.
DType stored_weights(const RunConfig& config);

/// What gradients are multiplied by on their way through the configuration's precision: bf16 has
/// f32's range and needs no scale.
float loss_scale_of(const RunConfig& config);

/// The steps that are counted before that scale is doubled; 0: it does not adapt itself.
std::int32_t counted_steps_of_loss_scale(const RunConfig& config);

/// Where programs keep what they can find out again, by the XDG Base Directory specification;
/// empty where the environment says nothing.
std::string default_cache_dir();

/// The policy behind --on-bad-sample.
BadSamplePolicy parse_bad_sample_policy(const std::string& text);

/// The optimizer's value with the flags that stand for its options: `momentum` with --momentum 0.8
/// is `momentum:momentum=0.8`. Throws ConfigError for a flag of another optimizer, with what to
/// type.
std::string optimizer_text(const RunConfig& config);

/// Throws ConfigError for a word that is none.
GradientReduction parse_gradient_reduction(const std::string& text);

/// The word that --gradient-reduction stands for: sum, mean or mean-sum. tf_cnn_benchmarks and
/// tensorpack have a rule for each update.
std::string resolve_gradient_reduction(const RunConfig& config);

/// How gradients are cut into buckets.
BucketLimits bucket_limits(const RunConfig& config);

/// Does --resnet-base-lr decide the learning rates? tf_cnn_benchmarks has a schedule for ResNets of
/// ImageNet's size, where no other flag states rates.
bool uses_resnet_schedule(const RunConfig& config, const ModelEntry& model);

/// The learning rates of a resolved configuration. Throws ConfigError for flags that contradict
/// each other.
LearningRatePlan learning_rate_plan(const RunConfig& config, const ModelEntry& model,
                                    double examples_per_epoch);

/// Steps of the window: --num-batches, or as many as --num-epochs take, rounded up. Throws
/// ConfigError where epochs are asked of a feeder that knows no end.
std::int64_t resolve_steps(const RunConfig& config, const DataExtent& extent);

/// What does not depend on the step.
Hyper hyper_of(const RunConfig& config);

}  // namespace penstock
