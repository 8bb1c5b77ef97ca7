// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/liveness/liveness.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

namespace penstock::liveness {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kTick = 100ms, kBeat = 500ms;
/// A longer time between two ticks means that the process was stopped.
constexpr Nanoseconds kStoodStill = 1s;
/// Other ranks may not have heard of this process for this much longer.
constexpr Nanoseconds kUnheard = kBeat + 500ms;
/// If other ranks are lost within this time after this process was stopped too long, this process
/// counts as the lost one.
constexpr Nanoseconds kForgiving = 2s;
/// The interval between attempts to reach rank 0, which may not listen yet, and the time limit of
/// each attempt.
constexpr Nanoseconds kRetry = 20ms, kConnecting = 500ms;
/// Time to notice further ranks that were lost together with one.
constexpr Nanoseconds kGather = 50ms;
/// Time to tell the others that this rank leaves.
constexpr Nanoseconds kLeaving = 500ms;
/// Time for rank 0 to decide about a wait that took too long.
constexpr Nanoseconds kDeciding = 3s;
/// After a loss of rank 0: how many lower ranks are asked for a sign of life, the time limits for
/// reaching each one and for all answers, and how long this rank then answers others. The launcher
/// kills all ranks about two seconds after the death of one.
constexpr std::int32_t kAsked = 8;
constexpr Nanoseconds kAsking = 200ms, kAnswering = 1s, kLinger = 500ms;

Time now() { return std::chrono::steady_clock::now(); }

std::string name_of(std::int32_t rank) { return fmt::format("rank {}", rank); }
/// "rank 2 (host b, pid 123)".
std::string name_of(std::int32_t rank, const Frame& hello) {
  const std::string host = unpadded(hello.host);
  return host.empty() ? name_of(rank)
                      : fmt::format("rank {} (host {}, pid {})", rank, host, hello.pid);
}
std::vector<std::string> names_of(std::int32_t ranks) {
  std::vector<std::string> names;
  for (std::int32_t rank = 0; rank < ranks; ++rank) names.push_back(name_of(rank));
  return names;
}

}  // namespace

/// Passes the news that this rank leaves from the calling thread to the thread that sends it.
class Liveness::Leave {
 public:
  void ask_and_wait() {
    std::unique_lock lock(mutex_);
    asked_ = true;
    sent_gate_.wait_for(lock, kLeaving, [this] { return sent_; });
  }
  bool is_due() {
    const std::lock_guard lock(mutex_);
    return asked_ && !sent_;
  }
  void mark_sent() {
    const std::lock_guard lock(mutex_);
    sent_ = true;
    sent_gate_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable sent_gate_;
  bool asked_ = false, sent_ = false;  // under mutex_
};

/// The common part of rank 0 and the other ranks.
class Liveness::Side {
 public:
  /// `names` and `self`: see RankStates.
  Side(const LivenessPlan& plan, FrameListener& listener, const cluster::RankProgress& progress,
       Leave& leave, std::vector<std::string> names, std::int32_t self)
      : plan_(plan),
        listener_(listener),
        progress_(progress),
        leave_(leave),
        states_(std::move(names), self, plan.deadlines, now()) {}

 protected:
  Frame frame(Frame::Kind kind) const {
    Frame frame;
    frame.kind = kind;
    frame.rank = plan_.rank;
    frame.pid = plan_.place.pid;
    frame.host = padded(plan_.place.host);
    frame.set(progress_.state());
    if (kind == Frame::Kind::hello || kind == Frame::Kind::ask) frame.key = padded(plan_.key);
    return frame;
  }

  /// Waits for a message, at most for one tick.
  void wait_for(std::span<const FrameSocket* const> sockets) {
    std::vector<pollfd> files{{listener_.file(), POLLIN, 0}};
    const auto add = [&](const FrameSocket& socket) {
      if (socket.is_open()) files.push_back({socket.file(), POLLIN, 0});
    };
    for (const FrameSocket* const socket : sockets) add(*socket);
    for (const FrameSocket& socket : strangers_) add(socket);
    poll(files.data(), files.size(), static_cast<int>(kTick / 1ms));
    if (FrameSocket stranger = listener_.accept(); stranger.is_open()) {
      strangers_.push_back(std::move(stranger));
    }
  }

  /// Passes each socket whose first frame has arrived and has the run's key to `meet`; drops
  /// sockets with another key.
  template <typename Meet>
  void meet_strangers(const Meet& meet) {
    for (FrameSocket& socket : strangers_) {
      const std::optional<Frame> first = socket.receive();
      if (!first) continue;
      FrameSocket known = std::move(socket);
      if (first->key == padded(plan_.key) && first->rank >= 0 && first->rank < plan_.size) {
        meet(std::move(known), *first);
      }
    }
    std::erase_if(strangers_, [](const FrameSocket& socket) { return !socket.is_open(); });
  }

  /// Sends the frames that are due: a sign of life, and the news that this rank leaves.
  template <typename Send>
  void send_what_is_due(const Send& send) {
    const cluster::RankPhase phase = progress_.state().phase;
    if (now() >= beat_ || phase != phase_told_) {
      beat_ = now() + kBeat;
      phase_told_ = phase;
      send(frame(Frame::Kind::beat));
    }
    if (!leave_.is_due()) return;
    send(frame(Frame::Kind::leave));
    leave_.mark_sent();
  }

  const LivenessPlan& plan_;
  FrameListener& listener_;
  const cluster::RankProgress& progress_;
  Leave& leave_;
  RankStates states_;
  std::vector<FrameSocket> strangers_;  // have not sent their first frame

 private:
  Time beat_{};  // time of the next sign of life
  cluster::RankPhase phase_told_ = cluster::RankPhase::joining;
};

/// Rank 0.
class Liveness::Hub : Side {
 public:
  Hub(const LivenessPlan& plan, FrameListener& listener, const cluster::RankProgress& progress,
      Leave& leave)
      : Side(plan, listener, progress, leave, names_of(plan.size), 0),
        ranks_(static_cast<std::size_t>(plan.size)) {}

  void run(const std::stop_token& stop) {
    Time awake = now(), forgiven = {};
    while (!stop.stop_requested()) {
      listen();
      const Nanoseconds stood = now() - std::exchange(awake, now());
      const Nanoseconds patience = plan_.deadlines.silence_in(progress_.state().phase);
      if (stood > std::max(kStoodStill, patience - kUnheard)) forgiven = now() + kForgiving;
      send_what_is_due([this](const Frame& frame) { send(frame); });
      if (progress_.is_overdue(now())) states_.overdue(0, progress_.state());
      if (states_.lost(now()).empty()) {
        report_awaited_ranks();
        continue;
      }
      if (now() < forgiven) return plan_.end();  // the other ranks have lost this rank
      return decide();
    }
    send(frame(Frame::Kind::leave));
  }

 private:
  void listen() {
    std::vector<const FrameSocket*> sockets;
    for (const FrameSocket& rank : ranks_) sockets.push_back(&rank);
    wait_for(sockets);
    meet_strangers([this](FrameSocket socket, const Frame& first) {
      if (first.kind != Frame::Kind::hello || first.rank == 0) return;
      socket.send(frame(Frame::Kind::hello));
      ranks_[static_cast<std::size_t>(first.rank)] = std::move(socket);
      states_.arrived(first.rank, name_of(first.rank, first), now());
    });
    states_.heard(0, progress_.state(), now());
    for (std::int32_t rank = 1; rank < plan_.size; ++rank) receive_states(rank);
  }

  void receive_states(std::int32_t rank) {
    FrameSocket& socket = ranks_[static_cast<std::size_t>(rank)];
    while (const std::optional<Frame> frame = socket.receive()) {
      states_.heard(rank, frame->state(), now());
      if (frame->kind == Frame::Kind::leave) states_.left(rank);
      if (frame->kind == Frame::Kind::overdue) states_.overdue(rank, frame->state());
    }
    if (!socket.is_open()) states_.closed(rank);
  }

  void report_awaited_ranks() {
    std::string text = states_.waiting_text(now());
    if (text == said_) return;
    if (!text.empty()) plan_.say(text);
    said_ = std::move(text);
  }

  void decide() {
    for (const Time end = now() + kGather; now() < end;) listen();
    plan_.tell(states_.lost(now()));
    send(frame(Frame::Kind::verdict));
    plan_.end();
  }

  void send(const Frame& frame) {
    for (FrameSocket& rank : ranks_) rank.send(frame);
  }

  std::vector<FrameSocket> ranks_;  // without a file: rank 0, and ranks that have not joined
  std::string said_;                // last message about awaited ranks
};

/// A rank other than rank 0.
class Liveness::Spoke : Side {
 public:
  Spoke(const LivenessPlan& plan, FrameListener& listener, const cluster::RankProgress& progress,
        Leave& leave)
      : Side(plan, listener, progress, leave, {name_of(0), name_of(plan.rank)}, kSelf) {}

  void run(const std::stop_token& stop) {
    states_.heard(kSelf, progress_.state(), now());
    if (!join(stop)) {
      if (stop.stop_requested()) return;
      return lose_hub({states_.loss(
          0, fmt::format("rank {} could not reach it at {} within {:.3g} s", plan_.rank,
                         plan_.addresses.front(), to_seconds(plan_.deadlines.rendezvous)))});
    }
    states_.arrived(0, name_of(0), now());
    Time awake = now();
    Time decided = Time::max();  // when rank 0 should have decided about a wait that took too long
    while (!stop.stop_requested()) {
      const FrameSocket* const hub = &hub_;
      wait_for(std::span(&hub, 1));
      const bool stood = now() - std::exchange(awake, now()) > kStoodStill;
      if (stood && decided != Time::max()) decided = now() + kDeciding;
      answer();
      if (receive_states()) return plan_.end();
      send_what_is_due([this](const Frame& frame) { hub_.send(frame); });
      if (states_.has_left(0)) continue;
      if (!progress_.is_overdue(now())) {
        decided = Time::max();
      } else if (decided == Time::max()) {
        decided = now() + kDeciding;
        hub_.send(frame(Frame::Kind::overdue));
      }
      states_.heard(kSelf, progress_.state(), now());
      if (now() > decided) {
        return lose_hub({states_.loss(0, "it did not end a wait that exceeded its deadline")});
      }
      if (const auto lost = states_.lost(now()); !lost.empty()) return lose_hub(lost);
    }
    hub_.send(frame(Frame::Kind::leave));
  }

 private:
  bool join(const std::stop_token& stop) {
    for (const Time end = now() + plan_.deadlines.rendezvous; now() < end;) {
      if (stop.stop_requested()) return false;
      hub_ = FrameSocket::connect(plan_.addresses.front(), kConnecting);
      if (hub_.is_open()) {
        hub_.send(frame(Frame::Kind::hello));
        return true;
      }
      std::this_thread::sleep_for(kRetry);
    }
    return false;
  }

  /// True: the run ends.
  bool receive_states() {
    while (const std::optional<Frame> frame = hub_.receive()) {
      if (frame->kind == Frame::Kind::hello) states_.arrived(0, name_of(0, *frame), now());
      states_.heard(0, frame->state(), now());
      if (frame->kind == Frame::Kind::leave) states_.left(0);
      if (frame->kind == Frame::Kind::verdict) return true;
    }
    if (!hub_.is_open()) states_.closed(0);
    return false;
  }

  /// Answers ranks that lost rank 0.
  void answer() {
    meet_strangers([this](FrameSocket socket, const Frame& first) {
      if (first.kind != Frame::Kind::ask) return;
      socket.send(frame(Frame::Kind::here));
      answered_.push_back(std::move(socket));
    });
  }

  void lose_hub(const std::vector<LostRank>& lost) {
    if (!is_lower_rank_there()) plan_.tell(lost);
    for (const Time end = now() + kLinger; now() < end;) {  // higher ranks ask a little later
      wait_for({});
      answer();
    }
    plan_.end();
  }

  bool is_lower_rank_there() {
    std::vector<FrameSocket> asked;
    for (std::int32_t rank = 1; rank < std::min(plan_.rank, kAsked + 1); ++rank) {
      FrameSocket socket =
          FrameSocket::connect(plan_.addresses[static_cast<std::size_t>(rank)], kAsking);
      socket.send(frame(Frame::Kind::ask));
      if (socket.is_open()) asked.push_back(std::move(socket));
    }
    for (const Time end = now() + kAnswering; now() < end && !asked.empty();) {
      std::vector<const FrameSocket*> sockets;
      for (const FrameSocket& socket : asked) sockets.push_back(&socket);
      wait_for(sockets);
      answer();
      for (FrameSocket& socket : asked) {
        const std::optional<Frame> frame = socket.receive();
        if (frame && frame->kind == Frame::Kind::here) return true;
      }
      std::erase_if(asked, [](const FrameSocket& socket) { return !socket.is_open(); });
    }
    return false;
  }

  static constexpr std::int32_t kSelf = 1;  // in states_, which has rank 0 and this rank
  FrameSocket hub_;
  std::vector<FrameSocket> answered_;  // stay open until the answer is read
};

Liveness::Liveness(LivenessPlan plan, FrameListener listener, const cluster::RankProgress& progress)
    : leave_(std::make_unique<Leave>()),
      thread_([plan = std::move(plan), listener = std::move(listener), &progress,
               leave = leave_.get()](const std::stop_token& stop) mutable {
        if (plan.rank == 0) {
          Hub(plan, listener, progress, *leave).run(stop);
        } else {
          Spoke(plan, listener, progress, *leave).run(stop);
        }
      }) {}

Liveness::~Liveness() = default;

void Liveness::leave() { leave_->ask_and_wait(); }

}  // namespace penstock::liveness
