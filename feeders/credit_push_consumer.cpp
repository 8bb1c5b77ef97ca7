// SPDX-License-Identifier: Apache-2.0
// The producer's talk with its consumer by credit: hellos, welcomes, credits and returned leases.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <utility>
#include <zmq.hpp>

#include "dataflow/error.h"
#include "dataflow/wire/framed_text.h"
#include "feeders/credit_push_state.h"

namespace penstock {
namespace {

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

/// A connection that ends takes its credits and leases with it; a new one begins with a hello.
void CreditPush::State::look() {
  socket.look();
  const ZmqSocket::Peers peers = socket.peers();
  // Of several connections, a stranger's may be the one that ended.
  const bool one_left = std::exchange(seen_left, peers.left) != peers.left;
  if (one_left && peers.joined <= peers.left) forget_consumer();
  if (std::exchange(seen_joined, peers.joined) != peers.joined) {
    forget_consumer();
    wants_hello = true;
  }
  if (peers.joined - peers.left > 1) {
    throw ConfigError(std::to_string(peers.joined - peers.left) + " consumers are connected at " +
                      describe(endpoint) +
                      "; by credit, batches go to one: start a producer for each");
  }
  if (wants_hello) say_hello();
}

void CreditPush::State::forget_consumer() {
  welcomed = false;
  credits = sent_since_welcome = 0;
  for (const auto& [number, slot] : leases) take_back(*slot);
  lost.add(static_cast<std::int64_t>(leases.size()));
  leases.clear();
}

void CreditPush::State::say_hello() {
  const std::string text = write_framed_hello({.name = "penstock serve",
                                               .host = host_name(),
                                               .pid = getpid(),
                                               .boot = boot_id(),
                                               .pool = listener ? listener->name() : ""});
  const std::array frames{std::as_bytes(std::span(text))};
  const BatchSpec& spec = ring.spec();
  const auto header =
      make_framed_header({.kind = FramedKind::hello,
                          .encoding = FramedEncoding::pixels,
                          .producer = producer,
                          .sent_ns = hello_sent_ns = wall_clock_ns(),
                          .images = static_cast<std::uint32_t>(spec.images),
                          .height = static_cast<std::uint32_t>(spec.image.height),
                          .width = static_cast<std::uint32_t>(spec.image.width),
                          .channels = static_cast<std::uint32_t>(spec.image.channels)},
                         frames);
  if (!put(header, true)) return;
  put(frames[0], false);
  wants_hello = false;
}

/// False: it finds no connection.
bool CreditPush::State::put(std::span<const std::byte> frame, bool more) {
  zmq::socket_ref to(zmq::from_handle, socket.native());
  const auto flags =
      zmq::send_flags::dontwait | (more ? zmq::send_flags::sndmore : zmq::send_flags::none);
  return to.send(zmq::buffer(frame.data(), frame.size()), flags).has_value();
}

/// One message; false: there is none.
bool CreditPush::State::receive() {
  if (!heard.receive(socket.native())) return false;
  try {
    hear(parse_framed(heard.frames()));
  } catch (const DataError& error) {
    throw DataError("whoever answers at " + describe(endpoint) +
                    " is no consumer by credit: " + error.what() +
                    "; expected `penstock run --fake-location zmq-consume:credit=N`");
  }
  return true;
}

void CreditPush::State::hear(const FramedMessage& message) {
  const FramedHeader& header = message.header;
  // What a consumer before this one had to say may still come.
  if (header.producer != producer) return;
  switch (header.kind) {
    case FramedKind::welcome:
      return hear_welcome(message);
    case FramedKind::credit:
      if (!welcomed) return;
      note_times(header);
      credits = std::max(credits, header.sequence);
      for (const std::uint64_t number : framed_credit_leases(message)) {
        const auto found = leases.find(number);
        if (found == leases.end()) continue;
        take_back(*found->second);
        leases.erase(found);
        progress = clock.now();
      }
      return;
    case FramedKind::refusal:
      throw ConfigError("the consumer at " + describe(endpoint) +
                        " does not want these batches: " + parse_framed_refusal(message));
    default:
      throw DataError("it sends a " + std::string(to_string(header.kind)));
  }
}

void CreditPush::State::hear_welcome(const FramedMessage& message) {
  const FramedWelcome welcome = parse_framed_welcome(message);
  if (message.header.begun_ns != hello_sent_ns) return;  // of a hello before the last
  const BatchSpec& spec = ring.spec();
  if (welcome.images != spec.images || welcome.height != spec.image.height ||
      welcome.width != spec.image.width || welcome.channels != spec.image.channels ||
      welcome.classes < spec.classes) {
    const auto text = [](auto number, auto height, auto width, auto channels, auto classes) {
      return std::to_string(number) + " x " + std::to_string(height) + "x" + std::to_string(width) +
             "x" + std::to_string(channels) + " of " + std::to_string(classes) + " classes";
    };
    throw ConfigError(
        "the consumer at " + describe(endpoint) + " wants batches of " +
        text(welcome.images, welcome.height, welcome.width, welcome.channels, welcome.classes) +
        "; these are " +
        text(spec.images, spec.image.height, spec.image.width, spec.image.channels, spec.classes));
  }
  note_times(message.header);
  welcomed = true;
}

/// Four times, of which the first is ours, and the last is now.
void CreditPush::State::note_times(const FramedHeader& header) {
  const std::int64_t now = wall_clock_ns();
  if (header.begun_ns != 0) consumer_clock.after(header.ready_ns, header.begun_ns);
  consumer_clock.before(header.sent_ns, now);
}

}  // namespace penstock
