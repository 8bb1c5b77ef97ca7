// SPDX-License-Identifier: Apache-2.0
// Lays out batches as messages of Penstock's own format (framed_format.md): a hello, batches of
// pixels, an end.
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>
#include <string>

#include "feeders/remote/receive/hand_off_times.h"
#include "feeders/remote/send/outgoing_messages.h"
#include "feeders/remote/wire/framed.h"
#include "feeders/remote/wire/framed_text.h"

namespace penstock::remote {
namespace {

std::uint64_t random_number() {
  std::random_device device;
  std::uint64_t number = 0;
  while (number == 0) number = std::uint64_t{device()} << 32 | device();
  return number;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

class FramedMessages final : public OutgoingMessages {
 public:
  FramedMessages(const BatchSpec& spec, const Clock& clock, bool checksum)
      : spec_(spec), clock_(clock), checksum_(checksum), producer_(random_number()) {}

  std::span<const OutgoingFrame> hello() override {
    FramedHello hello;
    hello.name = "penstock serve";
    hello.host = host_name();
    hello.pid = getpid();
    hello.boot = boot_id();
    text_ = write_framed_hello(hello);
    const OutgoingFrame text{std::as_writable_bytes(std::span(text_)), false};
    return message(header(FramedKind::hello, spec_.images), {&text, 1});
  }

  std::span<const OutgoingFrame> batch(const Batch& batch, Time begun, Time ready) override {
    const auto count = static_cast<std::size_t>(batch.valid);
    const OutgoingFrame frames[] = {
        {batch.pixels.first(count * spec_.row_bytes()), true},
        {std::as_writable_bytes(batch.labels.first(count)), true},
    };
    FramedHeader made = header(FramedKind::batch, batch.valid);
    const Time now = clock_.now();
    const std::int64_t now_ns = realtime_ns();
    made.ready_ns = now_ns - Nanoseconds(now - ready).count();
    made.begun_ns = now_ns - Nanoseconds(now - begun).count();
    ++batches_;
    images_ += made.images;
    return message(made, frames);
  }

  std::span<const OutgoingFrame> end() override {
    FramedHeader made;
    made.kind = FramedKind::end;
    made.producer = producer_;
    made.sequence = batches_;
    made.images_before = images_;
    return message(made, {});
  }

  void stamp() override {
    current_.sent_ns = realtime_ns();
    write_framed_header(first_, current_);
  }

 private:
  FramedHeader header(FramedKind kind, std::int32_t images) const {
    FramedHeader made;
    made.kind = kind;
    made.encoding = FramedEncoding::pixels;
    made.producer = producer_;
    if (kind == FramedKind::batch) {
      made.sequence = batches_;
      made.images_before = images_;
    }
    made.images = static_cast<std::uint32_t>(images);
    made.height = static_cast<std::uint32_t>(spec_.image.height);
    made.width = static_cast<std::uint32_t>(spec_.image.width);
    made.channels = static_cast<std::uint32_t>(spec_.image.channels);
    return made;
  }

  /// Computes the checksum of the payload once. Later only the time of sending changes.
  std::span<const OutgoingFrame> message(const FramedHeader& made,
                                         std::span<const OutgoingFrame> payload) {
    std::array<std::span<const std::byte>, kMaxFramedPayload> views;
    std::size_t count = 0;
    for (const OutgoingFrame& frame : payload) {
      views[count] = frame.bytes;
      frames_[++count] = frame;
    }
    first_ = make_framed_header(made, std::span(views).first(count), checksum_);
    current_ = *read_framed_header(first_);
    frames_[0] = {first_, false};
    return std::span(frames_).first(count + 1);
  }

  const BatchSpec spec_;
  const Clock& clock_;
  const bool checksum_;
  const std::uint64_t producer_;
  std::uint64_t batches_ = 0, images_ = 0;
  std::string text_;
  FramedHeader current_;  // of the last message
  std::array<std::byte, kFramedHeaderBytes> first_{};
  std::array<OutgoingFrame, 1 + kMaxFramedPayload> frames_;
};

}  // namespace

std::unique_ptr<OutgoingMessages> make_framed_outgoing(const BatchSpec& spec, const Clock& clock,
                                                       bool checksum) {
  return std::make_unique<FramedMessages>(spec, clock, checksum);
}

}  // namespace penstock::remote
