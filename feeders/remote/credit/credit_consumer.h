// SPDX-License-Identifier: Apache-2.0
// The consumer's end of the credit protocol (feeders/remote/framed_format.md): a ROUTER socket, its
// producers, and how many batches each may send. The consumer accepts producers or tells them the
// reason for a refusal. It maps their shared memory, returns credits and leases, and notices when a
// producer has gone.
//
// Thread-safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/device.h"
#include "dataflow/probe.h"
#include "feeders/feeder.h"
#include "feeders/remote/credit/batch_receipt.h"
#include "feeders/remote/credit/credit_scheduler.h"
#include "feeders/remote/receive/zmq_message.h"
#include "feeders/remote/receive/zmq_socket.h"
#include "feeders/remote/send/producer_pool.h"
#include "feeders/remote/wire/framed.h"

namespace penstock::remote {

struct CreditPeer;
struct FramedHello;

struct CreditPlan {
  FramedEncoding encoding = FramedEncoding::pixels;  ///< of all batches
  std::int64_t credit = 1;                           ///< limit of batches in flight, per producer
  std::int64_t together = 1;   ///< limit of batches in flight, of all producers
  std::int64_t producers = 1;  ///< limit of producers at once
  std::int64_t ends_with = 0;  ///< the data end after this many producers have ended; 0: never
  Nanoseconds patience{};      ///< how long credits may stay unused while another producer has none
  std::uint64_t max_pool = 0;  ///< largest shared memory of a producer, in bytes
  bool shared_only = false;    ///< accept only producers that share memory
  Device* reader = nullptr;    ///< device that reads shared memory without a copy; null: none
  std::size_t slots = 1;       ///< of the ring to fill
  BadSamplePolicy on_bad_sample;  ///< also applies to messages that cannot be used
};

class CreditConsumer {
 public:
  /// `socket.role` must be router. The probe outlives the consumer. Throws ConfigError.
  CreditConsumer(const CreditPlan& plan, const BatchSpec& spec, const net::Endpoint& endpoint,
                 const ZmqSocketOptions& socket, Probe& probe, net::PeerReports reports);
  CreditConsumer(const CreditConsumer&) = delete;
  CreditConsumer& operator=(const CreditConsumer&) = delete;
  ~CreditConsumer();

  /// A message from a producer that may hold a batch. Valid until the next call of next() or
  /// finish().
  struct Arrival {
    CreditPeer* peer = nullptr;
    FramedMessage message;
    /// For a batch in shared memory: the bytes of its lease, which the producer may change at any
    /// moment. They stay readable while `pool` is held, and are ours until the lease is returned.
    std::span<const std::byte> shared;
    std::shared_ptr<const ProducerPool> pool;
    /// Whether a device may read those bytes without a copy. False if the producer has gone:
    /// nothing can return its lease, and it may reuse the memory at any moment.
    bool is_lendable() const noexcept;
  };
  /// A lease that a reader of the ring uses without a copy.
  struct Loan {
    CreditScheduler::Producer producer = 0;
    std::uint64_t lease = 0;
  };

  /// Handles all messages up to the next batch, and returns that batch. Empty: no batch has
  /// arrived. Refuses a message that cannot be used, or throws DataError if the policy says so.
  std::optional<Arrival> next(const std::stop_token& stop);
  /// Records a usable batch in the accounts of its producer. Call before finish() or keep(). Throws
  /// DataError, and refuses the batch, if its number or header contradicts the accounts.
  void accept(const Arrival& arrival);
  /// Names the batch, such as "batch 17 of loader on host7, pid 4711".
  static std::string name_of(const Arrival& arrival);
  /// Moves the message of a good batch into `to`. Views of its frames stay valid. The caller must
  /// pass the returned receipt to finish() once, even if the producer has gone by then.
  BatchReceipt keep(const Arrival& arrival, ZmqMessage& to);
  void finish(const BatchReceipt& receipt);
  /// Whether any producer may send a batch, or may have sent one.
  bool awaits_batches() const noexcept;
  /// Call when the batch has been copied. Returns its lease, and its producer may send another.
  void finish(const Arrival& arrival);
  /// Call when the batch is in a slot without a copy. Its producer may send another, and gets the
  /// lease back with end_loan().
  Loan lend(const Arrival& arrival);
  void end_loan(const Loan& loan);
  /// Like finish(), for a batch that is invalid. Throws DataError if the policy says so.
  void refuse(const Arrival& arrival, const std::string& why);
  /// Sends what is due to producers, and checks which have gone. Call at least every kBeat while
  /// waiting for batches.
  void look();
  static constexpr Nanoseconds kBeat = std::chrono::milliseconds(50);

  /// To wait on, and to see who is connected.
  ZmqSocket& socket() noexcept { return socket_; }
  std::size_t producers() const noexcept;
  std::int64_t received() const noexcept { return received_.value(); }
  /// Messages that could not be used.
  std::int64_t rejected() const noexcept;
  /// Whether as many producers have ended as the plan's `ends_with` says.
  bool has_ended() const;
  /// Calls FramedIntake::summarise().
  void summarise(double copy_s);
  /// Explains why no batch arrives; empty: nothing is known.
  std::string silence() const;

 private:
  bool receive();
  FramedMessage parse(CreditPeer* peer);
  std::optional<Arrival> handle(const std::stop_token& stop);
  void let_in(const FramedMessage& hello, const std::stop_token& stop);
  std::shared_ptr<const ProducerPool> map_pool(const FramedHello& hello,
                                               const std::stop_token& stop);
  void note_few_leases(const CreditPeer& peer);
  Arrival admit(const FramedMessage& batch);
  void take_end(const FramedHeader& header);
  CreditPeer* sender();
  CreditPeer* displaced(std::uint64_t producer);
  CreditPeer* taken_over(std::uint64_t producer);
  CreditPeer& peer_of_message(const FramedHeader& header);
  static BatchReceipt receipt_of(const Arrival& arrival);
  void reject(CreditPeer* peer, const std::string& why);
  enum class Sent : std::uint8_t { yes, later, gone };
  Sent send(const std::string& routing_id, const FramedHeader& header, MessageFrames payload);
  void send_credit(CreditPeer& peer);
  bool has_to_hear(const CreditPeer& peer) const;
  void leave(CreditPeer& peer);
  void note_loss(CreditPeer& peer);
  void forget_the_gone();
  void let_credits_lapse();

  struct State;
  const CreditPlan plan_;
  const BatchSpec spec_;
  Probe& probe_;
  Counter &received_, &bytes_, &shared_bytes_;
  Counter &welcomed_, &refused_, &lost_, &pools_, &cut_short_, &lapsed_;
  const std::string endpoint_;
  const std::int64_t max_message_;
  ZmqSocket socket_;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::remote
