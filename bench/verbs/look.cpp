// SPDX-License-Identifier: Apache-2.0
// penstock look: takes batches from any feeder through a host ring, without a model, and reports
// what they hold.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/cli.h"
#include "bench/config/run_flags.h"
#include "bench/config/unused_flags.h"
#include "bench/dataset/contact_sheet.h"
#include "bench/dataset/default_dataset.h"
#include "bench/look/batch_survey.h"
#include "bench/record/exit_code.h"
#include "bench/run/run_setup.h"
#include "dataflow/batch_ring.h"
#include "dataflow/host_device.h"

namespace penstock {
namespace {

/// The keys of `penstock run` that define the batches and how they are made.
constexpr std::string_view kRunKeys[] = {
    "fake_location", "model",         "batch_size", "image_size", "classes",
    "data_dir",      "on_bad_sample", "prefetch",   "order",      "feeder_threads",
    "timeout",       "seed",          "data_format"};

constexpr std::int64_t kMostBatches = 1'000'000;

struct Look {
  std::int64_t batches = 20;
  std::string sheet;  ///< empty: none
  bool json = false;
};

/// What was seen until the batches, the data or the time ended.
struct Seen {
  explicit Seen(const BatchSpec& spec) : survey(spec) {}

  look::BatchSurvey survey;
  std::vector<dataset::SheetRow> rows;
  Time first{}, last{};             // when the first and the last batch were published
  std::int64_t after_first = 0;     // images
  Nanoseconds waited{}, elapsed{};  // by the reader
  std::exception_ptr failure;       // after the last batch

  double img_per_s() const {
    const double seconds = to_seconds(last - first);
    return seconds > 0 ? static_cast<double>(after_first) / seconds : 0;
  }
  /// Looking at batches takes longer than supplying them.
  bool is_slower() const { return waited < elapsed / 10; }

  std::string rate() const {
    if (img_per_s() == 0) return "";
    return is_slower()
               ? fmt::format("at least {:.1f} img/s; looking at them takes longer", img_per_s())
               : fmt::format("{:.1f} img/s", img_per_s());
  }
};

dataset::SheetRow row_of(const look::BatchSurvey& survey, const Batch& batch) {
  dataset::SheetRow row{fmt::format("batch {}  labels", survey.batches() - 1), {}};
  const std::size_t shown = std::min(dataset::kSheetColumns, static_cast<std::size_t>(batch.valid));
  for (std::size_t image = 0; image < shown; ++image) {
    row.title += fmt::format(" {}", batch.labels[image]);
    row.pictures.emplace_back(survey.picture(batch, image));
  }
  return row;
}

/// Reads the batches of `feeder`, which fills `ring`. A failure of the feeder is kept, so that what
/// came before it is reported.
Seen see(Feeder& feeder, BatchRing& ring, const Look& request, Clock& clock,
         const std::stop_token& stop) {
  constexpr std::size_t kMostRows = 16;
  Seen seen(ring.spec());
  std::stop_source ended;
  const std::stop_callback forward(stop, [&] { ended.request_stop(); });
  const Time began = clock.now();
  std::jthread feeding([&] { run_to_end(feeder, ring, ended.get_token()); });
  try {
    while (seen.survey.batches() < request.batches) {
      const Time asked = clock.now();
      ReadLease lease = ring.next(0, stop);
      if (!lease) break;
      lease.await();
      seen.waited += clock.now() - asked;
      const Batch& batch = lease.batch();
      if (seen.survey.batches() == 0) {
        seen.first = batch.offered;
      } else {
        seen.after_first += batch.valid;
      }
      seen.last = batch.offered;
      seen.survey.add(batch);
      if (!request.sheet.empty() && seen.rows.size() < kMostRows) {
        seen.rows.push_back(row_of(seen.survey, batch));
      }
    }
  } catch (...) {
    seen.failure = std::current_exception();
  }
  seen.elapsed = clock.now() - began;
  ended.request_stop();
  return seen;
}

void print(const Seen& seen, const RunConfig& config, const Look& request, const Probe& probe) {
  const std::vector<std::string> notes = probe.notes();
  if (request.json) {
    nlohmann::ordered_json json = {{"feeder", config.fake_location}};
    json.update(seen.survey.to_json());
    json["img_per_s"] = seen.img_per_s();
    json["rate_is_lower_bound"] = seen.is_slower();
    json["counters"] = probe.values();
    json["notes"] = notes;
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return;
  }
  fmt::print("{}\n{}", config.fake_location, seen.survey.to_text(seen.rate()));
  for (const std::string& note : notes) fmt::print("note         {}\n", note);
}

int run(const Invocation& invocation) {
  RunConfig config;
  config.model = "null";  // states sizes only
  Look request;
  apply_like_of(config, invocation.arguments);
  const FlagGroup flag{"Look"};
  std::vector<Flag> loader = loader_flags(config);
  std::erase_if(loader,
                [](const Flag& one) { return one.name == "batch_samples" || one.name == "count"; });
  if (!parse_flags(
          {.verb = "look",
           .summary = "Shows what a feeder, a loader or an endpoint delivers, without a model: "
                      "types, ranges, labels, repeats.",
           .examples = "look --feeder zmq-consume:endpoint=ipc://feed --batch-size 64\n"
                       "look --loader my_loader.py:make --contact-sheet sheet.png"},
          join_flags(
              run_flags(config, kRunKeys), std::move(loader),
              std::vector<Flag>{
                  flag.count("num_batches", "batches to look at", request.batches, 1, kMostBatches),
                  flag.text("contact_sheet",
                            "file for a PNG with images of the first batches; default: none",
                            request.sheet),
                  flag.boolean("json", "print one JSON object, with every label", request.json)}),
          invocation.arguments)) {
    return 0;
  }
  say_unused_flags(std::span(&config, 1), invocation.arguments);
  Runner::Components components = find_components(config);
  config = adopt_batches(config, components, invocation.stop);
  dataset::ensure_data_of(config, *components.feeder, invocation.stop);
  SteadyClock clock;
  HostDevice host(clock);
  Device* const reader = &host;
  std::optional<RunSetup> setup;
  std::optional<BatchRing> ring;
  std::unique_ptr<Feeder> feeder;
  {
    const LeaveOnStop leave(invocation.stop, invocation.leave);
    setup.emplace(config, clock, components, invocation.stop, nullptr);
    if (setup->spec.opaque) {
      throw ConfigError(
          "look shows pixels and labels, and the loader's batches hold no images; `penstock run` "
          "with the same loader and --model null says what they hold, and measures them");
    }
    require_memory(memory_needs(*setup, false));
    const auto slots = static_cast<std::size_t>(config.prefetch);
    ring.emplace(setup->spec, slots, host, MemoryKind::host, std::span(&reader, 1), Order::relaxed,
                 clock);
    ring->accept_foreign();
    feeder = setup->make_feeder(setup->spec, setup->data_plan(0, 0), host, config.prefetch,
                                setup->probe);
  }
  const Seen seen = see(*feeder, *ring, request, clock, invocation.stop);
  if (seen.survey.batches() > 0) {
    print(seen, setup->config, request, setup->probe);
    if (!seen.rows.empty()) {
      dataset::write_sheet(request.sheet, seen.rows.size(),
                           [&](std::size_t row) { return seen.rows[row]; });
    }
  }
  if (seen.failure) std::rethrow_exception(seen.failure);
  if (invocation.stop.stop_requested()) return exit_code_of_stop();
  if (seen.survey.batches() == 0) {
    throw DataError("the data of {} ended before the first batch", config.fake_location);
  }
  return 0;
}

}  // namespace

extern constinit const VerbEntry look_verb{
    .name = "look",
    .summary = "show what a feeder, a loader or an endpoint delivers, without a model",
    .run = run,
};

}  // namespace penstock
