// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/zmq_intake.h"

#include <algorithm>
#include <utility>

#include "dataflow/error.h"

namespace penstock::remote {
namespace {

/// Data of an ended producer in kernel buffers arrive within this time.
constexpr Nanoseconds kFlush = std::chrono::seconds(1);

/// Time between checks for peers that left and for floods of bytes, while no message comes.
constexpr Nanoseconds kLookPeriod = std::chrono::milliseconds(100);

}  // namespace

ZmqIntake::ZmqIntake(const FeederContext& context, const ConsumePlan& plan)
    : clock_(context.clock),
      probe_(context.probe),
      spec_(context.spec),
      timeout_(context.timeout),
      received_(context.probe.counter("messages_received")),
      bytes_(context.probe.counter("bytes_received")),
      bad_(context.on_bad_sample, context.probe),
      framed_(context.spec, context.probe, plan.producers, plan.is_on_one_machine()),
      is_shared_(plan.receivers > 1) {
  for (std::size_t i = 0; i < plan.endpoints.size(); ++i) {
    endpoint_names_.push_back(plan.endpoints[i].endpoint.text);
    receivers_.push_back(std::make_unique<ZmqReceiver>(plan, i, probe_));
    sockets_.push_back(&receivers_.back()->socket());
  }
  if (!plan.producer.empty()) producer_.emplace(plan.producer);
}

bool ZmqIntake::receive(ZmqMessage& message, Time since, StageTimer& timer, StageTimer::Item& item,
                        const std::stop_token& stop) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {
    const auto wait = timer.wait_in();
    lock.lock();
    item.restart();
  }
  if (stop.stop_requested()) return false;
  cut_off_offenders();
  if (clock_.now() >= deadline(since)) throw TimeoutError(silence());
  while (true) {
    if (framed_.flow() == ProducerAccounts::Flow::complete) return false;
    if (receive_now(message)) break;
    if (!await_message(since, timer, stop)) return false;
    item.restart();
  }
  for (const auto& receiver : receivers_) receiver->look();
  received_.add();
  bytes_.add(message.bytes());
  message.number = received_.value();
  return true;
}

/// Begins with the endpoint after the one that was read last.
bool ZmqIntake::receive_now(ZmqMessage& message) {
  for (std::size_t i = 0; i < receivers_.size(); ++i) {
    const std::size_t index = (turn_ + i) % receivers_.size();
    if (!receivers_[index]->receive(message)) continue;
    turn_ = index + 1;
    return true;
  }
  return false;
}

/// Waits until there may be a message. False: stopped, or the producers have ended without error
/// and all they sent is here, or can no longer arrive.
bool ZmqIntake::await_message(Time since, StageTimer& timer, const std::stop_token& stop) {
  const bool ended = producer_ended();
  const bool straggles = framed_.flow() == ProducerAccounts::Flow::stragglers;
  Nanoseconds limit = deadline(since) - clock_.now();
  // Another thread may hold the last message.
  if (ended || straggles || is_shared_) limit = std::min(limit, kFlush);
  const ZmqSocket::Wake wake = wait(timer, limit, producer_ && !ended ? producer_->fd() : -1, stop);
  if (wake != ZmqSocket::Wake::late) return wake != ZmqSocket::Wake::stopped;
  if (straggles) return false;
  if (ended && !producer_->group_lives()) {
    end_of_producer();
    return false;
  }
  if (clock_.now() >= deadline(since)) throw TimeoutError(silence());
  return true;
}

ZmqSocket::Wake ZmqIntake::wait(StageTimer& timer, Nanoseconds limit, int other_fd,
                                const std::stop_token& stop) {
  const auto waiting = timer.wait_in();
  while (true) {
    const Nanoseconds part = std::min(limit, kLookPeriod);
    const ZmqSocket::Wake wake = ZmqSocket::wait_for_any(sockets_, part, stop, other_fd);
    if (wake != ZmqSocket::Wake::late) return wake;
    for (const auto& receiver : receivers_) receiver->say_mute_peers();
    if (part == limit) return wake;
    limit -= part;
    for (const auto& receiver : receivers_) receiver->look();
  }
}

void ZmqIntake::accept(const ZmqMessage& message) {
  good_at_ = clock_.now();
  bad_.accept(message);
}

void ZmqIntake::reject(const ZmqMessage& message, const std::string& why) {
  bad_.reject(message, endpoint_names_[message.endpoint], why);
}

void ZmqIntake::cut_off_offenders() {
  if (!bad_.has_offenders()) return;
  for (const BadMessages::Offender& offender : bad_.take_offenders()) {
    if (sockets_[offender.endpoint]->cut_off(offender.sender)) bad_.note_cut_off(offender);
  }
}

/// Whether the producer that we started has ended without error. Throws if it failed.
bool ZmqIntake::producer_ended() {
  const std::optional<int> status = producer_ ? producer_->status() : std::nullopt;
  if (status.value_or(0) == 0) return status.has_value();
  const std::string refused = good_at_.load() == Time::min() ? refusals() : "";
  throw DataError("producer '" + producer_->command() + "' " + producer_->describe_end() +
                  " while the run still needed batches; " +
                  (refused.empty() ? "run it alone to see the reason" : refused));
}

/// Call when the producer has ended without error. Throws if it sent nothing usable.
void ZmqIntake::end_of_producer() const {
  if (good_at_.load() != Time::min()) return;
  const std::string refused = bad_.last();
  throw DataError("producer '" + producer_->command() + "' " + producer_->describe_end() +
                  " and sent no batch that could be used" +
                  (refused.empty() ? "" : "; the last: " + refused));
}

/// How many messages were refused, and the last reason; empty: none.
std::string ZmqIntake::refusals() const {
  const std::string last = bad_.last();
  if (last.empty()) return {};
  return std::to_string(bad_.count()) + " messages were refused, the last: " + last;
}

std::string ZmqIntake::silence() const {
  const bool single = receivers_.size() == 1;
  std::string text = bad_.count() > 0 ? "no usable batch came over " : "no batch came over ";
  if (!single) text += "any of " + std::to_string(receivers_.size()) + " endpoints ";
  if (single) text += receivers_[0]->place() + " ";
  text += "within " + seconds_text(timeout_);
  const std::string refused = refusals();
  for (const auto& receiver : receivers_) {
    text += single ? " (" + receiver->side() + "); "
                   : "; " + receiver->place() + " (" + receiver->side() + "): ";
    const std::string refusals = receiver->refusals();
    if (!refusals.empty()) text += refusals + "; ";
    if (!single || refused.empty()) text += receiver->silence();
  }
  if (!refused.empty()) text += (single ? "" : "; ") + refused;
  return text + framed_.silence() + (refused.empty() ? "; " : "; correct the producer, or ") +
         receivers_[0]->advice(spec_);
}

void ZmqIntake::note_silent_endpoints() {
  const std::lock_guard lock(mutex_);
  for (const auto& receiver : receivers_) {
    if (receiver->received() > 0 || receivers_.size() == 1) continue;
    probe_.note("zmq-consume received nothing at " + receiver->place() + " (" + receiver->side() +
                "): " + receiver->silence());
  }
}

}  // namespace penstock::remote
