// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/credit/credit_intake.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "dataflow/error.h"

namespace penstock::remote {
namespace {

constexpr std::int64_t kMostProducers = 1 << 16;
/// Room in the socket besides batches: for a hello and an end.
constexpr std::int64_t kOtherMessages = 4;
/// Default limit for the size of a pool, in batches.
constexpr std::uint64_t kPoolBatches = 256;
/// Longest patience with unused credits. Usually it is a tenth of the timeout for a batch.
constexpr Nanoseconds kMostPatience = std::chrono::seconds(1);
/// Data of an ended producer in kernel buffers arrive within this time.
constexpr Nanoseconds kFlush = std::chrono::seconds(1);

CreditPlan read_plan(const FeederContext& context, FramedEncoding encoding) {
  const Options& options = context.options;
  const auto count = [&](const char* name, std::int64_t most) -> std::int64_t {
    return checked_count(std::string("zmq-consume:") + name, options.integer(name), most);
  };
  CreditPlan plan;
  plan.encoding = encoding;
  plan.credit = count("credit", CreditIntake::kMostCredit);
  plan.producers = count("max_producers", kMostProducers);
  plan.together = options.text("credit_together") == "auto" ? plan.credit * plan.producers
                                                            : count("credit_together", INT_MAX);
  plan.patience = std::clamp(context.timeout / 10, CreditConsumer::kBeat, kMostPatience);
  plan.ends_with = options.integer("producers");
  plan.max_pool = options.text("max_pool") == "auto" ? kPoolBatches * context.spec.bytes()
                                                     : options.bytes("max_pool");
  plan.shared_only = options.flag("shared_memory");
  if (!options.flag("copy")) plan.reader = &context.device;
  plan.slots = static_cast<std::size_t>(context.slots);
  plan.on_bad_sample = context.on_bad_sample;
  return plan;
}

ZmqSocketOptions socket_options(ZmqSocketOptions socket, const CreditPlan& plan) {
  socket.role = ZmqSocketOptions::Role::router;
  // All that a producer may send fits, so that libzmq never stops reading from it.
  socket.hwm = plan.credit + kOtherMessages;
  return socket;
}

}  // namespace

CreditIntake::CreditIntake(const FeederContext& context, ZmqSocketOptions socket,
                           FramedEncoding encoding)
    : clock_(context.clock),
      spec_(context.spec),
      timeout_(context.timeout),
      plan_(read_plan(context, encoding)),
      endpoint_(net::parse_endpoint(context.options.text("endpoint"))),
      binds_(socket.bind),
      images_(context.probe.counter("images_received")),
      consumer_(plan_, spec_, endpoint_, socket_options(socket, plan_), context.probe,
                {.refused = [&counter = context.probe.counter("peers_refused")] { counter.add(); },
                 .say = [&probe = context.probe](
                            const std::string& text) { probe.note("zmq-consume " + text); }}) {
  context.probe.counter("receive_bound_bytes").add((plan_.together + 2) * socket.max_message);
  if (consumer_.socket().address() != endpoint_.text) {
    context.probe.note("zmq-consume listens at " + consumer_.socket().address());
  }
  const std::string& command = context.options.text("producer");
  if (!command.empty()) producer_.emplace(command);
}

bool CreditIntake::await(Time deadline, const std::stop_token& stop, int fd, Nanoseconds beat) {
  if (consumer_.has_ended()) return false;
  const bool ended = producer_ended();
  if (ended && !ended_at_) ended_at_ = clock_.now();
  if (ended && clock_.now() - *ended_at_ >= kFlush && !producer_->group_lives()) {
    check_end_of_producer();
    return false;
  }
  if (clock_.now() >= deadline) throw TimeoutError(silence());
  const Nanoseconds limit = std::min(deadline - clock_.now(), beat);
  const int producer = producer_ && !ended ? producer_->fd() : -1;
  return consumer_.socket().wait(limit, stop, fd, producer) != ZmqSocket::Wake::stopped;
}

bool CreditIntake::await_without_timeout(const std::stop_token& stop, int fd) {
  producer_ended();
  ended_at_.reset();
  return consumer_.socket().wait(CreditConsumer::kBeat, stop, fd) != ZmqSocket::Wake::stopped;
}

/// Whether the producer that we started has ended without error. Throws if it failed.
bool CreditIntake::producer_ended() {
  const std::optional<int> status = producer_ ? producer_->status() : std::nullopt;
  if (status.value_or(0) == 0) return status.has_value();
  throw DataError("producer '" + producer_->command() + "' " + producer_->describe_end() +
                  " while the run still needed batches; " +
                  (consumer_.rejected() > 0 && images_.value() == 0
                       ? consumer_.silence()
                       : "run it alone to see the reason"));
}

/// Call when the producer has ended without error and all it sent is here. Throws if no batch was
/// usable.
void CreditIntake::check_end_of_producer() const {
  if (images_.value() > 0) return;
  throw DataError("producer '" + producer_->command() + "' " + producer_->describe_end() +
                  " and sent no batch that could be used; " + consumer_.silence());
}

std::string CreditIntake::silence() {
  const ZmqSocket::Peers peers = consumer_.socket().peers();
  const bool refused = consumer_.rejected() > 0;
  std::string text = (refused ? "no usable batch came over " : "no batch came over ") +
                     net::describe(endpoint_) + " within " + seconds_text(timeout_) +
                     " (this side " + (binds_ ? "binds" : "connects") + "); ";
  if (peers.refused > 0) {
    text += std::to_string(peers.refused) + " connections were refused, see the notes about keys; ";
  }
  text += peers.joined == 0 ? "no producer ever connected" : consumer_.silence();
  return text + (refused ? "; correct the producer, or start one" : "; start one") +
         ", such as `penstock serve --credit" +
         (plan_.encoding == FramedEncoding::jpeg ? " --encoded" : "") + " --endpoint " +
         endpoint_.text + " --batch-size " + std::to_string(spec_.images) +
         (binds_ ? "" : " --bind") + "`, or wait longer with --timeout";
}

}  // namespace penstock::remote
