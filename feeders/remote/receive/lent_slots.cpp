// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/lent_slots.h"

#include <poll.h>

#include <algorithm>
#include <utility>

namespace penstock::remote {

void LentSlots::wake() noexcept {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(signalled_, true)) news_.signal();
}

void LentSlots::returned(std::int32_t slot, const Event* read) noexcept {
  {
    const std::lock_guard lock(mutex_);
    returned_.push_back({slot, read});  // at most one per slot, for which keep() made room
  }
  wake();
}

void LentSlots::keep(std::int32_t slot, std::shared_ptr<const void> memory) {
  const auto index = static_cast<std::size_t>(slot);
  if (index >= kept_.size()) {
    kept_.resize(index + 1);
    const std::lock_guard lock(mutex_);
    returned_.reserve(kept_.size());
  }
  kept_[index] = std::move(memory);
}

LentSlots::News LentSlots::collect(const std::function<void(std::int32_t)>& is_back) {
  News news;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(signalled_, false)) news_.drain();
    news.any = !returned_.empty();
    pending_.insert(pending_.end(), returned_.begin(), returned_.end());
    returned_.clear();
  }
  std::erase_if(pending_, [&](const Returned& item) {
    if (item.read != nullptr && !item.read->wait_until(clock_.now())) return false;
    kept_[static_cast<std::size_t>(item.slot)].reset();
    is_back(item.slot);
    return true;
  });
  news.pending = !pending_.empty();
  return news;
}

void LentSlots::wait(Nanoseconds limit) const {
  pollfd item{news_.get(), POLLIN, 0};
  const auto time = std::chrono::ceil<std::chrono::milliseconds>(limit);
  poll(&item, 1, static_cast<int>(std::max<std::int64_t>(time.count(), 0)));
}

}  // namespace penstock::remote
