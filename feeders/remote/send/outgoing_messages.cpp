// SPDX-License-Identifier: Apache-2.0
// Lays out batches in formats of other programs: tensorpack's zmq_op, and plain frames of NumPy
// arrays.
#include "feeders/remote/send/outgoing_messages.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string>

#include "dataflow/error.h"
#include "feeders/remote/wire/zmq_op.h"

namespace penstock::remote {
namespace {

/// A message is one frame, so the slot has the layout of a message:
///
///   [header][pixels][header][labels]
///
/// The ring sees [pixels][labels]. Labels move up before sending, and back afterwards.
class ZmqOpMessages final : public OutgoingMessages {
 public:
  explicit ZmqOpMessages(const BatchSpec& spec) : spec_(spec) {}

  std::span<const OutgoingFrame> batch(const Batch& batch, Time, Time) override {
    const BatchLayout layout(spec_, batch.valid);
    frame_ = {frame_of(batch, layout), true};
    const std::span<std::byte> labels = labels_of(batch);
    std::memmove(&frame_.bytes[layout.labels_at()], labels.data(), labels.size());
    layout.write_headers(frame_.bytes);
    return {&frame_, 1};
  }

  void give_back(const Batch& batch) noexcept override {
    const BatchLayout layout(spec_, batch.valid);
    const std::span<std::byte> labels = labels_of(batch);
    // Restore the labels: constant feeders fill a slot once and publish it again and again.
    std::memmove(labels.data(), &frame_of(batch, layout)[layout.labels_at()], labels.size());
  }

 private:
  static std::span<std::byte> frame_of(const Batch& batch, const BatchLayout& layout) noexcept {
    return {batch.pixels.data() - BatchLayout::kPixelsAt, layout.size()};
  }
  static std::span<std::byte> labels_of(const Batch& batch) noexcept {
    return std::as_writable_bytes(batch.labels.first(static_cast<std::size_t>(batch.valid)));
  }

  const BatchSpec spec_;
  OutgoingFrame frame_;
};

class NumpyMessages final : public OutgoingMessages {
 public:
  explicit NumpyMessages(const BatchSpec& spec) : spec_(spec) {}

  std::span<const OutgoingFrame> batch(const Batch& batch, Time, Time) override {
    const ImageShape& image = spec_.image;
    header_ = fmt::format(
        R"([{{"dtype":"uint8","shape":[{0},{1},{2},{3}]}},{{"dtype":"int32","shape":[{0}]}}])",
        batch.valid, image.height, image.width, image.channels);
    const auto count = static_cast<std::size_t>(batch.valid);
    frames_ = {OutgoingFrame{std::as_writable_bytes(std::span(header_)), false},
               OutgoingFrame{batch.pixels.first(count * spec_.row_bytes()), true},
               OutgoingFrame{std::as_writable_bytes(batch.labels.first(count)), true}};
    return frames_;
  }

 private:
  const BatchSpec spec_;
  std::string header_;
  std::array<OutgoingFrame, 3> frames_;
};

}  // namespace

std::unique_ptr<OutgoingMessages> make_outgoing(MessageFormat format, const BatchSpec& spec,
                                                const Clock& clock, bool checksum) {
  if (format == MessageFormat::framed) return make_framed_outgoing(spec, clock, checksum);
  if (checksum) {
    throw ConfigError("messages of the format " + std::string(to_string(format)) +
                      " have no checksum; take framed");
  }
  if (format == MessageFormat::zmq_op) return std::make_unique<ZmqOpMessages>(spec);
  if (format == MessageFormat::numpy_frames) return std::make_unique<NumpyMessages>(spec);
  throw ConfigError("messages of the format " + std::string(to_string(format)) +
                    " are received, not sent; expected zmq_op, numpy-frames or framed");
}

}  // namespace penstock::remote
