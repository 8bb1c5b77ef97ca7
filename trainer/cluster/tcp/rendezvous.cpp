// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/tcp/rendezvous.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <list>
#include <optional>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/machine/file_descriptor.h"
#include "dataflow/options.h"
#include "trainer/cluster/host.h"
#include "trainer/cluster/servers/message.h"

namespace penstock::tcp {
namespace {

using namespace std::chrono_literals;

/// How long a rank waits before it says for whom.
constexpr Nanoseconds kSilent = 5s;
/// The interval between attempts to reach rank 0, and the time limit of one.
constexpr Nanoseconds kRetry = 50ms, kConnecting = 2s;
/// Other ranks wait this much longer, because rank 0 knows who is missing.
constexpr Nanoseconds kBehindRank0 = 5s;
constexpr Nanoseconds kSending = 5s;
constexpr std::size_t kMostStrangers = 256;

/// Shells often let a process open 1,024 files, and let it ask for more. Rank 0 has two for each
/// other rank, for the meeting and for signs of life, and a third if all send to it (gather-add).
void allow_open_files(std::int32_t ranks) {
  constexpr rlim_t kOthers = 256;
  const auto each = static_cast<rlim_t>(ranks);
  const rlim_t needed = 2 * each + kOthers, most = needed + each;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= most) return;
  if (limit.rlim_max < needed) {
    throw Unavailable(
        "{} ranks that meet over TCP need {} open files, and this process may open {}; allow more "
        "with `ulimit -Hn`, or give each process several devices (--num-gpus)",
        ranks, needed, limit.rlim_max);
  }
  limit.rlim_cur = std::min(limit.rlim_max, most);
  setrlimit(RLIMIT_NOFILE, &limit);
}

Hello hello_of(const cluster::Launch& launch) {
  const cluster::HostFacts facts = cluster::read_host_facts();
  return {.rank = launch.rank,
          .size = launch.size,
          .restarts = launch.restarts,
          .pid = getpid(),
          .job = launch.job.substr(0, kLongestHello / 2),
          .host = facts.name,
          .identity = facts.identity,
          .program = launch.program};
}

std::string host_of(const std::string& meeting) { return meeting.substr(0, meeting.rfind(':')); }

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "[::1]";
}
bool is_ipv6(const std::string& address) { return address.starts_with('['); }

void say(const std::string& text) {
  std::fputs(fmt::format("penstock: {}\n", text).c_str(), stderr);
}

[[noreturn]] void leave_stopped(const std::string& meeting) {
  throw Error("the run was stopped while its ranks met at {}", meeting);
}

/// Rank 0.
class Host {
 public:
  Host(const cluster::Launch& launch, Clock& clock, Nanoseconds patience)
      : launch_(launch),
        clock_(clock),
        patience_(patience),
        begin_(clock.now()),
        addresses_(addresses()),
        listener_(liveness::FrameListener::tcp(
            !addresses_.empty() && std::ranges::all_of(addresses_, is_loopback),
            cluster::port_of(launch.meeting, "the place where ranks meet"),
            !addresses_.empty() && std::ranges::all_of(addresses_, is_ipv6))),
        connections_(static_cast<std::size_t>(launch.size)),
        hellos_(connections_.size()) {
    hellos_[0] = hello_of(launch);
  }

  Meeting run(const std::stop_token& stop) {
    const EventFd wake;
    const std::stop_callback on_stop(stop, [&wake] { wake.signal(); });
    while (!absent().empty()) {
      const Time now = clock_.now();
      if (stop.stop_requested()) leave_stopped(launch_.meeting);
      if (now >= begin_ + patience_) give_up();
      if (now >= begin_ + kSilent) say_awaited();
      wait(wake.get());
      for (liveness::FrameSocket socket = listener_.accept(); socket.is_open();
           socket = listener_.accept()) {
        if (strangers_.size() == kMostStrangers) strangers_.pop_front();
        strangers_.emplace_back(std::move(socket)).reader().limit(kLongestHello);
      }
      for (Connection& stranger : strangers_) hear(stranger);
      std::erase_if(strangers_, [](const Connection& each) { return !each.is_open(); });
      forget_the_gone();
    }
    return welcome();
  }

 private:
  /// Of the meeting; none: this host does not know its name.
  std::vector<std::string> addresses() {
    try {
      return cluster::addresses_of(host_of(launch_.meeting));
    } catch (const Unavailable& error) {
      unresolved_ = fmt::format("; on this host {}", error.what());
      return {};  // others may know the name
    }
  }

  std::vector<std::int32_t> absent() const {
    std::vector<std::int32_t> ranks;
    for (std::int32_t rank = 1; rank < launch_.size; ++rank) {
      if (!connections_[static_cast<std::size_t>(rank)].is_open()) ranks.push_back(rank);
    }
    return ranks;
  }
  /// "rank 1, rank 2".
  std::string names_of_absent() const {
    constexpr std::size_t kNamed = 8;
    const std::vector<std::int32_t> ranks = absent();
    std::string text;
    for (std::size_t i = 0; i < std::min(kNamed, ranks.size()); ++i) {
      text += fmt::format("{}rank {}", i == 0 ? "" : ", ", ranks[i]);
    }
    if (ranks.size() > kNamed) text += fmt::format(" and {} more", ranks.size() - kNamed);
    return text;
  }

  void say_awaited() {
    std::string text = fmt::format(
        "waiting for {} at {} ({} of {} are here){}", names_of_absent(), launch_.meeting,
        launch_.size - static_cast<std::int32_t>(absent().size()), launch_.size, unresolved_);
    if (text != said_) say(text);
    said_ = std::move(text);
  }

  void wait(int wake) {
    std::vector<pollfd> files{{wake, POLLIN, 0}, {listener_.file(), POLLIN, 0}};
    for (const Connection& stranger : strangers_) files.push_back({stranger.file(), POLLIN, 0});
    for (const Connection& rank : connections_) {
      if (rank.is_open()) files.push_back({rank.file(), POLLIN, 0});
    }
    const Time next = clock_.now() < begin_ + kSilent ? begin_ + kSilent : begin_ + patience_;
    poll(files.data(), files.size(), milliseconds_until(std::min(next, begin_ + patience_)));
  }

  void hear(Connection& stranger) {
    try {
      const std::optional<Message> message = stranger.receive();
      if (!message) return;
      if (message->kind != Message::Kind::hello) return stranger.end();
      Hello hello = parse_hello(message->body);
      const std::string reason = refusal(hello);
      if (!reason.empty()) return refuse(stranger, hello, reason);
      const auto rank = static_cast<std::size_t>(hello.rank);
      connections_[rank] = std::move(stranger);
      hellos_[rank] = std::move(hello);
    } catch (const DataError&) {
      stranger.end();  // no rank
    }
  }

  /// Why the process is not a rank of this run; empty: it is one.
  std::string refusal(const Hello& hello) const {
    const std::string& meeting = launch_.meeting;
    if (hello.job != hellos_[0].job) {
      return fmt::format(
          "rank {} is of job '{}', and job '{}' meets at {}; give each job another port",
          hello.rank, hello.job, hellos_[0].job, meeting);
    }
    if (hello.restarts != launch_.restarts) {
      return fmt::format(
          "rank {} is of a job that was restarted {} times, and ranks meet at {} after {} "
          "restarts; end the processes of the older attempt",
          hello.rank, hello.restarts, meeting, launch_.restarts);
    }
    if (hello.program != launch_.program) {
      return fmt::format(
          "rank {} is Penstock {}, and rank 0 is {}; start all ranks with the same program",
          hello.rank, hello.program, launch_.program);
    }
    if (hello.size != launch_.size) {
      return fmt::format(
          "rank {} says that there are {} processes, and rank 0 says {}; start all ranks with the "
          "same number",
          hello.rank, hello.size, launch_.size);
    }
    if (hello.rank < 1 || hello.rank >= launch_.size ||
        connections_[static_cast<std::size_t>(hello.rank)].is_open()) {
      return fmt::format(
          "two processes say that they are rank {} of {} at {}; give every process another rank",
          hello.rank, launch_.size, meeting);
    }
    return {};
  }

  void refuse(Connection& stranger, const Hello& hello, const std::string& reason) {
    stranger.send({Message::Kind::refused, reason}, clock_.now() + kSending);
    stranger.end();
    const bool ours = hello.job == hellos_[0].job && hello.restarts == launch_.restarts;
    if (ours && (hello.size != launch_.size || hello.program != launch_.program)) {
      tell({Message::Kind::refused, reason});
      throw ConfigError(reason);
    }
    say(fmt::format("refused a process (host {}, pid {}): {}", hello.host, hello.pid, reason));
  }

  /// A rank that died before all had come may come again.
  void forget_the_gone() {
    for (Connection& rank : connections_) {
      try {
        if (rank.is_open() && rank.receive()) rank.end();  // nothing is to be said yet
      } catch (const DataError&) {
        rank.end();
      }
    }
  }

  [[noreturn]] void give_up() {
    const std::string text = fmt::format(
        "{} of {} did not come to {} within {:.3g} s; see that every rank was started, and that "
        "its host reaches this address{}",
        names_of_absent(), launch_.size, launch_.meeting, to_seconds(patience_), unresolved_);
    tell({Message::Kind::absent, text});
    throw TimeoutError(text);
  }

  void tell(const Message& message) {
    for (Connection& rank : connections_) {
      if (rank.is_open()) rank.send(message, clock_.now() + kSending);
    }
  }

  Meeting welcome() {
    Meeting meeting;
    for (const Hello& hello : hellos_) meeting.hosts.push_back(hello.identity);
    tell({Message::Kind::welcome, cluster::join_texts(meeting.hosts)});
    for (Connection& rank : connections_) rank.reader().limit(MessageReader::kMost);
    meeting.connections = std::move(connections_);
    return meeting;
  }

  const cluster::Launch& launch_;
  Clock& clock_;
  const Nanoseconds patience_;
  const Time begin_;
  std::string unresolved_;  // why the name of the meeting has no address here; empty: it has
  const std::vector<std::string> addresses_;
  liveness::FrameListener listener_;
  std::list<Connection> strangers_;  // have not said who they are
  std::vector<Connection> connections_;
  std::vector<Hello> hellos_;
  std::string said_;
};

/// Another rank.
class Guest {
 public:
  Guest(const cluster::Launch& launch, Clock& clock, Nanoseconds patience)
      : launch_(launch),
        clock_(clock),
        begin_(clock.now()),
        deadline_(begin_ + patience + kBehindRank0),
        port_(cluster::port_of(launch.meeting, "the place where ranks meet")) {}

  Meeting run(const std::stop_token& stop) {
    const EventFd wake;
    const std::stop_callback on_stop(stop, [&wake] { wake.signal(); });
    while (true) {
      if (std::optional<Meeting> meeting = attempt(wake.get())) return std::move(*meeting);
      if (stop.stop_requested()) leave_stopped(launch_.meeting);
      const Time now = clock_.now();
      if (now >= deadline_) {
        throw TimeoutError(
            "rank {} waited {:.3g} s for rank 0 at {}: {}; see that rank 0 was started, that this "
            "is an address of its host, and that no firewall is between the hosts",
            launch_.rank, to_seconds(now - begin_), launch_.meeting, why_not_);
      }
      if (now >= begin_ + kSilent && why_not_ != said_) {
        say(fmt::format("rank {} waits for rank 0 at {}: {}", launch_.rank, launch_.meeting,
                        why_not_));
        said_ = why_not_;
      }
      clock_.sleep_until(now + kRetry, stop);
    }
  }

 private:
  /// Nothing: not yet, for the reason why_not_.
  std::optional<Meeting> attempt(int wake) {
    Connection hub(connect());
    if (!hub.is_open()) return std::nullopt;
    hub.send({Message::Kind::hello, to_text(hello_of(launch_))}, clock_.now() + kSending);
    try {
      std::optional<Message> answer = receive(hub, wake);
      if (!answer) return std::nullopt;
      if (answer->kind == Message::Kind::refused) throw ConfigError(answer->body);
      if (answer->kind == Message::Kind::absent) throw TimeoutError(answer->body);
      Meeting meeting;
      meeting.hosts = cluster::split_texts(cluster::bytes_of(answer->body),
                                           static_cast<std::size_t>(launch_.size));
      meeting.connections.push_back(std::move(hub));
      return meeting;
    } catch (const DataError& error) {
      throw ConfigError(
          "rank {} comes to {}, and what listens there is not rank 0 of Penstock ({}); give the "
          "ranks a port of their own, as --rendezvous HOST:PORT",
          launch_.rank, launch_.meeting, error.what());
    }
  }

  liveness::FrameSocket connect() {
    try {
      std::string list;
      for (const std::string& each : cluster::addresses_of(host_of(launch_.meeting))) {
        list += fmt::format("{}{}:{}", list.empty() ? "" : " ", each, port_);
      }
      liveness::FrameSocket socket = liveness::FrameSocket::connect(list, kConnecting);
      if (!socket.is_open()) why_not_ = "nothing listens there";
      return socket;
    } catch (const Unavailable& error) {
      why_not_ = error.what();
      return liveness::FrameSocket();
    }
  }

  /// Waits for rank 0's answer, which comes when all ranks are there.
  std::optional<Message> receive(Connection& hub, int wake) {
    why_not_ = "it was reached and did not answer";
    while (clock_.now() < deadline_) {
      if (auto message = hub.receive()) return message;
      if (!hub.is_open()) {
        why_not_ = "it closed the connection";
        return std::nullopt;
      }
      pollfd files[] = {{wake, POLLIN, 0}, {hub.file(), POLLIN, 0}};
      poll(files, 2, milliseconds_until(deadline_));
      if (files[0].revents != 0) return std::nullopt;
    }
    return std::nullopt;
  }

  const cluster::Launch& launch_;
  Clock& clock_;
  const Time begin_, deadline_;
  const std::uint16_t port_;
  std::string why_not_, said_;
};

}  // namespace

std::string to_text(const Hello& hello) {
  const auto text = [](std::int32_t number) { return std::to_string(number); };
  return cluster::join_texts(std::vector<std::string>{
      text(hello.rank), text(hello.size), text(hello.restarts), text(hello.pid), hello.job,
      hello.host, hello.identity, hello.program});
}

Hello parse_hello(const std::string& said) {
  const std::vector<std::string> texts = cluster::split_texts(cluster::bytes_of(said), 8);
  const auto number = [](const std::string& text) {
    if (const auto value = parse_number<std::int32_t>(text)) return *value;
    throw DataError("reading a rank's hello: '{}', expected a number", text);
  };
  return {.rank = number(texts[0]),
          .size = number(texts[1]),
          .restarts = number(texts[2]),
          .pid = number(texts[3]),
          .job = texts[4],
          .host = texts[5],
          .identity = texts[6],
          .program = texts[7]};
}

Meeting meet(const cluster::Launch& launch, Clock& clock, Nanoseconds patience,
             const std::stop_token& stop) {
  allow_open_files(launch.size);
  if (launch.rank == 0) return Host(launch, clock, patience).run(stop);
  return Guest(launch, clock, patience).run(stop);
}

}  // namespace penstock::tcp
