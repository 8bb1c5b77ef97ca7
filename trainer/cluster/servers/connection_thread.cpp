// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "dataflow/error.h"
#include "trainer/cluster/servers/connection_state.h"

namespace penstock::cluster {
namespace {

/// Interval until a thread notices that its wait is over.
constexpr Nanoseconds kSoon = std::chrono::milliseconds(5);

std::string seconds(Nanoseconds time) {
  return fmt::format("{:g} s", std::chrono::duration<double>(time).count());
}

}  // namespace

void ServerConnection::State::run() noexcept {
  try {
    run_until_left();
    return;
  } catch (const ConfigError&) {  // the server does not accept the keys
    fail(std::current_exception());
  } catch (const std::exception& error) {
    fail(std::make_exception_ptr(
        Error(fmt::format("talking to parameter servers: {}", error.what()))));
  }
  sockets->drop();
  const std::lock_guard lock(mutex);
  dropped = true;
  clock.wake(gate);
}

void ServerConnection::State::run_until_left() {
  while (true) {
    const Time now = clock.now();
    send_beats(now);
    Nanoseconds limit = beat;
    {
      const std::lock_guard lock(mutex);
      const bool waiting = wait_until != Time::max();
      const Time next = std::min({wait_until, stop_at, training_stops_at});
      if (waiting && next > now) limit = std::min(limit, next - now);
      if ((waiting && now >= next) || releasing) {
        clock.wake(gate);
        limit = kSoon;
      }
    }
    sockets->wait(limit, wake);
    receive_all();
    if (const auto ended = sockets->ended(); !ended.empty()) {
      receive_all();  // it may have sent the reason
      lose(ended.front().socket, "its connection ended");
    }
    look_at_servers(clock.now());
    send_what_may_go();
    const std::lock_guard lock(mutex);
    if (dropping && !dropped) {
      sockets->drop();
      dropped = true;
      clock.wake(gate);
    }
    if (leaving && (outgoing.empty() || dropped)) return;
  }
}

void ServerConnection::State::receive_all() {
  Received message;
  while (sockets->receive(message)) {
    take(message.socket, message.header, std::move(message.data));
    send_what_may_go();
  }
}

void ServerConnection::State::lose(std::size_t server, const std::string& how) {
  const auto task = static_cast<std::int32_t>(server);
  std::string text;
  {
    const std::lock_guard lock(mutex);
    if (leaving) return;
    text = fmt::format("{} is lost: {}, {}", arguments.cluster.server(task), how, where());
  }
  fail(std::make_exception_ptr(TimeoutError(text)));
}

void ServerConnection::State::send_what_may_go() {
  while (true) {
    std::unique_lock lock(mutex);
    if (outgoing.empty() || dropped) return;
    const Outgoing& next = outgoing.top();
    const std::size_t unsent_bytes = unsent.load();
    // One push goes out whatever its length. The limit counts bytes until they are sent, not until
    // they are answered: an answer waits for other workers, which may have begun with other parts.
    if (next.header.kind == MessageKind::push && credit > 0 && unsent_bytes > 0 &&
        unsent_bytes + next.borrowed.size() > credit) {
      return;
    }
    Outgoing message = next;
    outgoing.pop();
    lock.unlock();
    send(message);
  }
}

void ServerConnection::State::send(Outgoing& message) {
  if (message.borrowed.empty()) {
    return sockets->send(message.server, {}, message.header, bytes_of(message.text), nullptr);
  }
  const Borrowed borrowed{[](void*, void* hint) {
                            const auto* const part = static_cast<const PartState*>(hint);
                            part->owner->take_back(part->bytes);
                          },
                          &parts[message.header.key]};
  lent.fetch_add(1);
  unsent.fetch_add(message.borrowed.size());
  sockets->send(message.server, {}, message.header, message.borrowed, &borrowed);
}

void ServerConnection::State::send_beats(Time now) {
  if (now - beaten < beat) return;
  beaten = now;
  const std::lock_guard lock(mutex);
  if (phase == WorkerPhase::joining || leaving) return;
  for (std::size_t server = 0; server < servers.size(); ++server) {
    enqueue({.server = server,
             .header = {.kind = MessageKind::beat,
                        .key = static_cast<std::uint32_t>(phase),
                        .step = step},
             .priority = INT32_MAX});
  }
}

void ServerConnection::State::look_at_servers(Time now) {
  std::size_t silent = 0;
  {
    const std::lock_guard lock(mutex);
    if (phase == WorkerPhase::joining || leaving) return;
    const auto found = std::find_if(servers.begin(), servers.end(), [&](const ServerState& server) {
      return now - server.heard > arguments.silence;
    });
    if (found == servers.end()) return;
    silent = static_cast<std::size_t>(found - servers.begin());
  }
  lose(silent, fmt::format("it sent nothing for {}", seconds(arguments.silence)));
}

/// Checks a server's message as strictly as a server checks a worker's.
void ServerConnection::State::take(std::size_t server, std::span<const std::byte> bytes,
                                   Frame data) {
  const std::string name = arguments.cluster.server(static_cast<std::int32_t>(server));
  try {
    const ServerHeader header = parse_header(bytes, data.bytes.size());
    const std::lock_guard lock(mutex);
    servers[server].heard = clock.now();
    switch (header.kind) {
      case MessageKind::welcome:
        servers[server].welcome = true;
        break;
      case MessageKind::beat:
        return;
      case MessageKind::refused:
        return fail_locked(std::make_exception_ptr(
            ConfigError(fmt::format("{} refuses: {}", name, text_of(data.bytes)))));
      case MessageKind::lost:
        return fail_locked(std::make_exception_ptr(TimeoutError(std::string(text_of(data.bytes)))));
      case MessageKind::gathered:
        if (header.step != meeting) throw DataError("texts of another meeting");
        texts = split_texts(data.bytes, arguments.cluster.worker_hosts.size());
        break;
      case MessageKind::answer:
        take_answer(header, data);
        break;
      default:
        throw DataError(fmt::format("{} to a worker", to_string(header.kind)));
    }
    clock.wake(gate);
  } catch (const DataError& error) {
    fail(std::make_exception_ptr(Error(fmt::format("{}: {}", name, error.what()))));
  }
}

/// Copies out of the message while it holds the lock; no other thread needs the lock for long.
void ServerConnection::State::take_answer(const ServerHeader& header, const Frame& data) {
  if (header.key >= parts.size() || !parts[header.key].asked) {
    throw DataError(fmt::format("an answer for part {}, which was not asked for", header.key));
  }
  PartState& part = parts[header.key];
  if (data.bytes.size() != part.into.size_bytes()) {
    throw DataError(fmt::format("an answer of {} bytes; expected {}", data.bytes.size(),
                                part.into.size_bytes()));
  }
  if (!data.bytes.empty()) std::memcpy(part.into.data(), data.bytes.data(), data.bytes.size());
  part.asked = false;
  part.version = header.version;
  answers.value += header.value;
  if (header.key == 0) answers.staleness = static_cast<std::int64_t>(header.step);
  --unanswered;
  progress = clock.now();
}

}  // namespace penstock::cluster
