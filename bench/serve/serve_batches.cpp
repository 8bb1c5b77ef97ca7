// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/serve_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "bench/cli.h"
#include "bench/config/training_loop.h"
#include "bench/config/training_rules.h"
#include "dataflow/datasets/detect_source.h"
#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "dataflow/machine/memory_limit.h"
#include "dataflow/options.h"
#include "dataflow/source.h"
#include "feeders/image_decoding.h"
#include "feeders/image_source.h"
#include "feeders/remote/send/frame_memory.h"

namespace penstock::serve {
namespace {

/// Besides the batches waiting in the socket, one is being filled and one is being sent.
std::size_t batches_in_memory(const ServeConfig& config) {
  return static_cast<std::size_t>(config.socket.hwm) + 2;
}

/// What both ways of serving need.
struct ServeContext {
  explicit ServeContext(const ServeConfig& config)
      : name(config.group.name()),
        reports{
            .refused = {},
            .say = [this](const std::string& text) { fmt::print(stderr, "{}: {}\n", name, text); },
            .left =
                [this, ends = config.ends_with_consumer](const std::string& peer,
                                                         std::int64_t others) {
                  fmt::print(stderr, "{}: the consumer, {}, left after {} batches; {} connected\n",
                             name, peer, probe.counter("batches_sent").value(), others);
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
void send(const ServeConfig& config, std::unique_ptr<remote::BatchSupply> supply,
          ServeContext& serving, const std::string& what, const std::string& memory,
          const std::function<void(const std::stop_token&)>& feed, const std::stop_token& stop) {
  std::optional<remote::Sender> sender;
  if (config.benchmark) {
    const auto format = config.encoded ? remote::MessageFormat::framed : config.format;
    fmt::print(stderr, "{}: {} are encoded as {} and dropped{}\n", serving.name, what,
               to_string(format), memory);
  } else {
    sender.emplace(std::move(supply), net::parse_endpoint(config.endpoint), config.socket,
                   serving.clock, serving.probe, serving.reports);
    fmt::print(stderr, "{}: {} {} {}{}{}\n", serving.name, what,
               config.socket.bind ? "are served at" : "go to", sender->address(),
               config.by_credit() ? " by credit" : "", memory);
  }
  const ServeProgress progress(serving.name, sample_unit(config.run), serving.probe, serving.clock);
  std::stop_source& ended = serving.ended;
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
        remote::drop_batches(*supply, config.plan, serving.probe, ended.get_token());
      }
    } catch (...) {
      failure = std::current_exception();
    }
    ended.request_stop();
  }
  const ServeTotals totals = progress.totals();
  fmt::print(stderr, "{}: {}\n", config.group.name(),
             describe(totals, {.paced = config.plan.img_per_s > 0,
                               .dropped = config.benchmark,
                               .unit = sample_unit(config.run)}));
  config.group.report(totals);
  if (failure) std::rethrow_exception(failure);
  if (sender && sender->refused() > 0) {
    fmt::print(stderr, "{}: refused {} connections\n", config.group.name(), sender->refused());
  }
  if (const auto ahead = sender ? sender->clock() : std::nullopt; ahead && !config.encoded) {
    fmt::print(stderr, "{}: the consumer's clock is {:.0f} us ahead, within {:.0f} us\n",
               serving.name, 1e-3 * ahead->offset_ns, 1e-3 * ahead->bound_ns);
  }
  for (const std::string& note : serving.probe.notes()) fmt::print(stderr, "penstock: {}\n", note);
}

FeederContext feeder_context(const ServeConfig& config, const Runner::Components& components,
                             const BatchSpec& spec, const Options& options, Device& device,
                             ServeContext& serving, const std::stop_token& stop) {
  const FeederEntry& feeder = *components.feeder;
  // Shares of data are disjoint; random batches need different seeds.
  const auto apart = static_cast<std::uint64_t>(feeder.reads_files ? 0 : config.group.rank);
  return {
      .spec = spec,
      .device = device,
      .clock = serving.clock,
      .options = options,
      .data = {.directory = config.run.data_dir,
               .rank = config.group.rank,
               .ranks = config.group.ranks,
               .epochs = config.epochs,
               .order = config.run.order == "strict" ? Order::strict : Order::relaxed,
               .seed = config.run.seed,
               .classes = spec.classes,
               .stop = stop},
      .probe = serving.probe,
      .on_bad_sample = parse_bad_sample_policy(config.run.on_bad_sample),
      .timeout = std::chrono::round<Nanoseconds>(std::chrono::duration<double>(config.run.timeout)),
      .threads = config.run.feeder_threads,
      .slots = static_cast<std::int32_t>(batches_in_memory(config)),
      .seed = config.run.seed + apart,
      .started = components.started,
      .whole_batches = true,
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

std::string describe(const BatchSpec& spec) {
  if (spec.opaque) {
    return fmt::format("arrays for consumers with zmq-consume:batch={}x{}B", spec.images,
                       spec.pixel_bytes());
  }
  return fmt::format("{} x {}x{}x{}", spec.images, spec.image.height, spec.image.width,
                     spec.image.channels);
}

/// Serves a feeder through a ring.
void serve_pixels(const ServeConfig& config, const Runner::Components& components,
                  const BatchSpec& spec, const std::stop_token& stop,
                  const std::function<void()>& leave_now) {
  const FeederEntry& entry = *components.feeder;
  const Options options = options_of(config.run.fake_location, entry.options);
  require_batches(config, spec);
  ServeContext serving(config);
  const std::size_t slots = batches_in_memory(config);
  remote::FrameMemory sent(serving.host);
  std::optional<remote::SharedFrameMemory> shared;
  if (config.shared_memory) shared.emplace(serving.host, spec.bytes(), slots);
  Device& memory = shared ? static_cast<Device&>(*shared) : sent;
  Device* const reader = &memory;
  const bool credit = config.by_credit();
  auto messages =
      shared ? remote::make_lent_outgoing(spec, serving.clock, shared->pool())
             : remote::make_outgoing(credit ? remote::MessageFormat::framed : config.format, spec,
                                     serving.clock, config.checksum);
  BatchRing ring(spec, slots, memory, MemoryKind::pinned, std::span(&reader, 1), Order::relaxed,
                 serving.clock);
  const auto make_feeder = [&] {
    const LeaveOnStop leave(stop, leave_now);
    return entry.make(feeder_context(config, components, spec, options, memory, serving, stop));
  };
  const std::unique_ptr<Feeder> feeder = make_feeder();
  send(
      config,
      remote::make_ring_supply(ring, std::move(messages), serving.clock, serving.probe, credit),
      serving, fmt::format("{} from {}", describe(spec), config.run.fake_location),
      fmt::format("; {} batches ({:.0f} MB) of {}memory", slots,
                  1e-6 * static_cast<double>(slots * spec.bytes()), shared ? "shared " : ""),
      [&](const std::stop_token& ended) { run_to_end(*feeder, ring, ended); }, stop);
}

/// The source that the feeder, with the options in `context`, would decode. Throws ConfigError,
/// with what to use instead, for feeders and sources of pixels, and for decoding options.
std::unique_ptr<Source> make_served_source(const FeederEntry& feeder,
                                           const FeederContext& context) {
  static constexpr auto kDecodingOptions = joined_options(kJpegOptions, kDecodePoolOptions);
  if (!feeder.decodes_samples) {
    throw ConfigError(
        "--encoded sends image files, and --fake-location {} makes pixels; expected queue, such as "
        "queue:source=tfrecord; or leave --encoded out",
        feeder.name);
  }
  for (const OptionSpec& option : kDecodingOptions) {
    if (!context.options.given(option.name)) continue;
    throw ConfigError(
        "--encoded sends image files as they are, and option '{0}' is about decoding them; give it "
        "to the consumer, as zmq-consume:encoded=true,{0}={1}",
        option.name, context.options.text(option.name));
  }
  std::unique_ptr<Source> source = make_image_source(context);
  if (source->facts().kind == SampleKind::encoded) return source;
  throw ConfigError(
      "--encoded sends image files, and the source '{}' gives pixels; expected one of encoded "
      "images, such as tfrecord; or leave --encoded out",
      datasets::source_text(context.options.text("source"), context.data.directory).name);
}

void serve_encoded(const ServeConfig& config, const Runner::Components& components,
                   const BatchSpec& spec, const std::stop_token& stop,
                   const std::function<void()>& leave_now) {
  const FeederEntry& entry = *components.feeder;
  const Options options = options_of(config.run.fake_location, entry.options);
  ServeContext serving(config);
  const FeederContext context =
      feeder_context(config, components, spec, options, serving.host, serving, stop);
  const auto make_source = [&] {
    const LeaveOnStop leave(stop, leave_now);
    return make_served_source(entry, context);
  };
  const std::unique_ptr<Source> source = make_source();
  if (const std::string note = source->facts().note; !note.empty()) serving.probe.note(note);
  send(config,
       remote::make_file_supply(*source,
                                {.images = static_cast<std::size_t>(spec.images),
                                 .batches = batches_in_memory(config),
                                 .checksum = config.checksum,
                                 .on_bad_sample = context.on_bad_sample,
                                 .name = serving.name},
                                serving.clock, serving.probe),
       serving,
       fmt::format("{} image files a message from {}, {} of them,", spec.images,
                   config.run.fake_location, source->facts().size),
       "", {}, stop);
}

}  // namespace

BatchSpec served_batches(const ServeConfig& config, const Runner::Components& components) {
  BatchSpec spec = batch_spec(config.run, *components.model);
  const FeederEntry& feeder = *components.feeder;
  if (feeder.describe_batches != nullptr) {
    feeder.shape_batches(options_of(config.run.fake_location, feeder.options), spec);
  }
  return spec;
}

bool needs_framed(const BatchSpec& spec) {
  return spec.opaque || spec.pixel != DType::u8 || spec.planar;
}

void serve_batches(const ServeConfig& config, const Runner::Components& components,
                   const std::stop_token& stop, const std::function<void()>& leave) {
  const auto serve = config.encoded ? serve_encoded : serve_pixels;
  serve(config, components, served_batches(config, components), stop, leave);
}

}  // namespace penstock::serve
