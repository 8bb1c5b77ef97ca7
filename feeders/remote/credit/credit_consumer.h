// SPDX-License-Identifier: Apache-2.0
// The consumer's end of the credit protocol (feeders/framed_format.md): a ROUTER socket, the
// producers that said hello on it, and how many batches each may send. It lets producers in or
// tells them why not, maps their shared memory, gives credits and leases back, and notices who has
// gone.
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
#include "dataflow/wire/framed.h"
#include "feeders/credit_book.h"
#include "feeders/credit_debt.h"
#include "feeders/feeder.h"
#include "feeders/producer_pool.h"
#include "feeders/zmq_message.h"
#include "feeders/zmq_socket.h"

namespace penstock {

struct CreditPeer;
struct FramedHello;

struct CreditPlan {
  FramedEncoding encoding = FramedEncoding::pixels;  ///< of batches, all of them
  std::int64_t credit = 1;                           ///< batches under way, of each producer
  std::int64_t together = 1;                         ///< the same of all of them
  std::int64_t producers = 1;                        ///< at most so many at once
  std::int64_t ends_with = 0;  ///< the data end with the end of so many; 0: they do not
  Nanoseconds patience{};      ///< so long credits may lie unused while another producer has none
  std::uint64_t max_pool = 0;  ///< bytes of a producer's shared memory, at most
  bool shared_only = false;    ///< lets in producers alone that share memory
  Device* reader = nullptr;    ///< reads their memory where it lies; null: nobody does
  std::size_t slots = 1;       ///< of the ring that is filled
  BadSamplePolicy on_bad_sample;  ///< a message that cannot be used is such a sample
};

class CreditDesk {
 public:
  /// `socket.role` is router. The probe outlives the desk. Throws ConfigError.
  CreditDesk(const CreditPlan& plan, const BatchSpec& spec, const Endpoint& endpoint,
             const ZmqSocketOptions& socket, Probe& probe, PeerReports reports);
  CreditDesk(const CreditDesk&) = delete;
  CreditDesk& operator=(const CreditDesk&) = delete;
  ~CreditDesk();

  /// A batch that its producer might send. Valid until the next call of next() or finish().
  struct Arrival {
    CreditPeer* peer = nullptr;
    FramedMessage message;
    /// Of a batch in shared memory: the bytes of its lease, which may change at any moment. They
    /// stay readable as long as `pool` is held, and are ours until the lease is returned.
    std::span<const std::byte> shared;
    std::shared_ptr<const ProducerPool> pool;
    /// Whether a device may read those bytes where they lie. Nobody can give a producer that has
    /// gone its lease back: it may take it at any moment.
    bool is_lendable() const noexcept;
  };
  /// A lease that is out while its bytes are read where they lie.
  struct Loan {
    CreditBook::Producer producer = 0;
    std::uint64_t lease = 0;
  };

  /// The next batch that is there, and all other messages before it dealt with. Empty: none is
  /// there. What cannot be used is refused, or throws DataError where the policy says so.
  std::optional<Arrival> next(const std::stop_token& stop);
  /// It can be used: it goes into the accounts of its producer, before finish() or keep(). Throws
  /// DataError where its number, or what it says, contradicts them; it is refused then.
  void accept(const Arrival& arrival);
  /// "batch 17 of loader on host7, pid 4711".
  static std::string name_of(const Arrival& arrival);
  /// The batch is good, and its message is the caller's from now on; what was seen of its frames
  /// stays where it lies. What is owed for it is finished once, whoever has gone meanwhile.
  CreditDebt keep(const Arrival& arrival, ZmqMessage& to);
  void finish(const CreditDebt& debt);
  /// Whether any producer may send a batch, or may have sent one.
  bool awaits_batches() const noexcept;
  /// The batch has been copied: its lease is returned, and its producer may send another.
  void finish(const Arrival& arrival);
  /// The batch is in a slot, where it lies: its producer may send another, and gets the lease back
  /// with end_loan.
  Loan lend(const Arrival& arrival);
  void end_loan(const Loan& loan);
  /// The same of a batch that is no good. Throws DataError where the policy says so.
  void refuse(const Arrival& arrival, const std::string& why);
  /// Sends what producers are to hear, and looks for those who have gone. To be called at least
  /// every kBeat while waiting for batches.
  void look();
  static constexpr Nanoseconds kBeat = std::chrono::milliseconds(50);

  /// For waiting, and for who there is.
  ZmqSocket& socket() noexcept { return socket_; }
  std::size_t producers() const noexcept;
  std::int64_t received() const noexcept { return received_.value(); }
  /// Messages that could not be used.
  std::int64_t rejected() const noexcept;
  /// Whether all those have ended with whose end the data do.
  bool has_ended() const;
  /// FramedIntake::summarise.
  void summarise(double copy_s);
  /// What is known where no batch comes; empty: nothing.
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
  static CreditDebt debt_of(const Arrival& arrival);
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

}  // namespace penstock
