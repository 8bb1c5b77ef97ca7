// SPDX-License-Identifier: Apache-2.0
// A thread has the desk where producers send their messages, and the workers of a DecodePool decode
// the images where they lie. Whoever lets the last image of a message go rings for that thread,
// which gives its producer's credit back.
#include "feeders/credit_consume_encoded.h"

#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/stage_timer.h"
#include "dataflow/wire/framed.h"
#include "feeders/bell.h"
#include "feeders/credit_intake.h"
#include "feeders/image_decoding.h"
#include "feeders/message_images.h"
#include "feeders/zmq_consume_encoded.h"
#include "feeders/zmq_memory.h"

namespace penstock {
namespace {

constexpr std::string_view kName = "zmq-consume";

/// Image files lie in the messages.
void check_options(const Options& options) {
  for (const char* name : {"shared_memory", "max_pool"}) {
    if (!options.given(name)) continue;
    throw ConfigError(std::string("zmq-consume:") + name +
                      " is about pixels in memory that a producer shares; image files come in "
                      "messages; leave it out, or encoded");
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
        desk_(intake_.desk()),
        received_(context.probe.counter("images_received")),
        receiving_(context.probe.stage({"receive", "receiver"}), clock_),
        images_(static_cast<std::size_t>(intake_.together()), spec_.classes, clock_,
                [this](const CreditDebt& debt) { note_done(debt); }) {
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
    desk_.summarise(0);
  }

 private:
  /// On any thread.
  void note_done(const CreditDebt& debt) {
    {
      const std::lock_guard lock(mutex_);
      done_.push_back(debt);
    }
    bell_.ring();
  }

  // The receiver's thread.
  void receive_all(const std::stop_token& stop) noexcept {
    try {
      while (receive(stop)) {
      }
      images_.end(nullptr);
    } catch (...) {
      images_.end(std::current_exception());
    }
  }

  /// The next message of image files. False: stopped, or the producer has ended.
  bool receive(const std::stop_token& stop) {
    const Mark mark(marks_, "receive");
    StageTimer::Item item(receiving_);
    Time since = clock_.now();
    while (true) {
      give_back();
      // Those of producers that have gone may still be in use.
      std::optional<CreditDesk::Arrival> arrival;
      if (images_.has_free()) arrival = desk_.next(stop);
      desk_.look();
      if (stop.stop_requested()) return false;
      if (arrival) {
        if (take(*arrival, item, stop)) return true;
        continue;
      }
      // As long as there are images to decode, nobody is late.
      const bool idle = images_.is_idle();
      if (!idle) since = clock_.now();
      if (!await(idle, since + timeout_, stop)) return false;
      item.restart();
    }
  }

  bool await(bool idle, Time deadline, const std::stop_token& stop) {
    const auto wait_for = [&] {
      return idle ? intake_.await(deadline, stop, bell_.fd())
                  : intake_.await_bell(stop, bell_.fd());
    };
    if (!idle && !desk_.awaits_batches()) {
      const auto waiting = receiving_.wait_out();
      return wait_for();
    }
    const auto waiting = receiving_.wait_in();
    return wait_for();
  }

  void give_back() {
    bell_.reset();
    {
      const std::lock_guard lock(mutex_);
      done_.swap(finished_);
    }
    for (const CreditDebt& debt : finished_) desk_.finish(debt);
    finished_.clear();
  }

  /// False: it is no good.
  bool take(const CreditDesk::Arrival& arrival, StageTimer::Item& item,
            const std::stop_token& stop) {
    std::optional<FramedImages> images;
    try {
      images.emplace(arrival.message, spec_);
      desk_.accept(arrival);
    } catch (const DataError& error) {
      desk_.refuse(arrival, error.what());
      return false;
    }
    ImageMessage* const to = images_.free(stop);
    if (to == nullptr) return false;
    to->name = desk_.name_of(arrival);
    to->debt = desk_.keep(arrival, to->message);
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
  CreditDesk& desk_;
  Counter& received_;
  StageTimer receiving_;
  Bell bell_;  // something is done
  std::mutex mutex_;
  std::vector<CreditDebt> done_;      // under mutex_: what nobody decodes any more
  std::vector<CreditDebt> finished_;  // of them, those that are given back
  MessageImages images_;
};

}  // namespace

std::unique_ptr<Feeder> make_credit_consume_encoded(const FeederContext& context,
                                                    ZmqSocketOptions socket) {
  check_options(context.options);
  return std::make_unique<CreditConsumeEncoded>(context, socket);
}

}  // namespace penstock
