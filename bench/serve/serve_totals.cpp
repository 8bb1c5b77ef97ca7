// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/serve_totals.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sstream>
#include <utility>

#include "dataflow/error.h"

namespace penstock::serve {
namespace {

/// Time between two lines of progress.
constexpr Nanoseconds kPeriod = std::chrono::seconds(5);

/// Waits below this share of the time are not mentioned.
constexpr double kNoticed = 0.1;

std::string_view slower_side(const ServeTotals& totals, bool paced) {
  const double consumers = totals.consumers_s / totals.seconds,
               feeder = totals.feeder_s / totals.seconds;
  if (paced && consumers < 0.5 && feeder < 0.5) return "--img-per-s is the limit";
  if (std::max(consumers, feeder) < kNoticed) return "neither side waits";
  return consumers > feeder ? "the consumers are the slower side"
                            : "this producer is the slower side; give it a faster source, or "
                              "more --processes";
}

}  // namespace

std::string to_line(const ServeTotals& totals) {
  return fmt::format("{} {} {} {} {} {}", totals.batches, totals.images, totals.bytes,
                     totals.seconds, totals.consumers_s, totals.feeder_s);
}

ServeTotals totals_from_line(std::string_view line) {
  std::istringstream text{std::string(line)};
  ServeTotals totals;
  text >> totals.batches >> totals.images >> totals.bytes >> totals.seconds >> totals.consumers_s >>
      totals.feeder_s;
  if (text) return totals;
  throw Error("a process reported '{}'; expected six numbers", line);
}

ServeTotals sum_of(std::span<const ServeTotals> processes) {
  ServeTotals sum;
  for (const ServeTotals& one : processes) {
    sum.batches += one.batches;
    sum.images += one.images;
    sum.bytes += one.bytes;
    sum.seconds = std::max(sum.seconds, one.seconds);
    sum.consumers_s += one.consumers_s / static_cast<double>(processes.size());
    sum.feeder_s += one.feeder_s / static_cast<double>(processes.size());
  }
  return sum;
}

std::string describe(const ServeTotals& totals, const ServeWay& way) {
  const double time = std::max(totals.seconds, 1e-9);
  const std::string sent =
      fmt::format("{} {} batches, {} {}, {:.1f} MB: {:.1f} {}/s, {:.1f} MB/s in {:.1f} s",
                  way.dropped ? "encoded and dropped" : "sent", totals.batches, totals.images,
                  way.unit == "img" ? "images" : way.unit, 1e-6 * static_cast<double>(totals.bytes),
                  static_cast<double>(totals.images) / time, way.unit,
                  1e-6 * static_cast<double>(totals.bytes) / time, totals.seconds);
  if (totals.batches == 0) return sent;
  if (way.dropped) {
    return fmt::format("{}; {:.0f} % of it waiting for batches to encode", sent,
                       100 * totals.feeder_s / time);
  }
  return fmt::format("{}; {:.0f} % of it waiting for consumers, {:.0f} % for batches to send: {}",
                     sent, 100 * totals.consumers_s / time, 100 * totals.feeder_s / time,
                     slower_side(totals, way.paced));
}

ServeProgress::ServeProgress(std::string name, std::string unit, Probe& probe, Clock& clock)
    : name_(std::move(name)),
      unit_(std::move(unit)),
      batches_(probe.counter("batches_sent")),
      images_(probe.counter("images_sent")),
      bytes_(probe.counter("bytes_sent")),
      consumers_ns_(probe.counter("send_wait_ns")),
      feeder_ns_(probe.counter("feed_wait_ns")),
      clock_(clock),
      start_(clock.now()) {}

void ServeProgress::run(const std::stop_token& stop) const {
  std::int64_t before = 0;
  for (Time due = start_ + kPeriod;; due += kPeriod) {
    clock_.sleep_until(due, stop);
    if (stop.stop_requested()) return;
    const std::int64_t images = images_.value();
    fmt::print(stderr, "{}: {} batches, {:.1f} {}/s{}\n", name_, batches_.value(),
               static_cast<double>(images - before) / to_seconds(kPeriod), unit_,
               images == before ? ", waiting for a consumer" : "");
    before = images;
  }
}

ServeTotals ServeProgress::totals() const {
  return {.batches = batches_.value(),
          .images = images_.value(),
          .bytes = bytes_.value(),
          .seconds = to_seconds(clock_.now() - start_),
          .consumers_s = to_seconds(Nanoseconds(consumers_ns_.value())),
          .feeder_s = to_seconds(Nanoseconds(feeder_ns_.value()))};
}

}  // namespace penstock::serve
