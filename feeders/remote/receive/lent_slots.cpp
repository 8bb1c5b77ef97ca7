// SPDX-License-Identifier: Apache-2.0
#include "feeders/lent_slots.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "dataflow/error.h"

namespace penstock {

LentSlots::LentSlots(std::size_t slots, Clock& clock)
    : clock_(clock), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), kept_(slots) {
  if (!bell_) throw ConfigError("cannot open an eventfd; is the process out of descriptors?");
  pending_.reserve(slots);
  returned_.reserve(slots);
}

void LentSlots::wake() noexcept {
  const std::uint64_t one = 1;
  const std::lock_guard lock(mutex_);
  if (std::exchange(rung_, true)) return;
  [[maybe_unused]] const auto written = write(bell_.get(), &one, sizeof one);
}

void LentSlots::returned(std::int32_t slot, const Event* read) noexcept {
  {
    const std::lock_guard lock(mutex_);
    returned_.push_back({slot, read});  // of each slot one at most: there is room
  }
  wake();
}

void LentSlots::keep(std::int32_t slot, std::shared_ptr<const void> memory) {
  kept_[static_cast<std::size_t>(slot)] = std::move(memory);
}

LentSlots::News LentSlots::collect(const std::function<void(std::int32_t)>& is_back) {
  News news;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(rung_, false)) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = read(bell_.get(), &count, sizeof count);
    }
    news.any = !returned_.empty();
    pending_.insert(pending_.end(), returned_.begin(), returned_.end());
    returned_.clear();
  }
  std::erase_if(pending_, [&](const Returned& item) {
    if (item.read != nullptr && !item.read->wait_until(clock_.now())) return false;
    keep(item.slot, nullptr);
    is_back(item.slot);
    return true;
  });
  news.pending = !pending_.empty();
  return news;
}

void LentSlots::wait(Nanoseconds limit) const {
  pollfd item{bell_.get(), POLLIN, 0};
  const auto time = std::chrono::ceil<std::chrono::milliseconds>(limit);
  poll(&item, 1, static_cast<int>(std::max<std::int64_t>(time.count(), 0)));
}

}  // namespace penstock
