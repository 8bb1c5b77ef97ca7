// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/message_images.h"

#include <utility>

#include "dataflow/error.h"

namespace penstock::remote {

MessageImages::MessageImages(std::size_t messages, std::int32_t classes, Clock& clock, LetGo let_go)
    : most_(messages), classes_(classes), clock_(clock), let_go_(std::move(let_go)) {
  PENSTOCK_ASSERT(messages > 0);
}

ImageMessage* MessageImages::free(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (!clock_.wait(lock, freed_, stop, [this] { return has_free_one(); })) return nullptr;
  if (free_.empty()) {
    free_.reserve(all_.size() + 1);
    return &all_.emplace_back();
  }
  ImageMessage* const message = free_.back();
  free_.pop_back();
  return message;
}

bool MessageImages::has_free() {
  const std::lock_guard lock(mutex_);
  return has_free_one();
}

bool MessageImages::is_idle() {
  const std::lock_guard lock(mutex_);
  return in_use_ == 0;
}

void MessageImages::put(ImageMessage& message) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(&message);
  ++in_use_;
  clock_.wake(filled_);
}

void MessageImages::end(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  failure_ = std::move(failure);
  clock_.wake(filled_);
}

void MessageImages::rethrow() {
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(failure_);
}

bool MessageImages::is_ready() {
  if (current_) return true;
  const std::lock_guard lock(mutex_);
  return has_news();
}

void MessageImages::await(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  clock_.wait(lock, filled_, stop, [this] { return has_news(); });
}

bool MessageImages::next(Sample& sample) {
  if (!current_ && !begin_message()) return false;
  const FramedImages& images = *current_->images;
  sample.lent = images.file(place_);
  sample.owner = current_;
  sample.bytes.clear();
  sample.label = images.label(place_);
  sample.index = lent_ % kEpoch;
  sample.epoch = lent_ / kEpoch;
  sample.file = "image ";
  sample.file += std::to_string(place_);
  sample.file += " of ";
  sample.file += current_->name;
  sample.offset = static_cast<std::uint64_t>(images.file(place_).data() - images.file(0).data());
  ++lent_;
  if (++place_ == images.size()) current_.reset();
  return true;
}

/// False: the data end.
bool MessageImages::begin_message() {
  ImageMessage* message = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) {
      if (failure_) throw Failed();
      return false;
    }
    message = waiting_.front();
    waiting_.pop_front();
  }
  current_ =
      std::shared_ptr<ImageMessage>(message, [this](ImageMessage* done) { give_back(*done); });
  place_ = 0;
  return true;
}

/// Runs on the thread that releases the last image.
void MessageImages::give_back(ImageMessage& message) noexcept {
  message.images.reset();
  message.message.clear();
  const BatchReceipt receipt = message.receipt;
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(&message);
    --in_use_;
    clock_.wake(freed_);
  }
  if (let_go_) let_go_(receipt);
}

}  // namespace penstock::remote
