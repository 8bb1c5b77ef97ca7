// SPDX-License-Identifier: Apache-2.0
// What becomes of messages that are no batches, and of those who send one after the other.
//
// Thread-safety: any thread. Takes a lock of its own, for a bad message and for the first good one
// behind it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/probe.h"
#include "feeders/feeder.h"
#include "feeders/zmq_message.h"

namespace penstock {

class BadMessages {
 public:
  BadMessages(BadSamplePolicy policy, Probe& probe);

  /// Throws DataError where the policy says so. `endpoint`: where the message came by.
  void reject(const ZmqMessage& message, std::string_view endpoint, const std::string& why);
  /// This one was good.
  void accept(const ZmqMessage& message);

  std::int64_t count() const noexcept { return rejected_.value(); }
  /// The last refusal; empty: there was none.
  std::string last() const;

  /// Whoever sent too many of them in a row, and by which endpoint: to be cut off by the thread
  /// that has the socket.
  struct Offender {
    std::size_t endpoint = 0;
    MessageSender sender;
  };
  bool has_offenders() const noexcept { return has_offenders_.load(std::memory_order_relaxed); }
  std::vector<Offender> take_offenders();
  /// Says that this one is cut off.
  void note_cut_off(const Offender& offender);

 private:
  using Connection = std::pair<std::size_t, int>;  // endpoint and descriptor
  const BadSamplePolicy policy_;
  Probe& probe_;
  Counter &rejected_, &cut_off_;
  std::atomic<bool> has_offenders_{false};
  std::atomic<std::int64_t> suspects_{0};  // size of in_a_row_
  mutable std::mutex mutex_;
  // All below under mutex_.
  std::map<Connection, int> in_a_row_;
  std::vector<Offender> offenders_;
  std::string last_;
};

}  // namespace penstock
