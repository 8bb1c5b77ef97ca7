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
#include "dataflow/probe.h"
#include "dataflow/shared_memory/mapped_pool.h"
#include "dataflow/wire/framed.h"
#include "feeders/delivery_times.h"
#include "feeders/feeder.h"
#include "feeders/zmq_socket.h"

namespace penstock {

struct CreditPeer;

struct CreditPlan {
  std::int64_t credit = 1;        ///< batches under way, of each producer
  std::int64_t together = 1;      ///< the same of all of them
  std::int64_t producers = 1;     ///< at most so many at once
  std::uint64_t max_pool = 0;     ///< bytes of a producer's shared memory, at most
  bool shared_only = false;       ///< lets in producers alone that share memory
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
    /// stay readable as long as `pool` is held, and the producer's own until the lease is returned.
    std::span<const std::byte> shared;
    std::shared_ptr<const MappedPool> pool;
  };

  /// The next batch that is there, and all other messages before it dealt with. Empty: none is
  /// there. What cannot be used is refused, or throws DataError where the policy says so.
  std::optional<Arrival> next(const std::stop_token& stop);
  /// The batch has been copied: its lease is returned, and its producer may send another.
  void finish(const Arrival& arrival);
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
  /// What is known where no batch comes; empty: nothing.
  std::string silence() const;

 private:
  bool receive();
  FramedMessage parse(CreditPeer* peer);
  std::optional<Arrival> handle(const std::stop_token& stop);
  void let_in(const FramedMessage& hello, const std::stop_token& stop);
  std::shared_ptr<const MappedPool> map_pool(const std::string& pool, const std::string& boot,
                                             const std::stop_token& stop);
  Arrival admit(const FramedMessage& batch);
  void note_end(const FramedHeader& header);
  CreditPeer& peer_of_message(const FramedHeader& header);
  void give_back(const Arrival& arrival);
  void reject(CreditPeer* peer, const std::string& why);
  enum class Sent : std::uint8_t { yes, later, gone };
  Sent send(const std::string& routing_id, const FramedHeader& header, MessageFrames payload);
  void send_credit(CreditPeer& peer);
  void leave(CreditPeer& peer);
  void forget_the_gone();

  struct State;
  const CreditPlan plan_;
  const BatchSpec spec_;
  Probe& probe_;
  Counter &received_, &bytes_, &shared_bytes_;
  Counter &welcomed_, &refused_, &lost_, &missing_, &pools_;
  const std::string endpoint_;
  DeliveryTimes delivery_;
  ZmqSocket socket_;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
