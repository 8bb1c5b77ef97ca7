// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/framed_intake.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "dataflow/error.h"
#include "feeders/remote/wire/framed_texts.h"

namespace penstock::remote {
namespace {

/// How many producers with missing images are named.
constexpr std::size_t kMostNamed = 4;

constexpr std::pair<const char*, std::uint64_t AccountTotals::*> kCounted[] = {
    {"producers_seen", &AccountTotals::producers_seen},
    {"producers_ended", &AccountTotals::producers_ended},
    {"images_sent", &AccountTotals::images_sent},
    {"images_missing", &AccountTotals::images_missing},
    {"images_rejected", &AccountTotals::images_rejected},
    {"batches_missing", &AccountTotals::batches_missing},
    {"batches_duplicate", &AccountTotals::batches_duplicate}};

/// Formats a time, such as "1.25 ms".
std::string milliseconds_text(double seconds) { return fmt::format("{:.3g} ms", 1e3 * seconds); }

}  // namespace

FramedIntake::FramedIntake(const BatchSpec& spec, Probe& probe, const Setup& setup)
    : spec_(spec),
      probe_(probe),
      producers_(static_cast<std::uint64_t>(setup.producers)),
      boot_(boot_id()),
      one_machine_(setup.one_machine),
      accounts_(setup.limits),
      delivery_(probe) {}

std::optional<FramedMessage> FramedIntake::open(MessageFrames frames) {
  const FramedMessage message = parse_framed(frames);
  switch (message.header.kind) {
    case FramedKind::batch:
      return message;
    case FramedKind::hello:
      hello(message);
      return std::nullopt;
    case FramedKind::end:
      end(message.header);
      return std::nullopt;
    default:
      throw DataError("framed message: a {} is for producers; expected a batch, a hello or an end",
                      to_string(message.header.kind));
  }
}

void FramedIntake::hello(const FramedMessage& message) {
  const FramedHeader& header = message.header;
  const FramedHello hello = parse_framed_hello(message);
  accounts_.hello(header, hello);
  count();
  try {
    check_framed_shape(header, spec_);
  } catch (const MisfitError& error) {
    throw MisfitError(fmt::format("{}: {}", accounts_.name_of(header.producer), error.what()));
  }
}

void FramedIntake::end(const FramedHeader& header) {
  accounts_.ended(header);
  count();
}

void FramedIntake::accept(const FramedHeader& header, std::int64_t received_ns,
                          const std::optional<ClockBounds::Estimate>& ahead) {
  try {
    accounts_.received(header);
  } catch (const DataError&) {
    count();
    throw;
  }
  count();
  const bool our_clock = clock_of(header.producer).has_value();
  times_.add(header, received_ns, our_clock);
  if (our_clock && header.sent_ns >= window_begin_ns_ && header.sent_ns <= received_ns) {
    ++window_batches_;
    std::int64_t last = window_last_ns_;
    while (last < header.sent_ns && !window_last_ns_.compare_exchange_weak(last, header.sent_ns)) {
    }
  }
  delivery_.add(header, received_ns, ahead);
}

std::string FramedIntake::reject(const FramedHeader& header, const std::string& why) {
  if (header.kind == FramedKind::batch) {
    accounts_.rejected(header);
    count();
  }
  if (!accounts_.hello_of(header.producer)) return why;
  const std::string name = accounts_.name_of(header.producer);
  return why.find(name) == why.npos ? fmt::format("{}: {}", name, why) : why;
}

std::optional<ClockBounds::Estimate> FramedIntake::clock_of(std::uint64_t producer) const {
  if (boot_.empty() || !accounts_.is_of_boot(producer, boot_, one_machine_)) return std::nullopt;
  return ClockBounds::Estimate{};
}

void FramedIntake::count() {
  const std::lock_guard lock(mutex_);
  const AccountTotals now = accounts_.totals();
  for (std::size_t i = 0; i < counters_.size(); ++i) {
    const auto& [name, total] = kCounted[i];
    if (counters_[i] == nullptr) counters_[i] = &probe_.counter(name);
    counters_[i]->add(static_cast<std::int64_t>(now.*total - counted_.*total));
  }
  counted_ = now;
}

ProducerAccounts::Flow FramedIntake::flow() const {
  return producers_ == 0 ? ProducerAccounts::Flow::coming : accounts_.flow(producers_);
}

std::string FramedIntake::silence() const {
  const AccountTotals totals = accounts_.totals();
  if (totals.producers_seen == 0) return "";
  std::string text = fmt::format("; {} {} seen, and ", totals.producers_seen,
                                 totals.producers_seen == 1 ? "producer was" : "producers were");
  if (totals.producers_ended < totals.producers_seen) {
    return fmt::format("{}{} of them have sent their end", text, totals.producers_ended);
  }
  text += "all of them have sent their end";
  if (producers_ != 0) return fmt::format("{}; the run waits for producers={}", text, producers_);
  return fmt::format("{}; producers={} ends the data after them", text, totals.producers_ended);
}

void FramedIntake::window_begins() noexcept { window_begin_ns_ = wall_clock_ns(); }

void FramedIntake::summarise(double copy_s) {
  const AccountTotals totals = accounts_.totals();
  if (totals.images_missing > 0) {
    std::string note = fmt::format(
        "of {} images that producers sent, {} are missing: lost, or received by another consumer",
        totals.images_sent, totals.images_missing);
    for (const auto& [name, sent, missing] : accounts_.absences(kMostNamed)) {
      note += fmt::format("; of {}: {} of {}", name, missing, sent);
    }
    probe_.note(note);
  }
  if (totals.producers_seen == 1 && window_batches_ > 0) {
    probe_.fact("producer_window_batches", static_cast<double>(window_batches_));
    probe_.fact("producer_window_s",
                1e-9 * static_cast<double>(window_last_ns_ - window_begin_ns_));
  }
  const HandOffSummary times = times_.summary();
  if (times.batches == 0) return;
  probe_.fact("producing_median_s", times.making.median);
  probe_.fact("producing_p99_s", times.making.p99);
  probe_.fact("socket_wait_median_s", times.waiting.median);
  probe_.fact("socket_wait_p99_s", times.waiting.p99);
  probe_.fact("hand_off_median_s", times.way.median);
  probe_.fact("hand_off_p99_s", times.way.p99);
  const char* clocks = "by one clock";
  if (times.other_clocks == times.batches)
    clocks = "measured from the fastest one, because the clocks differ";
  if (times.other_clocks > 0 && times.other_clocks < times.batches) {
    clocks = "by one clock or, if clocks differ, measured from the fastest one";
  }
  // Medians, because batches that were ready before a consumer existed waited for it.
  const double whole = times.making.median + times.waiting.median + times.way.median + copy_s;
  const auto share = [&](double part) { return whole > 0 ? 100 * part / whole : 0; };
  probe_.note(fmt::format(
      "of a batch's time its producer made it for {:.0f} %, its socket kept it "
      "waiting for {:.0f} %, it was on its way, buffers included, for {:.0f} % (median {}, p99 "
      "{}, {}){}",
      share(times.making.median), share(times.waiting.median), share(times.way.median),
      milliseconds_text(times.way.median), milliseconds_text(times.way.p99), clocks,
      copy_s > 0 ? fmt::format(" and was copied out for {:.0f} %", share(copy_s)) : ""));
}

}  // namespace penstock::remote
