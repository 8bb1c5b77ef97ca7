// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/bad_messages.h"

#include "dataflow/error.h"

namespace penstock::remote {
namespace {

/// If bad messages are skipped, a producer is cut off after as many in a row.
constexpr int kMostInARow = 8;

}  // namespace

BadMessages::BadMessages(BadSamplePolicy policy, Probe& probe)
    : policy_(policy),
      probe_(probe),
      rejected_(probe.counter("messages_rejected")),
      cut_off_(probe.counter("producers_cut_off")) {}

void BadMessages::reject(const ZmqMessage& message, std::string_view endpoint,
                         const std::string& why) {
  const net::MessageSender sender = message.sender();
  const std::string text = "message " + std::to_string(message.number) + " of " +
                           net::describe(sender) + " at " + std::string(endpoint) +
                           " refused: " + why;
  const std::lock_guard lock(mutex_);
  const bool fails = policy_.action == BadSamplePolicy::Action::fail;
  if (!fails) probe_.note(text);
  rejected_.add();
  if (fails) {
    throw DataError(text +
                    "; correct the producer, or skip such messages with --on-bad-sample skip");
  }
  if (policy_.limit >= 0 && rejected_.value() > policy_.limit) {
    throw DataError(text + "; that is more than --on-bad-sample skip:limit=" +
                    std::to_string(policy_.limit) + " allows");
  }
  last_ = text;
  const Connection connection{message.endpoint, sender.connection};
  if (++in_a_row_[connection] >= kMostInARow) {
    in_a_row_.erase(connection);
    offenders_.push_back({message.endpoint, sender});
    has_offenders_ = true;
  }
  suspects_ = static_cast<std::int64_t>(in_a_row_.size());
}

void BadMessages::accept(const ZmqMessage& message) {
  if (suspects_ == 0) return;
  const std::lock_guard lock(mutex_);
  in_a_row_.erase({message.endpoint, message.connection()});
  suspects_ = static_cast<std::int64_t>(in_a_row_.size());
}

std::string BadMessages::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

std::vector<BadMessages::Offender> BadMessages::take_offenders() {
  const std::lock_guard lock(mutex_);
  has_offenders_ = false;
  return std::exchange(offenders_, {});
}

void BadMessages::note_cut_off(const Offender& offender) {
  cut_off_.add();
  probe_.note(
      "cut off " + net::describe(offender.sender) + " after " + std::to_string(kMostInARow) +
      " bad messages in a row" +
      (offender.sender.public_key.empty() ? ", until it connects anew" : "; its key is banned"));
}

}  // namespace penstock::remote
