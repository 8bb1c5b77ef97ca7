// SPDX-License-Identifier: Apache-2.0
// One thread receives whole messages, up to a limit, and the workers of a DecodePool decode their
// images in the message buffers. Batches need not match message boundaries. When the limit is
// reached, the socket fills, and then the sockets of the producers (back-pressure).
#include "feeders/remote/receive/zmq_consume_encoded.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "dataflow/entry.h"
#include "dataflow/error.h"
#include "dataflow/stage_timer.h"
#include "feeders/remote/receive/hand_off_times.h"
#include "feeders/remote/receive/message_images.h"
#include "feeders/remote/receive/zmq_intake.h"
#include "feeders/remote/receive/zmq_memory.h"
#include "feeders/remote/wire/batch_message.h"
#include "feeders/remote/wire/framed.h"

namespace penstock::remote {
namespace {

constexpr std::string_view kName = "zmq-consume";
constexpr std::int64_t kMostHeld = 4096;
/// Image files of one message may be larger than its pixels.
constexpr std::int64_t kLeastMaxMessage = std::int64_t{64} << 20;

std::int64_t held_messages(const Options& options) {
  return checked_count("zmq-consume:held", options.integer("held"), kMostHeld);
}

class ZmqConsumeEncoded final : public Feeder {
 public:
  explicit ZmqConsumeEncoded(const FeederContext& context)
      : spec_(context.spec),
        clock_(context.clock),
        marks_(context.marks),
        plan_(read_encoded_plan(context.options, context.spec)),
        held_(held_messages(context.options)),
        decoding_({kName, context}),
        intake_(context, plan_),
        received_(context.probe.counter("images_received")),
        receiving_(context.probe.stage({"receive", "receiver"}), clock_),
        images_(static_cast<std::size_t>(held_), spec_.classes, clock_) {
    decoding_.open({kName, skipping_bad_images(context)}, images_);
    context.probe.counter("receive_bound_bytes")
        .add((plan_.socket.hwm + 1 + held_) * plan_.socket.max_message);
    context.probe.note("up to " + std::to_string(plan_.most_waiting()) +
                       " messages of each producer wait in sockets, if it has the same hwm, and " +
                       std::to_string(held_) + " are held until their images are decoded");
    if (plan_.keep_memory) keep_message_memory(spec_.images * spec_.image.elements());
  }

  bool is_settled() const override { return decoding_.is_settled(); }
  void settle() override { decoding_.settle(); }

  void run(BatchRing& out, std::stop_token stop) override {
    try {
      std::jthread receiver([this](const std::stop_token& ended) { receive_all(ended); });
      const std::stop_callback forward(stop, [&] { receiver.request_stop(); });
      decoding_.run(out, stop);
    } catch (const MessageImages::Failed&) {
      images_.rethrow();
    }
    intake_.framed().summarise(0);
    intake_.note_silent_endpoints();
  }

 private:
  /// Body of the receiver's thread.
  void receive_all(const std::stop_token& stop) noexcept {
    try {
      while (true) {
        ImageMessage* const message = [&] {
          const auto wait = receiving_.wait_out();
          return images_.free(stop);
        }();
        if (message == nullptr || !receive(*message, stop)) break;
        images_.put(*message);
      }
      images_.end(nullptr);
    } catch (const TimeoutError& error) {
      images_.end(std::make_exception_ptr(TimeoutError(
          std::string(error.what()) + "; this run wants image files: penstock serve --encoded")));
    } catch (...) {
      images_.end(std::current_exception());
    }
  }

  /// Receives the next message of image files. False: stopped, or the producer has ended.
  bool receive(ImageMessage& to, const std::stop_token& stop) {
    const Mark mark(marks_, "receive");
    const Time since = clock_.now();
    StageTimer::Item item(receiving_);
    while (intake_.receive(to.message, since, receiving_, item, stop)) {
      try {
        const bool has_images = read(to);
        intake_.accept(to.message);
        if (!has_images) continue;
        const auto count = static_cast<std::int64_t>(to.images->size());
        item.done(count, to.message.bytes());
        received_.add(count);
        return true;
      } catch (const DataError& error) {
        intake_.reject(to.message, error.what());
      }
    }
    return false;
  }

  /// False: a valid message, but not a batch. Throws DataError.
  bool read(ImageMessage& to) {
    const MessageFrames frames = to.message.frames();
    if (detect_message_format(frames) != MessageFormat::framed) {
      refuse_pixels("a message of the format " +
                    std::string(to_string(detect_message_format(frames))));
    }
    const std::optional<FramedMessage> message = intake_.framed().open(frames);
    if (!message) return false;
    const FramedHeader& header = message->header;
    try {
      if (header.encoding == FramedEncoding::pixels) refuse_pixels("a batch of pixels");
      to.images.emplace(*message, spec_);
    } catch (const DataError& error) {
      throw DataError(intake_.framed().reject(header, error.what()));
    }
    intake_.framed().accept(header, realtime_ns());
    to.name = "batch " + std::to_string(header.sequence) + " of " +
              intake_.framed().accounts().name_of(header.producer);
    return true;
  }

  [[noreturn]] static void refuse_pixels(const std::string& what) {
    throw DataError(what +
                    "; expected image files; start the producer as `penstock serve --encoded`, or "
                    "leave zmq-consume:encoded=true out");
  }

  const BatchSpec spec_;
  Clock& clock_;
  const Marks marks_;
  const ConsumePlan plan_;
  const std::int64_t held_;
  ImageDecoding decoding_;
  ZmqIntake intake_;
  Counter& received_;
  StageTimer receiving_;
  MessageImages images_;
};

}  // namespace

bool wants_image_files(const Options& options) {
  if (options.flag("encoded")) return true;
  static constexpr auto kAbout =
      joined_options(kEncodedOptions, kDecoderOptions, kDecodePoolOptions);
  for (const OptionSpec& option : kAbout) {
    if (option.name == "encoded" || !options.given(option.name)) continue;
    throw ConfigError("zmq-consume:" + std::string(option.name) +
                      " applies to image files, but messages hold pixels; use encoded=true with a "
                      "producer that sends files (penstock serve --encoded), or leave it out");
  }
  return false;
}

/// Reads the plan as if one small image were a batch: the producer decides how large messages are.
ConsumePlan read_encoded_plan(const Options& options, const BatchSpec& spec) {
  BatchSpec bytes = spec;
  bytes.pixel = DType::u8;
  bytes.normalised = false;
  const bool is_auto = options.text("max_message") == "auto";
  if (!is_auto) bytes.images = 1;
  ConsumePlan plan = read_consume_plan(options, bytes);
  if (plan.receivers > 1) {
    throw ConfigError(
        "zmq-consume:receivers are threads that copy pixels; with encoded=true one receives and "
        "--feeder-threads decode; leave receivers out");
  }
  if (is_auto) plan.socket.max_message = std::max(plan.socket.max_message, kLeastMaxMessage);
  if (plan.format && *plan.format != MessageFormat::framed) {
    throw ConfigError(
        "zmq-consume:encoded=true takes image files in Penstock's own format, and "
        "format is " +
        options.text("format") + "; leave format out, or encoded");
  }
  if (options.text("decode") == "raw") {
    throw ConfigError(
        "zmq-consume:decode=raw takes pixels, and encoded=true image files; leave encoded out, and "
        "have producers send pixels");
  }
  return plan;
}

FeederContext skipping_bad_images(const FeederContext& context) {
  FeederContext result = context;
  if (result.on_bad_sample.action == BadSamplePolicy::Action::by_default) {
    result.on_bad_sample.action = BadSamplePolicy::Action::skip;
  }
  return result;
}

std::unique_ptr<Feeder> make_encoded_consumer(const FeederContext& context) {
  return std::make_unique<ZmqConsumeEncoded>(context);
}

std::int64_t encoded_reserve(const Options& options, const BatchSpec& spec) {
  const ConsumePlan plan = read_encoded_plan(options, spec);
  return static_cast<std::int64_t>(plan.endpoints.size()) * plan.most_waiting() +
         held_messages(options);
}

void shape_consumed_batches(const Options& options, BatchSpec& batches) {
  if (options.flag("encoded")) normalise_batches(options, batches);
}

}  // namespace penstock::remote
