// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "dataflow/error.h"
#include "dataflow/machine/file_descriptor.h"
#include "dataflow/net/zmq_endpoint.h"

namespace penstock::cluster {
namespace {

/// A server does not know how many steps warm up.
constexpr std::int64_t kUnknown = -1;
/// Only this many foreign messages are reported one by one.
constexpr std::int64_t kNamed = 5;

/// Interval between checks of the deadlines.
constexpr Nanoseconds kPeriod = std::chrono::milliseconds(100);
/// Maximum number of messages before other checks.
constexpr int kAtOnce = 64;

std::vector<std::string> names_of_workers(const Cluster& cluster) {
  std::vector<std::string> names;
  for (std::int32_t task = 0; task < cluster.workers(); ++task) {
    names.push_back(cluster.worker(task));
  }
  return names;
}

class SocketOutlet final : public Server::Outlet {
 public:
  SocketOutlet(net::MessageSockets& socket, const std::function<void(const std::string&)>& say)
      : socket_(socket), say_(say) {}
  void send(const std::string& peer, const ServerHeader& header, std::span<const std::byte> data,
            bool stays) override {
    constexpr net::Borrowed kStays{};
    socket_.send(0, peer, to_bytes(header), data, stays ? &kStays : nullptr);
  }
  void say(const std::string& sentence) override { say_(sentence); }

 private:
  net::MessageSockets& socket_;
  const std::function<void(const std::string&)>& say_;
};

std::unique_ptr<net::MessageSockets> listen_at(const std::string& address,
                                               const ServeArguments& arguments,
                                               const std::function<void(const std::string&)>& say) {
  const net::CurveSetup curve = net::read_curve(arguments.curve);
  auto sockets = std::make_unique<net::MessageSockets>(
      curve, net::PeerReports{.refused = {}, .say = say}, arguments.io_threads);
  if (curve.role == net::CurveSetup::Role::client) {
    throw ConfigError(
        "a parameter server has --curve-server-key, which is for workers; give it --curve-allow");
  }
  const std::string endpoint = numeric_endpoint(address);
  const FileDescriptor turn =
      net::check_bindable(net::parse_endpoint(endpoint), arguments.insecure || curve);
  try {
    sockets->listen(endpoint, {.frame = kMaxFrame});
  } catch (const net::SocketError& error) {
    throw ConfigError("cannot listen at {}: {}", address,
                      error.address_taken()
                          ? "the port is taken by another process; stop that one, or give another "
                            "--ps-hosts"
                          : std::string(error.what()) + "; give an address of this machine");
  }
  return sockets;
}

}  // namespace

Server::Server(Cluster cluster, std::int32_t task, const liveness::RankDeadlines& deadlines,
               Clock& clock, Outlet& outlet)
    : cluster_(std::move(cluster)),
      task_(task),
      deadlines_(deadlines),
      clock_(clock),
      outlet_(outlet),
      states_(names_of_workers(cluster_), liveness::LostRank::kNone, deadlines, clock.now()),
      workers_(static_cast<std::size_t>(cluster_.workers())) {}

std::int32_t Server::task_of(const std::string& peer) const {
  const auto found = tasks_.find(peer);
  return found == tasks_.end() ? -1 : found->second;
}

void Server::reply(const std::string& peer, MessageKind kind, const ServerHeader& to,
                   std::string_view text) {
  outlet_.send(peer,
               {.kind = kind,
                .key = to.key,
                .task = static_cast<std::uint32_t>(task_),
                .step = to.step,
                .length = text.size()},
               bytes_of(text), false);
}

void Server::receive(net::Received message) {
  ServerHeader header;
  const std::int32_t task = task_of(message.peer);
  try {
    if (message.frames > 2) {
      throw DataError("a message of {} frames; expected 1 or 2", message.frames);
    }
    header = parse_header(message.header, message.data.bytes.size());
    if (header.kind == MessageKind::hello) return hello(message, header);
    if (task < 0) throw DataError("{} without a hello", to_string(header.kind));
    if (states_.has_left(task)) {
      throw DataError("{} behind a goodbye", to_string(header.kind));
    }
    states_.heard(task, states_.state(task), clock_.now());
  } catch (const DataError& error) {
    return reject(message, error.what());
  }
  try {
    dispatch(task, header, std::move(message.data));
  } catch (const Error& error) {
    reject(message, error.what());
    reply(message.peer, MessageKind::refused, header, error.what());
  }
}

void Server::reject(const net::Received& message, const std::string& why) {
  const std::int32_t task = task_of(message.peer);
  const std::string from =
      task >= 0
          ? cluster_.worker(task)
          : fmt::format("a stranger{}", message.address.empty() ? "" : " at " + message.address);
  if (++rejected_ <= kNamed) {
    outlet_.say(fmt::format("dropped what {} sent: {}", from, why));
  } else if (rejected_ == kNamed + 1) {
    outlet_.say("drops more such messages, and only counts them");
  }
}

void Server::hello(const net::Received& message, const ServerHeader& header) {
  const std::string theirs(text_of(message.data.bytes));
  const std::string ours = cluster_.describe();
  const auto refuse = [&](const std::string& why) {
    reject(message, why);
    reply(message.peer, MessageKind::refused, header, why);
  };
  if (theirs != ours) {
    return refuse(
        fmt::format("{} belongs to another run: it was started with '{}', the worker with "
                    "'{}'; start all of them with the same program, --ps-hosts and "
                    "--worker-hosts",
                    cluster_.server(task_), ours, theirs));
  }
  if (header.task >= workers_.size()) {
    return refuse(fmt::format("task {} of {} workers", header.task, workers_.size()));
  }
  const auto task = static_cast<std::int32_t>(header.task);
  Worker& worker = workers_[header.task];
  if (states_.has_arrived(task)) {
    return refuse(fmt::format("{} takes part already; give each worker a different --task-index",
                              cluster_.worker(task)));
  }
  worker = {.peer = message.peer, .connection = message.connection, .text = {}};
  states_.arrived(task, cluster_.worker(task), clock_.now());
  states_.heard(task, {.phase = RankPhase::preparing, .warm_up = kUnknown}, clock_.now());
  tasks_[message.peer] = task;
  reply(message.peer, MessageKind::welcome, header);
  if (!failure_.empty()) reply(message.peer, MessageKind::lost, header, failure_);
}

void Server::dispatch(std::int32_t task, const ServerHeader& header, net::Frame data) {
  Worker& worker = workers_[static_cast<std::size_t>(task)];
  switch (header.kind) {
    case MessageKind::beat:
      heard(task,
            static_cast<RankPhase>(
                std::min(header.key, static_cast<std::uint32_t>(RankPhase::leaving))),
            static_cast<std::int64_t>(header.step) - 1);
      return reply(worker.peer, MessageKind::beat, header);
    case MessageKind::gather:
      return gather(task, header, data.bytes);
    case MessageKind::layout:
      return define(task, data.bytes);
    case MessageKind::first:
      return store(header).first(header, data.bytes);
    case MessageKind::pull:
      if (store_ == nullptr) {  // worker 0 has not sent the layout yet
        if (early_pulls_.size() < (std::size_t{1} << 20)) early_pulls_.emplace_back(task, header);
        return;
      }
      return store_->pull(task, header);
    case MessageKind::push:
      heard(task, RankPhase::training, static_cast<std::int64_t>(header.step));
      pushed_ = clock_.now();
      return store(header).push(task, header, std::move(data));
    case MessageKind::goodbye:
      return goodbye(task, header);
    default:
      throw DataError("{} to a server", to_string(header.kind));
  }
}

void Server::heard(std::int32_t task, RankPhase phase, std::int64_t step) {
  states_.heard(
      task, {.phase = phase, .step = std::max(states_.state(task).step, step), .warm_up = kUnknown},
      clock_.now());
}

PartStore& Server::store(const ServerHeader& header) {
  if (store_ == nullptr) throw DataError("{} before a layout", to_string(header.kind));
  return *store_;
}

void Server::define(std::int32_t task, std::span<const std::byte> data) {
  if (task != 0) throw DataError("a layout of another worker than task 0");
  if (store_ != nullptr) throw DataError("a second layout");
  try {
    store_ = std::make_unique<PartStore>(
        parse_layout(data), cluster_.workers(), clock_,
        [this](std::int32_t worker, const ServerHeader& header, std::span<const std::byte> bytes,
               bool stays) {
          outlet_.send(workers_[static_cast<std::size_t>(worker)].peer, header, bytes, stays);
        });
  } catch (const std::bad_alloc&) {
    throw DataError("a layout of more weights than fit in memory");
  }
  for (const auto& [worker, header] : std::exchange(early_pulls_, {})) {
    try {
      store_->pull(worker, header);
    } catch (const DataError& error) {
      reply(workers_[static_cast<std::size_t>(worker)].peer, MessageKind::refused, header,
            error.what());
    }
  }
}

/// The data are two texts: the topic of the meeting, and the worker's text.
void Server::gather(std::int32_t task, const ServerHeader& header,
                    std::span<const std::byte> data) {
  Worker& worker = workers_[static_cast<std::size_t>(task)];
  std::vector<std::string> texts = split_texts(data, 2);
  if (header.step != meeting_ || worker.text) {
    throw DataError("a text for meeting {}; expected one for {}", header.step,
                    meeting_ + (worker.text ? 1 : 0));
  }
  worker.text = std::move(texts[1]);
  if (!meeting_ends_) {
    constexpr double kMost = 24 * 3600;
    const std::chrono::duration<double> patience(std::clamp(header.value, 0., kMost));
    meeting_ends_ = clock_.now() + std::chrono::round<Nanoseconds>(patience);
    meeting_about_ = std::move(texts[0]);
  }
  for (const Worker& other : workers_) {
    if (!other.text) return;
  }
  std::vector<std::string> all;
  for (Worker& other : workers_) all.push_back(*std::exchange(other.text, std::nullopt));
  const std::string joined = join_texts(all);
  for (const Worker& other : workers_) reply(other.peer, MessageKind::gathered, header, joined);
  ++meeting_;
  meeting_ends_.reset();
}

void Server::goodbye(std::int32_t task, const ServerHeader& header) {
  states_.left(task);
  if (header.key == 0) return;
  const liveness::LostRank lost =
      states_.loss(task, fmt::format("it ended with exit code {}", header.key));
  conclude(std::span(&lost, 1));
}

std::vector<std::int32_t> Server::tasks_on(int connection) const {
  std::vector<std::int32_t> tasks;
  for (std::int32_t task = 0; task < cluster_.workers(); ++task) {
    const bool here = states_.has_arrived(task) && !states_.has_left(task);
    if (here && workers_[static_cast<std::size_t>(task)].connection == connection) {
      tasks.push_back(task);
    }
  }
  return tasks;
}

void Server::connection_ended(std::int32_t task) {
  states_.closed(task);
  look();
}

void Server::conclude(std::span<const liveness::LostRank> lost) {
  if (!lost.empty()) conclude(to_text(lost));
}

void Server::conclude(const std::string& why) {
  if (!failure_.empty()) return;
  failure_ = why;
  ends_ = clock_.now() + deadlines_.goodbye;
  for (std::int32_t task = 0; task < cluster_.workers(); ++task) {
    if (!states_.has_arrived(task) || states_.has_left(task)) continue;
    reply(workers_[static_cast<std::size_t>(task)].peer, MessageKind::lost, {}, why);
  }
}

void Server::look() {
  const Time now = clock_.now();
  const std::vector<liveness::LostRank> lost = states_.lost(now);
  conclude(lost);
  for (const liveness::LostRank& worker : lost) states_.left(worker.rank);
  conclude(absent(now));
}

/// The live workers that others wait for, at a meeting or in a step.
std::vector<liveness::LostRank> Server::absent(Time now) const {
  std::vector<liveness::LostRank> absent;
  if (meeting_ends_ && now >= *meeting_ends_) {
    for (std::int32_t task = 0; task < cluster_.workers(); ++task) {
      if (workers_[static_cast<std::size_t>(task)].text) continue;
      absent.push_back(
          states_.loss(task, fmt::format("it did not come in time ({})", meeting_about_)));
    }
  }
  if (store_ != nullptr && now - pushed_ > deadlines_.silence) {
    for (const std::int32_t task : store_->awaited()) {
      absent.push_back(states_.loss(task, fmt::format("it has pushed no gradients for {:g} s",
                                                      to_seconds(deadlines_.silence))));
    }
  }
  return absent;
}

bool Server::done() const {
  const bool failed = !failure_.empty();
  if (failed && clock_.now() >= ends_) return true;
  for (std::int32_t task = 0; task < cluster_.workers(); ++task) {
    if (!states_.has_left(task) && (!failed || states_.has_arrived(task))) return false;
  }
  return true;
}

// ---- the process ------------------------------------------------------------

Served serve_parameters(const ServeArguments& arguments, Clock& clock,
                        const std::function<void(const std::string&)>& say, std::stop_token stop) {
  const std::string& address = arguments.cluster.ps_hosts[static_cast<std::size_t>(arguments.task)];
  std::unique_ptr<net::MessageSockets> socket = listen_at(address, arguments, say);
  SocketOutlet outlet(*socket, say);
  Server server(arguments.cluster, arguments.task, arguments.patience, clock, outlet);
  const EventFd wake;
  const std::stop_callback forward(stop, [&] { wake.signal(); });
  bool stopped = false;
  // Tasks whose connection has ended but whose earlier messages may still arrive. A descriptor may
  // be reused, so its tasks are looked up as soon as the end is seen, before a later message is
  // handled.
  std::vector<std::int32_t> gone;
  const auto see_connections = [&] {
    for (const net::MessageSockets::Ended& ended : socket->ended()) {
      for (const std::int32_t task : server.tasks_on(ended.connection)) gone.push_back(task);
    }
  };
  Time looked = clock.now();
  while (!server.done()) {
    socket->wait(kPeriod, wake);
    if (stop.stop_requested() && !stopped) {
      stopped = true;
      server.end(arguments.cluster.server(arguments.task) + " was stopped");
    }
    net::Received message;
    int received = 0;
    for (; received < kAtOnce && socket->receive(message); ++received) {
      see_connections();
      server.receive(std::move(message));
    }
    if (received < kAtOnce) {  // all messages of the tasks in `gone` have been received
      for (const std::int32_t task : std::exchange(gone, {})) server.connection_ended(task);
    }
    see_connections();
    if (clock.now() - looked >= kPeriod) {
      looked = clock.now();
      server.look();
    }
  }
  const std::int64_t refused = socket->refused();
  socket.reset();  // messages in progress use the server's memory
  return {.failure = server.failure(),
          .rejected = server.rejected(),
          .refused = refused,
          .stopped = stopped};
}

}  // namespace penstock::cluster
