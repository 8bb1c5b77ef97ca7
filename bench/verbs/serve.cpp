// SPDX-License-Identifier: Apache-2.0
// penstock serve: any feeder as a ZeroMQ producer.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "bench/cli.h"
#include "bench/dataset/default_dataset.h"
#include "bench/runner.h"
#include "bench/training_rules.h"
#include "dataflow/host_device.h"
#include "feeders/zmq_push.h"

namespace penstock {
namespace {

/// To standard error, which may be a pipe whose reader has gone: that ends no feeding.
template <typename... Arguments>
void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  std::fputs(fmt::format(format, std::forward<Arguments>(arguments)...).c_str(), stderr);
}

/// Between two lines of progress.
constexpr Nanoseconds kProgressPeriod = std::chrono::seconds(5);

/// Each takes the memory of a batch.
constexpr std::int64_t kMaxHwm = 1 << 20;

struct ServeConfig {
  RunConfig run;
  std::string endpoint = "ipc://testpipe";
  ZmqSocketOptions socket{.role = ZmqSocketOptions::Role::push, .bind = false};
  CurveFiles keys;
  MessageFormat format = MessageFormat::zmq_op;
  bool checksum = false;
  PushPlan plan{.timeout = std::chrono::hours(24 * 365)};
};

/// The keys of `penstock run` that say which batches there are and how they are made.
const std::set<std::string_view> kRunKeys = {
    "fake_location", "model",         "batch_size", "image_size", "classes",
    "data_dir",      "on_bad_sample", "order",      "seed",       "feeder_threads"};

std::vector<Flag> serve_flags(ServeConfig& config) {
  std::vector<Flag> flags;
  for (Flag& flag : run_flags(config.run)) {
    if (kRunKeys.contains(flag.name)) flags.push_back(std::move(flag));
  }
  const auto add = [&](std::string name, std::string help, std::string fallback,
                       std::function<void(const std::string&)> set, bool boolean = false,
                       std::string aliases = "") {
    flags.push_back({std::move(name), std::move(aliases), std::move(help), std::move(fallback),
                     boolean, std::move(set), "Serve"});
  };
  add("endpoint", "ipc://PATH, ipc://@NAME or tcp://HOST:PORT", config.endpoint,
      [&](const std::string& text) { config.endpoint = text; });
  add(
      "bind", "this side binds and consumers connect; else the other way round", "false",
      [&](const std::string& text) { config.socket.bind = parse_flag(text, "--bind"); }, true);
  add("format", "of messages: zmq_op, numpy-frames or framed", "zmq_op",
      [&](const std::string& text) {
        const std::optional<MessageFormat> format = message_format_of(text);
        if (!format) {
          throw ConfigError("--format is '" + text + "'; expected zmq_op, numpy-frames or framed");
        }
        config.format = *format;
      });
  add(
      "checksum", "framed messages have one of their bytes", "false",
      [&](const std::string& text) { config.checksum = parse_flag(text, "--checksum"); }, true);
  add("hwm", "batches that may wait in the socket", "8", [&](const std::string& text) {
    config.socket.hwm = checked_count("--hwm", parse_integer(text, "--hwm"), kMaxHwm);
  });
  add(
      "insecure", "may bind tcp:// without keys where other machines can receive", "false",
      [&](const std::string& text) { config.socket.insecure = parse_flag(text, "--insecure"); },
      true);
  add("curve-secret", kCurveSecretHelp, "",
      [&](const std::string& text) { config.keys.secret = text; });
  add("curve-server-key", kCurveServerKeyHelp, "",
      [&](const std::string& text) { config.keys.server_key = text; });
  add("curve-allow", kCurveAllowHelp, "",
      [&](const std::string& text) { config.keys.allow = text; });
  add("num-batches", "batches to send; 0: until stopped", "0", [&](const std::string& text) {
    config.plan.batches = parse_integer(text, "--num-batches");
    if (config.plan.batches < 0)
      throw ConfigError("--num-batches is " + text + "; expected 0 or more");
  });
  add(
      "img-per-s", "images per second to send at most; 0: as many as are taken", "0",
      [&](const std::string& text) {
        config.plan.img_per_s = parse_real(text, "--img-per-s");
        if (config.plan.img_per_s < 0)
          throw ConfigError("--img-per-s is " + text + "; expected 0 or more");
      },
      false, "rate");
  add("timeout", "how long no consumer may take a batch, such as 30s; default: for ever", "",
      [&](const std::string& text) {
        config.plan.timeout = parse_duration(text, "--timeout");
        if (config.plan.timeout <= Nanoseconds::zero()) {
          throw ConfigError("--timeout is " + text + "; expected a time above 0, such as 30s");
        }
      });
  return flags;
}

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

/// What is said while batches go out.
class Progress {
 public:
  Progress(Probe& probe, Clock& clock, std::int32_t images_per_batch)
      : batches_(probe.counter("batches_sent")),
        wait_ns_(probe.counter("send_wait_ns")),
        clock_(clock),
        images_per_batch_(images_per_batch),
        start_(clock.now()) {}

  /// One line every few seconds, until stopped.
  void run(const std::stop_token& stop) const {
    std::int64_t before = 0;
    for (Time due = start_ + kProgressPeriod;; due += kProgressPeriod) {
      clock_.sleep_until(due, stop);
      if (stop.stop_requested()) return;
      const std::int64_t batches = batches_.value();
      const double images = static_cast<double>((batches - before) * images_per_batch_);
      say("penstock serve: {} batches, {:.1f} img/s{}\n", batches,
          images / seconds(kProgressPeriod), batches == before ? ", waiting for a consumer" : "");
      before = batches;
    }
  }

  /// All of it, at the end.
  void summarise() const {
    const double elapsed = seconds(clock_.now() - start_);
    const std::int64_t images = batches_.value() * images_per_batch_;
    fmt::print(
        stderr,
        "penstock serve: sent {} batches, {} images, {:.1f} img/s; waited for consumers {:.0f} % "
        "of {:.1f} s\n",
        batches_.value(), images, static_cast<double>(images) / elapsed,
        100 * seconds(Nanoseconds(wait_ns_.value())) / elapsed, elapsed);
  }

 private:
  Counter &batches_, &wait_ns_;
  Clock& clock_;
  const std::int32_t images_per_batch_;
  const Time start_;
};

/// Runs both ends of one ring until the plan is done, and says how it goes.
void serve(const PushPlan& plan, Feeder& feeder, BatchRing& ring, ZmqPush& push,
           const Progress& progress, const std::stop_token& stop) {
  std::stop_source ended;
  const std::stop_callback forward(stop, [&] { ended.request_stop(); });
  std::exception_ptr failure;
  {
    const std::jthread feeding([&] { run_to_end(feeder, ring, ended.get_token()); });
    const std::jthread reporting([&] { progress.run(ended.get_token()); });
    try {
      push.run(plan, ended.get_token());
    } catch (...) {
      failure = std::current_exception();
    }
    ended.request_stop();
  }
  progress.summarise();
  if (failure) std::rethrow_exception(failure);
}

DataPlan data_plan(const RunConfig& config, const BatchSpec& spec) {
  DataPlan plan;
  plan.directory = config.data_dir;
  plan.order = config.order == "strict" ? Order::strict : Order::relaxed;
  plan.seed = config.seed;
  plan.classes = spec.classes;
  return plan;
}

/// "64 x 224x224x3".
std::string describe(const BatchSpec& spec) {
  return fmt::format("{} x {}x{}x{}", spec.images, spec.image.height, spec.image.width,
                     spec.image.channels);
}

int run(const Invocation& invocation) {
  ServeConfig config;
  config.run.fake_location = "cpu";
  if (!parse_flags("serve", "Sends a feeder's batches to a ZeroMQ consumer.", serve_flags(config),
                   invocation.arguments)) {
    return 0;
  }
  config.socket.curve = read_curve(config.keys);
  SteadyClock clock;
  const Runner::Components components = find_components(config.run);
  ensure_data_of(config.run, *components.feeder, invocation.stop);
  config.run = resolve(config.run, components);
  const BatchSpec spec = batch_spec(config.run, *components.model);
  const Options options = options_of(config.run.fake_location, components.feeder->options);

  auto messages = make_outgoing(config.format, spec, clock, config.checksum);
  Probe probe(false);
  HostDevice host(clock);
  FrameMemory memory(host);
  Device* const reader = &memory;
  // Besides those that wait in the socket, one is filled and one is on its way.
  BatchRing ring(spec, static_cast<std::size_t>(config.socket.hwm) + 2, memory, MemoryKind::pinned,
                 std::span(&reader, 1), Order::relaxed, clock);
  const std::unique_ptr<Feeder> feeder = components.feeder->make(FeederContext{
      .spec = spec,
      .device = memory,
      .clock = clock,
      .options = options,
      .data = data_plan(config.run, spec),
      .probe = probe,
      .on_bad_sample = parse_bad_sample_policy(config.run.on_bad_sample),
      .timeout = std::chrono::round<Nanoseconds>(std::chrono::duration<double>(config.run.timeout)),
      .threads = config.run.feeder_threads,
      .slots = static_cast<std::int32_t>(ring.slots()),
      .seed = config.run.seed,
  });
  ZmqPush push(
      ring, parse_endpoint(config.endpoint), config.socket, clock, probe,
      {.refused = {}, .say = [](const std::string& text) { say("penstock serve: {}\n", text); }},
      std::move(messages));
  say("penstock serve: {} from {} {} {}; {} batches ({:.0f} MB) of memory\n", describe(spec),
      config.run.fake_location, config.socket.bind ? "are served at" : "go to", push.address(),
      ring.slots(), 1e-6 * static_cast<double>(ring.slots() * spec.bytes()));
  serve(config.plan, *feeder, ring, push, Progress(probe, clock, spec.images), invocation.stop);
  if (push.refused() > 0) say("penstock serve: refused {} tries of peers\n", push.refused());
  for (const std::string& note : probe.notes()) say("penstock: {}\n", note);
  return 0;
}

}  // namespace

extern constinit const VerbEntry serve_verb{
    .name = "serve",
    .summary = "the ZeroMQ producer: sends a feeder's batches to a consumer",
    .run = run,
};

}  // namespace penstock
