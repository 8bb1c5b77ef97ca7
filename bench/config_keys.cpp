// SPDX-License-Identifier: Apache-2.0
// The table of RunConfig's keys.
#include <chrono>

#include "bench/config_values.h"
#include "bench/due_points.h"
#include "trainer/collectives/all_reduce_spec.h"
#include "trainer/collectives/wire_format.h"
#include "trainer/learning_rate.h"
#include "trainer/loss_scale.h"
#include "trainer/model.h"

namespace penstock {
namespace {

void set_on_bad_sample(RunConfig& config, std::string_view name, std::string_view text) {
  const ComponentText parts = parse_component(text);
  std::string ignored;
  set_word(ignored, name, parts.name, {"default", "fail", "skip"});
  for (const auto& [key, value] : parts.values) {
    if (parts.name != "skip" || key != "limit" ||
        parse_integer(value, "--on-bad-sample limit") < 0) {
      throw ConfigError(
          fmt::format("--on-bad-sample is '{}'; expected fail, skip or skip:limit=K", text));
    }
  }
  config.on_bad_sample = text;
}

void set_model(RunConfig& config, std::string_view name, std::string_view text) {
  set_component<&RunConfig::model>(config, name, text);
  // One name for each model: rows are told apart by their text.
  if (const ModelEntry* model = match_entry(model_table(), text)) config.model = model->name;
}

void set_precision(RunConfig& config, std::string_view name, std::string_view text) {
  set_word(config.precision, name, text, {"fp32", "tf32", "fp16", "bf16"});
}

void set_order(RunConfig& config, std::string_view name, std::string_view text) {
  set_word(config.order, name, text, {"relaxed", "strict"});
}

void set_page_cache(RunConfig& config, std::string_view name, std::string_view text) {
  set_word(config.page_cache, name, text, {"as-is", "warm", "cold"});
}

void set_huge_pages(RunConfig& config, std::string_view name, std::string_view text) {
  set_word(config.huge_pages, name, text, {"off", "transparent", "explicit"});
}

void set_gradient_reduction(RunConfig& config, std::string_view name, std::string_view text) {
  set_word(config.gradient_reduction, name, text,
           {"default", "sum", "mean", "mean-sum", "tf_cnn_benchmarks", "tensorpack"});
}

void set_all_reduce_spec(RunConfig& config, std::string_view name, std::string_view text) {
  if (!text.empty()) static_cast<void>(parse_all_reduce_spec(text, flag_of(name)));  // throws
  config.all_reduce_spec = text;
}

void set_gradient_wire(RunConfig& config, std::string_view name, std::string_view text) {
  config.gradient_wire = to_string(parse_wire_format(text, flag_of(name)));
}

void set_loss_type(RunConfig& config, std::string_view name, std::string_view text) {
  set_word(config.loss_type_to_report, name, text, {"total_loss", "base_loss"});
}

void set_on_nonfinite(RunConfig& config, std::string_view name, std::string_view text) {
  set_word(config.on_nonfinite, name, text, {"stop", "continue"});
}

void set_loss_scale(RunConfig& config, std::string_view name, std::string_view text) {
  set_amount<&RunConfig::fp16_loss_scale>(config, name, text);
  if (config.fp16_loss_scale == 0) {
    throw ConfigError("--fp16-loss-scale is 0; expected a number above 0, such as 128");
  }
}

void set_steps_of_a_scale(RunConfig& config, std::string_view name, std::string_view text) {
  set_count<&RunConfig::fp16_inc_loss_scale_every_n, 1>(config, name, text);
  if (static_cast<double>(config.fp16_inc_loss_scale_every_n) > double{kMostCountedSteps}) {
    throw ConfigError(fmt::format("{} is {}; expected at most {:.0f}", flag_of(name), text,
                                  double{kMostCountedSteps}));
  }
}

void set_schedule(RunConfig& config, std::string_view, std::string_view text) {
  if (!text.empty()) static_cast<void>(parse_rate_schedule(text));  // throws on another form
  config.piecewise_learning_rate_schedule = text;
}

template <auto Field>
void set_numbers(RunConfig& config, std::string_view name, std::string_view text) {
  if (!text.empty()) static_cast<void>(parse_numbers(text, flag_of(name)));  // throws
  config.*Field = text;
}

void set_timeout(RunConfig& config, std::string_view name, std::string_view text) {
  config.timeout = std::chrono::duration<double>(parse_duration(text, flag_of(name))).count();
  if (!(config.timeout > 0))
    throw ConfigError("--timeout is 0; expected a time above 0, such as 30s");
}

void set_ewma(RunConfig& config, std::string_view name, std::string_view text) {
  config.display_perf_ewma = parse_real(text, flag_of(name));
  if (config.display_perf_ewma < 0 || config.display_perf_ewma > 1) {
    throw ConfigError(fmt::format("--display-perf-ewma is {}; expected 0 to 1", text));
  }
}

constexpr ConfigKey kKeys[] = {
    // ---- components ----
    {"fake_location", "", false, "where batches come from: a feeder of `penstock list`",
     get<&RunConfig::fake_location>, set_component<&RunConfig::fake_location>},
    {"model", "", false, "what trains on them: a model of `penstock list`", get<&RunConfig::model>,
     set_model},
    {"variable_update", "", false, "who holds the weights and adds the gradients",
     get<&RunConfig::variable_update>, set_component<&RunConfig::variable_update>},
    {"device", "", false,
     "what computes: cpu, gpu or emulated[:img_per_s=R|preset=NAME|trace=FILE,...], with the "
     "options that `penstock list` has; auto: a GPU if this machine has one, else emulated",
     get<&RunConfig::device>, set_component<&RunConfig::device>},
    {"optimizer", "", false, "how gradients become weights: an optimizer of `penstock list`",
     get<&RunConfig::optimizer>, set_component<&RunConfig::optimizer>},

    // ---- the trainer ----
    {"precision", "", false, "of activations: fp32, tf32, fp16 or bf16, as the device has it",
     get<&RunConfig::precision>, set_precision},
    {"compute_threads", "num_intra_threads", false,
     "threads of one device that is made of cores; 0: usable cores / --num-gpus",
     get<&RunConfig::compute_threads>, set_count<&RunConfig::compute_threads, 0>},
    {"num_gpus", "", false, "devices, of whatever kind", get<&RunConfig::num_gpus>,
     set_count<&RunConfig::num_gpus, 1>},
    {"num_processes", "", false,
     "processes of this run, as mpirun or srun starts them; 0: as many as were started",
     get<&RunConfig::num_processes>, set_count<&RunConfig::num_processes, 0>},
    {"batch_size", "batch", false, "images per device and step; 0: the model's own default",
     get<&RunConfig::batch_size>, set_count<&RunConfig::batch_size, 0>},
    {"image_size", "", false, "height and width of images; 0: the model's own",
     get<&RunConfig::image_size>, set_count<&RunConfig::image_size, 0>},
    {"classes", "", false, "outputs of the model; 0: the model's own default",
     get<&RunConfig::classes>, set_count<&RunConfig::classes, 0>},
    {"forward_only", "", true, "no backward pass and no update", get<&RunConfig::forward_only>,
     set_flag<&RunConfig::forward_only>},
    {"gradient_reduction", "", false,
     "how ranks' gradients become one: sum, mean, mean-sum (mean in a process, sum over "
     "processes), tf_cnn_benchmarks or tensorpack (by update, as those do); default: mean",
     get<&RunConfig::gradient_reduction>, set_gradient_reduction},
    {"first_bucket_mib", "", false,
     "most of the first bucket of gradients, small so that the exchange begins early; 0: as the "
     "others",
     get<&RunConfig::first_bucket_mib>, set_amount<&RunConfig::first_bucket_mib>},
    {"bucket_mib", "", false,
     "most of a bucket of gradients, in MiB; devices made of cores and GPUs through NCCL exchange "
     "one after the other while backward goes on; larger tensors are buckets of their own; 0: one "
     "bucket, exchanged behind backward",
     get<&RunConfig::bucket_mib>, set_amount<&RunConfig::bucket_mib>},
    {"gradient_repacking", "", false,
     "exchange all gradients behind backward, in so many equal pieces; 0: in buckets by size",
     get<&RunConfig::gradient_repacking>, set_count<&RunConfig::gradient_repacking, 0>},
    {"agg_small_grads_max_bytes", "", false,
     "exchange each gradient by itself, but small ones, of at most so many bytes, in groups; 0: in "
     "buckets by size",
     get<&RunConfig::agg_small_grads_max_bytes>,
     set_count<&RunConfig::agg_small_grads_max_bytes, 0>},
    {"agg_small_grads_max_group", "", false, "most gradients of such a group",
     get<&RunConfig::agg_small_grads_max_group>,
     set_count<&RunConfig::agg_small_grads_max_group, 1>},
    {"all_reduce_spec", "", false,
     "which all-reduce adds gradients of which size, such as pscpu:32k:xring#2, or on GPUs nccl; "
     "default: what suits ranks and devices best, which the result says",
     get<&RunConfig::all_reduce_spec>, set_all_reduce_spec},
    {"gradient_wire", "", false,
     "gradients as they are exchanged: fp32, fp16 or bf16; 16 bits are half the bytes, and added "
     "in "
     "fp32",
     get<&RunConfig::gradient_wire>, set_gradient_wire},
    {"on_nonfinite", "", false,
     "stop, or continue with a warning, when a loss is not finite, or an update is skipped because "
     "a gradient is not (in fp16 and bf16, where it overflowed): such a step leaves weights and "
     "optimizer as they were; both are counted, as nonfinite_steps and skipped_steps",
     get<&RunConfig::on_nonfinite>, set_on_nonfinite},
    {"fp16_vars", "", true,
     "weights and biases are stored in the 16 bits of --precision: rounded to them after each "
     "update, which is computed in 32 bits; those of batch norm stay in 32",
     get<&RunConfig::fp16_vars>, set_flag<&RunConfig::fp16_vars>},
    {"fp16_loss_scale", "", false,
     "what gradients are multiplied by on their way through fp16; default 128; a power of 2 rounds "
     "nothing",
     get<&RunConfig::fp16_loss_scale>, set_loss_scale},
    {"fp16_enable_auto_loss_scale", "", true,
     "the loss scale adapts itself, from --fp16-loss-scale on: a step whose gradients are not "
     "finite halves it and skips its update, which is no failure and is counted as skipped_steps",
     get<&RunConfig::fp16_enable_auto_loss_scale>,
     set_flag<&RunConfig::fp16_enable_auto_loss_scale>},
    {"fp16_inc_loss_scale_every_n", "", false,
     "steps with finite gradients that are counted before the next one doubles a loss scale that "
     "adapts itself",
     get<&RunConfig::fp16_inc_loss_scale_every_n>, set_steps_of_a_scale},
    {"cache_dir", "", false,
     "folder for what is found out about a device once, such as its fastest convolutions; default: "
     "penstock in $XDG_CACHE_HOME, or in ~/.cache",
     get<&RunConfig::cache_dir>, set_text<&RunConfig::cache_dir>},

    // ---- the optimizer ----
    {"momentum", "", false, "of --optimizer momentum, instead of momentum:momentum",
     get<&RunConfig::momentum>, set_amount<&RunConfig::momentum>},
    {"rmsprop_decay", "", false, "of --optimizer rmsprop, instead of rmsprop:decay",
     get<&RunConfig::rmsprop_decay>, set_amount<&RunConfig::rmsprop_decay>},
    {"rmsprop_momentum", "", false, "of --optimizer rmsprop, instead of rmsprop:momentum",
     get<&RunConfig::rmsprop_momentum>, set_amount<&RunConfig::rmsprop_momentum>},
    {"rmsprop_epsilon", "", false, "of --optimizer rmsprop, instead of rmsprop:epsilon",
     get<&RunConfig::rmsprop_epsilon>, set_amount<&RunConfig::rmsprop_epsilon>},
    {"adam_beta1", "", false, "of --optimizer adam, instead of adam:beta1",
     get<&RunConfig::adam_beta1>, set_amount<&RunConfig::adam_beta1>},
    {"adam_beta2", "", false, "of --optimizer adam, instead of adam:beta2",
     get<&RunConfig::adam_beta2>, set_amount<&RunConfig::adam_beta2>},
    {"adam_epsilon", "", false, "of --optimizer adam, instead of adam:epsilon",
     get<&RunConfig::adam_epsilon>, set_amount<&RunConfig::adam_epsilon>},
    {"init_learning_rate", "", false, "learning rate at the beginning; 0: 0.005",
     get<&RunConfig::init_learning_rate>, set_amount<&RunConfig::init_learning_rate>},
    {"piecewise_learning_rate_schedule", "", false,
     "rate0;epoch1;rate1;...: rates, and the epochs from which they hold",
     get<&RunConfig::piecewise_learning_rate_schedule>, set_schedule},
    {"num_epochs_per_decay", "", false,
     "epochs after which the rate is multiplied by --learning-rate-decay-factor; 0: never",
     get<&RunConfig::num_epochs_per_decay>, set_amount<&RunConfig::num_epochs_per_decay>},
    {"learning_rate_decay_factor", "", false, "see --num-epochs-per-decay; 0: no decay",
     get<&RunConfig::learning_rate_decay_factor>,
     set_amount<&RunConfig::learning_rate_decay_factor>},
    {"minimum_learning_rate", "", false, "below which the rate does not decay",
     get<&RunConfig::minimum_learning_rate>, set_amount<&RunConfig::minimum_learning_rate>},
    {"num_learning_rate_warmup_epochs", "", false,
     "epochs in which the rate grows from 0 in proportion to the step",
     get<&RunConfig::num_learning_rate_warmup_epochs>,
     set_amount<&RunConfig::num_learning_rate_warmup_epochs>},
    {"resnet_base_lr", "", false,
     "per 256 images of the global batch: the ResNets' own schedule at ImageNet's size, where "
     "--init-learning-rate is not given; 0: none",
     get<&RunConfig::resnet_base_lr>, set_amount<&RunConfig::resnet_base_lr>},
    {"weight_decay", "", false, "share of each weight that is added to its gradient",
     get<&RunConfig::weight_decay>, set_amount<&RunConfig::weight_decay>},
    {"gradient_clip", "", false, "largest absolute value of a gradient's element; 0: none",
     get<&RunConfig::gradient_clip>, set_amount<&RunConfig::gradient_clip>},

    // ---- how long ----
    {"num_batches", "", false, "measured steps", get<&RunConfig::num_batches>,
     set_count<&RunConfig::num_batches, 1>},
    {"num_epochs", "", false,
     "measured steps as passes over the data, such as 2.5; excludes --num-batches; 0: none stated",
     get<&RunConfig::num_epochs>, set_amount<&RunConfig::num_epochs>},
    {"num_warmup_batches", "", false, "steps before the measured ones",
     get<&RunConfig::num_warmup_batches>, set_count<&RunConfig::num_warmup_batches, 0>},
    {"extend_window", "", true,
     "measure longer, and again, while batches made before the window may decide its rate; default "
     "of "
     "run: with a producer of its own (producer=); of sweep: always",
     get<&RunConfig::extend_window>, set_flag<&RunConfig::extend_window>},
    {"instrument", "", true,
     "time what each stage of feeding does, and watch the queues between them; what that costs is "
     "in the result, as instrumentation_s",
     get<&RunConfig::instrument>, set_flag<&RunConfig::instrument>},

    // ---- evaluation ----
    {"eval", "", true, "do nothing but evaluate the newest checkpoint in --train-dir",
     get<&RunConfig::eval>, set_flag<&RunConfig::eval>},
    {"eval_data_dir", "", false,
     "folder to evaluate on; default: 'val' beside a --data-dir 'train', or the validation-* files "
     "in "
     "--data-dir, with --eval else all of it",
     get<&RunConfig::eval_data_dir>, set_text<&RunConfig::eval_data_dir>},
    {"eval_batch_size", "", false, "images per step of evaluation; 0: as in training",
     get<&RunConfig::eval_batch_size>, set_count<&RunConfig::eval_batch_size, 0>},
    {"num_eval_batches", "", false, "steps of an evaluation; 0: the whole set",
     get<&RunConfig::num_eval_batches>, set_count<&RunConfig::num_eval_batches, 0>},
    {"num_eval_epochs", "", false, "the same as passes over the set; 0: one",
     get<&RunConfig::num_eval_epochs>, set_amount<&RunConfig::num_eval_epochs>},
    {"eval_during_training_every_n_steps", "", false,
     "evaluate behind every so many steps after warm-up; 0: never",
     get<&RunConfig::eval_during_training_every_n_steps>,
     set_count<&RunConfig::eval_during_training_every_n_steps, 0>},
    {"eval_during_training_every_n_epochs", "", false, "the same in epochs, such as 0.5; 0: never",
     get<&RunConfig::eval_during_training_every_n_epochs>,
     set_amount<&RunConfig::eval_during_training_every_n_epochs>},
    {"eval_during_training_at_specified_steps", "", false,
     "evaluate behind these steps after warm-up, such as 100,500",
     get<&RunConfig::eval_during_training_at_specified_steps>,
     set_numbers<&RunConfig::eval_during_training_at_specified_steps>},
    {"eval_during_training_at_specified_epochs", "", false, "the same in epochs, such as 0.5,1,2",
     get<&RunConfig::eval_during_training_at_specified_epochs>,
     set_numbers<&RunConfig::eval_during_training_at_specified_epochs>},
    {"stop_at_top_1_accuracy", "", false,
     "end training once an evaluation reaches this share, such as 0.95; 0: never",
     get<&RunConfig::stop_at_top_1_accuracy>, set_amount<&RunConfig::stop_at_top_1_accuracy>},

    // ---- checkpoints ----
    {"train_dir", "", false,
     "folder of checkpoints, made if absent: the newest is restored, one is saved at the end; "
     "default: none",
     get<&RunConfig::train_dir>, set_text<&RunConfig::train_dir>},
    {"save_model_secs", "", false,
     "seconds between two checkpoints; excludes --save-model-steps; 0: only at the end",
     get<&RunConfig::save_model_secs>, set_amount<&RunConfig::save_model_secs>},
    {"save_model_steps", "", false, "steps between two checkpoints; 0: only at the end",
     get<&RunConfig::save_model_steps>, set_count<&RunConfig::save_model_steps, 0>},
    {"max_ckpts_to_keep", "", false, "older checkpoints are removed; 0: none is",
     get<&RunConfig::max_ckpts_to_keep>, set_count<&RunConfig::max_ckpts_to_keep, 0>},

    // ---- the feeder ----
    {"data_dir", "data", false,
     "folder of class folders of JPEGs, or a packed data set, which queue reads unless "
     "--fake-location names another feeder; default data/train, made if absent",
     get<&RunConfig::data_dir>, set_text<&RunConfig::data_dir>},
    {"on_bad_sample", "", false,
     "fail, skip or skip:limit=K; default: files fail, messages are skipped",
     get<&RunConfig::on_bad_sample>, set_on_bad_sample},
    {"order", "", false, "relaxed: batches go to whoever asks first; strict: reproducible order",
     get<&RunConfig::order>, set_order},
    {"page_cache", "", false,
     "what a run makes of the data set's files first, and proves: warm (all in memory), cold "
     "(none, "
     "and no more read than one epoch) or as-is",
     get<&RunConfig::page_cache>, set_page_cache},
    {"prefetch", "", false, "slots of the host ring, in batches", get<&RunConfig::prefetch>,
     set_count<&RunConfig::prefetch, 1>},
    {"huge_pages", "", false,
     "pages of the host ring's slots: transparent (the kernel is asked for large ones), explicit "
     "(taken from those that the machine sets apart) or off",
     get<&RunConfig::huge_pages>, set_huge_pages},
    {"device_slots", "", false, "slots of each device's ring, in batches",
     get<&RunConfig::device_slots>, set_count<&RunConfig::device_slots, 1>},
    {"feeder_threads", "datasets_num_private_threads", false, "decoding threads; 0: usable cores",
     get<&RunConfig::feeder_threads>, set_count<&RunConfig::feeder_threads, 0>},
    {"timeout", "", false,
     "how long an outside producer, or another rank of several processes, may stay silent, such as "
     "30s; ranks get twice that to join and ten times that for the first step",
     get<&RunConfig::timeout>, set_timeout},
    {"seed", "tf_random_seed", false, "of all random numbers", get<&RunConfig::seed>,
     set_count<&RunConfig::seed, 0>},

    // ---- what is shown ----
    {"display_every", "", false, "steps between two lines of the table",
     get<&RunConfig::display_every>, set_count<&RunConfig::display_every, 1>},
    {"display_perf_ewma", "", false, "weight of the newest step in a moving mean; 0: plain mean",
     get<&RunConfig::display_perf_ewma>, set_ewma},
    {"loss_type_to_report", "", false, "total_loss (with weight decay's share) or base_loss",
     get<&RunConfig::loss_type_to_report>, set_loss_type},
    {"print_training_accuracy", "", true, "top-1 and top-5 accuracy of the batch in each line",
     get<&RunConfig::print_training_accuracy>, set_flag<&RunConfig::print_training_accuracy>},
};

}  // namespace

std::span<const ConfigKey> config_keys() { return kKeys; }

}  // namespace penstock
