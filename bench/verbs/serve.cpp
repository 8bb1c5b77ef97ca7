// SPDX-License-Identifier: Apache-2.0
// penstock serve: runs any feeder as a ZeroMQ producer, or serves a data set's image files; by push
// or by credit.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cli.h"
#include "bench/config/run_flags.h"
#include "bench/config/training_loop.h"
#include "bench/config/training_rules.h"
#include "bench/config/unused_flags.h"
#include "bench/dataset/default_dataset.h"
#include "bench/run/runner.h"
#include "bench/serve/serve_batches.h"
#include "bench/serve/serve_processes.h"
#include "dataflow/pace.h"

namespace penstock {
namespace {

/// Each message takes the memory of a batch.
constexpr std::int64_t kMaxHwm = 1 << 20;

/// The keys of `penstock run` that define the batches and how they are made.
constexpr std::string_view kRunKeys[] = {
    "fake_location", "model",         "batch_size", "image_size", "classes",
    "data_dir",      "on_bad_sample", "order",      "seed",       "feeder_threads"};

std::vector<Flag> serve_flags(serve::ServeConfig& config) {
  const FlagGroup flag{"Serve"};
  const auto set_format = [&](const std::string& text) {
    config.format = remote::parse_message_format(text, "--format");
  };
  const auto set_send_buffer = [&](const std::string& text) {
    const std::uint64_t bytes = parse_bytes(text, "--send-buffer");
    config.socket.send_buffer =
        static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, INT64_MAX));
  };
  const auto set_batches = [&](const std::string& text) {
    config.plan.batches = parse_integer(text, "--num-batches");
    if (config.plan.batches < 0) {
      throw ConfigError("--num-batches is {}; expected 0 or more", text);
    }
  };
  const auto set_rate = [&](const std::string& text) {
    config.plan.img_per_s = parse_real(text, "--img-per-s");
    if (config.plan.img_per_s != 0) checked_rate(config.plan.img_per_s, "--img-per-s");
  };
  const auto set_timeout = [&](const std::string& text) {
    config.plan.timeout = parse_duration(text, "--timeout");
    if (config.plan.timeout <= Nanoseconds::zero()) {
      throw ConfigError("--timeout is {}; expected a time above 0, such as 30s", text);
    }
  };
  const auto set_epochs = [&](const std::string& text) {
    config.epochs = parse_integer(text, "--epochs");
    if (config.epochs < 1) throw ConfigError("--epochs is {}; expected 1 or more", text);
  };
  return join_flags(
      run_flags(config.run, kRunKeys), loader_flags(config.run),
      std::vector<Flag>{
          flag.text("endpoint", "address: ipc://PATH, ipc://@NAME or tcp://HOST:PORT",
                    config.endpoint),
          flag.boolean(
              "bind",
              "bind the address, so that consumers connect; default: connect to the consumer",
              config.socket.bind),
          flag("format", "message format: zmq_op, pickle, msgpack, numpy-frames or framed",
               "zmq_op", set_format),
          flag.boolean("checksum", "add a checksum to framed messages", config.checksum),
          flag("hwm", "batches that may wait in the socket", "8",
               [&](const std::string& text) {
                 config.socket.hwm =
                     remote::checked_count("--hwm", parse_integer(text, "--hwm"), kMaxHwm);
               }),
          flag("send_buffer",
               "kernel send buffer of an ipc:// connection, at most one batch; 0: the system's "
               "default",
               "1MiB", set_send_buffer),
          flag.boolean("credit", "send only what the consumer (zmq-consume:credit=N) has room for",
                       config.credit),
          flag.boolean("shared_memory",
                       "share batches with a consumer on this machine, without copying; implies "
                       "--credit",
                       config.shared_memory),
          flag.boolean("insecure",
                       "allow binding tcp:// without keys where other machines can connect",
                       config.socket.insecure),
          flag.text("curve_secret", net::kCurveSecretHelp, config.keys.secret),
          flag.text("curve_server_key", net::kCurveServerKeyHelp, config.keys.server_key),
          flag.text("curve_allow", net::kCurveAllowHelp, config.keys.allow),
          flag("num_batches", "batches to send; 0: until stopped", "0", set_batches),
          flag("img_per_s", "highest rate in images per second; 0: no limit", "0", set_rate,
               "rate"),
          flag.boolean("benchmark",
                       "make and encode batches, and drop them: what serving costs without a "
                       "consumer",
                       config.benchmark),
          flag("timeout",
               "how long to wait for a consumer to take a batch, such as 30s; default: forever", "",
               set_timeout),
          flag.boolean("encoded",
                       "send image files, which the consumer decodes (zmq-consume:encoded=true), "
                       "from --feeder queue:source=...",
                       config.encoded),
          flag("epochs", "passes over the data to send, with --encoded; default: until stopped", "",
               set_epochs),
          flag.boolean("end_with_consumer", "end when the last connected consumer leaves",
                       config.ends_with_consumer)},
      serve::serve_group_flags(config.group));
}

/// Throws ConfigError.
void refuse_contradictions(const serve::ServeConfig& config,
                           std::span<const std::string> arguments) {
  if (config.epochs >= 0 && !config.encoded) {
    throw ConfigError(
        "--epochs without --encoded: batches of pixels are all of one size, and an "
        "epoch's last one may not be; take --num-batches, or --encoded");
  }
  if (is_typed("count", arguments)) {
    throw ConfigError(
        "--count is for runs: messages say how many samples a batch has; leave it out");
  }
  const bool framed =
      !is_typed("format", arguments) || config.format == remote::MessageFormat::framed;
  if (config.encoded && !framed) {
    throw ConfigError("--encoded sends messages of the format framed; leave --format out");
  }
  if (config.encoded && config.shared_memory) {
    throw ConfigError(
        "--shared-memory shares batches of pixels, but --encoded sends image files in messages; "
        "use --encoded --credit");
  }
  if (config.by_credit() && (!framed || (config.checksum && !config.encoded))) {
    throw ConfigError(
        "--credit sends messages of the format framed, without checksums for pixels; leave "
        "--format and --checksum out");
  }
  if (config.benchmark && (config.by_credit() || is_typed("endpoint", arguments))) {
    throw ConfigError(
        "--benchmark sends nothing, so there is no consumer; leave --endpoint, --credit and "
        "--shared-memory out");
  }
}

int run(const Invocation& invocation) {
  serve::ServeConfig config;
  config.run.fake_location = "cpu";
  apply_like_of(config.run, invocation.arguments);
  if (!parse_flags(
          {.verb = "serve",
           .summary =
               "Sends a feeder's batches to a ZeroMQ consumer, or image files with --encoded.",
           .common = "fake-location model data-dir batch-size feeder-threads endpoint bind "
                     "num-batches img-per-s format encoded credit shared-memory processes",
           .examples = "serve --loader my_loader.py:make_loader --endpoint tcp://127.0.0.1:5555\n"
                       "serve --feeder queue --data-dir my/images --endpoint tcp://127.0.0.1:5555\n"
                       "serve --encoded --data-dir my/images --endpoint ipc://feed --epochs 3\n"
                       "serve --feeder host --shared-memory --endpoint ipc://feed\n"
                       "serve --feeder host --benchmark --format msgpack --num-batches 1000"},
          serve_flags(config), invocation.arguments)) {
    return 0;
  }
  if (config.encoded && !is_typed("fake_location", invocation.arguments)) {
    config.run.fake_location = "queue";
  }
  refuse_contradictions(config, invocation.arguments);
  // The process that started several processes has already said so.
  if (!is_typed("report_fd", invocation.arguments)) {
    say_unused_flags(std::span(&config.run, 1), invocation.arguments);
  }
  config.socket.curve = net::read_curve(config.keys);
  Runner::Components components = find_components(config.run);
  dataset::ensure_data_of(config.run, *components.feeder, invocation.stop);
  const bool threads_typed = config.run.feeder_threads > 0;
  // A loader that this process goes on with would not know the share of a group's process.
  const bool shares = config.group.processes > 1 || config.group.ranks > 1;
  config.run = shares ? state_batches(std::move(config.run), components, invocation.stop)
                      : adopt_batches(std::move(config.run), components, invocation.stop);
  config.run = resolve(config.run, components);
  if (config.group.processes > 1) {
    const std::int32_t threads =
        threads_typed ? 0 : std::max(1, config.run.feeder_threads / config.group.processes);
    std::vector<std::string> command{invocation.program, "serve"};
    command.insert(command.end(), invocation.arguments.begin(), invocation.arguments.end());
    return serve::serve_processes(command, config.group,
                                  {.batches = config.plan.batches,
                                   .img_per_s = config.plan.img_per_s,
                                   .unit = sample_unit(config.run),
                                   .feeder_threads = threads,
                                   .bind = config.socket.bind,
                                   .dropped = config.benchmark},
                                  invocation.stop);
  }
  // Small batches would accumulate in the kernel's send buffer, where they are not counted.
  const BatchSpec spec = serve::served_batches(config, components);
  if (!is_typed("format", invocation.arguments) && serve::needs_framed(spec)) {
    config.format = remote::MessageFormat::framed;
  }
  if (spec.opaque && config.by_credit()) {
    throw ConfigError(
        "--credit is for batches of images, and this loader's batches are no images; leave "
        "--credit "
        "and --shared-memory out: they are pushed");
  }
  config.socket.send_buffer =
      std::min(config.socket.send_buffer, static_cast<std::int64_t>(spec.bytes()));
  if (config.by_credit()) config.socket.role = remote::ZmqSocketOptions::Role::dealer;
  serve::serve_batches(config, components, invocation.stop, invocation.leave);
  return 0;
}

}  // namespace

extern constinit const VerbEntry serve_verb{
    .name = "serve",
    .summary = "send a feeder's batches to a ZeroMQ consumer",
    .run = run,
};

}  // namespace penstock
