// SPDX-License-Identifier: Apache-2.0
// penstock serve: runs any feeder as a ZeroMQ producer, or serves a data set's image files; by push
// or by credit.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "bench/cli.h"
#include "bench/config/run_flags.h"
#include "bench/config/training_rules.h"
#include "bench/config/unused_flags.h"
#include "bench/dataset/default_dataset.h"
#include "bench/run/runner.h"
#include "bench/serve/serve_processes.h"
#include "bench/serve/served_source.h"
#include "dataflow/host_device.h"
#include "dataflow/machine/memory_limit.h"
#include "dataflow/pace.h"
#include "feeders/remote/receive/zmq_message.h"
#include "feeders/remote/receive/zmq_socket.h"
#include "feeders/remote/send/frame_memory.h"
#include "feeders/remote/send/sender.h"

namespace penstock {
namespace {

/// Prints to standard error. If it is a pipe whose reader has gone, serving continues.
template <typename... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  std::fputs(fmt::format(format, std::forward<Arguments>(arguments)...).c_str(), stderr);
}

/// Each message takes the memory of a batch.
constexpr std::int64_t kMaxHwm = 1 << 20;

struct ServeConfig {
  RunConfig run;
  std::string endpoint = "ipc://testpipe";
  remote::ZmqSocketOptions socket{.role = remote::ZmqSocketOptions::Role::push,
                                  .bind = false,
                                  .send_buffer = remote::kSendBuffer};
  net::CurveFiles keys;
  remote::MessageFormat format = remote::MessageFormat::zmq_op;
  bool checksum = false;
  remote::PushPlan plan{.timeout = std::chrono::hours(24 * 365)};
  bool encoded = false;
  std::int64_t epochs = -1;
  serve::ServeGroup group;
  bool ends_with_consumer = false;
  bool benchmark = false;
  bool credit = false, shared_memory = false;

  bool by_credit() const noexcept { return credit || shared_memory; }
};

/// The keys of `penstock run` that define the batches and how they are made.
constexpr std::string_view kRunKeys[] = {
    "fake_location", "model",         "batch_size", "image_size", "classes",
    "data_dir",      "on_bad_sample", "order",      "seed",       "feeder_threads"};

std::vector<Flag> serve_flags(ServeConfig& config) {
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
      throw ConfigError("--num-batches is " + text + "; expected 0 or more");
    }
  };
  const auto set_rate = [&](const std::string& text) {
    config.plan.img_per_s = parse_real(text, "--img-per-s");
    if (config.plan.img_per_s != 0) checked_rate(config.plan.img_per_s, "--img-per-s");
  };
  const auto set_timeout = [&](const std::string& text) {
    config.plan.timeout = parse_duration(text, "--timeout");
    if (config.plan.timeout <= Nanoseconds::zero()) {
      throw ConfigError("--timeout is " + text + "; expected a time above 0, such as 30s");
    }
  };
  const auto set_epochs = [&](const std::string& text) {
    config.epochs = parse_integer(text, "--epochs");
    if (config.epochs < 1) throw ConfigError("--epochs is " + text + "; expected 1 or more");
  };
  return join_flags(
      run_flags(config.run, kRunKeys),
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

DataPlan data_plan(const ServeConfig& config, const BatchSpec& spec, const std::stop_token& stop) {
  DataPlan plan;
  plan.directory = config.run.data_dir;
  plan.rank = config.group.rank;
  plan.ranks = config.group.ranks;
  plan.epochs = config.epochs;
  plan.order = config.run.order == "strict" ? Order::strict : Order::relaxed;
  plan.seed = config.run.seed;
  plan.classes = spec.classes;
  plan.stop = stop;
  return plan;
}

/// Besides the batches waiting in the socket, one is being filled and one is being sent.
std::size_t batches_in_memory(const ServeConfig& config) {
  return static_cast<std::size_t>(config.socket.hwm) + 2;
}

/// "64 x 224x224x3".
std::string describe(const BatchSpec& spec) {
  return fmt::format("{} x {}x{}x{}", spec.images, spec.image.height, spec.image.width,
                     spec.image.channels);
}

/// The objects that both ways of serving need.
struct Surroundings {
  explicit Surroundings(const ServeConfig& config)
      : name(config.group.name()),
        reports{.refused = {},
                .say = [this](const std::string& text) { say("{}: {}\n", name, text); },
                .left =
                    [this, ends = config.ends_with_consumer](const std::string& peer,
                                                             std::int64_t others) {
                      say("{}: the consumer, {}, left after {} batches; {} connected\n", name, peer,
                          probe.counter("batches_sent").value(), others);
                      if (ends && others == 0) ended.request_stop();
                    }} {}

  std::string name;
  std::stop_source ended;  // ends only this process
  SteadyClock clock;
  Probe probe{false};
  HostDevice host{clock};
  net::PeerReports reports;
};

/// Sends until the plan is done, beside a feeder if there is one, and reports progress. `what` and
/// `memory` describe the batches.
void serve(const ServeConfig& config, std::unique_ptr<remote::BatchSupply> supply,
           Surroundings& around, const std::string& what, const std::string& memory,
           const std::function<void(const std::stop_token&)>& feed, const std::stop_token& stop) {
  std::optional<remote::Sender> sender;
  if (config.benchmark) {
    const auto format = config.encoded ? remote::MessageFormat::framed : config.format;
    say("{}: {} are encoded as {} and dropped{}\n", around.name, what, to_string(format), memory);
  } else {
    sender.emplace(std::move(supply), net::parse_endpoint(config.endpoint), config.socket,
                   around.clock, around.probe, around.reports);
    say("{}: {} {} {}{}{}\n", around.name, what, config.socket.bind ? "are served at" : "go to",
        sender->address(), config.by_credit() ? " by credit" : "", memory);
  }
  const serve::ServeProgress progress(around.name, around.probe, around.clock);
  std::stop_source& ended = around.ended;
  const std::stop_callback forward(stop, [&] { ended.request_stop(); });
  std::exception_ptr failure;
  {
    std::jthread feeding, reporting;
    try {
      feeding = std::jthread([&] {
        if (feed) feed(ended.get_token());
      });
      reporting = std::jthread([&] { progress.run(ended.get_token()); });
      if (sender) {
        sender->run(config.plan, ended.get_token());
      } else {
        remote::drop_batches(*supply, config.plan, around.probe, ended.get_token());
      }
    } catch (...) {
      failure = std::current_exception();
    }
    ended.request_stop();
  }
  const serve::ServeTotals totals = progress.totals();
  say("{}: {}\n", config.group.name(),
      describe(totals, {.paced = config.plan.img_per_s > 0, .dropped = config.benchmark}));
  config.group.report(totals);
  if (failure) std::rethrow_exception(failure);
  if (sender && sender->refused() > 0) {
    say("{}: refused {} connections\n", config.group.name(), sender->refused());
  }
  if (const auto ahead = sender ? sender->clock() : std::nullopt; ahead && !config.encoded) {
    say("{}: the consumer's clock is {:.0f} us ahead, within {:.0f} us\n", around.name,
        1e-3 * ahead->offset_ns, 1e-3 * ahead->bound_ns);
  }
  for (const std::string& note : around.probe.notes()) say("penstock: {}\n", note);
}

FeederContext feeder_context(const ServeConfig& config, const FeederEntry& feeder,
                             const BatchSpec& spec, const Options& options, Device& device,
                             Surroundings& around, const std::stop_token& stop) {
  // Shares of data are disjoint; random batches need different seeds.
  const auto apart = static_cast<std::uint64_t>(feeder.reads_files ? 0 : config.group.rank);
  return {
      .spec = spec,
      .device = device,
      .clock = around.clock,
      .options = options,
      .data = data_plan(config, spec, stop),
      .probe = around.probe,
      .on_bad_sample = parse_bad_sample_policy(config.run.on_bad_sample),
      .timeout = std::chrono::round<Nanoseconds>(std::chrono::duration<double>(config.run.timeout)),
      .threads = config.run.feeder_threads,
      .slots = static_cast<std::int32_t>(batches_in_memory(config)),
      .seed = config.run.seed + apart,
  };
}

/// Checks the memory before it is allocated.
void require_batches(const ServeConfig& config, const BatchSpec& spec) {
  const auto batch = static_cast<double>(spec.bytes()),
             hwm = static_cast<double>(config.socket.hwm);
  const MemoryNeed::Factor images{"--batch-size", static_cast<double>(spec.images)};
  require_memory(std::vector<MemoryNeed>{
      {"batches that wait to be sent", hwm * batch, {images, {"--hwm", hwm}}},
      {"batches that are being filled", 2 * batch, {images}}});
}

/// Serves a feeder through a ring.
void serve_pixels(const ServeConfig& config, const FeederEntry& entry, const BatchSpec& spec,
                  const Options& options, const Invocation& invocation) {
  require_batches(config, spec);
  Surroundings around(config);
  const std::size_t slots = batches_in_memory(config);
  remote::FrameMemory sent(around.host);
  std::optional<remote::SharedFrameMemory> shared;
  if (config.shared_memory) shared.emplace(around.host, spec.bytes(), slots);
  Device& memory = shared ? static_cast<Device&>(*shared) : sent;
  Device* const reader = &memory;
  const bool credit = config.by_credit();
  auto messages =
      shared ? remote::make_lent_outgoing(spec, around.clock, shared->pool())
             : remote::make_outgoing(credit ? remote::MessageFormat::framed : config.format, spec,
                                     around.clock, config.checksum);
  BatchRing ring(spec, slots, memory, MemoryKind::pinned, std::span(&reader, 1), Order::relaxed,
                 around.clock);
  const auto make_feeder = [&] {
    const LeaveOnStop leave(invocation.stop, invocation.leave);
    return entry.make(
        feeder_context(config, entry, spec, options, memory, around, invocation.stop));
  };
  const std::unique_ptr<Feeder> feeder = make_feeder();
  serve(
      config,
      remote::make_ring_supply(ring, std::move(messages), around.clock, around.probe, credit),
      around, describe(spec) + " from " + config.run.fake_location,
      fmt::format("; {} batches ({:.0f} MB) of {}memory", slots,
                  1e-6 * static_cast<double>(slots * spec.bytes()), shared ? "shared " : ""),
      [&](const std::stop_token& ended) { run_to_end(*feeder, ring, ended); }, invocation.stop);
}

void serve_encoded(const ServeConfig& config, const FeederEntry& entry, const BatchSpec& spec,
                   const Options& options, const Invocation& invocation) {
  Surroundings around(config);
  const FeederContext context =
      feeder_context(config, entry, spec, options, around.host, around, invocation.stop);
  const auto make_source = [&] {
    const LeaveOnStop leave(invocation.stop, invocation.leave);
    return serve::make_served_source(entry, context);
  };
  const std::unique_ptr<Source> source = make_source();
  if (const std::string note = source->facts().note; !note.empty()) around.probe.note(note);
  serve(config,
        remote::make_file_supply(*source,
                                 {.images = static_cast<std::size_t>(spec.images),
                                  .batches = batches_in_memory(config),
                                  .checksum = config.checksum,
                                  .on_bad_sample = context.on_bad_sample,
                                  .name = around.name},
                                 around.clock, around.probe),
        around,
        fmt::format("{} image files a message from {}, {} of them,", spec.images,
                    config.run.fake_location, source->facts().size),
        "", {}, invocation.stop);
}

int run(const Invocation& invocation) {
  ServeConfig config;
  config.run.fake_location = "cpu";
  apply_like_of(config.run, invocation.arguments);
  if (!parse_flags(
          {.verb = "serve",
           .summary =
               "Sends a feeder's batches to a ZeroMQ consumer, or image files with --encoded.",
           .common = "fake-location model data-dir batch-size feeder-threads endpoint bind "
                     "num-batches img-per-s format encoded credit shared-memory processes",
           .examples = "serve --feeder queue --data-dir my/images --endpoint tcp://127.0.0.1:5555\n"
                       "serve --encoded --data-dir my/images --endpoint ipc://feed --epochs 3\n"
                       "serve --feeder host --shared-memory --endpoint ipc://feed\n"
                       "serve --feeder host --benchmark --format msgpack --num-batches 1000"},
          serve_flags(config), invocation.arguments)) {
    return 0;
  }
  if (config.encoded && !is_typed("fake_location", invocation.arguments)) {
    config.run.fake_location = "queue";
  }
  if (config.epochs >= 0 && !config.encoded) {
    throw ConfigError(
        "--epochs without --encoded: batches of pixels are all of one size, and an "
        "epoch's last one may not be; take --num-batches, or --encoded");
  }
  const bool framed =
      !is_typed("format", invocation.arguments) || config.format == remote::MessageFormat::framed;
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
  if (config.benchmark && (config.by_credit() || is_typed("endpoint", invocation.arguments))) {
    throw ConfigError(
        "--benchmark sends nothing, so there is no consumer; leave --endpoint, --credit and "
        "--shared-memory out");
  }
  // The process that started several processes has already said so.
  if (!is_typed("report_fd", invocation.arguments)) {
    say_unused_flags(std::span(&config.run, 1), invocation.arguments);
  }
  config.socket.curve = net::read_curve(config.keys);
  const Runner::Components components = find_components(config.run);
  dataset::ensure_data_of(config.run, *components.feeder, invocation.stop);
  const bool threads_typed = config.run.feeder_threads > 0;
  config.run = resolve(config.run, components);
  if (config.group.processes > 1) {
    const std::int32_t threads =
        threads_typed ? 0 : std::max(1, config.run.feeder_threads / config.group.processes);
    std::vector<std::string> command{invocation.program, "serve"};
    command.insert(command.end(), invocation.arguments.begin(), invocation.arguments.end());
    return serve::serve_processes(command, config.group,
                                  {.batches = config.plan.batches,
                                   .img_per_s = config.plan.img_per_s,
                                   .feeder_threads = threads,
                                   .bind = config.socket.bind,
                                   .dropped = config.benchmark},
                                  invocation.stop);
  }
  const BatchSpec spec = batch_spec(config.run, *components.model);
  const Options options = options_of(config.run.fake_location, components.feeder->options);
  // Small batches would accumulate in the kernel's send buffer, where they are not counted.
  config.socket.send_buffer =
      std::min(config.socket.send_buffer, static_cast<std::int64_t>(spec.bytes()));
  if (config.by_credit()) config.socket.role = remote::ZmqSocketOptions::Role::dealer;
  const auto serve_so = config.encoded ? serve_encoded : serve_pixels;
  serve_so(config, *components.feeder, spec, options, invocation);
  return 0;
}

}  // namespace

extern constinit const VerbEntry serve_verb{
    .name = "serve",
    .summary = "send a feeder's batches to a ZeroMQ consumer",
    .run = run,
};

}  // namespace penstock
