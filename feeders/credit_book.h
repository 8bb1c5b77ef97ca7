// SPDX-License-Identifier: Apache-2.0
// Who may send how many batches: each producer a few, all together no more than there is room for.
// Where room is short, it goes to the producer with the fewest batches under way, of those with as
// few to the one that has waited longest, so that none can crowd out another.
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

  /// A batch of it has come. False: it had no credit left, and nothing has changed.
  bool take(Producer producer);
  /// There is room again for one that came.
  void give_back(Producer producer);

  /// Hands out all room there is. Those whose credits have grown.
  std::vector<Producer> grant();
  /// All credits that it has ever been given.
  std::uint64_t granted(Producer producer) const { return accounts_.at(producer).granted; }
  /// Batches that are under way or hold room, of all producers.
  std::int64_t under_way() const noexcept { return under_way_; }
  /// Whether anybody has a credit left.
  bool has_unused() const noexcept;

 private:
  struct Account {
    std::uint64_t granted = 0, taken = 0, given_back = 0;
    std::uint64_t turn = 0;  // when it was last granted one
    bool retired = false;
    std::int64_t under_way() const noexcept {
      return static_cast<std::int64_t>(granted - given_back);
    }
  };
  const std::int64_t per_producer_, together_;
  std::map<Producer, Account> accounts_;
  std::int64_t under_way_ = 0;
  std::uint64_t turns_ = 0;
};

}  // namespace penstock
