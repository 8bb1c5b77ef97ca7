// SPDX-License-Identifier: Apache-2.0
// One thread receives whole messages, up to a limit, and the workers of a DecodePool decode their
// images in the message buffers. Batches need not match message boundaries. When the limit is
// reached, the socket fills, and then the sockets of the producers (back-pressure); with credit, a
// producer gets its room back when a message is decoded.
#include "feeders/remote/receive/message_images.h"

#include <string_view>
#include <thread>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/stage_timer.h"
#include "feeders/image_decoding.h"
#include "feeders/remote/receive/zmq_socket.h"

namespace penstock::remote {

MessageImages::MessageImages(std::size_t messages, std::int32_t classes, Clock& clock,
                             std::shared_ptr<LentSlots> slots)
    : most_(messages), classes_(classes), clock_(clock), slots_(std::move(slots)) {
  PENSTOCK_ASSERT(messages > 0);
}

ImageMessage* MessageImages::free(const std::stop_token& stop,
                                  const std::function<void()>& meanwhile) {
  std::unique_lock lock(mutex_);
  while (meanwhile && !has_free() && !stop.stop_requested()) {
    lock.unlock();
    meanwhile();
    lock.lock();
  }
  if (!clock_.wait(lock, freed_, stop, [this] { return has_free(); })) return nullptr;
  if (free_.empty()) {
    free_.reserve(all_.size() + 1);
    ImageMessage& made = all_.emplace_back();
    made.slot = static_cast<std::int32_t>(all_.size() - 1);
    return &made;
  }
  ImageMessage* const message = free_.back();
  free_.pop_back();
  return message;
}

void MessageImages::put(ImageMessage& message) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(&message);
  clock_.wake(filled_);
}

void MessageImages::end(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  failure_ = std::move(failure);
  clock_.wake(filled_);
}

void MessageImages::rethrow() {
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(failure_);
}

bool MessageImages::is_ready() {
  if (current_) return true;
  const std::lock_guard lock(mutex_);
  return has_news();
}

void MessageImages::await(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  clock_.wait(lock, filled_, stop, [this] { return has_news(); });
}

bool MessageImages::next(Sample& sample) {
  if (!current_ && !begin_message()) return false;
  const FramedImages& images = *current_->images;
  sample.lent = images.file(place_);
  sample.owner = current_;
  sample.bytes.clear();
  sample.label = images.label(place_);
  sample.index = lent_ % kEpoch;
  sample.epoch = lent_ / kEpoch;
  sample.file = "image ";
  sample.file += std::to_string(place_);
  sample.file += " of ";
  sample.file += current_->name;
  sample.offset = static_cast<std::uint64_t>(images.file(place_).data() - images.file(0).data());
  ++lent_;
  if (++place_ == images.size()) current_.reset();
  return true;
}

/// False: the data end.
bool MessageImages::begin_message() {
  ImageMessage* message = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) {
      if (failure_) throw Failed();
      return false;
    }
    message = waiting_.front();
    waiting_.pop_front();
  }
  current_ =
      std::shared_ptr<ImageMessage>(message, [this](ImageMessage* done) { give_back(*done); });
  place_ = 0;
  return true;
}

/// Runs on the thread that releases the last image.
void MessageImages::give_back(ImageMessage& message) noexcept {
  message.images.reset();
  message.arrival.message.clear();
  const std::lock_guard lock(mutex_);
  // Before the message is free: its next use would hide this return. Under the lock: who is woken
  // finds it free.
  if (slots_ != nullptr) slots_->returned(message.slot, nullptr);
  free_.push_back(&message);
  clock_.wake(freed_);
}

namespace {

constexpr std::string_view kName = "zmq-consume";

/// A context for decoding. Bad images are skipped, like bad messages, unless the user says
/// otherwise.
FeederContext skipping_bad_images(const FeederContext& context) {
  FeederContext result = context;
  if (result.on_bad_sample.action == BadSamplePolicy::Action::by_default) {
    result.on_bad_sample.action = BadSamplePolicy::Action::skip;
  }
  return result;
}

class ImageFileConsumer final : public Feeder {
 public:
  ImageFileConsumer(const FeederContext& context, const ConsumePlan& plan)
      : spec_(context.spec),
        clock_(context.clock),
        marks_(context.marks),
        decoding_({kName, context}),
        intake_(plan.credit ? make_credit_intake(context, plan) : make_push_intake(context, plan)),
        received_(context.probe.counter("images_received")),
        receiving_(context.probe.stage({"receive", "receiver", 1, StageRole::receives}), clock_),
        images_(static_cast<std::size_t>(plan.credit ? plan.credit->together : plan.held),
                spec_.classes, clock_, intake_->slots()) {
    decoding_.open({kName, skipping_bad_images(context)}, images_);
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
    intake_->end(0);
  }

 private:
  /// Body of the receiver's thread.
  void receive_all(const std::stop_token& stop) noexcept {
    try {
      const auto serve =
          intake_->has_credit() ? std::function<void()>([&] { intake_->serve(stop); }) : nullptr;
      while (true) {
        ImageMessage* const message = [&] {
          const auto wait = receiving_.wait_out();
          return images_.free(stop, serve);
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

  /// Receives the next good message of image files. False: stopped, or the producers have ended.
  bool receive(ImageMessage& to, const std::stop_token& stop) {
    const Mark mark(marks_, "receive");
    const Time since = clock_.now();
    StageTimer::Item item(receiving_);
    while (intake_->receive(to.arrival, since, receiving_, item, stop)) {
      try {
        read(to);
        intake_->accept(to.arrival);
      } catch (const DataError& error) {
        intake_->refuse(to.arrival, error.what(), false);
        continue;
      }
      const FramedHeader& header = to.arrival.framed->header;
      to.name = "batch " + std::to_string(header.sequence) + " of " +
                intake_->framed().name_of(header.producer);
      const auto count = static_cast<std::int64_t>(to.images->size());
      item.done(count, to.arrival.message.bytes());
      received_.add(count);
      intake_->hold(to.arrival, to.slot);
      return true;
    }
    return false;
  }

  /// Throws DataError.
  void read(ImageMessage& to) const {
    const Arrival& arrival = to.arrival;
    const bool is_framed = arrival.framed.has_value();
    if (!is_framed || arrival.framed->header.encoding == FramedEncoding::pixels) {
      throw DataError((is_framed
                           ? "a batch of pixels"
                           : "a message of the format " + std::string(to_string(arrival.format))) +
                      "; expected image files; start the producer as `penstock serve --encoded`, "
                      "or leave zmq-consume:encoded=true out");
    }
    to.images.emplace(*arrival.framed, spec_);
  }

  const BatchSpec spec_;
  Clock& clock_;
  const Marks marks_;
  ImageDecoding decoding_;
  const std::unique_ptr<MessageIntake> intake_;
  Counter& received_;
  StageTimer receiving_;
  MessageImages images_;
};

}  // namespace

std::unique_ptr<Feeder> make_image_file_consumer(const FeederContext& context,
                                                 const ConsumePlan& plan) {
  return std::make_unique<ImageFileConsumer>(context, plan);
}

}  // namespace penstock::remote
