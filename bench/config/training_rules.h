// SPDX-License-Identifier: Apache-2.0
// Turns the configuration's training settings into values: batches, optimizer, reduction, learning
// rates. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "bench/config/run_config.h"
#include "dataflow/batch.h"
#include "feeders/feeder.h"
#include "trainer/backend.h"
#include "trainer/buckets.h"
#include "trainer/learning_rate.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"
#include "trainer/update_strategy.h"

namespace penstock {

/// Training images of ILSVRC-2012. Epochs are counted by this number if the size of the data is
/// unknown.
constexpr double kImageNetImages = 1281167;

/// The learning rate if no flag or rule sets one; from tf_cnn_benchmarks.
constexpr double kDefaultLearningRate = 0.005;

/// The scale of fp16 gradients if --fp16-loss-scale is not given; from tf_cnn_benchmarks.
constexpr double kFp16LossScale = 128;

/// The batch spec of a resolved configuration.
BatchSpec batch_spec(const RunConfig& config, const ModelEntry& model);

/// The precision that a configuration names.
Precision parse_precision(const std::string& text);

/// The data type in which weights and biases are stored. Throws ConfigError for --fp16-vars with a
/// precision of 32 bits.
DType stored_weights(const RunConfig& config);

/// The factor on gradients in fp16; 1 for other precisions. bf16 needs none, because it has the
/// range of f32.
float loss_scale_of(const RunConfig& config);

/// Counted steps until the loss scale is doubled; 0: the scale is fixed.
std::int32_t counted_steps_of_loss_scale(const RunConfig& config);

/// The user's cache folder by the XDG Base Directory specification; empty if the environment does
/// not set one.
std::string default_cache_dir();

/// Parses --on-bad-sample.
BadSamplePolicy parse_bad_sample_policy(const std::string& text);

/// The optimizer with the flags that stand for its options: `momentum` with --momentum 0.8 is
/// `momentum:momentum=0.8`. Throws ConfigError for a flag of another optimizer, and suggests what
/// to type.
std::string optimizer_text(const RunConfig& config);

/// Throws ConfigError for an unknown word.
GradientReduction parse_gradient_reduction(const std::string& text);

/// Resolves --gradient-reduction to sum, mean or mean-sum. For tf_cnn_benchmarks and tensorpack the
/// result depends on the update.
std::string resolve_gradient_reduction(const RunConfig& config);

/// The bucket sizes of the gradient exchange.
BucketLimits bucket_limits(const RunConfig& config);

/// True if --resnet-base-lr decides the learning rates. As in tf_cnn_benchmarks, it applies to
/// ResNets of ImageNet's size if no other flag sets rates.
bool uses_resnet_schedule(const RunConfig& config, const ModelEntry& model);

/// The learning rates of a resolved configuration. Throws ConfigError for flags that contradict
/// each other.
LearningRatePlan learning_rate_plan(const RunConfig& config, const ModelEntry& model,
                                    double examples_per_epoch);

/// Steps of the window: --num-batches, or the steps of --num-epochs, rounded up. Throws ConfigError
/// for epochs with a feeder of unlimited data.
std::int64_t resolve_steps(const RunConfig& config, const DataExtent& extent);

/// True if a run of `config` evaluates during training. No total is printed then.
bool evaluates_while_training(const RunConfig& config);

/// Hyperparameters that do not depend on the step.
Hyper hyper_of(const RunConfig& config);

}  // namespace penstock
