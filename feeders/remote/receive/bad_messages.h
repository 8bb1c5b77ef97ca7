// SPDX-License-Identifier: Apache-2.0
// Counts and rejects messages that are not usable batches, and lists senders of many such messages
// in a row.
//
// Thread-safety: any thread. Takes a lock for a bad message and for the first good message after
// it.
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
#include "feeders/remote/receive/zmq_message.h"

namespace penstock::remote {

class BadMessages {
 public:
  BadMessages(BadSamplePolicy policy, Probe& probe);

  /// Rejects a message that arrived at `endpoint`. Throws DataError if the policy says so.
  void reject(const ZmqMessage& message, std::string_view endpoint, const std::string& why);
  /// Records a good message.
  void accept(const ZmqMessage& message);

  std::int64_t count() const noexcept { return rejected_.value(); }
  /// The last reason; empty: no message was rejected.
  std::string last() const;

  /// A sender of too many bad messages in a row, and its endpoint. The thread that owns the socket
  /// must cut it off.
  struct Offender {
    std::size_t endpoint = 0;
    net::MessageSender sender;
  };
  bool has_offenders() const noexcept { return has_offenders_.load(std::memory_order_relaxed); }
  std::vector<Offender> take_offenders();
  /// Notes that this sender was cut off.
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

}  // namespace penstock::remote
