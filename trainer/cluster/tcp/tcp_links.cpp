// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/tcp/tcp_links.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "trainer/cluster/exchange_wait.h"
#include "trainer/cluster/liveness/frame_socket.h"
#include "trainer/cluster/tcp/connection.h"
#include "trainer/collectives/link_collective.h"

namespace penstock::tcp {
namespace {

using namespace std::chrono_literals;
using liveness::Frame;
using liveness::FrameSocket;

constexpr Nanoseconds kConnecting = 2s, kRetry = 20ms, kLook = 1ms;

// ---- the connections --------------------------------------------------------

/// Connects two ranks when they first exchange: the higher one goes to the lower one. An algorithm
/// sends to a few ranks only, and a connection between every two of 512 would be 130,816. Every
/// rank that waits lets others come, so no wait depends on the order of exchanges.
class Mesh {
 public:
  Mesh(cluster::Processes& processes, const std::string& own_address, Clock& clock,
       Nanoseconds patience)
      : launch_(processes.launch()),
        clock_(clock),
        patience_(patience),
        listener_(liveness::FrameListener::tcp(launch_.local_size == launch_.size, 0,
                                               own_address.starts_with('['))) {
    const std::string text = fmt::format("{} {}:{} {}", liveness::random_key(), own_address,
                                         listener_.port(), listener_.address());
    for (const std::string& each :
         processes.all_gather(text, patience, "telling each other where ranks listen")) {
      const std::size_t space = each.find(' ');
      if (key_.empty()) key_ = each.substr(0, space);  // rank 0's
      peers_.emplace_back().addresses = each.substr(space + 1);
    }
  }

  /// The connection to `rank`; null: not yet, call it again. Throws TimeoutError if `rank` cannot
  /// be reached for some time; for a rank that is reached and does not answer, the caller has a
  /// timeout.
  FrameSocket* to(std::int32_t rank) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (!peer.met && rank < launch_.rank) go_to(rank, peer);
    return peer.met ? &peer.socket : nullptr;
  }

  /// Lets higher ranks come. Cheap enough for a loop that waits.
  void let_come() {
    const Time now = clock_.now();
    if (now < next_look_) return;
    next_look_ = now + kLook;
    for (FrameSocket socket = listener_.accept(); socket.is_open(); socket = listener_.accept()) {
      strangers_.push_back(std::move(socket));
    }
    for (FrameSocket& stranger : strangers_) {
      const std::optional<Frame> first = stranger.receive();
      if (!first) continue;
      FrameSocket socket = std::move(stranger);
      if (!is_ours(*first, Frame::Kind::hello) || first->rank <= launch_.rank) continue;
      socket.send(frame(Frame::Kind::here));
      Peer& peer = peers_[static_cast<std::size_t>(first->rank)];
      peer.socket = std::move(socket);
      peer.met = true;
    }
    strangers_.remove_if([](const FrameSocket& each) { return !each.is_open(); });
  }

 private:
  struct Peer {
    std::string addresses{};
    FrameSocket socket{};
    bool met = false;                // they have said hello
    std::optional<Time> deadline{};  // from the first attempt on
    Time next = Time::min();         // attempt
  };

  Frame frame(Frame::Kind kind) const {
    Frame frame;
    frame.kind = kind;
    frame.rank = launch_.rank;
    frame.pid = getpid();
    frame.key = liveness::padded(key_);
    return frame;
  }
  /// A first frame of `kind` from a rank of this run.
  bool is_ours(const Frame& frame, Frame::Kind kind) const {
    return frame.kind == kind && frame.key == liveness::padded(key_) && frame.rank >= 0 &&
           frame.rank < launch_.size;
  }

  void go_to(std::int32_t rank, Peer& peer) {
    if (peer.socket.is_open()) {
      const std::optional<Frame> answer = peer.socket.receive();
      if (!answer) return;
      peer.met = is_ours(*answer, Frame::Kind::here) && answer->rank == rank;
      if (!peer.met) peer.socket = FrameSocket();
      return;
    }
    const Time now = clock_.now();
    if (!peer.deadline) peer.deadline = now + patience_;
    if (now < peer.next) return;
    peer.next = now + kRetry;
    if (now >= *peer.deadline) {
      throw TimeoutError(
          "rank {} and rank {} do not reach each other ({} listens at {}); see that no firewall is "
          "between their hosts",
          launch_.rank, rank, rank, peer.addresses);
    }
    peer.socket = FrameSocket::connect(peer.addresses, kConnecting);
    peer.socket.send(frame(Frame::Kind::hello));
  }

  const cluster::Launch launch_;
  Clock& clock_;
  const Nanoseconds patience_;
  liveness::FrameListener listener_;
  std::string key_;
  std::vector<Peer> peers_;  // by rank
  std::list<FrameSocket> strangers_;
  Time next_look_ = Time::min();
};

// ---- the links --------------------------------------------------------------

/// One message each way at most. Before a message goes its length, so that ranks that are out of
/// step are found out.
class Transfer {
 public:
  Transfer(Clock& clock, std::int32_t rank) : clock_(clock), rank_(rank) {}

  void send(FrameSocket& socket, std::int32_t to, std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    out_ = {.socket = &socket, .peer = to, .length = bytes.size()};
    out_bytes_ = bytes;
  }
  void receive(FrameSocket& socket, std::int32_t from, std::span<std::byte> bytes) {
    if (bytes.empty()) return;
    in_ = {.socket = &socket, .peer = from};
    in_bytes_ = bytes;
  }
  /// Moves what can be moved without waiting. True: everything is sent and received.
  bool done() {
    const bool sent = out_.socket == nullptr || send_more();
    const bool received = in_.socket == nullptr || receive_more();
    return sent && received;
  }

 private:
  struct Side {
    FrameSocket* socket = nullptr;  // null: no message
    std::int32_t peer = 0;
    std::uint64_t length = 0;
    std::size_t length_bytes = 0;  // moved so far
  };

  bool send_more() {
    const auto length = std::as_bytes(std::span(&out_.length, 1));
    while (out_.length_bytes < length.size()) {
      const auto sent = out_.socket->send_some(length.subspan(out_.length_bytes), true);
      if (sent.value_or(0) == 0) return wait(out_, !sent);
      out_.length_bytes += *sent;
    }
    while (!out_bytes_.empty()) {
      const auto sent = out_.socket->send_some(out_bytes_);
      if (sent.value_or(0) == 0) return wait(out_, !sent);
      out_bytes_ = out_bytes_.subspan(*sent);
    }
    return true;
  }

  bool receive_more() {
    const auto length = std::as_writable_bytes(std::span(&in_.length, 1));
    while (in_.length_bytes < length.size()) {
      const auto count = in_.socket->receive_some(length.subspan(in_.length_bytes));
      if (count.value_or(0) == 0) return wait(in_, !count);
      in_.length_bytes += *count;
      if (in_.length_bytes == length.size()) expect_length();
    }
    while (!in_bytes_.empty()) {
      const auto count = in_.socket->receive_some(in_bytes_);
      if (count.value_or(0) == 0) return wait(in_, !count);
      in_bytes_ = in_bytes_.subspan(*count);
    }
    return true;
  }

  void expect_length() const {
    if (in_.length == in_bytes_.size()) return;
    throw Error(
        "this rank receives {} bytes from rank {}, which sent {}; expected equal sizes; give all "
        "ranks the same model and flags",
        in_bytes_.size(), in_.peer, in_.length);
  }

  /// Returns false; throws if the peer has been gone for some time.
  bool wait(const Side& side, bool is_gone) {
    if (!is_gone) return false;
    const Time now = clock_.now();
    gone_ = std::min(gone_, now);
    if (now - gone_ < cluster::kBehindWatch) return false;
    throw TimeoutError("rank {} was lost: its connection to rank {} closed", side.peer, rank_);
  }

  Clock& clock_;
  const std::int32_t rank_;
  Side out_, in_;
  std::span<const std::byte> out_bytes_;  // not yet sent
  std::span<std::byte> in_bytes_;         // not yet received
  Time gone_ = Time::max();
};

class TcpLink final : public collectives::Link {
 public:
  TcpLink(Mesh& mesh, World world, const cluster::ExchangeWait& wait, Clock& clock)
      : mesh_(mesh), world_(world), wait_(wait), clock_(clock) {}

  World world() const noexcept override { return world_; }
  void send_receive(std::int32_t to, std::span<const std::byte> sent, std::int32_t from,
                    std::span<std::byte> received) override {
    Transfer transfer(clock_, world_.rank);
    FrameSocket *target = nullptr, *source = nullptr;
    wait_.until([&] {
      mesh_.let_come();
      if (target == nullptr && (target = mesh_.to(to)) != nullptr) transfer.send(*target, to, sent);
      if (source == nullptr && (source = mesh_.to(from)) != nullptr) {
        transfer.receive(*source, from, received);
      }
      return transfer.done() && target != nullptr && source != nullptr;
    });
  }

 private:
  Mesh& mesh_;
  const World world_;
  const cluster::ExchangeWait wait_;
  Clock& clock_;
};

}  // namespace

std::unique_ptr<CollectiveGroup> make_link_group(cluster::Processes& processes,
                                                 const std::string& own_address,
                                                 const cluster::Processes::Exchange& exchange,
                                                 Clock& clock) {
  // In watched runs the exchange's own timeout is infinite.
  const Nanoseconds patience = std::min(exchange.patience, cluster::Processes::kRendezvous);
  const cluster::Launch& launch = processes.launch();
  return std::make_unique<collectives::ProcessLinkGroup>(
      exchange.device, exchange.choice, "between processes over TCP",
      [mesh = std::make_shared<Mesh>(processes, own_address, clock, patience),
       world = World{launch.rank, launch.size},
       wait = cluster::ExchangeWait(exchange, launch, clock),
       &clock] { return std::make_unique<TcpLink>(*mesh, world, wait, clock); });
}

}  // namespace penstock::tcp
