// SPDX-License-Identifier: Apache-2.0
// Implements penstock_producer.h: the C functions check arguments, and turn exceptions into codes
// and texts.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "feeders/remote/producer/batch_sender.h"
#include "feeders/remote/producer/penstock_producer.h"
#include "feeders/remote/producer/push_socket.h"

using penstock::producer::BatchSender;
using penstock::producer::Failure;
using penstock::producer::invalid;
using penstock::producer::PixelShape;
using penstock::producer::SenderOptions;

struct penstock_producer {
  explicit penstock_producer(SenderOptions options) : sender(std::move(options)) {}
  BatchSender sender;
  std::string error;
};

namespace {

/// Runs `action`. Returns the code of what it threw, and puts the reason into `error`.
template <typename Action>
int guarded(std::string& error, Action action) noexcept {
  try {
    error.clear();
    action();
    return PENSTOCK_PRODUCER_OK;
  } catch (const Failure& failure) {
    error = failure.what();
    return failure.code();
  } catch (const std::exception& failure) {
    error = failure.what();
    return PENSTOCK_PRODUCER_FAILED;
  }
}

template <typename Action>
int guarded(penstock_producer* producer, Action action) noexcept {
  if (producer == nullptr) return PENSTOCK_PRODUCER_INVALID;
  return guarded(producer->error, [&] { action(producer->sender); });
}

std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

SenderOptions read_options(const char* endpoint, const penstock_producer_options& options) {
  if (endpoint == nullptr) throw invalid("no endpoint; expected such as ipc:///tmp/feed");
  if (options.size != sizeof options) {
    throw invalid("options of " + std::to_string(options.size) + " bytes; expected " +
                  std::to_string(sizeof options) +
                  ": set their defaults with penstock_producer_options_init()");
  }
  if (options.hwm < 1) {
    throw invalid("hwm is " + std::to_string(options.hwm) + "; expected 1 or more");
  }
  if (options.timeout_ms < 1) {
    throw invalid("timeout_ms is " + std::to_string(options.timeout_ms) + "; expected 1 or more");
  }
  return {.push = {.endpoint = endpoint,
                   .bind = options.bind != 0,
                   .hwm = options.hwm,
                   .server_key = text_or_empty(options.server_key),
                   .public_key = text_or_empty(options.public_key),
                   .secret_key = text_or_empty(options.secret_key)},
          .name = text_or_empty(options.name),
          .checksum = options.checksum != 0,
          .timeout = std::chrono::milliseconds(options.timeout_ms)};
}

/// Throws Failure if the arguments are not a batch of pixels.
std::span<const std::byte> checked_pixels(const void* pixels, const PixelShape& shape,
                                          const std::int32_t* labels, std::size_t pixel_bytes) {
  if (pixels == nullptr || labels == nullptr) throw invalid("no pixels, or no labels");
  std::size_t bytes = pixel_bytes;
  for (const std::uint32_t extent : {shape.images, shape.height, shape.width, shape.channels}) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) bytes = 0;
  }
  if (bytes == 0 || bytes > std::numeric_limits<std::ptrdiff_t>::max() || shape.channels != 3) {
    throw invalid("a batch of " + std::to_string(shape.images) + " x " +
                  std::to_string(shape.height) + " x " + std::to_string(shape.width) + " x " +
                  std::to_string(shape.channels) +
                  " numbers; expected images x height x width x 3, none of them 0");
  }
  return {static_cast<const std::byte*>(pixels), bytes};
}

}  // namespace

void penstock_producer_options_init(penstock_producer_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->size = sizeof *options;
  options->hwm = 4;
  options->timeout_ms = 30'000;
}

penstock_producer* penstock_producer_open(const char* endpoint,
                                          const penstock_producer_options* options, char* error,
                                          size_t error_size) {
  penstock_producer_options defaults;
  penstock_producer_options_init(&defaults);
  std::unique_ptr<penstock_producer> producer;
  std::string why;
  guarded(why, [&] {
    producer = std::make_unique<penstock_producer>(
        read_options(endpoint, options == nullptr ? defaults : *options));
  });
  if (error != nullptr && error_size > 0) {
    error[why.copy(error, error_size - 1)] = '\0';
  }
  return producer.release();
}

const char* penstock_producer_address(const penstock_producer* producer) {
  return producer == nullptr ? "" : producer->sender.address().c_str();
}

const char* penstock_producer_error(const penstock_producer* producer) {
  return producer == nullptr ? "no producer: penstock_producer_open() failed, or it was closed"
                             : producer->error.c_str();
}

void penstock_producer_begin(penstock_producer* producer) {
  if (producer != nullptr) producer->sender.begin();
}

int penstock_producer_set_pixels(penstock_producer* producer, int type, int planar) {
  return guarded(producer, [&](BatchSender& sender) {
    if (type < PENSTOCK_PRODUCER_U8 || type > PENSTOCK_PRODUCER_BF16) {
      throw invalid("the type of pixels is " + std::to_string(type) +
                    "; expected PENSTOCK_PRODUCER_U8, F32, F16 or BF16");
    }
    sender.set_pixels({static_cast<penstock::remote::FramedPixel>(type), planar != 0});
  });
}

int penstock_producer_send_pixels(penstock_producer* producer, const void* pixels, uint32_t images,
                                  uint32_t height, uint32_t width, uint32_t channels,
                                  const int32_t* labels) {
  return guarded(producer, [&](BatchSender& sender) {
    const PixelShape shape{images, height, width, channels};
    sender.send_pixels(checked_pixels(pixels, shape, labels, sender.pixel_bytes()), shape,
                       {labels, images});
  });
}

int penstock_producer_lend_pixels(penstock_producer* producer, const void* pixels, uint32_t images,
                                  uint32_t height, uint32_t width, uint32_t channels,
                                  const int32_t* labels, void (*release)(void* hint), void* hint) {
  return guarded(producer, [&](BatchSender& sender) {
    if (release == nullptr) throw invalid("no release; send_pixels takes a copy");
    const PixelShape shape{images, height, width, channels};
    sender.send_pixels(checked_pixels(pixels, shape, labels, sender.pixel_bytes()), shape,
                       {labels, images}, [release, hint] { release(hint); });
  });
}

int penstock_producer_send_jpegs(penstock_producer* producer, const void* const* files,
                                 const size_t* lengths, uint32_t images, const int32_t* labels) {
  return guarded(producer, [&](BatchSender& sender) {
    if (files == nullptr || lengths == nullptr || labels == nullptr) {
      throw invalid("no files, lengths or labels");
    }
    std::vector<std::span<const std::byte>> spans;
    spans.reserve(images);
    for (std::size_t i = 0; i < images; ++i) {
      if (files[i] == nullptr) throw invalid("file " + std::to_string(i) + " is null");
      spans.emplace_back(static_cast<const std::byte*>(files[i]), lengths[i]);
    }
    sender.send_jpegs(spans, {labels, images});
  });
}

int penstock_producer_end(penstock_producer* producer) {
  return guarded(producer, [](BatchSender& sender) { sender.end(); });
}

int penstock_producer_close(penstock_producer* producer, int64_t timeout_ms, int64_t* undelivered) {
  std::int64_t left = 0;
  const int result =
      producer == nullptr ? PENSTOCK_PRODUCER_OK : guarded(producer, [&](BatchSender& sender) {
        const std::int64_t time = std::max<std::int64_t>(timeout_ms, 0);
        left = sender.close(std::chrono::milliseconds(time));
      });
  delete producer;
  if (undelivered != nullptr) *undelivered = left;
  return result == PENSTOCK_PRODUCER_OK && left > 0 ? PENSTOCK_PRODUCER_TIMEOUT : result;
}
