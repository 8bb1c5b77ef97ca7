// SPDX-License-Identifier: Apache-2.0
// The processes of a run over TCP: a star whose centre is rank 0. A thread of each process reads
// what comes, so that a process that computes still learns that the run ends.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/machine/file_descriptor.h"
#include "trainer/cluster/exchange_wait.h"
#include "trainer/cluster/processes.h"
#include "trainer/cluster/servers/message.h"
#include "trainer/cluster/shared_memory.h"
#include "trainer/cluster/tcp/rendezvous.h"
#include "trainer/cluster/tcp/tcp_links.h"

namespace penstock::tcp {
namespace {

using namespace std::chrono_literals;
using cluster::Launch;
using cluster::Processes;

constexpr int kTimedOut = 5, kStopped = 130;  // exit codes
/// Time to tell the others that the run ends.
constexpr Nanoseconds kTelling = 500ms;
/// A launcher that stops all ranks leaves rank 0 this long to save what it measured.
constexpr Nanoseconds kSaving = 2s;

/// Ranks on one host have the same identity of the host.
Launch with_local_ranks(Launch launch, const std::vector<std::string>& hosts) {
  const auto mine = hosts.begin() + launch.rank;
  launch.local_rank = static_cast<std::int32_t>(std::count(hosts.begin(), mine, *mine));
  launch.local_size = static_cast<std::int32_t>(std::count(hosts.begin(), hosts.end(), *mine));
  return launch;
}

class TcpProcesses final : public Processes {
 public:
  TcpProcesses(const Launch& launch, Clock& clock, Meeting meeting, std::stop_token stop)
      : launch_(with_local_ranks(launch, meeting.hosts)),
        clock_(clock),
        own_address_(own_address_of(meeting)),
        stop_(std::move(stop)) {
    for (Connection& connection : meeting.connections) {
      peers_.emplace_back().connection = std::move(connection);
    }
    reader_ = std::jthread([this](const std::stop_token& ends) { read(ends); });
  }
  TcpProcesses(const TcpProcesses&) = delete;
  ~TcpProcesses() override {
    try {
      all_gather("", kGoodbye, "leaving");
    } catch (const Error&) {
      abort(kTimedOut);
    }
    reader_.request_stop();
    wake_.signal();
  }

  const Launch& launch() const noexcept override { return launch_; }

  std::vector<std::string> all_gather(std::string_view text, Nanoseconds patience,
                                      std::string_view what) override {
    const Time deadline = clock_.now() + patience;
    if (launch_.rank > 0) {
      send(0, {Message::Kind::text, std::string(text)}, deadline, what);
      return cluster::split_texts(cluster::bytes_of(take(0, deadline, what)),
                                  static_cast<std::size_t>(launch_.size));
    }
    std::vector<std::string> texts{std::string(text)};
    for (std::int32_t rank = 1; rank < launch_.size; ++rank) {
      texts.push_back(take(rank, deadline, what));
    }
    const Message all{Message::Kind::texts, cluster::join_texts(texts)};
    for (std::int32_t rank = 1; rank < launch_.size; ++rank) send(rank, all, deadline, what);
    return texts;
  }

  std::unique_ptr<CollectiveGroup> make_group(const Exchange& exchange) override {
    if (exchange.choice.method == collectives::ExchangeMethod::mpi_blocking) {
      throw Unavailable(
          "exchanging through MPI_Allreduce: the ranks met without MPI, at {}; choose another way "
          "to exchange, or start with mpirun",
          launch_.meeting);
    }
    if (auto group = cluster::share_memory(*this, exchange, clock_)) return group;
    return make_link_group(*this, own_address_, exchange, clock_);
  }

  void abort(int exit_code) override {
    tell({Message::Kind::ended, fmt::format("{} {}", exit_code, launch_.rank)});
    std::_Exit(exit_code);
  }
  void exit_stopped(int exit_code) override {
    if (launch_.rank == 0) abort(exit_code);
    clock_.sleep_until(clock_.now() + 2 * kGrace);
    tell({Message::Kind::stopped, std::to_string(launch_.rank)});
    std::_Exit(exit_code);
  }

 private:
  struct Peer {
    Connection connection{};
    std::deque<std::string> texts{};  // under mutex_
    bool has_spoken = false;          // under mutex_; it has sent a text
    Time gone = Time::max();          // under mutex_; when its connection closed
  };

  static std::string own_address_of(const Meeting& meeting) {
    for (const Connection& connection : meeting.connections) {
      if (connection.is_open()) return connection.own_address();
    }
    return {};
  }

  Peer& peer(std::int32_t rank) { return peers_[static_cast<std::size_t>(rank)]; }

  void send(std::int32_t rank, const Message& message, Time deadline, std::string_view what) {
    const std::lock_guard lock(sending_);
    if (peer(rank).connection.send(message, deadline)) return;
    throw TimeoutError("{}: rank {} does not take the message of rank {}; it was lost or hangs",
                       what, rank, launch_.rank);
  }

  /// The next text of a rank.
  std::string take(std::int32_t rank, Time deadline, std::string_view what) {
    Peer& from = peer(rank);
    // Once the ranks have spoken, what stops one of them reaches the others another way.
    const std::stop_callback wake(stop_, [this] {
      const std::lock_guard lock(mutex_);
      changed_.notify_all();
    });
    const Nanoseconds behind = progress() == nullptr ? Nanoseconds{} : cluster::kBehindWatch;
    std::unique_lock lock(mutex_);
    while (from.texts.empty()) {
      if (!from.has_spoken && stop_.stop_requested()) {
        throw Error("the run was stopped while its ranks met at {}", launch_.meeting);
      }
      const Time now = clock_.now();
      const bool is_gone = from.gone != Time::max();
      if (is_gone && now >= from.gone + behind) {
        throw TimeoutError("{}: rank {} was lost: its connection closed", what, rank);
      }
      if (now >= deadline) {
        throw TimeoutError("{}: rank {} did not come in time; see its messages", what, rank);
      }
      changed_.wait_until(lock, is_gone ? std::min(deadline, from.gone + behind) : deadline);
    }
    std::string text = std::move(from.texts.front());
    from.texts.pop_front();
    return text;
  }

  /// Tells all processes that this one is connected with, as far as that is possible in time.
  void tell(const Message& message) noexcept {
    const std::unique_lock lock(sending_, kTelling);
    if (!lock.owns_lock()) return;  // its end tells the others
    const Time deadline = clock_.now() + kTelling;
    for (Peer& each : peers_) {
      if (each.connection.file() >= 0) each.connection.send(message, deadline);
    }
  }

  // ---- the thread that reads ----

  void read(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> files{{wake_.get(), POLLIN, 0}};
      for (const Peer& each : peers_) {
        if (each.gone == Time::max() && each.connection.is_open()) {
          files.push_back({each.connection.file(), POLLIN, 0});
        }
      }
      poll(files.data(), files.size(), milliseconds_until(end_));
      if (clock_.now() >= end_) end(kStopped, stopped_);
      for (Peer& each : peers_) receive(each);
    }
  }

  void receive(Peer& from) {
    if (from.gone != Time::max() || !from.connection.is_open()) return;
    try {
      while (std::optional<Message> message = from.connection.receive()) heed(from, *message);
    } catch (const DataError& error) {
      std::fputs(fmt::format("penstock: {}\n", error.what()).c_str(), stderr);
      from.connection.end();
    }
    if (from.connection.is_open()) return;
    const std::lock_guard lock(mutex_);
    from.gone = clock_.now();
    changed_.notify_all();
  }

  void heed(Peer& from, Message& message) {
    if (message.kind == Message::Kind::text || message.kind == Message::Kind::texts) {
      const std::lock_guard lock(mutex_);
      from.texts.push_back(std::move(message.body));
      from.has_spoken = true;
      changed_.notify_all();
    } else if (message.kind == Message::Kind::stopped) {
      stopped_ = std::atoi(message.body.c_str());
      end_ = clock_.now() + kSaving;
    } else if (message.kind == Message::Kind::ended) {
      const std::size_t space = std::min(message.body.find(' '), message.body.size());
      const int code = std::atoi(message.body.c_str()) & 0xff;
      end(code, std::atoi(message.body.c_str() + space));
    } else {
      throw DataError("a message of kind {} from another rank, in a run",
                      static_cast<std::uint32_t>(message.kind));
    }
  }

  /// Ends this process, and on rank 0 the others, because `rank` ends.
  [[noreturn]] void end(int code, int rank) {
    if (launch_.rank == 0) tell({Message::Kind::ended, fmt::format("{} {}", code, rank)});
    save_at_end(fmt::format("rank {} ends, because rank {} has ended with exit code {}",
                            launch_.rank, rank, code));
    std::_Exit(code);
  }

  const Launch launch_;
  Clock& clock_;
  const std::string own_address_;
  const std::stop_token stop_;
  std::deque<Peer> peers_;  // by rank; a rank other than 0 has only the first
  std::timed_mutex sending_;
  std::mutex mutex_;
  std::condition_variable changed_;
  EventFd wake_;
  Time end_ = Time::max();  // of the reader; when the process ends because a rank was stopped
  int stopped_ = 0;         // that rank
  std::jthread reader_;     // last: it uses the others
};

}  // namespace
}  // namespace penstock::tcp

namespace penstock::cluster {

std::unique_ptr<Processes> join_processes(const Launch& launch, Clock& clock,
                                          Nanoseconds rendezvous, const std::stop_token& stop) {
  if (launch.mpi && (kHasMpi || launch.meeting.empty())) {
    return join_mpi_job(launch, clock, rendezvous);
  }
  if (launch.meeting.empty()) {
    throw Unavailable(
        "joining the processes that {} started: nothing says where they meet; give "
        "--rendezvous HOST:PORT",
        launch.launcher);
  }
  return std::make_unique<tcp::TcpProcesses>(launch, clock,
                                             tcp::meet(launch, clock, rendezvous, stop), stop);
}

}  // namespace penstock::cluster
