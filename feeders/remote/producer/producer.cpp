// SPDX-License-Identifier: Apache-2.0
// Implements penstock_producer.h. A BatchSender sends the messages of one producer in order: a
// hello, batches, an end. The C functions check arguments, and turn exceptions into codes and
// texts.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dataflow/values/crc32c.h"
#include "feeders/remote/producer/penstock_producer.h"
#include "feeders/remote/producer/push_socket.h"
#include "feeders/remote/wire/framed_header.h"

namespace penstock::producer {
namespace {

struct SenderOptions {
  PushOptions push;
  std::string name;  ///< for the hello
  bool checksum = false;
  std::chrono::milliseconds timeout{30'000};  ///< of each call
};

struct PixelShape {
  std::uint32_t images = 0, height = 0, width = 0, channels = 0;
};

using std::chrono::milliseconds;

constexpr std::uint32_t kMostJpegs = 65'536;
/// libzmq may keep the last bytes of small messages in a buffer.
constexpr milliseconds kLinger{1000};
/// Longest wait, so that sums of times do not overflow.
constexpr milliseconds kLongest = std::chrono::hours(24 * 365);

SteadyTime after(milliseconds time) {
  return std::chrono::steady_clock::now() + std::min(time, kLongest);
}

/// Time for headers: ns since 1970.
std::int64_t now_ns() noexcept {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

std::uint64_t random_number() {
  std::random_device device;
  const std::uint64_t number = std::uint64_t{device()} << 32 | device();
  return number == 0 ? 1 : number;
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

/// The name of this process's program.
std::string program_name() { return program_invocation_short_name; }

std::size_t bytes_of(remote::FramedPixel pixel) noexcept {
  if (pixel == remote::FramedPixel::u8) return 1;
  return pixel == remote::FramedPixel::f32 ? 4 : 2;
}

/// What pixels are.
struct PixelKind {
  remote::FramedPixel type = remote::FramedPixel::u8;
  bool planar = false;
};

remote::FramedHeader header_of(const PixelShape& shape, const PixelKind& kind) {
  return {.encoding = remote::FramedEncoding::pixels,
          .ready_ns = now_ns(),
          .images = shape.images,
          .height = shape.height,
          .width = shape.width,
          .channels = shape.channels,
          .pixel = kind.type,
          .planar = static_cast<std::uint8_t>(kind.planar ? 1 : 0)};
}

/// Counts messages, and batches among them, that libzmq has not passed on. Any thread.
class Outbox {
 public:
  void add(bool batch) {
    const std::lock_guard lock(mutex_);
    ++messages_;
    if (batch) ++batches_;
  }
  void remove(bool batch) {
    const std::lock_guard lock(mutex_);
    --messages_;
    if (batch) --batches_;
    if (messages_ == 0) empty_.notify_all();
  }
  /// Blocks until nothing is left, or until the deadline. Returns the number of batches left.
  std::int64_t wait_until_empty(SteadyTime deadline) {
    std::unique_lock lock(mutex_);
    empty_.wait_until(lock, deadline, [this] { return messages_ == 0; });
    return batches_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable empty_;
  std::int64_t messages_ = 0, batches_ = 0;  // under mutex_
};

/// One thread at a time.
class BatchSender {
 public:
  /// All members throw Failure; a call that fails has sent nothing.
  explicit BatchSender(SenderOptions options)
      : options_(std::move(options)), number_(random_number()), socket_(options_.push) {}

  const std::string& address() const noexcept { return socket_.address(); }

  std::size_t pixel_bytes() const noexcept { return bytes_of(kind_.type); }
  void set_pixels(const PixelKind& kind) {
    if (shape_) throw invalid("the first batch was sent; say before it what pixels are");
    kind_ = kind;
  }

  /// Work on the next batch begins now.
  void begin() noexcept {
    begun_ns_ = now_ns();
    ready_ns_ = 0;
  }

  void send_pixels(std::span<const std::byte> pixels, const PixelShape& shape,
                   std::span<const std::int32_t> labels) {
    const remote::FramedHeader header = header_of(shape, kind_);
    std::vector<Frame> frames;
    frames.push_back(Frame::copy_of(pixels));
    send_batch(header, std::move(frames), labels);
  }

  /// Calls `release` when the pixels are no longer needed, on any thread.
  void lend_pixels(std::span<const std::byte> pixels, const PixelShape& shape,
                   std::span<const std::int32_t> labels, std::function<void()> release) {
    const remote::FramedHeader header = header_of(shape, kind_);
    std::vector<Frame> frames;
    frames.emplace_back(pixels.data(), pixels.size(), std::move(release));
    send_batch(header, std::move(frames), labels);
  }

  void send_jpegs(std::span<const std::span<const std::byte>> files,
                  std::span<const std::int32_t> labels) {
    if (files.empty() || files.size() > kMostJpegs) {
      throw invalid("a batch of " + std::to_string(files.size()) + " JPEG files; expected 1 to " +
                    std::to_string(kMostJpegs));
    }
    const remote::FramedHeader header{.encoding = remote::FramedEncoding::jpeg,
                                      .ready_ns = now_ns(),
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

  void end() {
    check_not_ended();
    send({.kind = remote::FramedKind::end, .sequence = batches_, .images_before = images_}, {},
         after(options_.timeout));
    ended_ = true;
  }

  /// Waits until consumers have received what was sent, and closes the socket. Returns how many
  /// batches are known to be undelivered. No other call may follow.
  std::int64_t close(milliseconds timeout) {
    const SteadyTime deadline = after(timeout);
    const std::int64_t held = outbox_.wait_until_empty(deadline);
    // When a connection ends, a receiver with a full socket (libzmq 4.3) drops what it has not
    // read.
    const bool read = held == 0 && socket_.wait_until_read(deadline);
    socket_.close(read ? kLinger : milliseconds(0));
    return held == 0 && !read ? 1 : held;
  }

 private:
  void send_batch(remote::FramedHeader header, std::vector<Frame> frames,
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

  void say_hello(const remote::FramedHeader& of_batch, SteadyTime deadline) {
    const std::string text =
        hello_text(options_.name.empty() ? program_name() : std::string_view(options_.name));
    remote::FramedHeader header = of_batch;
    header.kind = remote::FramedKind::hello;
    header.ready_ns = 0;
    std::vector<Frame> frames;
    frames.push_back(
        Frame::copy_of(std::as_bytes(std::span(text)), [this] { outbox_.remove(false); }));
    send(header, std::move(frames), deadline);
    said_hello_ = true;
  }

  /// The last frame removes the message from the outbox when libzmq has passed it on.
  void send(remote::FramedHeader header, std::vector<Frame> frames, SteadyTime deadline) {
    header.producer = number_;
    if (options_.checksum && !frames.empty()) header.flags = remote::kFramedChecksum;
    for (const Frame& frame : frames) {
      header.payload_bytes += frame.bytes().size();
      if (header.flags != 0) header.checksum = values::crc32c(frame.bytes(), header.checksum);
    }
    while (socket_.wait_for_room(deadline)) {
      std::array<std::byte, remote::kFramedHeaderBytes> bytes{};
      header.sent_ns = now_ns();
      remote::write_framed_header(bytes, header);
      Frame first = frames.empty() ? Frame::copy_of(bytes, [this] { outbox_.remove(false); })
                                   : Frame::copy_of(bytes);
      if (!socket_.begin(first, !frames.empty())) continue;
      outbox_.add(header.kind == remote::FramedKind::batch);
      socket_.finish(frames);
      return;
    }
    nobody_takes();
  }

  void check_not_ended() const {
    if (ended_) throw invalid("this producer has sent its end; open another one to send more");
  }

  /// Consumers refuse a producer whose batches change their shape.
  void check_shape(const remote::FramedHeader& header) {
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

  [[noreturn]] void nobody_takes() const {
    const PushOptions& push = options_.push;
    throw Failure(PENSTOCK_PRODUCER_TIMEOUT,
                  "no consumer took a batch at " + address() + " within " +
                      seconds_text(options_.timeout) + socket_.describe_consumers() +
                      ": is `penstock run --fake-location zmq-consume:endpoint=" + address() +
                      (push.bind ? ",bind=false" : "") + "` running?");
  }

  const SenderOptions options_;
  const std::uint64_t number_;  // number of this producer
  Outbox outbox_;               // libzmq's threads use it while the socket exists
  PushSocket socket_;
  std::int64_t begun_ns_ = 0, ready_ns_ = 0;  // of the batch that begin() announced; 0: none
  std::uint64_t batches_ = 0, images_ = 0;    // so far
  bool said_hello_ = false, ended_ = false;
  PixelKind kind_;
  std::optional<remote::FramedHeader> shape_;  // of the first batch, which all others must match
};

}  // namespace
}  // namespace penstock::producer

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
    sender.lend_pixels(checked_pixels(pixels, shape, labels, sender.pixel_bytes()), shape,
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
