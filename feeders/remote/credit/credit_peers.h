// SPDX-License-Identifier: Apache-2.0
// The producers that a consumer with credit knows, by connection and by number: who is here, who
// has gone, what each may send, and what must be sent to it. Sends credits and returned leases, and
// finds out which producers have gone.
//
// Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/device.h"
#include "dataflow/net/shared_memory/mapped_pool.h"
#include "dataflow/probe.h"
#include "feeders/remote/credit/credit_scheduler.h"
#include "feeders/remote/receive/clock_bounds.h"
#include "feeders/remote/receive/framed_intake.h"
#include "feeders/remote/receive/zmq_socket.h"
#include "feeders/remote/wire/framed.h"

namespace penstock::remote {

/// The shared memory of a producer, mapped into this process, and pinned so that a device can copy
/// from it.
struct ProducerPool {
  net::MappedPool memory;
  std::unique_ptr<MemoryPin> pin;  ///< null: batches have to be copied from it; ends first

  /// How many batches of that size fit, as SharedFrameMemory lays them out.
  std::size_t batches(std::size_t batch_bytes) const noexcept {
    constexpr std::size_t kPage = 4096, kBetweenFrames = 64;
    return memory.bytes() / ((batch_bytes + kBetweenFrames + kPage - 1) / kPage * kPage);
  }
};

/// What a consumer owes to a producer while it holds a batch.
struct BatchReceipt {
  CreditScheduler::Producer producer = 0;  ///< 0: nothing
  std::optional<std::uint64_t> lease{};    ///< set for a batch in shared memory
  bool owes_room = true;                   ///< false: only the lease
};

/// What a consumer knows about one of its producers.
struct CreditPeer {
  CreditScheduler::Producer id = 0;  ///< 1, 2, ... in the order in which producers were welcomed
  std::string routing_id, name;
  std::uint64_t producer = 0;
  std::shared_ptr<const ProducerPool> pool;
  bool ended = false;          ///< it sends no more batches
  bool gone = false;           ///< unreachable; batches that it sent before may still be here
  std::uint64_t received = 0;  ///< batches
  std::int64_t lent = 0;       ///< leases whose bytes are in use without a copy
  std::vector<std::uint64_t> returns;  ///< leases to return with the next credit message
  bool owes_credit = false;            ///< we owe it a credit message, to send at once
  bool has_more_credit = false;        ///< its credit has grown since the last credit message
  std::uint64_t told_credit = 0;       ///< credit in the last credit message
  std::int64_t last_sent_ns = 0, last_arrival_ns = 0;
  bool shares_clock = false;
  std::chrono::steady_clock::time_point quiet_since{};  ///< when it last sent, or got a credit
  bool is_known_as_lost = false;                        ///< and the loss was noted
  bool is_known_as_silent = false;                      ///< and the silence was noted

  /// Record a batch that arrived, and a credit that was sent. Their times bound the producer's
  /// clock. The bounds go into the facts of the run, for the first eight producers.
  void note_batch(const FramedHeader& header, std::int64_t arrival_ns, Probe& probe);
  void note_credit(std::uint64_t total, std::int64_t sent_ns);
  /// Estimate of its clock; empty: not known.
  std::optional<ClockBounds::Estimate> clock() const noexcept;
  void report_clock(const ClockBounds::Estimate& estimate, Probe& probe) const;

 private:
  struct Permit {
    std::uint64_t total = 0;
    std::int64_t sent_ns = 0;
  };
  std::deque<Permit> permits_;  // credits that were not used by a batch yet
  ClockBounds clock_;
  double reported_bound_ns_ = 0;  // 0: not reported yet
};

class CreditPeers {
 public:
  struct Limits {
    std::int64_t credit = 1;    ///< batches in flight, per producer
    std::int64_t together = 1;  ///< batches in flight, of all producers
    Nanoseconds patience{};  ///< how long credits may stay unused while another producer has none
    std::int64_t max_message = 0;  ///< of the socket, for notes
  };
  /// All references outlive this object.
  CreditPeers(const Limits& limits, ZmqSocket& socket, FramedIntake& accounts, Probe& probe);
  /// How many producers are remembered after they have gone.
  static constexpr std::size_t kMostLeft = 1024;

  /// Producers that are here.
  std::size_t count() const noexcept { return by_id_.size(); }
  /// The producer behind a connection; null: none that was admitted.
  CreditPeer* at(const std::string& routing_id);
  /// The producer that sent a message. Throws DataError if it was not admitted, or has another
  /// number.
  CreditPeer& sender_of(const FramedHeader& header, const std::string& routing_id);

  /// The connection says hello again: what it had before ends.
  void end_previous(const std::string& routing_id);
  /// The producer says hello on another connection, before its end was noticed.
  void remove_if_connected(std::uint64_t producer);
  /// Admits a producer that was welcomed on its routing id.
  void add(std::unique_ptr<CreditPeer> peer);
  /// The producer cannot be reached any more.
  void leave(CreditPeer& peer);
  /// Call when all messages that have arrived were read.
  void remove_disconnected();

  /// Records that a batch of the producer arrived. False: it had no credit.
  bool take(CreditPeer& peer) { return peer.gone || scheduler_.take(peer.id); }
  /// The batch is in a slot without a copy: its producer may send another, and gets the lease back
  /// with give_back(). Returns what is owed from now on.
  BatchReceipt lend(CreditPeer& peer, std::uint64_t lease);
  /// Gives back what is owed for a batch. The producer may have gone by now.
  void give_back(const BatchReceipt& receipt);
  /// True if every producer whose memory is lent has room for two more batches of that size there,
  /// so that it does not wait for the return of a lease.
  bool can_spare_leases(std::size_t batch_bytes) const;
  /// The producer sends no more batches.
  void end(CreditPeer& peer);
  /// Whether any producer may send a batch, or may have sent one.
  bool await_batches() const noexcept { return scheduler_.has_unused(); }

  enum class Sent : std::uint8_t { yes, later, gone };
  Sent send(const std::string& routing_id, const FramedHeader& header, MessageFrames payload);
  /// Sends what is due to producers, and checks which have gone. Call at least every kBeat while
  /// waiting for batches.
  void look();
  static constexpr Nanoseconds kBeat = std::chrono::milliseconds(50);

  /// "3 producers were welcomed, of which 2 are here, 1 of them at their end".
  std::string describe() const;

 private:
  CreditPeer* displaced(std::uint64_t producer, const std::string& routing_id);
  CreditPeer* taken_over(std::uint64_t producer);
  void send_credit(CreditPeer& peer);
  bool has_to_hear(const CreditPeer& peer) const;
  void note_loss(CreditPeer& peer);
  void let_credits_lapse();

  const Limits limits_;
  ZmqSocket& socket_;
  FramedIntake& accounts_;
  Probe& probe_;
  Counter &welcomed_, &lost_, &cut_short_, &lapsed_;
  CreditScheduler scheduler_;
  std::map<std::string, std::unique_ptr<CreditPeer>> peers_;  // by routing id
  std::map<CreditScheduler::Producer, CreditPeer*> by_id_;    // those that are here
  std::vector<std::unique_ptr<CreditPeer>> displaced_;        // gone; routing id taken over
  std::set<std::uint64_t> lost_producers_;  // they left without an end and are not back
  CreditScheduler::Producer ids_ = 0;
  bool has_read_all_ = false;  // no message was left when they were last read
  std::int64_t seen_left_ = 0;
  std::chrono::steady_clock::time_point probe_until_{}, next_probe_{};
};

}  // namespace penstock::remote
