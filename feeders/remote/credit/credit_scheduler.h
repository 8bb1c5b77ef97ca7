// SPDX-License-Identifier: Apache-2.0
// Decides how many batches each producer may send. Each producer has a limit, and all together have
// a limit, so that there is room for each batch.
//
// If room is short, the producer with the fewest batches in flight gets it; among equals, the one
// that has waited longest. So no producer can crowd out another. The unused credits of a silent
// producer can lapse. It keeps one credit, with which it can come back, and which takes no room
// until then. A batch that was sent on a lapsed credit is still accepted. Such batches can raise
// the number in flight above the common limit, but never above a producer's limit.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace penstock::remote {

class CreditScheduler {
 public:
  /// Limits of batches in flight, per producer and for all together. Both at least 1.
  CreditScheduler(std::int64_t per_producer, std::int64_t together)
      : per_producer_(per_producer), together_(together) {}

  using Producer = std::uint64_t;  ///< number chosen by the caller
  /// Adds a new producer. It begins without credits.
  void add(Producer producer) { accounts_.emplace(producer, Account{}); }
  /// Forgets the producer. Its credits become free for others.
  void remove(Producer producer);

  /// The producer sends no more batches. Its unused credits become free for others, and it gets no
  /// new ones.
  void retire(Producer producer);

  /// Records that a batch of the producer arrived. False: the producer never had that credit, and
  /// nothing has changed.
  bool take(Producer producer);
  /// Records that there is room again for one batch that arrived.
  void give_back(Producer producer);

  /// Grants credits for all free room. Returns the producers that got more.
  std::vector<Producer> grant();
  /// All credits that the producer was granted, without those that lapsed.
  std::uint64_t granted(Producer producer) const { return accounts_.at(producer).granted; }
  /// All batches that the producer sent on credits. May exceed granted() if credits lapsed.
  std::uint64_t taken(Producer producer) const { return accounts_.at(producer).taken; }

  /// Whether a producer without a credit waits for room, and there is none.
  bool is_short() const noexcept;
  /// Lets the producer's unused credits lapse. Returns how many took room until now; 0: none.
  std::int64_t lapse(Producer producer);
  /// Batches of all producers that are in flight or hold room.
  std::int64_t under_way() const noexcept { return under_way_; }
  /// Whether any producer has an unused credit.
  bool has_unused() const noexcept;

 private:
  struct Account {
    std::uint64_t granted = 0, taken = 0, given_back = 0;
    std::uint64_t most_granted = 0;  // before any credit lapsed
    std::uint64_t turn = 0;          // when the producer last got a credit
    bool retired = false, lapsed = false;
    std::int64_t under_way() const noexcept {
      return static_cast<std::int64_t>((lapsed ? taken : granted) - given_back);
    }
    bool may_grow() const noexcept { return !retired && !lapsed; }
  };
  const std::int64_t per_producer_, together_;
  std::map<Producer, Account> accounts_;
  std::int64_t under_way_ = 0;
  std::uint64_t turns_ = 0;
};

}  // namespace penstock::remote
