// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/producer/batch_sender.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "dataflow/values/crc32c.h"
#include "feeders/remote/producer/penstock_producer.h"

namespace penstock::producer {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kMostJpegs = 65'536;
/// libzmq may keep the last bytes of small messages in a buffer.
constexpr milliseconds kLinger{1000};
/// Longest wait, so that sums of times do not overflow.
constexpr milliseconds kLongest = std::chrono::hours(24 * 365);

SteadyTime after(milliseconds time) {
  return std::chrono::steady_clock::now() + std::min(time, kLongest);
}

std::string seconds_text(milliseconds time) {
  std::string text = std::to_string(static_cast<double>(time.count()) / 1000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

constexpr std::size_t kMaxName = 255;

std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char c : text.substr(0, kMaxName)) {
    if (c == '"' || c == '\\') result += '\\';
    result += c >= ' ' && c <= '~' ? c : '?';
  }
  return result + '"';
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

/// What a producer says about itself before its first batch. JSON of at most kMaxFramedText bytes:
/// name, host, pid, and boot id if /proc tells it. Other characters than printable ASCII become
/// '?', and names are cut after 255 characters.
std::string hello_text(std::string_view name) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::string text = "{\"name\": " + json_string(name) + ", \"host\": " + json_string(host_name()) +
                     ", \"pid\": " + std::to_string(getpid());
  if (!boot.empty()) text += ", \"boot\": " + json_string(boot);
  return text + "}";
}

std::size_t bytes_of(remote::FramedPixel pixel) noexcept {
  if (pixel == remote::FramedPixel::u8) return 1;
  return pixel == remote::FramedPixel::f32 ? 4 : 2;
}

remote::FramedHeader header_of(const PixelShape& shape, const PixelKind& kind) {
  return {.encoding = remote::FramedEncoding::pixels,
          .ready_ns = remote::wall_clock_ns(),
          .images = shape.images,
          .height = shape.height,
          .width = shape.width,
          .channels = shape.channels,
          .pixel = kind.type,
          .planar = static_cast<std::uint8_t>(kind.planar ? 1 : 0)};
}

}  // namespace

BatchSender::BatchSender(SenderOptions options)
    : options_(std::move(options)),
      number_(remote::draw_producer_number()),
      socket_(options_.push) {}

std::size_t BatchSender::pixel_bytes() const noexcept { return bytes_of(kind_.type); }

void BatchSender::set_pixels(const PixelKind& kind) {
  if (shape_) throw invalid("the first batch was sent; say before it what pixels are");
  kind_ = kind;
}

void BatchSender::begin() noexcept {
  begun_ns_ = remote::wall_clock_ns();
  ready_ns_ = 0;
}

void BatchSender::send_pixels(std::span<const std::byte> pixels, const PixelShape& shape,
                              std::span<const std::int32_t> labels, std::function<void()> release) {
  const remote::FramedHeader header = header_of(shape, kind_);
  std::vector<Frame> frames;
  frames.push_back(release ? Frame(pixels.data(), pixels.size(), std::move(release))
                           : Frame::copy_of(pixels));
  send_batch(header, std::move(frames), labels);
}

void BatchSender::send_jpegs(std::span<const std::span<const std::byte>> files,
                             std::span<const std::int32_t> labels) {
  if (files.empty() || files.size() > kMostJpegs) {
    throw invalid("a batch of " + std::to_string(files.size()) + " JPEG files; expected 1 to " +
                  std::to_string(kMostJpegs));
  }
  const remote::FramedHeader header{.encoding = remote::FramedEncoding::jpeg,
                                    .ready_ns = remote::wall_clock_ns(),
                                    .images = static_cast<std::uint32_t>(files.size())};
  std::vector<std::uint32_t> lengths;
  std::size_t total = 0;
  for (const auto& file : files) {
    if (file.empty() || file.size() > std::numeric_limits<std::uint32_t>::max()) {
      throw invalid("a JPEG file of " + std::to_string(file.size()) +
                    " bytes; expected 1 to 4294967295");
    }
    lengths.push_back(static_cast<std::uint32_t>(file.size()));
    total += file.size();
  }
  const std::shared_ptr<std::byte[]> memory(new std::byte[total]);
  std::byte* to = memory.get();
  for (const auto& file : files) to = std::copy(file.begin(), file.end(), to);
  std::vector<Frame> frames;
  frames.push_back(Frame::copy_of(std::as_bytes(std::span(lengths))));
  frames.emplace_back(memory.get(), total, [memory] {});
  send_batch(header, std::move(frames), labels);
}

void BatchSender::end() {
  check_not_ended();
  send({.kind = remote::FramedKind::end, .sequence = batches_, .images_before = images_}, {},
       after(options_.timeout));
  ended_ = true;
}

std::int64_t BatchSender::close(milliseconds timeout) {
  const SteadyTime deadline = after(timeout);
  const std::int64_t held = outbox_.wait_until_empty(deadline);
  // When a connection ends, a receiver with a full socket (libzmq 4.3) drops what it has not read.
  const bool read = held == 0 && socket_.wait_until_read(deadline);
  socket_.close(read ? kLinger : milliseconds(0));
  return held == 0 && !read ? 1 : held;
}

void BatchSender::send_batch(remote::FramedHeader header, std::vector<Frame> frames,
                             std::span<const std::int32_t> labels) {
  check_not_ended();
  check_shape(header);
  // A repeated call sends a batch that was ready at the first one.
  if (begun_ns_ != 0 && ready_ns_ == 0) ready_ns_ = header.ready_ns;
  if (ready_ns_ != 0) header.ready_ns = ready_ns_;
  const SteadyTime deadline = after(options_.timeout);
  if (!said_hello_) say_hello(header, deadline);
  frames.push_back(Frame::copy_of(std::as_bytes(labels), [this] { outbox_.remove(true); }));
  header.sequence = batches_;
  header.images_before = images_;
  header.begun_ns = begun_ns_;
  send(header, std::move(frames), deadline);
  begun_ns_ = ready_ns_ = 0;
  ++batches_;
  images_ += header.images;
}

void BatchSender::say_hello(const remote::FramedHeader& of_batch, SteadyTime deadline) {
  const std::string text =
      hello_text(options_.name.empty() ? program_invocation_short_name : options_.name.c_str());
  remote::FramedHeader header = of_batch;
  header.kind = remote::FramedKind::hello;
  header.ready_ns = 0;
  std::vector<Frame> frames;
  frames.push_back(
      Frame::copy_of(std::as_bytes(std::span(text)), [this] { outbox_.remove(false); }));
  send(header, std::move(frames), deadline);
  said_hello_ = true;
}

void BatchSender::send(remote::FramedHeader header, std::vector<Frame> frames,
                       SteadyTime deadline) {
  header.producer = number_;
  if (options_.checksum && !frames.empty()) header.flags = remote::kFramedChecksum;
  for (const Frame& frame : frames) {
    header.payload_bytes += frame.bytes().size();
    if (header.flags != 0) header.checksum = values::crc32c(frame.bytes(), header.checksum);
  }
  while (socket_.wait_for_room(deadline)) {
    std::array<std::byte, remote::kFramedHeaderBytes> bytes{};
    header.sent_ns = remote::wall_clock_ns();
    remote::write_framed_header(bytes, header);
    Frame first = frames.empty() ? Frame::copy_of(bytes, [this] { outbox_.remove(false); })
                                 : Frame::copy_of(bytes);
    if (!socket_.begin(first, !frames.empty())) continue;
    outbox_.add(header.kind == remote::FramedKind::batch);
    socket_.finish(frames);
    return;
  }
  refuse_without_consumer();
}

void BatchSender::check_not_ended() const {
  if (ended_) throw invalid("this producer has sent its end; open another one to send more");
}

void BatchSender::check_shape(const remote::FramedHeader& header) {
  if (!shape_) shape_ = header;
  const bool pixels = header.encoding == remote::FramedEncoding::pixels;
  if (shape_->encoding == header.encoding && shape_->height == header.height &&
      shape_->width == header.width && (!pixels || shape_->images == header.images)) {
    return;
  }
  const auto text = [](const remote::FramedHeader& of) {
    if (of.encoding == remote::FramedEncoding::jpeg) return std::string("JPEG files");
    return std::to_string(of.images) + " x " + std::to_string(of.height) + " x " +
           std::to_string(of.width) + " x 3 bytes";
  };
  throw invalid("a batch of " + text(header) + " after one of " + text(*shape_) +
                "; a producer sends batches of one shape: open another one");
}

void BatchSender::refuse_without_consumer() const {
  const PushOptions& push = options_.push;
  throw Failure(PENSTOCK_PRODUCER_TIMEOUT,
                "no consumer took a batch at " + address() + " within " +
                    seconds_text(options_.timeout) + socket_.describe_consumers() +
                    ": is `penstock run --fake-location zmq-consume:endpoint=" + address() +
                    (push.bind ? ",bind=false" : "") + "` running?");
}

}  // namespace penstock::producer
