// SPDX-License-Identifier: Apache-2.0
// One thread runs the consumer and receives messages. The workers of a DecodePool decode the images
// in the message buffers. The worker that releases the last image of a message wakes the first
// thread, which then returns the producer's credit.
#include "feeders/remote/credit/credit_consume_encoded.h"

#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/machine/event_fd.h"
#include "dataflow/stage_timer.h"
#include "feeders/image_decoding.h"
#include "feeders/remote/credit/credit_intake.h"
#include "feeders/remote/receive/message_images.h"
#include "feeders/remote/receive/zmq_consume_encoded.h"
#include "feeders/remote/receive/zmq_memory.h"
#include "feeders/remote/wire/framed.h"

namespace penstock::remote {
namespace {

constexpr std::string_view kName = "zmq-consume";

/// Shared memory is not supported: image files lie in the messages.
void check_options(const Options& options) {
  for (const char* name : {"shared_memory", "max_pool"}) {
    if (!options.given(name)) continue;
    throw ConfigError(std::string("zmq-consume:") + name +
                      " applies to pixels in shared memory, but image files come in messages; "
                      "leave it out, or leave encoded out");
  }
}

class CreditConsumeEncoded final : public Feeder {
 public:
  CreditConsumeEncoded(const FeederContext& context, const ZmqSocketOptions& socket)
      : spec_(context.spec),
        clock_(context.clock),
        marks_(context.marks),
        timeout_(context.timeout),
        decoding_({kName, context}),
        intake_(context, socket, FramedEncoding::jpeg),
        consumer_(intake_.consumer()),
        received_(context.probe.counter("images_received")),
        receiving_(context.probe.stage({"receive", "receiver"}), clock_),
        images_(static_cast<std::size_t>(intake_.together()), spec_.classes, clock_,
                [this](const BatchReceipt& receipt) { note_done(receipt); }) {
    decoding_.open({kName, skipping_bad_images(context)}, images_);
    if (context.options.flag("keep_memory")) {
      keep_message_memory(spec_.images * spec_.image.elements());
    }
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
    consumer_.summarise(0);
  }

 private:
  /// Callable from any thread.
  void note_done(const BatchReceipt& receipt) {
    {
      const std::lock_guard lock(mutex_);
      done_.push_back(receipt);
    }
    message_done_.signal();
  }

  // Body of the receiver's thread.
  void receive_all(const std::stop_token& stop) noexcept {
    try {
      while (receive(stop)) {
      }
      images_.end(nullptr);
    } catch (...) {
      images_.end(std::current_exception());
    }
  }

  /// Receives the next message of image files. False: stopped, or the producer has ended.
  bool receive(const std::stop_token& stop) {
    const Mark mark(marks_, "receive");
    StageTimer::Item item(receiving_);
    Time since = clock_.now();
    while (true) {
      give_back();
      // Producers that have gone may have left messages that are still in use.
      std::optional<CreditConsumer::Arrival> arrival;
      if (images_.has_free()) arrival = consumer_.next(stop);
      consumer_.look();
      if (stop.stop_requested()) return false;
      if (arrival) {
        if (take(*arrival, item, stop)) return true;
        continue;
      }
      // No timeout while there are images to decode.
      const bool idle = images_.is_idle();
      if (!idle) since = clock_.now();
      if (!await(idle, since + timeout_, stop)) return false;
      item.restart();
    }
  }

  bool await(bool idle, Time deadline, const std::stop_token& stop) {
    const auto wait_for = [&] {
      return idle ? intake_.await(deadline, stop, message_done_.get())
                  : intake_.await_without_timeout(stop, message_done_.get());
    };
    if (!idle && !consumer_.awaits_batches()) {
      const auto waiting = receiving_.wait_out();
      return wait_for();
    }
    const auto waiting = receiving_.wait_in();
    return wait_for();
  }

  void give_back() {
    message_done_.drain();
    {
      const std::lock_guard lock(mutex_);
      done_.swap(finished_);
    }
    for (const BatchReceipt& receipt : finished_) consumer_.finish(receipt);
    finished_.clear();
  }

  /// Returns false if the message is invalid.
  bool take(const CreditConsumer::Arrival& arrival, StageTimer::Item& item,
            const std::stop_token& stop) {
    std::optional<FramedImages> images;
    try {
      images.emplace(arrival.message, spec_);
      consumer_.accept(arrival);
    } catch (const DataError& error) {
      consumer_.refuse(arrival, error.what());
      return false;
    }
    ImageMessage* const to = images_.free(stop);
    if (to == nullptr) return false;
    to->name = consumer_.name_of(arrival);
    to->receipt = consumer_.keep(arrival, to->message);
    to->images = std::move(images);
    const auto count = static_cast<std::int64_t>(to->images->size());
    item.done(count, to->message.bytes());
    received_.add(count);
    images_.put(*to);
    return true;
  }

  const BatchSpec spec_;
  Clock& clock_;
  const Marks marks_;
  const Nanoseconds timeout_;
  ImageDecoding decoding_;
  CreditIntake intake_;
  CreditConsumer& consumer_;
  Counter& received_;
  StageTimer receiving_;
  EventFd message_done_;
  std::mutex mutex_;
  std::vector<BatchReceipt> done_;      // under mutex_: messages that are decoded
  std::vector<BatchReceipt> finished_;  // taken from done_, while they are given back
  MessageImages images_;
};

}  // namespace

std::unique_ptr<Feeder> make_credit_consume_encoded(const FeederContext& context,
                                                    ZmqSocketOptions socket) {
  check_options(context.options);
  return std::make_unique<CreditConsumeEncoded>(context, socket);
}

}  // namespace penstock::remote
