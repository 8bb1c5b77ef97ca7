// SPDX-License-Identifier: Apache-2.0
// Who may send how many batches: each producer a few, all together no more than there is room for.
// Where room is short, it goes to the producer with the fewest batches under way, of those with as
// few to the one that has waited longest, so that none can crowd out another. What a silent
// producer leaves unused can lapse: one credit stays with it, by which it comes back, and takes no
// room until it does. A batch that was sent on a credit that had lapsed is taken all the same, so
// that with those there may be more under way than there is room for: never more than each
// producer's own.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace penstock {

class CreditBook {
 public:
  /// Both at least 1: batches that may be under way to us, of each producer and of all together.
  CreditBook(std::int64_t per_producer, std::int64_t together)
      : per_producer_(per_producer), together_(together) {}

  using Producer = std::uint64_t;  ///< a number of the user's choice
  /// One that is not there yet; it begins without credits.
  void add(Producer producer) { accounts_.emplace(producer, Account{}); }
  /// Its credits are free for others.
  void remove(Producer producer);

  /// It will send no more: credits that it has not used are free for others, and it gets none.
  void retire(Producer producer);

  /// A batch of it has come. False: it never had that credit, and nothing has changed.
  bool take(Producer producer);
  /// There is room again for one that came.
  void give_back(Producer producer);

  /// Hands out all room there is. Those whose credits have grown.
  std::vector<Producer> grant();
  /// All credits that it has been given, but for those that lapsed.
  std::uint64_t granted(Producer producer) const { return accounts_.at(producer).granted; }
  /// All batches of it that took one; where credits lapsed, maybe more than it has been given.
  std::uint64_t taken(Producer producer) const { return accounts_.at(producer).taken; }

  /// Whether somebody without a credit waits for room, and there is none.
  bool is_short() const noexcept;
  /// Its unused credits lapse. How many took room until now; 0: none did.
  std::int64_t lapse(Producer producer);
  /// Batches that are under way or hold room, of all producers.
  std::int64_t under_way() const noexcept { return under_way_; }
  /// Whether anybody has a credit left.
  bool has_unused() const noexcept;

 private:
  struct Account {
    std::uint64_t granted = 0, taken = 0, given_back = 0;
    std::uint64_t most_granted = 0;  // before any lapsed
    std::uint64_t turn = 0;          // when it was last granted one
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

}  // namespace penstock
