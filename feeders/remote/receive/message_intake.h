// SPDX-License-Identifier: Apache-2.0
// Where the batches of zmq-consume come from: producers that push (push_intake.cpp), or producers
// with credit (credit_intake.cpp). What both share is here: the accounts and times of producers,
// messages that cannot be used, and the process that option `producer` starts. The feeders decide
// what becomes of a batch (zmq_consume.cpp, message_images.h):
//
//   receive -> read it -> accept, or refuse -> hold it in a slot until it is returned, or
//                                              copy it, then release
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/probe.h"
#include "dataflow/stage_timer.h"
#include "feeders/feeder.h"
#include "feeders/remote/receive/consume_plan.h"
#include "feeders/remote/receive/framed_intake.h"
#include "feeders/remote/receive/lent_slots.h"
#include "feeders/remote/receive/producer_process.h"
#include "feeders/remote/receive/receiver_threads.h"
#include "feeders/remote/receive/zmq_message.h"
#include "feeders/remote/wire/batch_message.h"
#include "feeders/remote/wire/framed.h"

namespace penstock::remote {

struct CreditPeer;
struct ProducerPool;

/// A received message with a batch. One object serves many messages, without allocation.
struct Arrival {
  ZmqMessage message;
  MessageFormat format = MessageFormat::zmq_op;
  std::optional<FramedMessage> framed{};  ///< header and frames of a framed message
  std::int64_t arrived_ns = 0;            ///< CLOCK_REALTIME, in ns
  /// How far its producer's clock is ahead; empty: not known.
  std::optional<ClockBounds::Estimate> ahead{};
  Turn turn{};  ///< its place among the messages, if their order counts

  // By credit:
  CreditPeer* peer = nullptr;  ///< valid until the next receive()
  /// Of a batch in shared memory: the bytes of its lease, which the producer may change at any
  /// moment. They stay readable while `pool` is held, and are ours until the lease is returned.
  std::span<const std::byte> shared{};
  std::shared_ptr<const ProducerPool> pool{};
  /// Whether a device may read those bytes without a copy. False if the producer has gone: nothing
  /// can return its lease, and it may reuse the memory at any moment.
  bool is_lendable = false;
};

/// Counts and rejects messages that are not usable batches, and lists senders of many such messages
/// in a row. Thread-safety: any thread. Takes a lock for a bad message and for the first good
/// message after it.
class BadMessages {
 public:
  BadMessages(BadSamplePolicy policy, Probe& probe);

  /// Rejects a message that arrived at `endpoint`. Throws DataError if the policy says so, or if it
  /// says nothing and no usable message can be expected (`hopeless`).
  void reject(const ZmqMessage& message, std::string_view endpoint, const std::string& why,
              bool hopeless);
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
  std::set<std::string> noted_;  // senders with reasons: a result tells of each once
};

/// Thread-safety: any thread if producers push; one thread at a time with credit.
class MessageIntake {
 public:
  virtual ~MessageIntake() = default;

  /// Receives the next message with a batch. Blocks. False: stopped, or the producers have ended.
  /// `since`: when this thread began to wait for a good message. `timer` records the waits, and
  /// `item` is restarted after each. Throws TimeoutError if no good message arrives within the
  /// timeout, and DataError if the producer process failed or the policy for bad messages says so.
  virtual bool receive(Arrival& to, Time since, StageTimer& timer, StageTimer::Item& item,
                       const std::stop_token& stop) = 0;
  /// Puts a good batch into the accounts. Throws DataError if its number or shape contradicts them.
  void accept(const Arrival& arrival);
  /// Call for a batch that cannot be used; `misfits`: because of a MisfitError. Throws DataError if
  /// the policy says so, or if the user chose none and the first batch of all misfits.
  virtual void refuse(Arrival& arrival, const std::string& why, bool misfits);
  /// Call when an accepted batch was copied.
  virtual void release(Arrival& arrival) { arrival.message.clear(); }
  /// Call when an accepted batch is used where it lies, until slots() hears that `slot` is back.
  virtual void hold(Arrival& /*arrival*/, std::int32_t /*slot*/) {}
  /// Waits a while for slots that come back, and serves producers meanwhile. Call while no slot is
  /// free, if has_credit().
  virtual void serve(const std::stop_token& /*stop*/) {}
  /// Call at the end. Puts accounts and times into the result. `copy_s`: average time to take a
  /// batch out of its message, in seconds; 0: not timed.
  virtual void end(double copy_s);

  bool has_credit() const noexcept { return slots_ != nullptr; }
  /// With credit: the slots whose batches are used where they lie. Else null.
  const std::shared_ptr<LentSlots>& slots() const noexcept { return slots_; }
  /// Whether batches in shared memory are in use.
  bool has_loans() const noexcept { return loans_ > 0; }
  /// Accounts of the producers that sent framed messages.
  FramedIntake& framed() noexcept { return framed_; }

 protected:
  MessageIntake(const FeederContext& context, const ConsumePlan& plan,
                FramedIntake::Setup accounts);

  void note_good(const ZmqMessage& message);
  /// Rejects a message; `header`: of the producer whose account has to say so; `misfits`: because
  /// of a MisfitError.
  void reject(const ZmqMessage& message, const std::optional<FramedHeader>& header, std::string why,
              bool misfits);
  /// Counts and numbers a message that has just been received.
  void count(ZmqMessage& message);
  bool had_good_message() const noexcept { return good_at_.load() != Time::min(); }
  /// How many messages were refused, and the last reason; empty: none.
  std::string refusals() const;

  /// Call when the sockets are open.
  void start_producer(const std::string& command);
  /// Whether the producer that we started has ended without error. Throws if it failed.
  bool producer_ended();
  /// Call when the producer has ended without error, and nothing more can arrive. Throws if it sent
  /// nothing usable.
  void check_end_of_producer() const;

  Clock& clock_;
  Probe& probe_;
  const BatchSpec spec_;
  const Nanoseconds timeout_;
  std::vector<std::string> endpoint_names_;
  BadMessages bad_;
  FramedIntake framed_;
  std::atomic<Time> good_at_{Time::min()};  // when the last good message came
  std::shared_ptr<LentSlots> slots_;
  std::int64_t loans_ = 0;
  std::optional<ProducerProcess> producer_;  // derived classes end it before their sockets

 private:
  Counter &received_, &bytes_;
};

/// Open all sockets of the plan, and start the producer process. Throw ConfigError.
std::unique_ptr<MessageIntake> make_push_intake(const FeederContext& context,
                                                const ConsumePlan& plan);
std::unique_ptr<MessageIntake> make_credit_intake(const FeederContext& context,
                                                  const ConsumePlan& plan);

}  // namespace penstock::remote
