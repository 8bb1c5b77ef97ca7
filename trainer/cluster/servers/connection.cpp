// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/connection.h"

#include <fmt/format.h>

#include <algorithm>

#include "dataflow/error.h"
#include "trainer/cluster/servers/connection_state.h"

namespace penstock::cluster {
namespace {

/// Servers know which worker is missing, so their message should arrive first.
constexpr Nanoseconds kAfterServers = std::chrono::seconds(2);
/// When a run fails, messages in progress have this long to leave.
constexpr Nanoseconds kRelease = std::chrono::seconds(1);

std::string seconds(Nanoseconds time) {
  return fmt::format("{:g} s", std::chrono::duration<double>(time).count());
}

std::span<float> part_of(const Tensor& arena, const Part& part) {
  return std::span(static_cast<float*>(arena.data), arena.count).subspan(part.first, part.count);
}

}  // namespace

void ServerConnection::State::wait(std::unique_lock<std::mutex>& lock, Time deadline,
                                   const Time& stops, const std::function<bool()>& ready,
                                   const std::function<std::string()>& late) {
  wait_until = deadline;
  wake.signal();
  clock.wait(lock, gate, {}, [&] {
    return failure != nullptr || ready() ||
           clock.now() >= std::min(deadline, std::min(stop_at, stops));
  });
  wait_until = Time::max();
  if (ready()) return;  // even if the run ended soon after
  throw_failure();
  if (clock.now() >= std::min(stop_at, stops)) throw Error("the run is being stopped");
  throw TimeoutError(late());
}

// ---- joining, meeting, leaving ----------------------------------------------

ServerConnection::ServerConnection(Arguments arguments, Clock& clock)
    : state_(std::make_unique<State>(std::move(arguments), clock)) {
  State& state = *state_;
  const std::string hello = state.arguments.cluster.describe();
  for (std::size_t server = 0; server < state.servers.size(); ++server) {
    state.enqueue(
        {.server = server, .header = {.kind = MessageKind::hello}, .text = hello, .priority = 1});
  }
  state.thread = std::jthread([&state] { state.run(); });
  std::unique_lock lock(state.mutex);
  const auto missing = [&] {
    return std::find_if(state.servers.begin(), state.servers.end(),
                        [](const State::ServerState& server) { return !server.welcome; });
  };
  try {
    state.wait(
        lock, clock.now() + state.arguments.rendezvous, state.stop_at,
        [&] { return missing() == state.servers.end(); },
        [&] {
          const auto task = static_cast<std::int32_t>(missing() - state.servers.begin());
          return fmt::format("{} did not answer {} within {}; see that it was started there",
                             state.arguments.cluster.server(task),
                             state.arguments.cluster.worker(state.arguments.task),
                             seconds(state.arguments.rendezvous));
        });
  } catch (...) {
    lock.unlock();
    leave(5);  // workers that have arrived need not wait
    throw;
  }
  state.phase = WorkerPhase::preparing;
}

ServerConnection::~ServerConnection() { leave(0); }

const Cluster& ServerConnection::cluster() const noexcept { return state_->arguments.cluster; }
std::int32_t ServerConnection::task() const noexcept { return state_->arguments.task; }

std::vector<std::string> ServerConnection::all_gather(std::string_view text, Nanoseconds patience,
                                                      std::string_view what) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.throw_failure();
  const std::string both[] = {std::string(what), std::string(text)};
  state.texts.reset();
  state.enqueue({.server = 0,
                 .header = {.kind = MessageKind::gather,
                            .step = state.meeting,
                            .value = std::chrono::duration<double>(patience).count()},
                 .text = join_texts(both),
                 .priority = 1});
  state.wait(
      lock, state.clock.now() + patience + kAfterServers, state.stop_at,
      [&] { return state.texts.has_value(); },
      [&] { return fmt::format("{}: not every worker came in time", what); });
  ++state.meeting;
  return *std::exchange(state.texts, std::nullopt);
}

void ServerConnection::leave(int exit_code) {
  State& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    if (state.leaving) return;
    state.leaving = true;
    state.outgoing = {};
    for (std::size_t server = 0; server < state.servers.size(); ++server) {
      state.enqueue(
          {.server = server,
           .header = {.kind = MessageKind::goodbye, .key = static_cast<std::uint32_t>(exit_code)}});
    }
    state.wake.signal();
  }
  if (state.thread.joinable()) state.thread.join();
  state.sockets.reset();  // once the goodbyes have left
}

// ---- training ---------------------------------------------------------------

void ServerConnection::attach(std::stop_token stopping, std::stop_token abandon) {
  State& state = *state_;
  state.on_stopping.emplace(std::move(stopping), [&state] {
    state.stop_within(state.training_stops_at, Processes::kGrace);
  });
  state.on_abandon.emplace(std::move(abandon), [&state] {
    state.stop_within(state.training_stops_at, Nanoseconds::zero());
  });
}

void ServerConnection::begin(const PartPlan& plan, ServerRule rule, const Tensor& weights,
                             const Tensor& running) {
  State& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    state.throw_failure();
    state.parts.resize(plan.parts.size());
    if (state.arguments.task == 0) {
      for (std::size_t server = 0; server < state.servers.size(); ++server) {
        const ModelLayout layout{rule, state.arguments.optimizer, plan.parts};
        state.enqueue({.server = server,
                       .header = {.kind = MessageKind::layout},
                       .text = write_layout(layout, static_cast<std::int32_t>(server))});
      }
    }
    for (const Part& part : plan.parts) {
      const auto server = static_cast<std::size_t>(part.server);
      const Tensor& arena = part.fixed ? running : weights;
      State::PartState& known = state.parts[part.key];
      known.owner = &state;
      known.server = server;
      known.bytes = part.count * sizeof(float);
      known.into = part_of(arena, part);
      known.asked = true;
      ++state.unanswered;
      if (state.arguments.task == 0) {
        state.enqueue({.server = server,
                       .header = {.kind = MessageKind::first, .key = part.key},
                       .borrowed = std::as_bytes(part_of(arena, part))});
      }
      state.enqueue({.server = server, .header = {.kind = MessageKind::pull, .key = part.key}});
    }
    state.progress = state.clock.now();
    state.wake.signal();
  }
  static_cast<void>(await());
  // A push that is applied on arrival would change the initial weights of workers that have not
  // begun.
  all_gather("", state.arguments.silence, "waiting for all workers to have the first weights");
  const std::lock_guard lock(state.mutex);
  state.phase = WorkerPhase::training;
}

void ServerConnection::push(const Push& push, const Terms& terms) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  state.throw_failure();
  PENSTOCK_ASSERT(push.part < state.parts.size());
  State::PartState& part = state.parts[push.part];
  PENSTOCK_ASSERT(!part.asked && push.gradients.size_bytes() == part.bytes &&
                  push.into.size_bytes() == part.bytes);
  part.asked = true;
  part.into = push.into;
  if (state.unanswered++ == 0) state.progress = state.clock.now();
  state.enqueue({.server = part.server,
                 .header = {.kind = MessageKind::push,
                            .key = push.part,
                            .step = part.step,
                            .learning_rate = terms.hyper.learning_rate,
                            .weight_decay = terms.hyper.weight_decay,
                            .gradient_clip = terms.hyper.gradient_clip,
                            .gradient_scale = terms.gradient_scale,
                            .version = part.version},
                 .borrowed = std::as_bytes(push.gradients),
                 .priority = push.priority});
  state.step = std::max(state.step, ++part.step);
  state.wake.signal();
}

void ServerConnection::set_credit(std::size_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->credit = bytes;
}

ServerConnection::Answers ServerConnection::await() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.throw_failure();
  while (state.unanswered > 0) {
    const Time seen = state.progress;
    state.wait(
        lock, seen + state.arguments.silence + kAfterServers, state.training_stops_at,
        [&] { return state.unanswered == 0 || state.progress != seen; },
        [&] {
          return fmt::format("the servers have not answered {} for {}, {}",
                             state.arguments.cluster.worker(state.arguments.task),
                             seconds(state.arguments.silence + kAfterServers), state.where());
        });
  }
  return std::exchange(state.answers, Answers{});
}

void ServerConnection::release() noexcept {
  State& state = *state_;
  try {
    std::unique_lock lock(state.mutex);
    if (state.leaving) return;
    const Time deadline = state.clock.now() + kRelease;
    const auto settled = [&] { return state.unanswered == 0 && state.lent.load() == 0; };
    state.releasing = true;
    state.wake.signal();
    state.clock.wait(lock, state.gate, {}, [&] {
      return state.failure != nullptr || settled() || state.clock.now() >= deadline;
    });
    state.releasing = false;
    if (settled()) return;
    // The run has failed: a late answer must not write to the caller's memory.
    state.outgoing = {};
    state.dropping = true;
    state.wake.signal();
    state.clock.wait(lock, state.gate, {}, [&] { return state.dropped; });
  } catch (const std::exception&) {
    std::terminate();
  }
}

}  // namespace penstock::cluster
