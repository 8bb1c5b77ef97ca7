// SPDX-License-Identifier: Apache-2.0
// What a CreditPush knows, for its two halves: credit_push.cpp, batches, and
// credit_push_consumer.cpp, what it says to its consumer and hears of it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataflow/shared_memory/pool_listener.h"
#include "dataflow/wire/framed.h"
#include "feeders/credit_push.h"
#include "feeders/zmq_message.h"

namespace penstock {

struct CreditPush::State {
  /// A slot that is lent to the consumer, or to libzmq.
  struct Out {
    State* owner = nullptr;
    ReadLease lease;
    std::span<std::byte> labels;  // where the ring's readers look for them
    std::byte* moved_labels = nullptr;
  };

  /// Complete before libzmq's threads begin, which are told of them by messages alone.
  static std::vector<Out> slots_of(State& owner, std::size_t count) {
    std::vector<Out> slots(count);
    for (Out& slot : slots) slot.owner = &owner;
    return slots;
  }

  State(BatchRing& ring, const SharedPool* pool, const Endpoint& endpoint,
        const ZmqSocketOptions& options, Clock& clock, Probe& probe, PeerReports reports);

  void run(const PushPlan& plan, const std::stop_token& stop);
  void look();
  void say_hello();
  void forget_consumer();
  bool receive();
  void hear(const FramedMessage& message);
  void hear_welcome(const FramedMessage& message);
  void note_times(const FramedHeader& header);
  void send(ReadLease lease);
  void send_over_socket(FramedHeader header, ReadLease lease, std::size_t pixel_bytes,
                        std::size_t label_bytes);
  void lend(FramedHeader header, ReadLease lease, std::size_t pixel_bytes, std::size_t label_bytes);
  bool put(std::span<const std::byte> frame, bool more);
  void take_back(Out& slot);
  bool is_welcome() const noexcept { return welcomed && sent_since_welcome < credits; }
  std::size_t held_by_libzmq() {
    const std::lock_guard lock(mutex);
    return in_libzmq;
  }
  static void given_back(void*, void* hint);
  [[noreturn]] void nobody_takes(Nanoseconds timeout) const;

  BatchRing& ring;
  const SharedPool* const pool;
  const Endpoint endpoint;
  Clock& clock;
  Counter &batches, &bytes, &sent_images, &wait_ns, &feed_wait_ns, &lost;
  std::optional<PoolListener> listener;
  const std::uint64_t producer;
  std::uint64_t sequence = 0, images = 0;

  // Of the consumer that is connected.
  std::int64_t seen_joined = 0, seen_left = 0;
  bool wants_hello = false, welcomed = false;
  std::uint64_t credits = 0, sent_since_welcome = 0;
  std::map<std::uint64_t, Out*> leases;  // lent in shared memory
  std::uint64_t lease_numbers = 0;
  std::int64_t hello_sent_ns = 0;
  ClockBounds consumer_clock;
  ZmqMessage heard;
  Time progress{};  // a batch went out, or a lease came back

  std::mutex mutex;
  // Below under mutex: libzmq's thread gives slots back.
  std::vector<Out> out;
  std::size_t in_libzmq = 0;

  ZmqSocket socket;  // closes first: libzmq gives back what it still holds
};

}  // namespace penstock
