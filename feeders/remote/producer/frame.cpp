// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/producer/frame.h"

#include <zmq.h>

#include <cstring>
#include <new>
#include <utility>

namespace penstock::producer {

void Frame::Close::operator()(zmq_msg_t* message) const noexcept {
  zmq_msg_close(message);
  delete message;
}

Frame::Frame(const void* data, std::size_t bytes, std::function<void()> done) {
  const auto finish = [](void*, void* hint) {
    const std::unique_ptr<Holder> holder(static_cast<Holder*>(hint));
    if (holder->handed_over && holder->done) holder->done();
  };
  auto holder = std::make_unique<Holder>(Holder{.done = std::move(done)});
  auto message = std::make_unique<zmq_msg_t>();
  if (zmq_msg_init_data(message.get(), const_cast<void*>(data), bytes, finish, holder.get()) != 0) {
    throw std::bad_alloc();
  }
  holder_ = holder.release();
  message_.reset(message.release());
}

Frame Frame::copy_of(std::span<const std::byte> bytes, std::function<void()> done) {
  std::shared_ptr<std::byte[]> memory(new std::byte[bytes.size()]);
  std::memcpy(memory.get(), bytes.data(), bytes.size());
  return Frame(memory.get(), bytes.size(), [memory, done = std::move(done)] {
    if (done) done();
  });
}

std::span<const std::byte> Frame::bytes() const noexcept {
  return {static_cast<const std::byte*>(zmq_msg_data(message_.get())),
          zmq_msg_size(message_.get())};
}

zmq_msg_t* Frame::hand_over() noexcept {
  holder_->handed_over = true;
  return message_.get();
}

void Outbox::add(bool batch) {
  const std::lock_guard lock(mutex_);
  ++messages_;
  if (batch) ++batches_;
}

void Outbox::remove(bool batch) {
  const std::lock_guard lock(mutex_);
  --messages_;
  if (batch) --batches_;
  if (messages_ == 0) empty_.notify_all();
}

std::int64_t Outbox::wait_until_empty(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  empty_.wait_until(lock, deadline, [this] { return messages_ == 0; });
  return batches_;
}

}  // namespace penstock::producer
