// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/send/outgoing_messages.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/net/shared_memory/pool_listener.h"
#include "dataflow/values/array_pieces.h"
#include "feeders/pixel_options.h"
#include "feeders/remote/send/frame_memory.h"
#include "feeders/remote/wire/framed_texts.h"
#include "feeders/remote/wire/zmq_op.h"

namespace penstock::remote {
namespace {

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::span<std::byte> labels_of(const Batch& batch) noexcept {
  return std::as_writable_bytes(batch.labels.first(static_cast<std::size_t>(batch.valid)));
}

/// The bytes around the pixels and the labels of a batch, in formats of one frame.
using MakePieces = values::ArrayPieces (*)(const BatchSpec&, std::int32_t images);

values::ArrayPieces zmq_op_pieces(const BatchSpec& spec, std::int32_t images) {
  const BatchLayout layout(spec, images);
  std::vector<std::byte> message(layout.size());
  layout.write_headers(message);
  const auto piece = [&](std::size_t at, std::size_t size) {
    return std::string(reinterpret_cast<const char*>(&message[at]), size);
  };
  const std::size_t header = BatchLayout::kLabelsHeader;
  return {piece(0, BatchLayout::kPixelsAt), piece(layout.labels_at() - header, header), {}};
}

template <values::ArrayPieces (*write)(std::span<const values::NumpyArray>)>
values::ArrayPieces numpy_pieces(const BatchSpec& spec, std::int32_t images) {
  const ImageShape& image = spec.image;
  return write(std::vector<values::NumpyArray>{
      {.type = {.kind = 'u', .bytes = 1},
       .shape = {images, image.height, image.width, image.channels}},
      {.type = {.kind = 'i', .bytes = 4}, .shape = {images}}});
}

/// A message is one frame, so the slot has the layout of a message:
///
///   [piece][pixels][piece][labels][piece]
///
/// The ring sees [pixels][labels]. Labels move up before sending, and back afterwards.
class OneFrameMessages final : public OutgoingMessages {
 public:
  OneFrameMessages(const BatchSpec& spec, MakePieces make)
      : spec_(spec),
        make_(make),
        images_(spec.images),
        pieces_(make(spec, spec.images)),
        between_(pieces_[1].size()) {
    PENSTOCK_ASSERT(pieces_[0].size() <= FrameMemory::kLead);
    PENSTOCK_ASSERT(between_ + pieces_[2].size() <= FrameMemory::kTail);
  }

  std::span<const OutgoingFrame> batch(const Batch& batch, Time, Time) override {
    if (batch.valid != std::exchange(images_, batch.valid)) pieces_ = make_(spec_, batch.valid);
    const std::span<std::byte> labels = labels_of(batch), moved = moved_labels_of(batch);
    std::memmove(moved.data(), labels.data(), labels.size());
    std::byte* const first = batch.pixels.data() - pieces_[0].size();
    std::byte* const last = moved.data() + moved.size();
    write(first, pieces_[0]);
    write(moved.data() - between_, pieces_[1]);
    write(last, pieces_[2]);
    frame_ = {{first, last + pieces_[2].size()}, true};
    return {&frame_, 1};
  }

  void give_back(const Batch& batch) noexcept override {
    const std::span<std::byte> labels = labels_of(batch);
    // Restore the labels: constant feeders fill a slot once and publish it again and again.
    std::memmove(labels.data(), moved_labels_of(batch).data(), labels.size());
  }

 private:
  static void write(std::byte* to, const std::string& piece) {
    std::memcpy(to, piece.data(), piece.size());
  }
  std::span<std::byte> moved_labels_of(const Batch& batch) const noexcept {
    const std::size_t pixels = static_cast<std::size_t>(batch.valid) * spec_.row_bytes();
    return {batch.pixels.data() + pixels + between_, labels_of(batch).size()};
  }

  const BatchSpec spec_;
  const MakePieces make_;
  std::int32_t images_;         // that pieces_ are for
  values::ArrayPieces pieces_;  // of constant lengths
  const std::size_t between_;   // length of pieces_[1]
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

class FramedMessages final : public OutgoingMessages {
 public:
  /// `pool`: batches are lent from it; null: messages hold them.
  FramedMessages(const BatchSpec& spec, const Clock& clock, bool checksum,
                 const net::SharedPool* pool)
      : spec_(spec), clock_(clock), pool_(pool), stream_(checksum) {
    if (pool != nullptr) listener_ = std::make_unique<net::PoolListener>(pool->fd(), geteuid());
  }

  std::span<const OutgoingFrame> hello() override {
    return stream_.hello(header(spec_.images), "penstock serve",
                         listener_ ? listener_->name() : "");
  }

  std::span<const OutgoingFrame> batch(const Batch& batch, Time begun, Time ready) override {
    FramedHeader made = header(batch.valid);
    const Time now = clock_.now();
    const std::int64_t now_ns = wall_clock_ns();
    made.ready_ns = now_ns - Nanoseconds(now - ready).count();
    made.begun_ns = now_ns - Nanoseconds(now - begun).count();
    if (spec_.opaque) {
      const OutgoingFrame frame{batch.pixels.first(batch.bytes), true};
      return stream_.batch(made, {&frame, 1});
    }
    if (pool_ == nullptr) {
      const OutgoingFrame frames[] = {{pixels_of(batch), true}, {labels_of(batch), true}};
      return stream_.batch(made, frames);
    }
    const std::span<std::byte> labels = labels_of(batch), moved = moved_labels_of(batch);
    std::memmove(moved.data(), labels.data(), labels.size());
    const auto bytes =
        static_cast<std::uint64_t>(moved.data() - batch.pixels.data()) + moved.size();
    // A number that is not out: the slot is used once at a time.
    lease_ = ++leases_ * pool_->slots() + static_cast<std::uint64_t>(batch.slot);
    write_framed_lease(
        lease_frame_,
        {.lease = *lease_, .offset = pool_->offset_of(batch.pixels.data()), .bytes = bytes});
    made.flags = kFramedShared;
    const OutgoingFrame frame{lease_frame_, false};
    return stream_.batch(made, {&frame, 1});
  }

  std::span<const OutgoingFrame> end() override { return stream_.end(); }
  void stamp() override { stream_.stamp(); }
  std::optional<std::uint64_t> lease() const override { return lease_; }

  void give_back(const Batch& batch) noexcept override {
    if (pool_ == nullptr) return;
    // Restore the labels: constant feeders fill a slot once and publish it again and again.
    const std::span<std::byte> labels = labels_of(batch);
    std::memmove(labels.data(), moved_labels_of(batch).data(), labels.size());
  }

 private:
  FramedHeader header(std::int32_t images) const {
    if (spec_.opaque) {
      return {.encoding = FramedEncoding::arrays, .images = static_cast<std::uint32_t>(images)};
    }
    return {.encoding = FramedEncoding::pixels,
            .images = static_cast<std::uint32_t>(images),
            .height = static_cast<std::uint32_t>(spec_.image.height),
            .width = static_cast<std::uint32_t>(spec_.image.width),
            .channels = static_cast<std::uint32_t>(spec_.image.channels),
            .pixel = framed_pixel_of(spec_.pixel),
            .planar = static_cast<std::uint8_t>(spec_.planar)};
  }
  std::span<std::byte> pixels_of(const Batch& batch) const noexcept {
    return batch.pixels.first(static_cast<std::size_t>(batch.valid) * spec_.row_bytes());
  }
  /// Where consumers expect the labels of a lease.
  std::span<std::byte> moved_labels_of(const Batch& batch) const noexcept {
    constexpr std::size_t kAlignment = SharedFrameMemory::kFrameAlignment;
    const std::size_t at = (pixels_of(batch).size() + kAlignment - 1) / kAlignment * kAlignment;
    return {batch.pixels.data() + at, labels_of(batch).size()};
  }

  const BatchSpec spec_;
  const Clock& clock_;
  const net::SharedPool* const pool_;
  std::unique_ptr<net::PoolListener> listener_;
  FramedStream stream_;
  std::uint64_t leases_ = 0;
  std::optional<std::uint64_t> lease_;  // of the last batch
  std::array<std::byte, kFramedLeaseBytes> lease_frame_{};
};

}  // namespace

std::unique_ptr<OutgoingMessages> make_outgoing(MessageFormat format, const BatchSpec& spec,
                                                const Clock& clock, bool checksum) {
  if (format == MessageFormat::framed) {
    return std::make_unique<FramedMessages>(spec, clock, checksum, nullptr);
  }
  if (spec.opaque || spec.pixel != DType::u8 || spec.planar) {
    throw ConfigError(
        "messages of the format {} hold bytes in [N,H,W,C], and these batches are {}; take framed",
        to_string(format), spec.opaque ? "no images" : describe_pixels(spec));
  }
  if (checksum) {
    throw ConfigError("messages of the format {} have no checksum; take framed", to_string(format));
  }
  if (format == MessageFormat::numpy_frames) return std::make_unique<NumpyMessages>(spec);
  if (format == MessageFormat::zmq_op) {
    return std::make_unique<OneFrameMessages>(spec, zmq_op_pieces);
  }
  if (format == MessageFormat::pickle) {
    return std::make_unique<OneFrameMessages>(spec, numpy_pieces<values::pickle_pieces>);
  }
  if (spec.pixel_bytes() > UINT32_MAX) {
    throw ConfigError(
        "msgpack messages hold less than 4 GiB of pixels, and a batch has {} bytes; lower "
        "--batch-size",
        spec.pixel_bytes());
  }
  return std::make_unique<OneFrameMessages>(spec, numpy_pieces<values::msgpack_pieces>);
}

std::unique_ptr<OutgoingMessages> make_lent_outgoing(const BatchSpec& spec, const Clock& clock,
                                                     const net::SharedPool& pool) {
  return std::make_unique<FramedMessages>(spec, clock, false, &pool);
}

FramedStream::FramedStream(bool checksum)
    : checksum_(checksum), producer_(draw_producer_number()) {}

std::span<const OutgoingFrame> FramedStream::hello(FramedHeader header, const std::string& name,
                                                   const std::string& pool) {
  header.kind = FramedKind::hello;
  text_ = write_framed_hello(
      {.name = name, .host = host_name(), .pid = getpid(), .boot = boot_id(), .pool = pool});
  const OutgoingFrame text{std::as_writable_bytes(std::span(text_)), false};
  return message(header, {&text, 1});
}

std::span<const OutgoingFrame> FramedStream::batch(FramedHeader header,
                                                   std::span<const OutgoingFrame> payload) {
  header.kind = FramedKind::batch;
  header.sequence = batches_++;
  header.images_before = images_;
  images_ += header.images;
  return message(header, payload);
}

std::span<const OutgoingFrame> FramedStream::end() {
  return message({.kind = FramedKind::end, .sequence = batches_, .images_before = images_}, {});
}

/// Computes the checksum of the payload once. Later only times change.
std::span<const OutgoingFrame> FramedStream::message(FramedHeader header,
                                                     std::span<const OutgoingFrame> payload) {
  header.producer = producer_;
  std::array<std::span<const std::byte>, kMaxFramedPayload> views;
  std::size_t count = 0;
  for (const OutgoingFrame& frame : payload) {
    views[count] = frame.bytes;
    frames_[++count] = frame;
  }
  first_ = make_framed_header(header, std::span(views).first(count), checksum_);
  current_ = *read_framed_header(first_);
  frames_[0] = {first_, false};
  return std::span(frames_).first(count + 1);
}

void FramedStream::stamp() noexcept {
  current_.sent_ns = wall_clock_ns();
  write_framed_header(first_, current_);
}

}  // namespace penstock::remote
