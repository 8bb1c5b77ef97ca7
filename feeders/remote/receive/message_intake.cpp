// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/message_intake.h"

#include <fmt/format.h>

#include "dataflow/error.h"

namespace penstock::remote {
namespace {

/// If bad messages are skipped, a producer is cut off after as many in a row.
constexpr int kMostInARow = 8;
/// Different refusals of which a result tells.
constexpr std::size_t kMostNotes = 32;

}  // namespace

BadMessages::BadMessages(BadSamplePolicy policy, Probe& probe)
    : policy_(policy),
      probe_(probe),
      rejected_(probe.counter("messages_rejected")),
      cut_off_(probe.counter("producers_cut_off")) {}

void BadMessages::reject(const ZmqMessage& message, std::string_view endpoint,
                         const std::string& why, bool hopeless) {
  const net::MessageSender sender = message.sender();
  const std::string what =
      fmt::format("{} at {} refused: {}", net::describe(sender), endpoint, why);
  const std::string text = fmt::format("message {} of {}", message.number, what);
  const std::lock_guard lock(mutex_);
  const bool fails = policy_.action == BadSamplePolicy::Action::fail ||
                     (policy_.action == BadSamplePolicy::Action::by_default && hopeless);
  if (!fails && noted_.size() < kMostNotes && noted_.insert(what).second) probe_.note(text);
  rejected_.add();
  if (fails) {
    throw DataError(text +
                    "; correct the producer, or skip such messages with --on-bad-sample skip");
  }
  if (policy_.limit >= 0 && rejected_.value() > policy_.limit) {
    throw DataError("{}; that is more than --on-bad-sample skip:limit={} allows", text,
                    policy_.limit);
  }
  last_ = text;
  const Connection connection{message.endpoint, sender.connection};
  if (++in_a_row_[connection] >= kMostInARow) {
    in_a_row_.erase(connection);
    offenders_.push_back({message.endpoint, sender});
    has_offenders_ = true;
  }
  suspects_ = static_cast<std::int64_t>(in_a_row_.size());
}

void BadMessages::accept(const ZmqMessage& message) {
  if (suspects_ == 0) return;
  const std::lock_guard lock(mutex_);
  in_a_row_.erase({message.endpoint, message.connection()});
  suspects_ = static_cast<std::int64_t>(in_a_row_.size());
}

std::string BadMessages::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

std::vector<BadMessages::Offender> BadMessages::take_offenders() {
  const std::lock_guard lock(mutex_);
  has_offenders_ = false;
  return std::exchange(offenders_, {});
}

void BadMessages::note_cut_off(const Offender& offender) {
  cut_off_.add();
  probe_.note(fmt::format(
      "cut off {} after {} bad messages in a row{}", net::describe(offender.sender), kMostInARow,
      offender.sender.public_key.empty() ? ", until it reconnects" : "; its key is banned"));
}

MessageIntake::MessageIntake(const FeederContext& context, const ConsumePlan& plan,
                             FramedIntake::Setup accounts)
    : clock_(context.clock),
      probe_(context.probe),
      spec_(context.spec),
      timeout_(context.timeout),
      bad_(context.on_bad_sample, context.probe),
      framed_(context.spec, context.probe, accounts),
      received_(context.probe.counter("messages_received")),
      bytes_(context.probe.counter("bytes_received")) {
  for (const ConsumeEndpoint& place : plan.endpoints) {
    endpoint_names_.push_back(place.endpoint.text);
  }
}

void MessageIntake::accept(const Arrival& arrival) {
  if (arrival.framed) {
    framed_.accept(arrival.framed->header, arrival.arrived_ns, arrival.ahead);
  }
  note_good(arrival.message);
}

void MessageIntake::refuse(Arrival& arrival, const std::string& why, bool misfits) {
  arrival.turn.await();
  const MessageFrames frames = arrival.message.kept_frames();
  std::optional<FramedHeader> header;  // may be valid, whatever the rest is
  if (arrival.format == MessageFormat::framed && !frames.empty()) {
    header = read_framed_header(frames[0]);
  }
  if (header && header->producer == 0) header.reset();
  reject(arrival.message, header, why, misfits);
  arrival.turn = Turn();
}

void MessageIntake::end(double copy_s) { framed_.summarise(copy_s); }

void MessageIntake::note_good(const ZmqMessage& message) {
  good_at_ = clock_.now();
  bad_.accept(message);
}

void MessageIntake::reject(const ZmqMessage& message, const std::optional<FramedHeader>& header,
                           std::string why, bool misfits) {
  if (header) why = framed_.reject(*header, why);
  bad_.reject(message, endpoint_names_[message.endpoint], why, misfits && !had_good_message());
}

void MessageIntake::count(ZmqMessage& message) {
  received_.add();
  bytes_.add(message.bytes());
  message.number = received_.value();
}

std::string MessageIntake::refusals() const {
  const std::string last = bad_.last();
  if (last.empty()) return {};
  return fmt::format("{} messages were refused, the last: {}", bad_.count(), last);
}

void MessageIntake::start_producer(const std::string& command) {
  if (!command.empty()) producer_.emplace(command);
}

bool MessageIntake::producer_ended() {
  const std::optional<int> status = producer_ ? producer_->status() : std::nullopt;
  if (status.value_or(0) == 0) return status.has_value();
  const std::string refused = had_good_message() ? "" : refusals();
  throw DataError("producer '{}' {} while the run still needed batches; {}", producer_->command(),
                  producer_->describe_end(),
                  refused.empty() ? "run it alone to see the reason" : refused);
}

void MessageIntake::check_end_of_producer() const {
  if (had_good_message()) return;
  const std::string refused = bad_.last();
  throw DataError("producer '{}' {} and sent no batch that could be used{}", producer_->command(),
                  producer_->describe_end(), refused.empty() ? "" : "; the last: " + refused);
}

}  // namespace penstock::remote
