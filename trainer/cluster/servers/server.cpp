// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "dataflow/error.h"

namespace penstock::cluster {
namespace {

/// Only this many foreign messages are reported one by one.
constexpr std::int64_t kNamed = 5;

std::string seconds(Nanoseconds time) {
  return fmt::format("{:g} s", std::chrono::duration<double>(time).count());
}

}  // namespace

Server::Server(Cluster cluster, std::int32_t task, const ServerPatience& patience, Clock& clock,
               Outlet& outlet)
    : cluster_(std::move(cluster)),
      task_(task),
      patience_(patience),
      clock_(clock),
      outlet_(outlet),
      started_(clock.now()),
      workers_(static_cast<std::size_t>(cluster_.workers())) {}

std::int32_t Server::task_of(const std::string& peer) const {
  const auto found = tasks_.find(peer);
  return found == tasks_.end() ? -1 : found->second;
}

std::string Server::where(std::int32_t task) const {
  const Worker& worker = workers_[static_cast<std::size_t>(task)];
  return fmt::format("while {}, at step {}", to_string(worker.phase), worker.step);
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

void Server::receive(Received message) {
  ServerHeader header;
  const std::int32_t task = task_of(message.peer);
  try {
    if (message.frames > 2) {
      throw DataError(fmt::format("a message of {} frames; expected 1 or 2", message.frames));
    }
    header = parse_header(message.header, message.data.bytes.size());
    if (header.kind == MessageKind::hello) return hello(message, header);
    if (task < 0) throw DataError(fmt::format("{} without a hello", to_string(header.kind)));
    Worker& worker = workers_[static_cast<std::size_t>(task)];
    if (worker.left) throw DataError(fmt::format("{} behind a goodbye", to_string(header.kind)));
    worker.heard = clock_.now();
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

void Server::reject(const Received& message, const std::string& why) {
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

void Server::hello(const Received& message, const ServerHeader& header) {
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
  if (worker.joined) {
    return refuse(fmt::format("{} takes part already; give each worker a different --task-index",
                              cluster_.worker(task)));
  }
  worker = {.peer = message.peer,
            .connection = message.connection,
            .joined = true,
            .heard = clock_.now(),
            .phase = WorkerPhase::preparing,
            .text = {}};
  tasks_[message.peer] = task;
  reply(message.peer, MessageKind::welcome, header);
  if (!failure_.empty()) reply(message.peer, MessageKind::lost, header, failure_);
}

void Server::dispatch(std::int32_t task, const ServerHeader& header, Frame data) {
  Worker& worker = workers_[static_cast<std::size_t>(task)];
  switch (header.kind) {
    case MessageKind::beat:
      worker.phase = static_cast<WorkerPhase>(
          std::min(header.key, static_cast<std::uint32_t>(WorkerPhase::leaving)));
      worker.step = std::max(worker.step, header.step);
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
      worker.phase = WorkerPhase::training;
      worker.step = std::max(worker.step, header.step + 1);
      pushed_ = clock_.now();
      return store(header).push(task, header, std::move(data));
    case MessageKind::goodbye:
      return goodbye(task, header);
    default:
      throw DataError(fmt::format("{} to a server", to_string(header.kind)));
  }
}

PartStore& Server::store(const ServerHeader& header) {
  if (store_ == nullptr) throw DataError(fmt::format("{} before a layout", to_string(header.kind)));
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
    throw DataError(fmt::format("a text for meeting {}; expected one for {}", header.step,
                                meeting_ + (worker.text ? 1 : 0)));
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
  Worker& worker = workers_[static_cast<std::size_t>(task)];
  if (header.key != 0 && failure_.empty()) {
    conclude(fmt::format("{} ended with exit code {}, {}", cluster_.worker(task), header.key,
                         where(task)));
  }
  worker.left = true;
}

std::vector<std::int32_t> Server::tasks_on(int connection) const {
  std::vector<std::int32_t> tasks;
  for (std::size_t index = 0; index < workers_.size(); ++index) {
    const Worker& worker = workers_[index];
    if (worker.joined && !worker.left && worker.connection == connection) {
      tasks.push_back(static_cast<std::int32_t>(index));
    }
  }
  return tasks;
}

void Server::connection_ended(std::int32_t task) {
  Worker& worker = workers_[static_cast<std::size_t>(task)];
  if (worker.left) return;
  worker.left = true;
  conclude(fmt::format("{} is lost: its connection ended, {}", cluster_.worker(task), where(task)));
}

void Server::conclude(const std::string& why) {
  if (!failure_.empty()) return;
  failure_ = why;
  ends_ = clock_.now() + patience_.goodbye;
  for (const Worker& worker : workers_) {
    if (worker.joined && !worker.left) reply(worker.peer, MessageKind::lost, {}, why);
  }
}

void Server::look() {
  const Time now = clock_.now();
  for (std::size_t index = 0; index < workers_.size(); ++index) {
    Worker& worker = workers_[index];
    const auto task = static_cast<std::int32_t>(index);
    if (!worker.joined && now - started_ > patience_.rendezvous) {
      conclude(fmt::format("{} did not come within {} of {}'s start", cluster_.worker(task),
                           seconds(patience_.rendezvous), cluster_.server(task_)));
    }
    if (worker.joined && !worker.left && now - worker.heard > patience_.silence) {
      worker.left = true;
      conclude(fmt::format("{} is lost: it sent nothing for {}, {}", cluster_.worker(task),
                           seconds(patience_.silence), where(task)));
    }
  }
  look_at_meeting(now);
  look_at_step(now);
}

void Server::look_at_meeting(Time now) {
  if (!meeting_ends_ || now < *meeting_ends_) return;
  for (std::size_t index = 0; index < workers_.size(); ++index) {
    if (workers_[index].text) continue;
    const auto task = static_cast<std::int32_t>(index);
    return conclude(fmt::format("{}: {} did not come in time, {}", meeting_about_,
                                cluster_.worker(task), where(task)));
  }
}

/// Finds a live worker that the others wait for in a step.
void Server::look_at_step(Time now) {
  if (store_ == nullptr || now - pushed_ <= patience_.silence) return;
  const std::vector<std::int32_t> awaited = store_->awaited();
  if (awaited.empty()) return;
  conclude(fmt::format("{} has pushed no gradients for {}, {}", cluster_.worker(awaited.front()),
                       seconds(patience_.silence), where(awaited.front())));
}

bool Server::done() const {
  const bool failed = !failure_.empty();
  if (failed && clock_.now() >= ends_) return true;
  return std::all_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
    return worker.left || (failed && !worker.joined);
  });
}

}  // namespace penstock::cluster
