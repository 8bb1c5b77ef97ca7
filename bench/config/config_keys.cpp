// SPDX-License-Identifier: Apache-2.0
// The table of RunConfig's keys.

#include "bench/config/config_values.h"
#include "bench/config/due_points.h"
#include "bench/config/training_loop.h"
#include "trainer/collectives/all_reduce_spec.h"
#include "trainer/learning_rate.h"
#include "trainer/loss_scale.h"
#include "trainer/model.h"
#include "trainer/wire_format.h"

namespace penstock {
namespace {

void set_on_bad_sample(RunConfig& config, std::string_view name, std::string_view text) {
  const ComponentText parts = parse_component(text);
  std::string ignored;
  set_word(ignored, name, parts.name, {"default", "fail", "skip"});
  for (const auto& [key, value] : parts.values) {
    if (parts.name != "skip" || key != "limit" ||
        parse_integer(value, "--on-bad-sample limit") < 0) {
      throw ConfigError("--on-bad-sample is '{}'; expected fail, skip or skip:limit=K", text);
    }
  }
  config.on_bad_sample = text;
}

void set_model(RunConfig& config, std::string_view name, std::string_view text) {
  set_component<&RunConfig::model>(config, name, text);
  // Rows are told apart by the text of their keys, so store the canonical name.
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

void set_data_format(RunConfig& config, std::string_view name, std::string_view text) {
  set_word(config.data_format, name, text, {"NHWC", "NCHW"});
}

void set_gradient_reduction(RunConfig& config, std::string_view name, std::string_view text) {
  set_word(config.gradient_reduction, name, text,
           {"default", "sum", "mean", "mean-sum", "tf_cnn_benchmarks", "tensorpack"});
}

void set_all_reduce_spec(RunConfig& config, std::string_view name, std::string_view text) {
  if (!text.empty())
    static_cast<void>(collectives::parse_all_reduce_spec(text, flag_of(name)));  // throws
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
    throw ConfigError("{} is {}; expected at most {:.0f}", flag_of(name), text,
                      double{kMostCountedSteps});
  }
}

void set_schedule(RunConfig& config, std::string_view, std::string_view text) {
  if (!text.empty()) static_cast<void>(parse_rate_schedule(text));  // throws if malformed
  config.piecewise_learning_rate_schedule = text;
}

template <auto Field>
void set_numbers(RunConfig& config, std::string_view name, std::string_view text) {
  if (!text.empty()) static_cast<void>(parse_numbers(text, flag_of(name)));  // throws
  config.*Field = text;
}

void set_timeout(RunConfig& config, std::string_view name, std::string_view text) {
  config.timeout = to_seconds(parse_duration(text, flag_of(name)));
  if (!(config.timeout > 0))
    throw ConfigError("--timeout is 0; expected a time above 0, such as 30s");
}

void set_loader_per(RunConfig& config, std::string_view name, std::string_view text) {
  if (text != "device" && text != "process") {
    throw ConfigError("{} is '{}'; expected device or process", flag_of(name), text);
  }
  config.loader_per = text;
}

void set_loop(RunConfig& config, std::string_view, std::string_view text) {
  config.loop = to_string(parse_loop(text));
}

void set_ewma(RunConfig& config, std::string_view name, std::string_view text) {
  config.display_perf_ewma = parse_real(text, flag_of(name));
  if (config.display_perf_ewma < 0 || config.display_perf_ewma > 1) {
    throw ConfigError("--display-perf-ewma is {}; expected 0 to 1", text);
  }
}

constexpr ConfigKey kKeys[] = {
    {"fake_location", "feeder", false,
     "feeder that supplies the batches, see `penstock list feeder`", get<&RunConfig::fake_location>,
     set_component<&RunConfig::fake_location>},
    {"model", "", false, "model that trains on the batches, see `penstock list model`",
     get<&RunConfig::model>, set_model},
    {"variable_update", "", false,
     "how replicas exchange gradients and update weights, see `penstock list update`",
     get<&RunConfig::variable_update>, set_component<&RunConfig::variable_update>},
    {"device", "", false,
     "device that trains: auto, cpu, gpu or emulated, see `penstock list device`; auto: a GPU if "
     "there is one, else emulated",
     get<&RunConfig::device>, set_component<&RunConfig::device>},
    {"optimizer", "", false, "optimizer that applies the gradients, see `penstock list optimizer`",
     get<&RunConfig::optimizer>, set_component<&RunConfig::optimizer>},

    {"precision", "", false,
     "precision of activations, if the device supports it: fp32, tf32, fp16 or bf16",
     get<&RunConfig::precision>, set_precision},
    {"compute_threads", "num_intra_threads", false,
     "threads that one CPU device computes with; 0: usable cores / --num-gpus",
     get<&RunConfig::compute_threads>, set_count<&RunConfig::compute_threads, 0>},
    {"num_gpus", "", false, "devices of any kind that train, in each process",
     get<&RunConfig::num_gpus>, set_count<&RunConfig::num_gpus, 1>},
    {"num_processes", "", false,
     "processes of this run, which mpirun or srun starts; 0: as many as it started",
     get<&RunConfig::num_processes>, set_count<&RunConfig::num_processes, 0>},
    {"batch_size", "batch", false, "images per device and step; 0: the model's default",
     get<&RunConfig::batch_size>, set_count<&RunConfig::batch_size, 0>},
    {"image_size", "", false, "height and width of the images in pixels; 0: the model's default",
     get<&RunConfig::image_size>, set_count<&RunConfig::image_size, 0>},
    {"classes", "", false, "number of classes the model predicts; 0: the model's default",
     get<&RunConfig::classes>, set_count<&RunConfig::classes, 0>},
    {"forward_only", "", true, "run the forward pass only, without backward pass and update",
     get<&RunConfig::forward_only>, set_flag<&RunConfig::forward_only>},
    {"gradient_reduction", "", false,
     "how gradients of ranks are combined: sum, mean, mean-sum (mean in a process, sum across), "
     "tf_cnn_benchmarks or tensorpack; default: mean",
     get<&RunConfig::gradient_reduction>, set_gradient_reduction},
    {"first_bucket_mib", "", false,
     "size of the first gradient bucket in MiB; a small one starts the exchange early; 0: as "
     "--bucket-mib",
     get<&RunConfig::first_bucket_mib>, set_amount<&RunConfig::first_bucket_mib>},
    {"bucket_mib", "", false,
     "size of a gradient bucket in MiB, exchanged while backward runs; 0: one bucket, exchanged "
     "after backward",
     get<&RunConfig::bucket_mib>, set_amount<&RunConfig::bucket_mib>},
    {"gradient_repacking", "", false,
     "exchange all gradients after backward in this many equal pieces; 0: in buckets",
     get<&RunConfig::gradient_repacking>, set_count<&RunConfig::gradient_repacking, 0>},
    {"agg_small_grads_max_bytes", "", false,
     "exchange gradients one by one, but group those of at most this many bytes; 0: in buckets",
     get<&RunConfig::agg_small_grads_max_bytes>,
     set_count<&RunConfig::agg_small_grads_max_bytes, 0>},
    {"agg_small_grads_max_group", "", false,
     "gradients per group of --agg-small-grads-max-bytes, at most",
     get<&RunConfig::agg_small_grads_max_group>,
     set_count<&RunConfig::agg_small_grads_max_group, 1>},
    {"all_reduce_spec", "", false,
     "all-reduce algorithm for each gradient size, such as pscpu:32k:xring#2, or nccl on GPUs; "
     "default: chosen for the ranks and devices",
     get<&RunConfig::all_reduce_spec>, set_all_reduce_spec},
    {"gradient_wire", "", false,
     "format of gradients while they are exchanged: fp32, fp16 or bf16; sums are computed in fp32",
     get<&RunConfig::gradient_wire>, set_gradient_wire},
    {"on_nonfinite", "", false,
     "what to do if a loss or gradient is not finite: stop, or continue without that update; the "
     "record counts them",
     get<&RunConfig::on_nonfinite>, set_on_nonfinite},
    {"fp16_vars", "", true,
     "store weights and biases in the 16 bits of --precision; updates are computed in fp32",
     get<&RunConfig::fp16_vars>, set_flag<&RunConfig::fp16_vars>},
    {"fp16_loss_scale", "", false,
     "factor that scales the loss in fp16; a power of 2 avoids rounding; default: 128",
     get<&RunConfig::fp16_loss_scale>, set_loss_scale},
    {"fp16_enable_auto_loss_scale", "", true,
     "adapt the loss scale: halve it and skip the update if a gradient overflows",
     get<&RunConfig::fp16_enable_auto_loss_scale>,
     set_flag<&RunConfig::fp16_enable_auto_loss_scale>},
    {"fp16_inc_loss_scale_every_n", "", false,
     "steps without overflow before an adaptive loss scale doubles",
     get<&RunConfig::fp16_inc_loss_scale_every_n>, set_steps_of_a_scale},
    {"cache_dir", "", false,
     "folder for cached tuning results of devices; default: penstock in $XDG_CACHE_HOME or "
     "~/.cache",
     get<&RunConfig::cache_dir>, set_text<&RunConfig::cache_dir>},

    {"momentum", "", false, "momentum of --optimizer momentum; default: that of the optimizer",
     get<&RunConfig::momentum>, set_amount<&RunConfig::momentum>},
    {"rmsprop_decay", "", false, "decay of --optimizer rmsprop; default: that of the optimizer",
     get<&RunConfig::rmsprop_decay>, set_amount<&RunConfig::rmsprop_decay>},
    {"rmsprop_momentum", "", false,
     "momentum of --optimizer rmsprop; default: that of the optimizer",
     get<&RunConfig::rmsprop_momentum>, set_amount<&RunConfig::rmsprop_momentum>},
    {"rmsprop_epsilon", "", false, "epsilon of --optimizer rmsprop; default: that of the optimizer",
     get<&RunConfig::rmsprop_epsilon>, set_amount<&RunConfig::rmsprop_epsilon>},
    {"adam_beta1", "", false, "beta1 of --optimizer adam; default: that of the optimizer",
     get<&RunConfig::adam_beta1>, set_amount<&RunConfig::adam_beta1>},
    {"adam_beta2", "", false, "beta2 of --optimizer adam; default: that of the optimizer",
     get<&RunConfig::adam_beta2>, set_amount<&RunConfig::adam_beta2>},
    {"adam_epsilon", "", false, "epsilon of --optimizer adam; default: that of the optimizer",
     get<&RunConfig::adam_epsilon>, set_amount<&RunConfig::adam_epsilon>},
    {"init_learning_rate", "", false,
     "initial learning rate; 0: 0.005, or the schedule of another flag",
     get<&RunConfig::init_learning_rate>, set_amount<&RunConfig::init_learning_rate>},
    {"piecewise_learning_rate_schedule", "", false,
     "learning rates and the epochs at which they change: rate0;epoch1;rate1;...",
     get<&RunConfig::piecewise_learning_rate_schedule>, set_schedule},
    {"num_epochs_per_decay", "", false,
     "epochs between two decays of the learning rate; 0: no decay",
     get<&RunConfig::num_epochs_per_decay>, set_amount<&RunConfig::num_epochs_per_decay>},
    {"learning_rate_decay_factor", "", false,
     "factor that the learning rate is multiplied by at each decay; 0: no decay",
     get<&RunConfig::learning_rate_decay_factor>,
     set_amount<&RunConfig::learning_rate_decay_factor>},
    {"minimum_learning_rate", "", false, "lower bound of a decaying learning rate",
     get<&RunConfig::minimum_learning_rate>, set_amount<&RunConfig::minimum_learning_rate>},
    {"num_learning_rate_warmup_epochs", "", false,
     "epochs in which the learning rate grows linearly from 0",
     get<&RunConfig::num_learning_rate_warmup_epochs>,
     set_amount<&RunConfig::num_learning_rate_warmup_epochs>},
    {"resnet_base_lr", "", false,
     "learning rate per 256 images of the ResNet schedule for ImageNet, unless "
     "--init-learning-rate is given; above 0, ResNets for CIFAR have a fixed schedule; 0: neither",
     get<&RunConfig::resnet_base_lr>, set_amount<&RunConfig::resnet_base_lr>},
    {"weight_decay", "", false, "weight decay: share of each weight that is added to its gradient",
     get<&RunConfig::weight_decay>, set_amount<&RunConfig::weight_decay>},
    {"gradient_clip", "", false, "largest absolute value of a gradient element; 0: no clipping",
     get<&RunConfig::gradient_clip>, set_amount<&RunConfig::gradient_clip>},

    {"num_batches", "", false, "steps to measure", get<&RunConfig::num_batches>,
     set_count<&RunConfig::num_batches, 1>},
    {"num_epochs", "", false,
     "passes over the data to measure, such as 2.5, instead of --num-batches; 0: not set",
     get<&RunConfig::num_epochs>, set_amount<&RunConfig::num_epochs>},
    {"num_warmup_batches", "", false, "warm-up steps before the measured ones",
     get<&RunConfig::num_warmup_batches>, set_count<&RunConfig::num_warmup_batches, 0>},
    {"extend_window", "", true,
     "measure longer if batches made before the window could decide the rate; default: true in a "
     "sweep, and in a run that starts its own producer",
     get<&RunConfig::extend_window>, set_flag<&RunConfig::extend_window>},
    {"instrument", "", true,
     "time each stage of feeding and record the queues; the record has the cost as "
     "instrumentation_s",
     get<&RunConfig::instrument>, set_flag<&RunConfig::instrument>},

    {"eval", "", true, "only evaluate the newest checkpoint in --train-dir", get<&RunConfig::eval>,
     set_flag<&RunConfig::eval>},
    {"eval_data_dir", "", false,
     "folder of the evaluation set; default: val beside a --data-dir train, or the validation-* "
     "files in --data-dir",
     get<&RunConfig::eval_data_dir>, set_text<&RunConfig::eval_data_dir>},
    {"eval_batch_size", "", false, "images per evaluation step; 0: as in training",
     get<&RunConfig::eval_batch_size>, set_count<&RunConfig::eval_batch_size, 0>},
    {"num_eval_batches", "", false, "steps of one evaluation; 0: the whole set",
     get<&RunConfig::num_eval_batches>, set_count<&RunConfig::num_eval_batches, 0>},
    {"num_eval_epochs", "", false, "passes over the set in one evaluation; 0: one",
     get<&RunConfig::num_eval_epochs>, set_amount<&RunConfig::num_eval_epochs>},
    {"eval_during_training_every_n_steps", "", false,
     "steps between two evaluations, after warm-up; 0: no evaluation",
     get<&RunConfig::eval_during_training_every_n_steps>,
     set_count<&RunConfig::eval_during_training_every_n_steps, 0>},
    {"eval_during_training_every_n_epochs", "", false,
     "epochs between two evaluations, such as 0.5; 0: no evaluation",
     get<&RunConfig::eval_during_training_every_n_epochs>,
     set_amount<&RunConfig::eval_during_training_every_n_epochs>},
    {"eval_during_training_at_specified_steps", "", false,
     "steps after warm-up at which to evaluate, such as 100,500",
     get<&RunConfig::eval_during_training_at_specified_steps>,
     set_numbers<&RunConfig::eval_during_training_at_specified_steps>},
    {"eval_during_training_at_specified_epochs", "", false,
     "epochs after warm-up at which to evaluate, such as 0.5,1,2",
     get<&RunConfig::eval_during_training_at_specified_epochs>,
     set_numbers<&RunConfig::eval_during_training_at_specified_epochs>},
    {"stop_at_top_1_accuracy", "", false,
     "validation accuracy at which training ends, such as 0.95; 0: never",
     get<&RunConfig::stop_at_top_1_accuracy>, set_amount<&RunConfig::stop_at_top_1_accuracy>},

    {"train_dir", "", false,
     "folder for checkpoints, created if missing; the newest is restored; default: no checkpoints",
     get<&RunConfig::train_dir>, set_text<&RunConfig::train_dir>},
    {"save_model_secs", "", false,
     "seconds between two checkpoints, instead of --save-model-steps; 0: only at the end",
     get<&RunConfig::save_model_secs>, set_amount<&RunConfig::save_model_secs>},
    {"save_model_steps", "", false, "steps between two checkpoints; 0: only at the end",
     get<&RunConfig::save_model_steps>, set_count<&RunConfig::save_model_steps, 0>},
    {"max_ckpts_to_keep", "", false, "number of checkpoints to keep; 0: all",
     get<&RunConfig::max_ckpts_to_keep>, set_count<&RunConfig::max_ckpts_to_keep, 0>},

    {"data_dir", "data", false,
     "data set: a folder of class folders with JPEGs, or a packed set; selects the feeder queue "
     "unless --feeder is given; default: data/train, created if missing",
     get<&RunConfig::data_dir>, set_text<&RunConfig::data_dir>},
    {"on_bad_sample", "", false,
     "what to do with unreadable samples: fail, skip or skip:limit=K; default: fail for files, "
     "skip for messages",
     get<&RunConfig::on_bad_sample>, set_on_bad_sample},
    {"order", "", false,
     "order of batches: relaxed (as they become ready) or strict (reproducible)",
     get<&RunConfig::order>, set_order},
    {"page_cache", "", false,
     "state of the data set in the page cache before the run: as-is, warm (all in memory) or cold "
     "(none; at most one epoch is read)",
     get<&RunConfig::page_cache>, set_page_cache},
    {"loop", "", false,
     "training loop that a loader sees: sync (waits for each step), async (one ahead), ahead=N; "
     "launch=MS: time to launch a step; default: sync on a CPU, else async",
     get<&RunConfig::loop>, set_loop},
    {"loader_per", "", false,
     "who has its own loader: each device, as each rank of a training has one, or each "
     "process, whose devices share it",
     get<&RunConfig::loader_per>, set_loader_per},
    {"prefetch", "", false, "slots of the host ring, in batches", get<&RunConfig::prefetch>,
     set_count<&RunConfig::prefetch, 1>},
    {"huge_pages", "", false,
     "pages of the host ring: off, transparent (the kernel may use huge pages) or explicit "
     "(reserved huge pages)",
     get<&RunConfig::huge_pages>, set_huge_pages},
    {"pinned_memory", "force_gpu_compatible", true,
     "pin the host ring; false: devices copy from pageable memory; default: true",
     get<&RunConfig::pinned_memory>, set_flag<&RunConfig::pinned_memory>},
    {"data_format", "", false,
     "layout of the batches that the feeder supplies: NHWC or NCHW; the device computes in its own "
     "layout",
     get<&RunConfig::data_format>, set_data_format},
    {"batch_group_size", "", false,
     "batches that the feeder makes before it waits until the devices have taken all of them from "
     "the host ring; 0: it fills each slot when it becomes free",
     get<&RunConfig::batch_group_size>, set_count<&RunConfig::batch_group_size, 0>},
    {"device_slots", "", false, "slots of the ring of each device, in batches",
     get<&RunConfig::device_slots>, set_count<&RunConfig::device_slots, 1>},
    {"feeder_threads", "datasets_num_private_threads", false, "decoding threads; 0: usable cores",
     get<&RunConfig::feeder_threads>, set_count<&RunConfig::feeder_threads, 0>},
    {"timeout", "", false,
     "how long a producer or another rank may stay silent; ranks get 2 times this to join, 10 "
     "times for the first step",
     get<&RunConfig::timeout>, set_timeout},
    {"seed", "tf_random_seed", false, "seed of all random numbers", get<&RunConfig::seed>,
     set_count<&RunConfig::seed, 0>},

    {"display_every", "", false, "steps between two lines of the table",
     get<&RunConfig::display_every>, set_count<&RunConfig::display_every, 1>},
    {"display_perf_ewma", "", false,
     "weight of the newest step in the moving average of the rate; 0: plain mean",
     get<&RunConfig::display_perf_ewma>, set_ewma},
    {"loss_type_to_report", "", false,
     "loss in the table: total_loss (with weight decay) or base_loss",
     get<&RunConfig::loss_type_to_report>, set_loss_type},
    {"print_training_accuracy", "", true,
     "print top-1 and top-5 accuracy of the batch in each line",
     get<&RunConfig::print_training_accuracy>, set_flag<&RunConfig::print_training_accuracy>},
};

}  // namespace

std::span<const ConfigKey> config_keys() { return kKeys; }

}  // namespace penstock
