// SPDX-License-Identifier: Apache-2.0
// penstock_producer.h for C++17 and later. The producer closes itself, and failures throw
// std::runtime_error with the reason and what to do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock_producer.h"

namespace penstock {

/// Options with their defaults.
struct ProducerOptions : penstock_producer_options {
  ProducerOptions() noexcept { penstock_producer_options_init(this); }
};

/// Shape of a batch of pixels, in whichever layout.
struct BatchShape {
  std::uint32_t images = 0, height = 0, width = 0, channels = 3;
};

/// Thread-safety: one thread at a time.
class Producer {
 public:
  explicit Producer(const std::string& endpoint, const ProducerOptions& options = {}) {
    std::array<char, 1024> error{};
    handle_ = penstock_producer_open(endpoint.c_str(), &options, error.data(), error.size());
    if (handle_ == nullptr) throw std::runtime_error(error.data());
  }
  Producer(Producer&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Producer& operator=(Producer&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  /// Gives consumers a second to take what waits. Call close() first to know that they have it.
  ~Producer() { penstock_producer_close(handle_, 1000, nullptr); }

  std::string address() const { return penstock_producer_address(handle_); }

  /// Work on the next batch begins now.
  void begin() noexcept { penstock_producer_begin(handle_); }

  /// Call before the first batch; see penstock_producer_set_pixels().
  void set_pixels(int type, bool planar) {
    check(penstock_producer_set_pixels(handle_, type, planar ? 1 : 0));
  }

  void send_pixels(const void* pixels, const BatchShape& shape, const std::int32_t* labels) {
    check(penstock_producer_send_pixels(handle_, pixels, shape.images, shape.height, shape.width,
                                        shape.channels, labels));
  }

  /// Sends without a copy. Holds `owner` until the pixels are no longer needed, and releases it on
  /// another thread.
  template <typename Owner>
  void lend_pixels(std::shared_ptr<Owner> owner, const void* pixels, const BatchShape& shape,
                   const std::int32_t* labels) {
    using Held = std::shared_ptr<Owner>;
    auto held = std::make_unique<Held>(std::move(owner));
    check(penstock_producer_lend_pixels(
        handle_, pixels, shape.images, shape.height, shape.width, shape.channels, labels,
        [](void* hint) { delete static_cast<Held*>(hint); }, held.get()));
    static_cast<void>(held.release());
  }

  /// Needs one label per file.
  void send_jpegs(const std::vector<std::string_view>& files,
                  const std::vector<std::int32_t>& labels) {
    if (files.size() != labels.size()) {
      throw std::runtime_error(std::to_string(files.size()) + " files with " +
                               std::to_string(labels.size()) + " labels; expected one each");
    }
    std::vector<const void*> starts;
    std::vector<std::size_t> lengths;
    for (const std::string_view file : files) {
      starts.push_back(file.data());
      lengths.push_back(file.size());
    }
    check(penstock_producer_send_jpegs(handle_, starts.data(), lengths.data(),
                                       static_cast<std::uint32_t>(files.size()), labels.data()));
  }

  /// Tells consumers that no more batches will come.
  void end() { check(penstock_producer_end(handle_)); }

  /// Waits until consumers have what was sent. Returns how many batches are known to be
  /// undelivered. No other call may follow.
  std::int64_t close(std::int64_t timeout_ms = 30'000) noexcept {
    std::int64_t undelivered = 0;
    penstock_producer_close(std::exchange(handle_, nullptr), timeout_ms, &undelivered);
    return undelivered;
  }

 private:
  void check(int result) const {
    if (result != PENSTOCK_PRODUCER_OK) throw std::runtime_error(penstock_producer_error(handle_));
  }

  penstock_producer* handle_ = nullptr;
};

}  // namespace penstock
