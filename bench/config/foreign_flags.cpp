// SPDX-License-Identifier: Apache-2.0
#include "bench/config/foreign_flags.h"

namespace penstock {
namespace {

constexpr std::string_view kTensorFlow = "it tunes TensorFlow's runtime; leave it out";
constexpr std::string_view kInterleave =
    "indexed data are shuffled whole; compressed shards take --fake-location "
    "queue:source='tfrecord:readers=N'";
constexpr std::string_view kCluster =
    "`penstock run` takes it, in each process of a run with parameter servers";
constexpr std::string_view kTracing =
    "--trace-file of `penstock run` writes a timeline, and --json every step time";
constexpr std::string_view kOneTrace = "one run writes a trace: use `penstock run`";
constexpr std::string_view kLayout = "batches travel as NHWC and devices choose their own layout";

constexpr std::string_view kTwoLevels =
    "--all-reduce-spec hierarchical adds in two levels on --device cpu and emulated; GPUs exchange "
    "by the way that suits their connections, leave it out";

constexpr ForeignFlag kForeign[] = {
    {"data_format", kLayout},
    {"single_l2_loss_op", "weight decay's share of the loss is always one operation"},
    {"freeze_when_forward_only", "weights are always in the memory of the device that uses them"},
    {"load", "use --train-dir, whose newest checkpoint is restored"},
    {"eval_dir", "evaluations are printed, and kept by --json; --eval-data-dir names the images"},
    {"collect_eval_results_async",
     "evaluations are part of the run and printed when they end; leave it out"},
    {"batches_per_allreduce", "gradients are exchanged in every step; use a larger --batch-size"},
    {"eval_interval_secs", "--eval evaluates the newest checkpoint once; call it again"},
    {"input_preprocessor", "use --fake-location queue:chain=tf_cnn_benchmarks"},
    {"fuse_decode_and_crop",
     "decoding and cropping are fused; --fake-location queue:decode=full decodes whole images"},
    {"use_datasets", "choose the pipeline with --fake-location"},
    {"datasets_use_prefetch", "use --prefetch and --device-slots"},
    {"datasets_prefetch_buffer_size", "use --prefetch"},
    {"multi_device_iterator_max_buffer_size", "use --device-slots"},
    {"batch_group_size", "use --prefetch"},
    {"datasets_use_caching", "use --fake-location queue:source=memory"},
    {"datasets_parallel_interleave_cycle_length", kInterleave},
    {"datasets_sloppy_parallel_interleave", "use --order relaxed"},
    {"datasets_parallel_interleave_prefetch", "use --fake-location queue:readahead=N"},
    {"use_python32_barrier", kTensorFlow},
    {"force_gpu_compatible", "host slots are always pinned if the device can pin them"},
    {"gpu_thread_mode", kTensorFlow},
    {"per_gpu_thread_count", kTensorFlow},
    {"num_inter_threads", kTensorFlow},
    {"use_numa_affinity", "use --fake-location queue:numa=NODE"},
    {"mkl", kTensorFlow},
    {"kmp_blocktime", kTensorFlow},
    {"kmp_affinity", kTensorFlow},
    {"kmp_settings", kTensorFlow},
    {"allow_growth", kTensorFlow},
    {"gpu_memory_frac_for_testing", kTensorFlow},
    {"gpu_kt_max_interval", kTensorFlow},
    {"gpu_kt_max_bytes", kTensorFlow},
    {"gpu_kt_max_pending", kTensorFlow},
    {"use_unified_memory", kTensorFlow},
    {"timestamped_allocator", kTensorFlow},
    {"winograd_nonfused", kTensorFlow},
    {"batchnorm_persistent", kTensorFlow},
    {"sync_on_finish", "devices are always synchronised at both ends of the window"},
    {"autotune_threshold", kTensorFlow},
    {"gpu_indices", "devices are numbered from 0; use --num-gpus"},
    {"gpu", "use --num-gpus with the number of devices"},
    {"hierarchical_copy", kTwoLevels},
    {"network_topology", kTwoLevels},
    {"job_name", kCluster},
    {"job", kCluster},
    {"ps_hosts", kCluster},
    {"worker_hosts", kCluster},
    {"controller_host", "no task of a run controls the others; leave it out"},
    {"task_index", kCluster},
    {"server_protocol", "parameter servers speak ZeroMQ over TCP; leave it out"},
    {"horovod_device", "start with mpirun and --variable-update horovod; leave it out"},
    {"use_adasum", "gradients are added or averaged; leave it out"},
    {"rewriter_config", kTensorFlow},
    {"enable_optimizations", kTensorFlow},
    {"compute_lr_on_cpu", kTensorFlow},
    {"sparse_to_dense_grads", kTensorFlow},
    {"use_resource_vars", kTensorFlow},
    {"use_tf_layers", kTensorFlow},
    {"trt_mode", kTensorFlow},
    {"trt_max_workspace_size_bytes", kTensorFlow},
    {"trace_file", kOneTrace},
    {"trace_steps", kOneTrace},
    {"use_chrome_trace_format", "traces are always in Chrome's format; leave it out"},
    {"tfprof_file", kTracing},
    {"graph_file", kTracing},
    {"partitioned_graph_file_prefix", kTracing},
    {"summary_verbosity", kTracing},
    {"save_summaries_steps", kTracing},
    {"benchmark_log_dir", "use --json, or sweep's --out"},
    {"benchmark_test_id", "use --json, or sweep's --out"},
    {"debugger", kTensorFlow},
    {"backbone_model_path",
     "models here classify images and have no backbone to load; leave it out"},
    {"ml_perf", "state what its rules set, such as --model, --optimizer lars and --num-epochs"},
    {"ml_perf_compliance_logging", "use --json, which has every step time and setting"},
};

}  // namespace

std::span<const ForeignFlag> foreign_flags() { return kForeign; }

}  // namespace penstock
