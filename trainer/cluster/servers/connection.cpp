// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "dataflow/error.h"

namespace penstock::cluster {
namespace {

/// Interval of signs of life, and of looking for the servers'.
constexpr Nanoseconds kBeat = std::chrono::milliseconds(500);
/// Interval until a thread notices that its wait is over.
constexpr Nanoseconds kSoon = std::chrono::milliseconds(5);
/// Servers know which worker is missing, so their message should arrive first.
constexpr Nanoseconds kAfterServers = std::chrono::seconds(2);
/// When a run fails, messages in progress have this long to leave.
constexpr Nanoseconds kRelease = std::chrono::seconds(1);

std::span<float> part_of(const Tensor& arena, const Part& part) {
  return std::span(static_cast<float*>(arena.data), arena.count).subspan(part.first, part.count);
}

std::vector<std::string> names_of_servers(const Cluster& cluster) {
  std::vector<std::string> names;
  for (std::int32_t task = 0; task < cluster.servers(); ++task) {
    names.push_back(cluster.server(task));
  }
  return names;
}

/// Socket N connects to server N.
std::unique_ptr<net::MessageSockets> connect_to_servers(
    const ServerConnection::Arguments& arguments) {
  const std::vector<std::string>& addresses = arguments.cluster.ps_hosts;
  const net::CurveSetup curve = net::read_curve(arguments.curve);
  auto sockets =
      std::make_unique<net::MessageSockets>(curve, net::PeerReports{}, arguments.io_threads);
  if (curve.role == net::CurveSetup::Role::server) {
    throw ConfigError(
        "a worker has --curve-allow, which is for parameter servers; give it --curve-server-key");
  }
  if (const std::size_t keys = curve.server_keys.size(); keys > 1 && keys != addresses.size()) {
    throw ConfigError(
        "--curve-server-key has {} files, and --ps-hosts {} servers; give one file for all of "
        "them, or one for each",
        keys, addresses.size());
  }
  for (std::size_t server = 0; server < addresses.size(); ++server) {
    sockets->connect(numeric_endpoint(addresses[server]), server, {.frame = kMaxFrame});
  }
  return sockets;
}

Launch launch_of(const Cluster& cluster, std::int32_t task) {
  Launch launch{.launcher = "--worker-hosts",
                .rank = task,
                .size = cluster.workers(),
                .local_rank = 0,
                .local_size = 0};
  const std::string host = host_of(cluster.worker_hosts[static_cast<std::size_t>(task)]);
  for (std::int32_t other = 0; other < cluster.workers(); ++other) {
    if (host_of(cluster.worker_hosts[static_cast<std::size_t>(other)]) != host) continue;
    launch.local_rank += other < task ? 1 : 0;
    ++launch.local_size;
  }
  return launch;
}

class WorkerProcesses final : public Processes {
 public:
  explicit WorkerProcesses(ServerConnection& connection)
      : connection_(connection), launch_(launch_of(connection.cluster(), connection.task())) {}

  const Launch& launch() const noexcept override { return launch_; }
  std::vector<std::string> all_gather(std::string_view text, Nanoseconds patience,
                                      std::string_view what) override {
    return connection_.all_gather(text, patience, what);
  }
  std::unique_ptr<CollectiveGroup> make_group(const Exchange&) override {
    PENSTOCK_ASSERT(false && "workers exchange through servers");
    return nullptr;
  }
  void abort(int exit_code) override {
    connection_.leave(exit_code);
    std::_Exit(exit_code);
  }
  void exit_stopped(int exit_code) override { abort(exit_code); }

 private:
  ServerConnection& connection_;
  const Launch launch_;
};

}  // namespace

// ---- joining, meeting, leaving ----------------------------------------------

ServerConnection::ServerConnection(Arguments arguments, Clock& clock)
    : arguments_(std::move(arguments)),
      clock_(clock),
      beat_(std::min(kBeat, arguments_.silence / 4)),
      servers_(names_of_servers(arguments_.cluster), liveness::LostRank::kNone,
               {.rendezvous = arguments_.rendezvous, .silence = arguments_.silence}, clock.now()),
      sockets_(connect_to_servers(arguments_)),
      on_stop_(arguments_.stop, [this] { stop_within(stop_at_, Processes::kGrace); }) {
  const std::string hello = arguments_.cluster.describe();
  for (std::size_t server = 0; server < arguments_.cluster.ps_hosts.size(); ++server) {
    enqueue(
        {.server = server, .header = {.kind = MessageKind::hello}, .text = hello, .priority = 1});
  }
  thread_ = std::jthread([this] { run(); });
  std::unique_lock lock(mutex_);
  try {
    wait(lock, Time::max(), stop_at_, [&] { return servers_.all_arrived(); });
  } catch (...) {
    lock.unlock();
    leave(5);  // workers that have arrived need not wait
    throw;
  }
  phase_ = RankPhase::preparing;
}

ServerConnection::~ServerConnection() { leave(0); }

std::vector<std::string> ServerConnection::all_gather(std::string_view text, Nanoseconds patience,
                                                      std::string_view what) {
  std::unique_lock lock(mutex_);
  throw_failure();
  const std::string both[] = {std::string(what), std::string(text)};
  texts_.reset();
  enqueue({.server = 0,
           .header = {.kind = MessageKind::gather, .step = meeting_, .value = to_seconds(patience)},
           .text = join_texts(both),
           .priority = 1});
  wait(
      lock, clock_.now() + patience + kAfterServers, stop_at_, [&] { return texts_.has_value(); },
      [&] { return fmt::format("{}: not every worker came in time", what); });
  ++meeting_;
  return *std::exchange(texts_, std::nullopt);
}

void ServerConnection::leave(int exit_code) {
  {
    const std::lock_guard lock(mutex_);
    if (leaving_) return;
    leaving_ = true;
    outgoing_ = {};
    for (std::size_t server = 0; server < arguments_.cluster.ps_hosts.size(); ++server) {
      enqueue(
          {.server = server,
           .header = {.kind = MessageKind::goodbye, .key = static_cast<std::uint32_t>(exit_code)}});
    }
    wake_.signal();
  }
  if (thread_.joinable()) thread_.join();
  sockets_.reset();  // once the goodbyes have left
}

// ---- training ---------------------------------------------------------------

void ServerConnection::attach(std::stop_token stopping, std::stop_token abandon) {
  on_stopping_.emplace(std::move(stopping),
                       [this] { stop_within(training_stops_at_, Processes::kGrace); });
  on_abandon_.emplace(std::move(abandon),
                      [this] { stop_within(training_stops_at_, Nanoseconds::zero()); });
}

void ServerConnection::begin(const PartPlan& plan, ServerRule rule, const Tensor& weights,
                             const Tensor& running, const ResumedFrom& resumed) {
  {
    const std::lock_guard lock(mutex_);
    throw_failure();
    parts_.resize(plan.parts.size());
    step_ = static_cast<std::uint64_t>(resumed.step);
    const bool alone = rule == ServerRule::one_by_one || rule == ServerRule::on_arrival;
    const std::uint64_t updates =
        step_ * static_cast<std::uint64_t>(alone ? arguments_.cluster.workers() : 1);
    if (arguments_.task == 0) {
      for (std::size_t server = 0; server < arguments_.cluster.ps_hosts.size(); ++server) {
        const ModelLayout layout{rule, arguments_.optimizer, plan.parts};
        enqueue({.server = server,
                 .header = {.kind = MessageKind::layout},
                 .text = write_layout(layout, static_cast<std::int32_t>(server))});
      }
    }
    for (const Part& part : plan.parts) {
      const auto server = static_cast<std::size_t>(part.server);
      const Tensor& arena = part.fixed ? running : weights;
      PartState& known = parts_[part.key];
      known.owner = this;
      known.server = server;
      known.bytes = part.count * sizeof(float);
      known.step = step_;
      if (arguments_.task == 0) {
        for (std::size_t slot = 0; slot < resumed.state.slots && !part.fixed; ++slot) {
          enqueue({.server = server,
                   .header = {.kind = MessageKind::first, .key = part.key, .step = slot + 1},
                   .borrowed = std::as_bytes(part_of(resumed.state.arenas[slot], part))});
        }
        enqueue({.server = server,
                 .header = {.kind = MessageKind::first, .key = part.key, .version = updates},
                 .borrowed = std::as_bytes(part_of(arena, part))});
      }
      ask(part, arena, 0);
    }
    progress_ = clock_.now();
    wake_.signal();
  }
  static_cast<void>(await());
  // A push that is applied on arrival would change the initial weights of workers that have not
  // begun.
  all_gather("", arguments_.silence, "waiting for all workers to have the first weights");
  const std::lock_guard lock(mutex_);
  phase_ = RankPhase::training;
}

void ServerConnection::ask(const Part& part, const Tensor& arena, std::size_t number) {
  PartState& known = parts_[part.key];
  PENSTOCK_ASSERT(!known.requested);
  known.into = part_of(arena, part);
  known.requested = true;
  ++unanswered_;
  enqueue({.server = known.server,
           .header = {.kind = MessageKind::pull, .key = part.key, .step = number}});
}

void ServerConnection::pull(const PartPlan& plan, const Tensor& weights,
                            const OptimizerState& state) {
  for (std::size_t number = 0; number <= state.slots; ++number) {
    {
      const std::lock_guard lock(mutex_);
      throw_failure();
      for (const Part& part : plan.parts) {
        if (!part.fixed) ask(part, number == 0 ? weights : state.arenas[number - 1], number);
      }
      progress_ = clock_.now();
      wake_.signal();
    }
    static_cast<void>(await());
  }
}

void ServerConnection::push(const Push& push, const Terms& terms) {
  const std::lock_guard lock(mutex_);
  throw_failure();
  PENSTOCK_ASSERT(push.part < parts_.size());
  PartState& part = parts_[push.part];
  PENSTOCK_ASSERT(!part.requested && push.gradients.size_bytes() == part.bytes &&
                  push.into.size_bytes() == part.bytes);
  part.requested = true;
  part.into = push.into;
  if (unanswered_++ == 0) progress_ = clock_.now();
  enqueue({.server = part.server,
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
  step_ = std::max(step_, ++part.step);
  wake_.signal();
}

void ServerConnection::set_credit(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  credit_ = bytes;
}

ServerConnection::Answers ServerConnection::await() {
  std::unique_lock lock(mutex_);
  throw_failure();
  while (unanswered_ > 0) {
    const Time seen = progress_;
    wait(
        lock, seen + arguments_.silence + kAfterServers, training_stops_at_,
        [&] { return unanswered_ == 0 || progress_ != seen; },
        [&] {
          return fmt::format("the servers have not answered {} for {:g} s, at step {}",
                             arguments_.cluster.worker(arguments_.task),
                             to_seconds(arguments_.silence + kAfterServers), step_);
        });
  }
  return std::exchange(answers_, Answers{});
}

void ServerConnection::release() noexcept {
  try {
    std::unique_lock lock(mutex_);
    if (leaving_) return;
    const Time deadline = clock_.now() + kRelease;
    const auto settled = [&] { return unanswered_ == 0 && lent_.load() == 0; };
    releasing_ = true;
    wake_.signal();
    clock_.wait(lock, gate_, {},
                [&] { return failure_ != nullptr || settled() || clock_.now() >= deadline; });
    releasing_ = false;
    if (settled()) return;
    // The run has failed: a late answer must not write to the caller's memory.
    outgoing_ = {};
    dropping_ = true;
    wake_.signal();
    clock_.wait(lock, gate_, {}, [&] { return dropped_; });
  } catch (const std::exception&) {
    std::terminate();
  }
}

// ---- helpers of callers ------------------------------------------------------

void ServerConnection::stop_within(Time& moment, Nanoseconds grace) {
  const std::lock_guard lock(mutex_);
  moment = std::min(moment, clock_.now() + grace);
  wake_.signal();
}

void ServerConnection::throw_failure() const {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void ServerConnection::enqueue(Outgoing message) {
  message.order = next_order_++;
  message.header.task = static_cast<std::uint32_t>(arguments_.task);
  message.header.length = message.text.size() + message.borrowed.size();
  outgoing_.push(std::move(message));
}

void ServerConnection::wait(std::unique_lock<std::mutex>& lock, Time deadline, const Time& stops,
                            const std::function<bool()>& ready,
                            const std::function<std::string()>& late) {
  wait_until_ = deadline;
  wake_.signal();
  const auto ends = [&] { return std::min({deadline, stop_at_, stops}); };
  clock_.wait(lock, gate_, {},
              [&] { return failure_ != nullptr || ready() || clock_.now() >= ends(); });
  wait_until_.reset();
  if (ready()) return;  // even if the run ended soon after
  throw_failure();
  if (clock_.now() >= std::min(stop_at_, stops)) throw Error("the run is being stopped");
  throw TimeoutError(late());
}

// ---- the connection's thread -------------------------------------------------

void ServerConnection::run() noexcept {
  try {
    run_until_left();
    return;
  } catch (const ConfigError&) {  // the server does not accept the keys
    fail(std::current_exception());
  } catch (const std::exception& error) {
    fail(std::make_exception_ptr(Error("talking to parameter servers: {}", error.what())));
  }
  sockets_->drop();
  const std::lock_guard lock(mutex_);
  dropped_ = true;
  clock_.wake(gate_);
}

void ServerConnection::run_until_left() {
  while (true) {
    const Time now = clock_.now();
    send_beats(now);
    Nanoseconds limit = beat_;
    {
      const std::lock_guard lock(mutex_);
      const Time next =
          wait_until_ ? std::min({*wait_until_, stop_at_, training_stops_at_}) : Time::max();
      if (next > now) limit = std::min(limit, next - now);
      if (now >= next || releasing_) {
        clock_.wake(gate_);
        limit = kSoon;
      }
    }
    sockets_->wait(limit, wake_);
    receive_all();
    if (const auto ended = sockets_->ended(); !ended.empty()) {
      receive_all();  // it may have sent the reason
      const std::lock_guard lock(mutex_);
      for (const auto& [socket, connection] : ended) {
        servers_.closed(static_cast<std::int32_t>(socket));
      }
    }
    check_servers(clock_.now());
    send_what_may_go();
    const std::lock_guard lock(mutex_);
    if (dropping_ && !dropped_) {
      sockets_->drop();
      dropped_ = true;
      clock_.wake(gate_);
    }
    if (leaving_ && (outgoing_.empty() || dropped_)) return;
  }
}

void ServerConnection::receive_all() {
  net::Received message;
  while (sockets_->receive(message)) {
    take(message.socket, message.header, message.data);
    send_what_may_go();
  }
}

void ServerConnection::check_servers(Time now) {
  const std::lock_guard lock(mutex_);
  const std::vector<liveness::LostRank> lost = servers_.lost(now);
  if (lost.empty() || leaving_) return;
  fail_locked(std::make_exception_ptr(TimeoutError(to_text(lost))));
}

void ServerConnection::send_what_may_go() {
  while (true) {
    std::unique_lock lock(mutex_);
    if (outgoing_.empty() || dropped_) return;
    const Outgoing& next = outgoing_.top();
    const std::size_t unsent_bytes = unsent_.load();
    // One push goes out whatever its length. The limit counts bytes until they are sent, not until
    // they are answered: an answer waits for other workers, which may have begun with other parts.
    if (next.header.kind == MessageKind::push && credit_ > 0 && unsent_bytes > 0 &&
        unsent_bytes + next.borrowed.size() > credit_) {
      return;
    }
    Outgoing message = next;
    outgoing_.pop();
    lock.unlock();
    send(message);
  }
}

void ServerConnection::send(Outgoing& message) {
  if (message.borrowed.empty()) {
    return sockets_->send(message.server, {}, to_bytes(message.header), bytes_of(message.text),
                          nullptr);
  }
  const net::Borrowed borrowed{take_back, &parts_[message.header.key]};
  lent_.fetch_add(1);
  unsent_.fetch_add(message.borrowed.size());
  sockets_->send(message.server, {}, to_bytes(message.header), message.borrowed, &borrowed);
}

void ServerConnection::take_back(void*, void* hint) noexcept {
  const auto* const part = static_cast<const PartState*>(hint);
  ServerConnection& owner = *part->owner;
  owner.unsent_.fetch_sub(part->bytes);
  owner.lent_.fetch_sub(1);
  owner.wake_.signal();
}

void ServerConnection::fail(std::exception_ptr why) {
  const std::lock_guard lock(mutex_);
  fail_locked(std::move(why));
}

void ServerConnection::fail_locked(std::exception_ptr why) {
  if (failure_ == nullptr) failure_ = std::move(why);
  clock_.wake(gate_);
}

RankState ServerConnection::state() const {
  return {.phase = phase_, .step = static_cast<std::int64_t>(step_) - 1, .warm_up = -1};
}

void ServerConnection::send_beats(Time now) {
  if (now - beaten_ < beat_) return;
  beaten_ = now;
  const std::lock_guard lock(mutex_);
  if (leaving_) return;
  for (std::size_t server = 0; server < arguments_.cluster.ps_hosts.size(); ++server) {
    if (!servers_.has_arrived(static_cast<std::int32_t>(server))) continue;
    enqueue({.server = server,
             .header = {.kind = MessageKind::beat,
                        .key = static_cast<std::uint32_t>(phase_),
                        .step = step_},
             .priority = INT32_MAX});
  }
}

/// Checks a server's message as strictly as a server checks a worker's.
void ServerConnection::take(std::size_t server, std::span<const std::byte> bytes,
                            const net::Frame& data) {
  const auto task = static_cast<std::int32_t>(server);
  const std::string name = arguments_.cluster.server(task);
  try {
    const ServerHeader header = parse_header(bytes, data.bytes.size());
    const std::lock_guard lock(mutex_);
    servers_.heard(task, state(), clock_.now());
    switch (header.kind) {
      case MessageKind::welcome:
        servers_.arrived(task, name, clock_.now());
        break;
      case MessageKind::beat:
        return;
      case MessageKind::refused:
        return fail_locked(
            std::make_exception_ptr(ConfigError("{} refuses: {}", name, text_of(data.bytes))));
      case MessageKind::lost:
        return fail_locked(std::make_exception_ptr(TimeoutError(std::string(text_of(data.bytes)))));
      case MessageKind::gathered:
        if (header.step != meeting_) throw DataError("texts of another meeting");
        texts_ = split_texts(data.bytes, arguments_.cluster.worker_hosts.size());
        break;
      case MessageKind::answer:
        take_answer(header, data);
        break;
      default:
        throw DataError("{} to a worker", to_string(header.kind));
    }
    clock_.wake(gate_);
  } catch (const DataError& error) {
    fail(std::make_exception_ptr(Error("{}: {}", name, error.what())));
  }
}

/// Copies out of the message while it holds the lock; no other thread needs the lock for long.
void ServerConnection::take_answer(const ServerHeader& header, const net::Frame& data) {
  if (header.key >= parts_.size() || !parts_[header.key].requested) {
    throw DataError("an answer for part {}, which was not asked for", header.key);
  }
  PartState& part = parts_[header.key];
  if (data.bytes.size() != part.into.size_bytes()) {
    throw DataError("an answer of {} bytes; expected {}", data.bytes.size(),
                    part.into.size_bytes());
  }
  if (!data.bytes.empty()) std::memcpy(part.into.data(), data.bytes.data(), data.bytes.size());
  part.requested = false;
  part.version = header.version;
  answers_.value += header.value;
  if (header.key == 0) answers_.staleness = static_cast<std::int64_t>(header.step);
  --unanswered_;
  progress_ = clock_.now();
}

// ---- as processes ------------------------------------------------------------

std::unique_ptr<Processes> make_worker_processes(ServerConnection& connection) {
  return std::make_unique<WorkerProcesses>(connection);
}

}  // namespace penstock::cluster
