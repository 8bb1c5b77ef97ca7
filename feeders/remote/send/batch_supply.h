// SPDX-License-Identifier: Apache-2.0
// What a Sender sends: the batches of a ring, or the image files of a source, as messages whose
// frames lie where the batch lies. libzmq sends them from there without a copy, and gives the
// memory back when they are in the kernel. So the number of slots limits what waits to be sent,
// whatever the hwm.
//
//   ring -> OutgoingMessages -> frames in a slot          source -> one copy into a batch -> frames
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "dataflow/batch_ring.h"
#include "dataflow/clock.h"
#include "dataflow/probe.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"
#include "feeders/remote/send/outgoing_messages.h"

namespace penstock::remote {

struct PushPlan {
  std::int64_t batches = 0;  ///< batches to send; 0: no limit
  double img_per_s = 0;      ///< pace of a loader to imitate; 0: as fast as the peer takes
  Nanoseconds timeout{};     ///< how long to wait for a peer to take a batch
};

/// Adds its lifetime to a counter of nanoseconds, even if a stop or a timeout ends the wait for a
/// stalled consumer.
class CountedWait {
 public:
  CountedWait(Counter& total, Clock& clock) : total_(total), clock_(clock), since_(clock.now()) {}
  CountedWait(const CountedWait&) = delete;
  CountedWait& operator=(const CountedWait&) = delete;
  ~CountedWait() { total_.add((clock_.now() - since_).count()); }

 private:
  Counter& total_;
  Clock& clock_;
  const Time since_;
};

/// Thread-safety: the sender's thread; libzmq's thread calls give_back().
class BatchSupply {
 public:
  virtual ~BatchSupply() = default;
  BatchSupply(const BatchSupply&) = delete;
  BatchSupply& operator=(const BatchSupply&) = delete;

  struct Message {
    std::span<const OutgoingFrame> frames;
    void* slot = nullptr;  ///< for give_back(): of the frames in a slot
    std::int64_t images = 0, bytes = 0;
  };
  /// Serves the consumer for a moment, or until the descriptor is readable.
  using Serve = std::function<void(int fd)>;

  // Returned frames are valid until the next call.
  /// Call once, before next().
  virtual void begin(const PushPlan& plan) = 0;
  virtual std::span<const OutgoingFrame> hello() = 0;
  /// Waits for the next batch of the plan. While there is none, it calls `serve`, if there is one,
  /// or else blocks. Empty: the plan is done, the data have ended, or stopped. Throws the failure
  /// of the ring, or DataError.
  virtual std::optional<Message> next(const Serve& serve, const std::stop_token& stop) = 0;
  virtual std::span<const OutgoingFrame> end() = 0;
  /// Call when the last message goes to a socket now. Changes frames outside of slots.
  virtual void stamp() = 0;

  std::size_t slots() const noexcept { return slots_.size(); }
  std::int32_t classes() const noexcept { return classes_; }

  /// Call when the last message of next() was sent. With credit, a batch in shared memory stays
  /// lent until the consumer returns the lease, or is lost.
  void sent();
  void returned(std::uint64_t lease);
  /// Takes all leases back. Returns their number.
  std::int64_t lose_leases();

  /// libzmq calls this, with Message::slot, when it no longer needs the bytes of a frame.
  static void give_back(void* bytes, void* slot) noexcept;
  /// Slots that libzmq or the consumer holds.
  std::size_t held() const;
  std::size_t leases() const noexcept { return leases_.size(); }
  /// Blocks until at most `most` slots are held. False: stopped, or none came back within the
  /// timeout.
  bool await_held(std::size_t most, Nanoseconds timeout, const std::stop_token& stop);
  /// How many slots may be held when next() is called.
  std::size_t most_held() const noexcept { return most_held_; }

 protected:
  BatchSupply(std::size_t slots, std::size_t most_held, std::int32_t classes);

  /// Marks a slot as held until its frames, or its lease, are given back.
  void* hold(std::size_t slot, std::span<const OutgoingFrame> frames,
             std::optional<std::uint64_t> lease = {});
  /// The slot is free again. Called under mutex_, from any thread.
  virtual void free(std::size_t slot) noexcept = 0;

  mutable std::mutex mutex_;

 private:
  struct Slot {
    BatchSupply* owner = nullptr;
    std::size_t frames = 0;  // that libzmq holds; under mutex_
  };
  void free_now(Slot& slot) noexcept;

  const std::size_t most_held_;
  const std::int32_t classes_;
  std::condition_variable_any returned_;
  std::size_t held_ = 0;     // under mutex_
  std::vector<Slot> slots_;  // under mutex_
  std::map<std::uint64_t, Slot*> leases_;
  std::optional<std::pair<std::uint64_t, Slot*>> last_lease_;  // of the last message
};

/// Sends the batches of `ring`, which has one reader; its slots lie in memory that suits the
/// messages (frame_memory.h). `by_credit`: framed messages, for which next() needs `serve`.
/// Counts feed_wait_ns (time in which there was no batch) and send_wait_ns (time in which no
/// consumer took one). All references outlive the object.
std::unique_ptr<BatchSupply> make_ring_supply(BatchRing& ring,
                                              std::unique_ptr<OutgoingMessages> messages,
                                              Clock& clock, Probe& probe, bool by_credit = false);

/// In place of a Sender: takes the batches of the plan and drops their messages. Counts as a Sender
/// does.
void drop_batches(BatchSupply& supply, const PushPlan& plan, Probe& probe,
                  const std::stop_token& stop);

struct FilePlan {
  std::size_t images = 64;  ///< per message; the last message of finite data may have fewer
  std::size_t batches = 4;  ///< in memory: being filled, waiting or in transit
  bool checksum = false;    ///< each message carries a checksum
  BadSamplePolicy on_bad_sample{};
  std::string name = "penstock serve";  ///< name of this producer for consumers
};

/// Sends the encoded images of `source`. When all batches have reached their largest size, no image
/// needs an allocation. Counts bad_samples, and feed_wait_ns: the time to fill batches. next()
/// throws DataError if a sample cannot be read and may not be skipped. All references outlive the
/// object.
std::unique_ptr<BatchSupply> make_file_supply(Source& source, const FilePlan& plan, Clock& clock,
                                              Probe& probe);

}  // namespace penstock::remote
