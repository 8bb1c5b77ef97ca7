// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/zmq_receiver.h"

namespace penstock::remote {
namespace {

ZmqSocketOptions options_of(const ConsumePlan& plan, std::size_t index) {
  ZmqSocketOptions options = plan.socket;
  options.bind = plan.endpoints[index].bind;
  options.server = index;
  return options;
}

/// Puts peers that were turned away into the result.
net::PeerReports peer_reports(const ConsumePlan& plan, std::size_t index, Probe& probe) {
  const std::string at =
      plan.endpoints.size() == 1 ? "" : "at " + plan.endpoints[index].endpoint.text + ": ";
  return {.refused = [&counter = probe.counter("peers_refused")] { counter.add(); },
          .say = [&probe, at](const std::string& text) { probe.note("zmq-consume " + at + text); }};
}

}  // namespace

ZmqReceiver::ZmqReceiver(const ConsumePlan& plan, std::size_t index, Probe& probe)
    : endpoint_(plan.endpoints[index]),
      index_(index),
      max_message_(plan.socket.max_message),
      flood_bytes_(plan.flood_bytes()),
      probe_(probe),
      cut_off_(probe.counter("producers_cut_off")),
      mute_(probe.counter("producers_without_messages")),
      socket_(endpoint_.endpoint, options_of(plan, index), peer_reports(plan, index, probe)) {
  if (socket_.address() != endpoint()) {
    probe.note("zmq-consume listens at " + socket_.address());
  }
}

bool ZmqReceiver::receive(ZmqMessage& message) {
  if (!message.receive(socket_.native())) return false;
  message.endpoint = index_;
  ++received_;
  if (!is_inproc()) socket_.heard(message);
  if (may_be_flooded()) {
    socket_.look();
    socket_.took(message.connection(), message.bytes());
  }
  return true;
}

void ZmqReceiver::look() {
  socket_.look();
  if (!may_be_flooded()) return;
  for (const std::string& peer : socket_.cut_off_floods(flood_bytes_)) {
    cut_off_.add();
    probe_.note("cut off " + peer + " at " + endpoint() + ": it sent more than " +
                std::to_string(flood_bytes_) + " bytes without a complete message");
  }
}

void ZmqReceiver::say_mute_peers() {
  for (const std::string& peer : socket_.mute_peers()) {
    probe_.note(peer + " came to " + endpoint() +
                " and disconnected without a message; libzmq disconnects producers silently if a "
                "frame has more than max_message = " +
                std::to_string(max_message_) + " bytes");
    mute_.add();
  }
}

std::string ZmqReceiver::refusals() const {
  const std::int64_t refused = socket_.peers().refused;
  if (refused == 0) return "";
  return std::to_string(refused) + " connections were refused, see the notes about keys";
}

std::string ZmqReceiver::silence() const {
  if (is_inproc()) return "no thread of this process sends batches";
  const ZmqSocket::Peers peers = socket_.peers();
  if (peers.joined == 0) return "no producer ever connected";
  std::string text = received_ == 0 ? "" : std::to_string(received_) + " messages came; ";
  if (peers.left == 0) return text + "a producer is connected but silent";
  text += std::to_string(peers.left) + " of " + std::to_string(peers.joined) +
          " connections of producers have ended";
  if (peers.left < peers.joined) text += ", and the remaining ones are silent";
  return text + "; libzmq disconnects producers that send more than max_message = " +
         std::to_string(max_message_) + " bytes";
}

std::string ZmqReceiver::advice(const BatchSpec& spec) const {
  if (is_inproc()) return "push some from a thread, or wait longer with --timeout";
  return "start one, such as `penstock serve --endpoint " + endpoint() + " --batch-size " +
         std::to_string(spec.images) + (endpoint_.bind ? "" : " --bind") +
         "`, or wait longer with --timeout";
}

}  // namespace penstock::remote
