// SPDX-License-Identifier: Apache-2.0
// The zmq-consume feeder out of the table, on a thread of its own, and the ring that it fills.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dataflow/host_device.h"
#include "feeders/feeder.h"
#include "tests/support/patience.h"
#include "tests/support/temp_folder.h"
#include "tests/transport/closed_form.h"

namespace penstock::transport {

inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// Bad messages are counted and skipped. A feeder that gets no batch for 20 s fails, and so does
/// whoever reads it.
class Feed {
 public:
  explicit Feed(const std::string& options, const BatchSpec& spec = kTiny)
      : Feed(options, spec, 2, false) {}
  /// With a ring of `slots`, which is lent what producers share where it takes loans.
  Feed(const std::string& options, const BatchSpec& spec, std::size_t slots, bool accepts_foreign)
      : spec_(spec),
        entry_(find_entry(feeder_table(), "zmq-consume")),
        options_("zmq-consume", entry_.options, parse_component("zmq-consume:" + options)),
        ring_(spec_, slots, device_, MemoryKind::pinned, std::span(&reader_, 1), Order::relaxed,
              clock_) {
    if (accepts_foreign) ring_.accept_foreign();
    feeder_ = entry_.make(FeederContext{.spec = spec_,
                                        .device = device_,
                                        .clock = clock_,
                                        .options = options_,
                                        .probe = probe_,
                                        .on_bad_sample = {BadSamplePolicy::Action::skip, -1},
                                        .timeout = std::chrono::seconds(20),
                                        .slots = static_cast<std::int32_t>(slots)});
    thread_ = std::jthread([this] { run_to_end(*feeder_, ring_, stop_.get_token()); });
  }
  ~Feed() { stop(); }

  void stop() {
    stop_.request_stop();
    if (thread_.joinable()) thread_.join();
  }

  /// The next batch; empty: stopped. Fails where it is none that a producer made. Rethrows what the
  /// feeder failed with.
  std::optional<BatchName> next(const std::stop_token& stop = {}) {
    const ReadLease lease = ring_.next(0, stop);
    if (!lease) return std::nullopt;
    const std::optional<BatchName> name = name_of(spec_, lease.batch());
    EXPECT_TRUE(name) << "a batch that nobody sent";
    return name;
  }
  /// The same, to be held.
  ReadLease take() { return ring_.next(0, {}); }
  /// Reads so many.
  void read(std::int64_t batches, Ledger& accounts) {
    for (std::int64_t i = 0; i < batches; ++i) {
      const std::optional<BatchName> name = next();
      ASSERT_TRUE(name);
      accounts.arrived(*name);
    }
  }

  std::int64_t counter(const std::string& name) const { return probe_.values().at(name); }
  std::vector<std::string> notes() const { return probe_.notes(); }
  std::string all_notes() const {
    std::string text;
    for (const std::string& note : notes()) text += note + "\n";
    return text;
  }
  /// Where it listens, with the port that libzmq chose.
  std::string address() const {
    const std::string note = notes().at(0);
    return note.substr(note.find("tcp://"));
  }

 private:
  const BatchSpec spec_;
  const FeederEntry& entry_;
  const Options options_;
  SteadyClock clock_;
  Probe probe_;
  HostDevice device_{clock_};
  Device* const reader_ = &device_;
  BatchRing ring_;
  std::unique_ptr<Feeder> feeder_;
  std::stop_source stop_;
  std::jthread thread_;
};

}  // namespace penstock::transport
