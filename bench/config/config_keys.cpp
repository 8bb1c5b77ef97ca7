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

constexpr std::string_view kPrecisions[] = {"fp32", "tf32", "fp16", "bf16"};
constexpr std::string_view kOrders[] = {"relaxed", "strict"};
constexpr std::string_view kPageCaches[] = {"as-is", "warm", "cold"};
constexpr std::string_view kHugePages[] = {"off", "transparent", "explicit"};
constexpr std::string_view kDataFormats[] = {"NHWC", "NCHW"};
constexpr std::string_view kReductions[] = {"default",           "sum",       "mean", "mean-sum",
                                            "tf_cnn_benchmarks", "tensorpack"};
constexpr std::string_view kLossTypes[] = {"total_loss", "base_loss"};
constexpr std::string_view kNonfinite[] = {"stop", "continue"};

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

void set_all_reduce_spec(RunConfig& config, std::string_view name, std::string_view text) {
  if (!text.empty())
    static_cast<void>(collectives::parse_all_reduce_spec(text, flag_of(name)));  // throws
  config.all_reduce_spec = text;
}

void set_gradient_wire(RunConfig& config, std::string_view name, std::string_view text) {
  config.gradient_wire = to_string(parse_wire_format(text, flag_of(name)));
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

template <auto Field, auto Parse = set_value<Field>>
constexpr KeyConversions field = {std::is_same_v<FieldType<Field>, bool>, get<Field>, Parse};
template <auto Field>
constexpr KeyConversions positive = field<Field, set_count<Field, 1>>;
template <auto Field>
constexpr KeyConversions component = field<Field, set_component<Field>>;
template <auto Field, const auto& Choices>
constexpr KeyConversions words = field<Field, [](auto& config, auto name, auto text) {
  set_word(config.*Field, name, text, Choices);
}>;

constexpr ConfigKey kKeys[] = {
    {component<&RunConfig::fake_location>, "fake_location",
     "feeder that supplies the batches, see `penstock list feeder`", "feeder"},
    {field<&RunConfig::model, set_model>, "model",
     "model that trains on the batches, see `penstock list model`"},
    {component<&RunConfig::variable_update>, "variable_update",
     "how replicas exchange gradients and update weights, see `penstock list update`"},
    {component<&RunConfig::device>, "device",
     "device that trains: auto, cpu, gpu or emulated, see `penstock list device`; auto: a GPU if "
     "there is one, else emulated"},
    {component<&RunConfig::optimizer>, "optimizer",
     "optimizer that applies the gradients, see `penstock list optimizer`"},

    {words<&RunConfig::precision, kPrecisions>, "precision",
     "precision of activations, if the device supports it: fp32, tf32, fp16 or bf16"},
    {field<&RunConfig::compute_threads>, "compute_threads",
     "threads that one CPU device computes with; 0: usable cores / --num-gpus",
     "num_intra_threads"},
    {positive<&RunConfig::num_gpus>, "num_gpus", "devices of any kind that train, in each process"},
    {field<&RunConfig::num_processes>, "num_processes",
     "processes of this run, which mpirun or srun starts; 0: as many as it started"},
    {field<&RunConfig::batch_size>, "batch_size",
     "images per device and step; 0: the model's default", "batch"},
    {field<&RunConfig::image_size>, "image_size",
     "height and width of the images in pixels; 0: the model's default"},
    {field<&RunConfig::classes>, "classes",
     "number of classes the model predicts; 0: the model's default"},
    {field<&RunConfig::forward_only>, "forward_only",
     "run the forward pass only, without backward pass and update"},
    {words<&RunConfig::gradient_reduction, kReductions>, "gradient_reduction",
     "how gradients of ranks are combined: sum, mean, mean-sum (mean in a process, sum across), "
     "tf_cnn_benchmarks or tensorpack; default: mean"},
    {field<&RunConfig::first_bucket_mib>, "first_bucket_mib",
     "size of the first gradient bucket in MiB; a small one starts the exchange early; 0: as "
     "--bucket-mib"},
    {field<&RunConfig::bucket_mib>, "bucket_mib",
     "size of a gradient bucket in MiB, exchanged while backward runs; 0: one bucket, exchanged "
     "after backward"},
    {field<&RunConfig::gradient_repacking>, "gradient_repacking",
     "exchange all gradients after backward in this many equal pieces; 0: in buckets"},
    {field<&RunConfig::agg_small_grads_max_bytes>, "agg_small_grads_max_bytes",
     "exchange gradients one by one, but group those of at most this many bytes; 0: in buckets"},
    {positive<&RunConfig::agg_small_grads_max_group>, "agg_small_grads_max_group",
     "gradients per group of --agg-small-grads-max-bytes, at most"},
    {field<&RunConfig::all_reduce_spec, set_all_reduce_spec>, "all_reduce_spec",
     "all-reduce algorithm for each gradient size, such as pscpu:32k:xring#2, or nccl on GPUs; "
     "default: chosen for the ranks and devices"},
    {field<&RunConfig::gradient_wire, set_gradient_wire>, "gradient_wire",
     "format of gradients while they are exchanged: fp32, fp16 or bf16; sums are computed in fp32"},
    {words<&RunConfig::on_nonfinite, kNonfinite>, "on_nonfinite",
     "what to do if a loss or gradient is not finite: stop, or continue without that update; the "
     "record counts them"},
    {field<&RunConfig::fp16_vars>, "fp16_vars",
     "store weights and biases in the 16 bits of --precision; updates are computed in fp32"},
    {field<&RunConfig::fp16_loss_scale, set_loss_scale>, "fp16_loss_scale",
     "factor that scales the loss in fp16; a power of 2 avoids rounding; default: 128"},
    {field<&RunConfig::fp16_enable_auto_loss_scale>, "fp16_enable_auto_loss_scale",
     "adapt the loss scale: halve it and skip the update if a gradient overflows"},
    {field<&RunConfig::fp16_inc_loss_scale_every_n, set_steps_of_a_scale>,
     "fp16_inc_loss_scale_every_n", "steps without overflow before an adaptive loss scale doubles"},
    {field<&RunConfig::cache_dir>, "cache_dir",
     "folder for cached tuning results of devices; default: penstock in $XDG_CACHE_HOME or "
     "~/.cache"},

    {field<&RunConfig::momentum>, "momentum",
     "momentum of --optimizer momentum; default: that of the optimizer"},
    {field<&RunConfig::rmsprop_decay>, "rmsprop_decay",
     "decay of --optimizer rmsprop; default: that of the optimizer"},
    {field<&RunConfig::rmsprop_momentum>, "rmsprop_momentum",
     "momentum of --optimizer rmsprop; default: that of the optimizer"},
    {field<&RunConfig::rmsprop_epsilon>, "rmsprop_epsilon",
     "epsilon of --optimizer rmsprop; default: that of the optimizer"},
    {field<&RunConfig::adam_beta1>, "adam_beta1",
     "beta1 of --optimizer adam; default: that of the optimizer"},
    {field<&RunConfig::adam_beta2>, "adam_beta2",
     "beta2 of --optimizer adam; default: that of the optimizer"},
    {field<&RunConfig::adam_epsilon>, "adam_epsilon",
     "epsilon of --optimizer adam; default: that of the optimizer"},
    {field<&RunConfig::init_learning_rate>, "init_learning_rate",
     "initial learning rate; 0: 0.005, or the schedule of another flag"},
    {field<&RunConfig::piecewise_learning_rate_schedule, set_schedule>,
     "piecewise_learning_rate_schedule",
     "learning rates and the epochs at which they change: rate0;epoch1;rate1;..."},
    {field<&RunConfig::num_epochs_per_decay>, "num_epochs_per_decay",
     "epochs between two decays of the learning rate; 0: no decay"},
    {field<&RunConfig::learning_rate_decay_factor>, "learning_rate_decay_factor",
     "factor that the learning rate is multiplied by at each decay; 0: no decay"},
    {field<&RunConfig::minimum_learning_rate>, "minimum_learning_rate",
     "lower bound of a decaying learning rate"},
    {field<&RunConfig::num_learning_rate_warmup_epochs>, "num_learning_rate_warmup_epochs",
     "epochs in which the learning rate grows linearly from 0"},
    {field<&RunConfig::resnet_base_lr>, "resnet_base_lr",
     "learning rate per 256 images of the ResNet schedule for ImageNet, unless "
     "--init-learning-rate is given; above 0, ResNets for CIFAR have a fixed schedule; 0: neither"},
    {field<&RunConfig::weight_decay>, "weight_decay",
     "weight decay: share of each weight that is added to its gradient"},
    {field<&RunConfig::gradient_clip>, "gradient_clip",
     "largest absolute value of a gradient element; 0: no clipping"},

    {positive<&RunConfig::num_batches>, "num_batches", "steps to measure"},
    {field<&RunConfig::num_epochs>, "num_epochs",
     "passes over the data to measure, such as 2.5, instead of --num-batches; 0: not set"},
    {field<&RunConfig::num_warmup_batches>, "num_warmup_batches",
     "warm-up steps before the measured ones"},
    {field<&RunConfig::extend_window>, "extend_window",
     "measure longer if batches made before the window could decide the rate; default: true in a "
     "sweep, and in a run that starts its own producer"},
    {field<&RunConfig::instrument>, "instrument",
     "time each stage of feeding and record the queues; the record has the cost as "
     "instrumentation_s"},

    {field<&RunConfig::eval>, "eval", "only evaluate the newest checkpoint in --train-dir"},
    {field<&RunConfig::eval_data_dir>, "eval_data_dir",
     "folder of the evaluation set; default: val beside a --data-dir train, or the validation-* "
     "files in --data-dir"},
    {field<&RunConfig::eval_batch_size>, "eval_batch_size",
     "images per evaluation step; 0: as in training"},
    {field<&RunConfig::num_eval_batches>, "num_eval_batches",
     "steps of one evaluation; 0: the whole set"},
    {field<&RunConfig::num_eval_epochs>, "num_eval_epochs",
     "passes over the set in one evaluation; 0: one"},
    {field<&RunConfig::eval_during_training_every_n_steps>, "eval_during_training_every_n_steps",
     "steps between two evaluations, after warm-up; 0: no evaluation"},
    {field<&RunConfig::eval_during_training_every_n_epochs>, "eval_during_training_every_n_epochs",
     "epochs between two evaluations, such as 0.5; 0: no evaluation"},
    {field<&RunConfig::eval_during_training_at_specified_steps,
           set_numbers<&RunConfig::eval_during_training_at_specified_steps>>,
     "eval_during_training_at_specified_steps",
     "steps after warm-up at which to evaluate, such as 100,500"},
    {field<&RunConfig::eval_during_training_at_specified_epochs,
           set_numbers<&RunConfig::eval_during_training_at_specified_epochs>>,
     "eval_during_training_at_specified_epochs",
     "epochs after warm-up at which to evaluate, such as 0.5,1,2"},
    {field<&RunConfig::stop_at_top_1_accuracy>, "stop_at_top_1_accuracy",
     "validation accuracy at which training ends, such as 0.95; 0: never"},

    {field<&RunConfig::train_dir>, "train_dir",
     "folder for checkpoints, created if missing; the newest is restored; default: no checkpoints"},
    {field<&RunConfig::save_model_secs>, "save_model_secs",
     "seconds between two checkpoints, instead of --save-model-steps; 0: only at the end"},
    {field<&RunConfig::save_model_steps>, "save_model_steps",
     "steps between two checkpoints; 0: only at the end"},
    {field<&RunConfig::max_ckpts_to_keep>, "max_ckpts_to_keep",
     "number of checkpoints to keep; 0: all"},

    {field<&RunConfig::data_dir>, "data_dir",
     "data set: a folder of class folders with JPEGs, or a packed set; selects the feeder queue "
     "unless --feeder is given; default: data/train, created if missing",
     "data"},
    {field<&RunConfig::on_bad_sample, set_on_bad_sample>, "on_bad_sample",
     "what to do with unreadable samples: fail, skip or skip:limit=K; default: fail for files, "
     "skip for messages"},
    {words<&RunConfig::order, kOrders>, "order",
     "order of batches: relaxed (as they become ready) or strict (reproducible)"},
    {words<&RunConfig::page_cache, kPageCaches>, "page_cache",
     "state of the data set in the page cache before the run: as-is, warm (all in memory) or cold "
     "(none; at most one epoch is read)"},
    {field<&RunConfig::loop, set_loop>, "loop",
     "training loop that a loader sees: sync (waits for each step), async (one ahead), ahead=N; "
     "launch=MS: time to launch a step; default: sync on a CPU, else async"},
    {field<&RunConfig::loader_per, set_loader_per>, "loader_per",
     "who has its own loader: each device, as each rank of a training has one, or each process, "
     "whose devices share it"},
    {positive<&RunConfig::prefetch>, "prefetch", "slots of the host ring, in batches"},
    {words<&RunConfig::huge_pages, kHugePages>, "huge_pages",
     "pages of the host ring: off, transparent (the kernel may use huge pages) or explicit "
     "(reserved huge pages)"},
    {field<&RunConfig::pinned_memory>, "pinned_memory",
     "pin the host ring; false: devices copy from pageable memory; default: true",
     "force_gpu_compatible"},
    {words<&RunConfig::data_format, kDataFormats>, "data_format",
     "layout of the batches that the feeder supplies: NHWC or NCHW; the device computes in its own "
     "layout"},
    {field<&RunConfig::batch_group_size>, "batch_group_size",
     "batches that the feeder makes before it waits until the devices have taken all of them from "
     "the host ring; 0: it fills each slot when it becomes free"},
    {positive<&RunConfig::device_slots>, "device_slots",
     "slots of the ring of each device, in batches"},
    {field<&RunConfig::feeder_threads>, "feeder_threads", "decoding threads; 0: usable cores",
     "datasets_num_private_threads"},
    {field<&RunConfig::timeout, set_timeout>, "timeout",
     "how long a producer or another rank may stay silent; ranks get 2 times this to join, 10 "
     "times for the first step"},
    {field<&RunConfig::seed>, "seed", "seed of all random numbers", "tf_random_seed"},

    {positive<&RunConfig::display_every>, "display_every", "steps between two lines of the table"},
    {field<&RunConfig::display_perf_ewma, set_ewma>, "display_perf_ewma",
     "weight of the newest step in the moving average of the rate; 0: plain mean"},
    {words<&RunConfig::loss_type_to_report, kLossTypes>, "loss_type_to_report",
     "loss in the table: total_loss (with weight decay) or base_loss"},
    {field<&RunConfig::print_training_accuracy>, "print_training_accuracy",
     "print top-1 and top-5 accuracy of the batch in each line"},
};

}  // namespace

std::span<const ConfigKey> config_keys() { return kKeys; }

}  // namespace penstock
