// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/tcp/tcp_links.h"

#include <fmt/format.h>
#include <poll.h>
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

constexpr Nanoseconds kConnecting = 2s, kRetry = 20ms;

// ---- the connections --------------------------------------------------------

/// Connects every two ranks: a rank goes to the lower ranks, in their order, and waits for the
/// higher ones. So it waits only for ranks that wait for fewer than itself.
class Mesh {
 public:
  Mesh(cluster::Processes& processes, const std::string& own_address, Clock& clock,
       Nanoseconds patience)
      : launch_(processes.launch()),
        clock_(clock),
        deadline_(clock.now() + patience),
        listener_(liveness::FrameListener::tcp(launch_.local_size == launch_.size, 0,
                                               own_address.starts_with('['))),
        sockets_(static_cast<std::size_t>(launch_.size)) {
    const std::string text = fmt::format("{} {}:{} {}", liveness::random_key(), own_address,
                                         listener_.port(), listener_.address());
    for (const std::string& each :
         processes.all_gather(text, patience, "telling each other where ranks listen")) {
      const std::size_t space = each.find(' ');
      if (key_.empty()) key_ = each.substr(0, space);  // rank 0's
      addresses_.push_back(each.substr(space + 1));
    }
  }

  std::vector<FrameSocket> connect() && {
    for (std::int32_t rank = 0; rank < launch_.rank; ++rank) go_to(rank);
    while (const std::int32_t missing = first_missing()) {
      expect_time(missing);
      receive_higher();
    }
    return std::move(sockets_);
  }

 private:
  FrameSocket& socket(std::int32_t rank) { return sockets_[static_cast<std::size_t>(rank)]; }

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

  void expect_time(std::int32_t rank) const {
    if (clock_.now() < deadline_) return;
    throw TimeoutError(
        "rank {} and rank {} do not reach each other ({} listens at {}); see that no firewall is "
        "between their hosts",
        launch_.rank, rank, rank, addresses_[static_cast<std::size_t>(rank)]);
  }

  void go_to(std::int32_t rank) {
    while (true) {
      expect_time(rank);
      FrameSocket peer =
          FrameSocket::connect(addresses_[static_cast<std::size_t>(rank)], kConnecting);
      peer.send(frame(Frame::Kind::hello));
      while (peer.is_open() && clock_.now() < deadline_) {
        pollfd file{peer.file(), POLLIN, 0};
        poll(&file, 1, milliseconds_until(deadline_));
        const std::optional<Frame> answer = peer.receive();
        if (!answer) continue;
        if (!is_ours(*answer, Frame::Kind::here) || answer->rank != rank) break;
        socket(rank) = std::move(peer);
        return;
      }
      clock_.sleep_until(clock_.now() + kRetry);
    }
  }

  /// The first higher rank that has not come; 0: none.
  std::int32_t first_missing() {
    for (std::int32_t rank = launch_.rank + 1; rank < launch_.size; ++rank) {
      if (!socket(rank).is_open()) return rank;
    }
    return 0;
  }

  void receive_higher() {
    std::vector<pollfd> files{{listener_.file(), POLLIN, 0}};
    for (const FrameSocket& stranger : strangers_) files.push_back({stranger.file(), POLLIN, 0});
    poll(files.data(), files.size(), milliseconds_until(deadline_));
    if (FrameSocket stranger = listener_.accept(); stranger.is_open()) {
      strangers_.push_back(std::move(stranger));
    }
    for (FrameSocket& stranger : strangers_) {
      const std::optional<Frame> first = stranger.receive();
      if (!first) continue;
      FrameSocket peer = std::move(stranger);
      if (!is_ours(*first, Frame::Kind::hello) || first->rank <= launch_.rank) continue;
      peer.send(frame(Frame::Kind::here));
      socket(first->rank) = std::move(peer);
    }
    strangers_.remove_if([](const FrameSocket& each) { return !each.is_open(); });
  }

  const cluster::Launch launch_;
  Clock& clock_;
  const Time deadline_;
  liveness::FrameListener listener_;
  std::string key_;
  std::vector<std::string> addresses_;  // by rank
  std::vector<FrameSocket> sockets_;    // by rank
  std::list<FrameSocket> strangers_;
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
  TcpLink(std::vector<FrameSocket>& sockets, World world, const cluster::ExchangeWait& wait,
          Clock& clock)
      : sockets_(sockets), world_(world), wait_(wait), clock_(clock) {}

  World world() const noexcept override { return world_; }
  void send(std::int32_t to, std::span<const std::byte> bytes) override {
    send_receive(to, bytes, to, {});
  }
  void receive(std::int32_t from, std::span<std::byte> bytes) override {
    send_receive(from, {}, from, bytes);
  }
  void send_receive(std::int32_t to, std::span<const std::byte> sent, std::int32_t from,
                    std::span<std::byte> received) override {
    Transfer transfer(clock_, world_.rank);
    transfer.send(sockets_[static_cast<std::size_t>(to)], to, sent);
    transfer.receive(sockets_[static_cast<std::size_t>(from)], from, received);
    wait_.until([&] { return transfer.done(); });
  }

 private:
  std::vector<FrameSocket>& sockets_;
  const World world_;
  const cluster::ExchangeWait wait_;
  Clock& clock_;
};

class TcpLinkGroup final : public CollectiveGroup {
 public:
  TcpLinkGroup(const cluster::Processes::Exchange& exchange, std::vector<FrameSocket> sockets,
               const cluster::Launch& launch, Clock& clock)
      : exchange_(exchange),
        sockets_(std::move(sockets)),
        world_{launch.rank, launch.size},
        wait_(exchange, launch, clock),
        clock_(clock) {}
  std::unique_ptr<Collective> join(std::int32_t) override {
    return std::make_unique<collectives::LinkCollective>(
        std::make_unique<TcpLink>(sockets_, world_, wait_, clock_), exchange_.device,
        exchange_.choice);
  }
  std::string how() const override {
    return collectives::how_links_exchange(exchange_.choice, "between processes over TCP");
  }

 private:
  const cluster::Processes::Exchange exchange_;
  std::vector<FrameSocket> sockets_;  // by rank
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
  return std::make_unique<TcpLinkGroup>(
      exchange, Mesh(processes, own_address, clock, patience).connect(), processes.launch(), clock);
}

}  // namespace penstock::tcp
