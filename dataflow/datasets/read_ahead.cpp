// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/read_ahead.h"

#include <span>
#include <utility>

#include "dataflow/error.h"

namespace penstock::datasets {
namespace {

/// Touches each page of a lent sample, so that the system reads the missing ones.
void touch(std::span<const std::byte> bytes) {
  constexpr std::size_t kPage = 4096;
  for (std::size_t at = 0; at < bytes.size(); at += kPage) {
    static_cast<void>(*static_cast<const volatile std::byte*>(&bytes[at]));
  }
}

}  // namespace

ReadAhead::ReadAhead(std::unique_ptr<Source> inner, const Plan& plan)
    : SourceOver(std::move(inner)), plan_(plan), slots_(plan.samples) {
  PENSTOCK_ASSERT(plan.samples > 0 && plan.readers > 0);
  for (std::int32_t i = 0; i < plan.readers; ++i) {
    readers_.emplace_back([this](const std::stop_token& stop) { read(stop); });
  }
}

ReadAhead::~ReadAhead() {
  for (std::jthread& reader : readers_) reader.request_stop();
}

bool ReadAhead::has_room() const noexcept {
  // One sample may always be read, whatever its size.
  return taken_ - given_ < slots_.size() && (bytes_ < plan_.bytes || taken_ == given_);
}

/// The loop of one reader.
void ReadAhead::read(const std::stop_token& stop) noexcept {
  while (true) {
    Slot* slot = nullptr;
    bool chosen = false;
    std::exception_ptr failure;
    {
      const std::lock_guard choosing(choosing_);
      {
        std::unique_lock lock(mutex_);
        if (!room_.wait(lock, stop, [this] { return ended_ || has_room(); }) || ended_) return;
        slot = &slots_[taken_++ % slots_.size()];
      }
      try {
        chosen = inner_->next(slot->sample);
      } catch (...) {
        failure = std::current_exception();
      }
      if (!chosen && !failure) {
        const std::lock_guard lock(mutex_);
        ended_ = true;
      }
    }
    try {
      if (chosen) {
        inner_->load(slot->sample);
        touch(slot->sample.lent);
      }
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    slot->end = !chosen && !failure;
    slot->failure = std::move(failure);  // its last owner is the thread that rethrows it
    slot->read = true;
    slot->bytes = slot->sample.content().size();
    bytes_ += slot->bytes;
    filled_.notify_one();
    if (ended_) room_.notify_all();
  }
}

bool ReadAhead::next(Sample& sample) {
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[given_ % slots_.size()];
  filled_.wait(lock, [&slot] { return slot.read; });
  if (slot.end) return false;  // the slot stays there, so later calls see it again
  std::swap(sample, slot.sample);
  const std::exception_ptr failure = std::exchange(slot.failure, nullptr);
  slot.read = false;
  bytes_ -= slot.bytes;
  ++given_;
  room_.notify_one();
  if (failure) std::rethrow_exception(failure);
  return true;
}

}  // namespace penstock::datasets
