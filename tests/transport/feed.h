// SPDX-License-Identifier: Apache-2.0
// A consumer of the closed-form batches of these tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "tests/feeders/remote/zmq_fixture.h"
#include "tests/transport/closed_form.h"

namespace penstock::transport {

/// Bad messages are counted and skipped. A feeder that gets no batch for 20 s fails, and so does
/// whoever reads it.
class Feed : public Consumer {
 public:
  /// With a ring of `slots`, which is lent what producers share if it `accepts_foreign` memory.
  explicit Feed(const std::string& options, const BatchSpec& spec = kTiny, std::size_t slots = 2,
                bool accepts_foreign = false)
      : Consumer(options, std::chrono::seconds(20), {BadSamplePolicy::Action::skip, -1},
                 {.slots = slots, .spec = spec, .accepts_foreign = accepts_foreign}),
        spec_(spec) {
    start();
  }

  /// The next batch; empty: stopped. Fails where it is none that a producer made. Rethrows what the
  /// feeder failed with.
  std::optional<BatchName> next(const std::stop_token& stop = {}) {
    const ReadLease lease = ring().next(0, stop);
    if (!lease) return std::nullopt;
    const std::optional<BatchName> name = name_of(spec_, lease.batch());
    EXPECT_TRUE(name) << "a batch that nobody sent";
    return name;
  }
  /// The same, to be held.
  ReadLease take() { return ring().next(0, {}); }
  /// Reads so many.
  void read(std::int64_t batches, Ledger& accounts) {
    for (std::int64_t i = 0; i < batches; ++i) {
      const std::optional<BatchName> name = next();
      ASSERT_TRUE(name);
      accounts.arrived(*name);
    }
  }
  /// Expects notes that name the senders of refused messages; of equal refusals one tells.
  void expect_named(std::ptrdiff_t refusals) const {
    const std::vector<std::string> all = notes();
    const auto named = std::ranges::count_if(all, [](const std::string& note) {
      return says(note, " refused: ") && says(note, "of process ");
    });
    EXPECT_GE(named, 1) << all_notes();
    EXPECT_LE(named, refusals) << all_notes();
  }

 private:
  const BatchSpec spec_;
};

}  // namespace penstock::transport
