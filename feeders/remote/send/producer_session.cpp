// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/send/producer_session.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "feeders/remote/wire/framed_texts.h"

namespace penstock::remote {

ProducerSession::ProducerSession(ZmqSocket& socket, const net::Endpoint& endpoint,
                                 std::span<const OutgoingFrame> hello, std::int32_t classes,
                                 Hooks hooks)
    : socket_(socket),
      endpoint_(endpoint),
      hooks_(std::move(hooks)),
      hello_(read_framed_header(hello[0].bytes).value()),
      hello_text_(hello[1].bytes.begin(), hello[1].bytes.end()),
      classes_(classes) {}

/// When a connection ends, its credits and leases end too. A new connection begins with a hello.
void ProducerSession::look() {
  socket_.look();
  const ZmqSocket::Peers peers = socket_.peers();
  // Of several connections, the one that ended may not be our consumer's.
  const bool one_left = std::exchange(seen_left_, peers.left) != peers.left;
  if (one_left && peers.joined <= peers.left) remove_consumer();
  if (std::exchange(seen_joined_, peers.joined) != peers.joined) {
    remove_consumer();
    wants_hello_ = true;
  }
  if (peers.joined - peers.left > 1) {
    throw ConfigError(
        "{} consumers are connected at {}; a producer with credit serves one consumer: start a "
        "producer for each",
        peers.joined - peers.left, describe(endpoint_));
  }
  if (wants_hello_) say_hello();
  while (receive()) {
  }
}

void ProducerSession::remove_consumer() {
  welcomed_ = false;
  credits_ = sent_since_welcome_ = 0;
  if (hooks_.lost) hooks_.lost();
}

void ProducerSession::say_hello() {
  hello_.sent_ns = wall_clock_ns();
  std::array<std::byte, kFramedHeaderBytes> header{};
  write_framed_header(header, hello_);
  zmq::socket_ref to(zmq::from_handle, socket_.native());
  const auto flags = zmq::send_flags::dontwait;
  if (!to.send(zmq::buffer(header), flags | zmq::send_flags::sndmore)) return;
  static_cast<void>(to.send(zmq::buffer(hello_text_), flags));
  wants_hello_ = false;
}

/// Handles one message; false: there is none.
bool ProducerSession::receive() {
  if (!message_.receive(socket_.native())) return false;
  try {
    handle(parse_framed(message_.frames()));
  } catch (const DataError& error) {
    const std::string why = std::string(" is not a consumer with credit: ") + error.what() +
                            "; expected `penstock run --fake-location zmq-consume:credit=N`";
    if (!hooks_.say) {
      throw DataError("the process that answers at {}{}", describe(endpoint_), why);
    }
    const net::MessageSender sender = message_.sender();
    if (socket_.cut_off(sender)) {
      hooks_.say(
          fmt::format("cut off {} at {}: it{}", net::describe(sender), describe(endpoint_), why));
    }
  }
  return true;
}

void ProducerSession::handle(const FramedMessage& message) {
  const FramedHeader& header = message.header;
  // Messages of an earlier consumer may still arrive.
  if (header.producer != hello_.producer) return;
  switch (header.kind) {
    case FramedKind::welcome:
      return handle_welcome(message);
    case FramedKind::credit:
      if (!welcomed_) return;
      note_times(header);
      credits_ = header.sequence;  // may be lower than before
      for (const std::uint64_t number : framed_credit_leases(message)) {
        if (hooks_.returned) hooks_.returned(number);
      }
      return;
    case FramedKind::refusal:
      throw ConfigError("the consumer at {} refused these batches: {}", describe(endpoint_),
                        parse_framed_refusal(message));
    default:
      throw DataError("it sends a " + std::string(to_string(header.kind)));
  }
}

void ProducerSession::handle_welcome(const FramedMessage& message) {
  const FramedWelcome welcome = parse_framed_welcome(message);
  if (message.header.begun_ns != hello_.sent_ns) return;  // answers an earlier hello
  const FramedHeader& ours = hello_;
  const bool pixels = ours.encoding == FramedEncoding::pixels;
  const bool fits = !pixels || (std::cmp_equal(welcome.images, ours.images) &&
                                std::cmp_equal(welcome.height, ours.height) &&
                                std::cmp_equal(welcome.width, ours.width) &&
                                std::cmp_equal(welcome.channels, ours.channels));
  if (!fits || welcome.classes < classes_) {
    const auto text = [&](auto images, auto height, auto width, auto channels, auto classes) {
      const std::string of_classes = fmt::format("{} classes", classes);
      if (!pixels) return of_classes;
      return fmt::format("{} x {}x{}x{} of {}", images, height, width, channels, of_classes);
    };
    throw ConfigError(
        "the consumer at {} wants batches of {}; these are {}", describe(endpoint_),
        text(welcome.images, welcome.height, welcome.width, welcome.channels, welcome.classes),
        text(ours.images, ours.height, ours.width, ours.channels, classes_));
  }
  note_times(message.header);
  welcomed_ = true;
}

/// Uses four times: the first is ours, and the last is now.
void ProducerSession::note_times(const FramedHeader& header) {
  const std::int64_t now = wall_clock_ns();
  if (header.begun_ns != 0) clock_.after(header.ready_ns, header.begun_ns);
  clock_.before(header.sent_ns, now);
}

}  // namespace penstock::remote
