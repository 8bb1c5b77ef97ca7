// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/send/encoded_push.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/pace.h"
#include "feeders/remote/receive/hand_off_times.h"
#include "feeders/remote/send/push_peers.h"
#include "feeders/remote/wire/framed_text.h"

namespace penstock::remote {
namespace {

/// With credit: room in the socket for messages that are not batches.
constexpr std::int64_t kOtherMessages = 16;

/// With credit, the socket has room for every batch that the consumer has room for.
ZmqSocketOptions with_room(ZmqSocketOptions options, std::size_t batches) {
  if (options.role == ZmqSocketOptions::Role::dealer) {
    options.hwm = static_cast<std::int64_t>(batches) + kOtherMessages;
  }
  return options;
}

}  // namespace

/// A batch, and how many of its frames libzmq holds.
struct EncodedPush::Held {
  Outgoing* owner = nullptr;
  EncodedBatch batch;
  std::size_t frames = 0;  // under the owner's mutex
};

struct EncodedPush::Outgoing {
  explicit Outgoing(std::size_t count) : all(count) {
    for (Held& held : all) {
      held.owner = this;
      free.push_back(&held);
    }
  }

  /// libzmq calls this when it no longer needs the bytes of a frame.
  static void give_back(void*, void* hint) {
    Held& held = *static_cast<Held*>(hint);
    Outgoing& owner = *held.owner;
    const std::lock_guard lock(owner.mutex);
    if (--held.frames > 0) return;
    owner.free.push_back(&held);
    owner.returned.notify_all();
  }

  std::mutex mutex;
  std::condition_variable_any returned;
  // All below under mutex.
  std::vector<Held> all;
  std::vector<Held*> free;
};

EncodedPush::EncodedPush(Source& source, const Plan& plan, const net::Endpoint& endpoint,
                         const ZmqSocketOptions& options, Clock& clock, Probe& probe,
                         net::PeerReports reports)
    : source_(source),
      plan_(plan),
      endpoint_(endpoint),
      clock_(clock),
      probe_(probe),
      batches_(probe.counter("batches_sent")),
      images_(probe.counter("images_sent")),
      bytes_(probe.counter("bytes_sent")),
      wait_ns_(probe.counter("send_wait_ns")),
      fill_ns_(probe.counter("feed_wait_ns")),
      bad_samples_(probe.counter("bad_samples")),
      producer_(draw_producer_number()),
      outgoing_(std::make_unique<Outgoing>(plan.batches)),
      socket_(endpoint, with_room(options, plan.batches), std::move(reports)) {
  PENSTOCK_ASSERT(plan.images > 0 && plan.batches > 0);
  const bool by_credit = options.role == ZmqSocketOptions::Role::dealer;
  PENSTOCK_ASSERT(source.kind() == SampleKind::encoded &&
                  (by_credit || options.role == ZmqSocketOptions::Role::push));
  if (!by_credit) return;
  line_.emplace(socket_, endpoint_,
                CreditOffer{.header = hello_header(),
                            .hello = hello_of_this_process(plan_.name),
                            .classes = source.classes()});
}

EncodedPush::~EncodedPush() = default;

void EncodedPush::run(const PushPlan& plan, std::stop_token stop) {
  if (!line_ && !send_hello(plan, stop)) return;
  Pace pace(clock_, plan.img_per_s);
  for (std::int64_t sent = 0; !data_ended_ && (plan.batches == 0 || sent < plan.batches); ++sent) {
    Held* const held = free_batch(plan, stop);
    if (held == nullptr) return;
    FramedHeader next = header(FramedKind::batch);
    next.encoding = FramedEncoding::jpeg;
    next.begun_ns = realtime_ns();
    if (!fill(held->batch, stop)) return;
    if (held->batch.images() == 0) {
      const std::lock_guard lock(outgoing_->mutex);
      outgoing_->free.push_back(held);
      break;
    }
    if (plan_.checksum) {
      next.flags = kFramedChecksum;
      next.checksum = held->batch.checksum();
    }
    pace.await(static_cast<std::int64_t>(held->batch.images()), stop);
    next.ready_ns = realtime_ns();
    if (!send(*held, next, plan, stop)) return;
  }
  if (!send_end(plan, stop)) return;
  for (std::size_t taken = 0; taken < plan_.batches; ++taken) {
    if (free_batch(plan, stop) == nullptr) return;  // until libzmq has returned all
  }
  await_all_read(socket_, endpoint_, clock_, plan.timeout, stop);
}

/// Takes a free batch; null: stopped.
EncodedPush::Held* EncodedPush::free_batch(const PushPlan& plan, const std::stop_token& stop) {
  const CountedWait wait(wait_ns_, clock_);
  std::unique_lock lock(outgoing_->mutex);
  const bool came = outgoing_->returned.wait_for(
      lock, stop, std::min<Nanoseconds>(plan.timeout, std::chrono::hours(24)),
      [&] { return !outgoing_->free.empty(); });
  if (stop.stop_requested()) return nullptr;
  if (!came) nobody_takes(endpoint_, socket_.peers(), plan.timeout);
  Held* const held = outgoing_->free.back();
  outgoing_->free.pop_back();
  return held;
}

/// False: stopped. At the end of the data the batch has fewer images, or none.
bool EncodedPush::fill(EncodedBatch& batch, const std::stop_token& stop) {
  const Time begun = clock_.now();
  batch.begin(plan_.images);
  while (batch.images() < plan_.images && !stop.stop_requested()) {
    try {
      data_ended_ = !source_.next(sample_);
      if (data_ended_) break;
      source_.load(sample_);
      batch.add(sample_.content(), sample_.label, sample_.file);
      bad_in_a_row_ = 0;
    } catch (const DataError& error) {
      leave_out(error.what());
    }
  }
  fill_ns_.add((clock_.now() - begun).count());
  return !stop.stop_requested();
}

/// Counts and notes a bad sample; throws if there are too many.
void EncodedPush::leave_out(const std::string& why) {
  bad_samples_.add();
  const BadSamplePolicy& policy = plan_.on_bad_sample;
  if (policy.action != BadSamplePolicy::Action::skip) {
    throw DataError(why + ", or leave it out with --on-bad-sample skip");
  }
  if (policy.limit >= 0 && bad_samples_.value() > policy.limit) {
    throw DataError(std::to_string(bad_samples_.value()) +
                    " samples could not be read; --on-bad-sample skip:limit=" +
                    std::to_string(policy.limit) + " allows no more; the last one: " + why);
  }
  if (++bad_in_a_row_ >= source_.size()) {
    throw DataError("none of the " + std::to_string(source_.size()) +
                    " samples of an epoch could be read; check the data; the last one: " + why);
  }
  probe_.note("left out: " + why);
}

FramedHeader EncodedPush::header(FramedKind kind) const noexcept {
  FramedHeader header;
  header.kind = kind;
  header.producer = producer_;
  header.sequence = static_cast<std::uint64_t>(batches_.value());
  header.images_before = static_cast<std::uint64_t>(images_.value());
  return header;
}

/// With credit, waits until the consumer has room for one more batch; otherwise returns at once.
/// False: stopped.
bool EncodedPush::await_credit(const PushPlan& plan, const std::stop_token& stop) {
  const Time asked = clock_.now();
  while (line_) {
    line_->look();
    if (line_->may_send()) break;
    if (clock_.now() - asked > plan.timeout) nobody_takes(endpoint_, socket_.peers(), plan.timeout);
    if (socket_.wait(ProducerSession::kBeat, stop) == ZmqSocket::Wake::stopped) return false;
  }
  return true;
}

/// False: stopped.
bool EncodedPush::await_peer(const PushPlan& plan, const std::stop_token& stop) {
  switch (socket_.wait(plan.timeout, stop)) {
    case ZmqSocket::Wake::stopped:
      return false;
    case ZmqSocket::Wake::late:
      nobody_takes(endpoint_, socket_.peers(), plan.timeout);
    case ZmqSocket::Wake::ready:
    case ZmqSocket::Wake::other:
      break;
  }
  return true;
}

/// False: stopped.
bool EncodedPush::send(Held& held, FramedHeader header, const PushPlan& plan,
                       const std::stop_token& stop) {
  const CountedWait wait(wait_ns_, clock_);
  std::array<zmq::message_t, EncodedBatch::kFrames> messages;
  {
    const std::lock_guard lock(outgoing_->mutex);
    held.frames = EncodedBatch::kFrames;
  }
  const auto frames = held.batch.frames();
  for (std::size_t i = 0; i < frames.size(); ++i) {
    messages[i].rebuild(frames[i].data(), frames[i].size(), Outgoing::give_back, &held);
  }
  zmq::socket_ref socket(zmq::from_handle, socket_.native());
  while (true) {
    if (!await_credit(plan, stop)) return false;
    header.sent_ns = realtime_ns();
    held.batch.write_header(header);
    if (socket.send(messages[0], zmq::send_flags::sndmore | zmq::send_flags::dontwait)) break;
    if (!line_) {
      if (!await_peer(plan, stop)) return false;
    } else if (socket_.wait(ProducerSession::kBeat, stop) == ZmqSocket::Wake::stopped) {
      return false;  // the connection has just ended
    }
  }
  // The peer that accepted the first frame has room for the others, so these sends do not wait.
  for (std::size_t i = 1; i < messages.size(); ++i) {
    const bool last = i + 1 == messages.size();
    socket.send(messages[i], last ? zmq::send_flags::none : zmq::send_flags::sndmore);
  }
  if (line_) line_->note_sent();
  batches_.add();
  images_.add(static_cast<std::int64_t>(held.batch.images()));
  bytes_.add(static_cast<std::int64_t>(kFramedHeaderBytes + held.batch.payload_bytes()));
  return true;
}

FramedHeader EncodedPush::hello_header() const noexcept {
  FramedHeader hello = header(FramedKind::hello);
  hello.encoding = FramedEncoding::jpeg;
  hello.images = static_cast<std::uint32_t>(plan_.images);
  return hello;
}

/// False: stopped.
bool EncodedPush::send_hello(const PushPlan& plan, const std::stop_token& stop) {
  return send_plain(hello_header(), write_framed_hello(hello_of_this_process(plan_.name)), plan,
                    stop);
}

/// False: stopped.
bool EncodedPush::send_end(const PushPlan& plan, const std::stop_token& stop) {
  if (!line_) return send_plain(header(FramedKind::end), {}, plan, stop);
  line_->look();
  const FramedHeader end = header(FramedKind::end);
  // A consumer that has gone, or has not connected yet, does not expect an end.
  if (line_->is_welcome()) line_->send_end(end.sequence, end.images_before);
  return !stop.stop_requested();
}

/// Sends a message without images: a header, and a text if there is one. False: stopped.
bool EncodedPush::send_plain(FramedHeader header, std::string_view text, const PushPlan& plan,
                             const std::stop_token& stop) {
  const std::array frames{std::as_bytes(std::span(text))};
  header.sent_ns = realtime_ns();
  const auto bytes =
      make_framed_header(header, std::span(frames).first(text.empty() ? 0 : 1), plan_.checksum);
  zmq::socket_ref socket(zmq::from_handle, socket_.native());
  const auto flags = text.empty() ? zmq::send_flags::none : zmq::send_flags::sndmore;
  const CountedWait wait(wait_ns_, clock_);
  while (!socket.send(zmq::buffer(bytes), flags | zmq::send_flags::dontwait)) {
    if (!await_peer(plan, stop)) return false;
  }
  if (!text.empty()) socket.send(zmq::buffer(text), zmq::send_flags::none);
  return true;
}

}  // namespace penstock::remote
