// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/servers/process_models.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "dataflow/error.h"
#include "trainer/cluster/servers/model_client.h"

namespace penstock::cluster {
namespace {

using Json = nlohmann::json;

ModelToken draw_token() {
  ModelToken token{};
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size())) {
    throw Unavailable("drawing a token for the model server: the kernel gives no random bytes");
  }
  return token;
}

/// Memory of replies. libzmq returns it from one of its threads.
class ReplyMemory {
 public:
  struct Block {
    ReplyMemory* home;
    std::unique_ptr<float[]> elements;
    std::size_t size;
  };
  Block* take(std::size_t elements) {
    {
      const std::lock_guard lock(mutex_);
      const auto fits = [&](const auto& block) { return block->size >= elements; };
      const auto found = std::find_if(free_.begin(), free_.end(), fits);
      if (found != free_.end()) {
        Block* const block = found->release();
        free_.erase(found);
        return block;
      }
    }
    return new Block{this, std::make_unique<float[]>(elements), elements};  // NOLINT: libzmq's
  }
  static void give_back(void*, void* hint) noexcept {
    std::unique_ptr<Block> block(static_cast<Block*>(hint));
    ReplyMemory& home = *block->home;
    const std::lock_guard lock(home.mutex_);
    home.free_.push_back(std::move(block));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> free_;
};

/// The ranks' devices, and one for the thread that reads for other processes.
std::vector<Device*> with_server(std::span<Device* const> devices) {
  std::vector<Device*> all(devices.begin(), devices.end());
  all.push_back(devices.front());
  return all;
}

/// The models of this process's ranks. The ranks' threads publish and read, the server's thread
/// copies.
class LocalModels {
 public:
  explicit LocalModels(const ProcessModels& parts)
      : ranks_(static_cast<std::int32_t>(parts.devices.size())),
        first_(parts.processes.launch().rank * ranks_),
        snapshots_(with_server(parts.devices), parts.clock, parts.abandon),
        stream_(parts.devices.front()->make_stream()),
        copied_(parts.devices.front()->make_event()),
        elements_(parts.devices.size()) {}

  std::int32_t ranks() const noexcept { return ranks_; }
  /// The rank's number in this process. Nothing: it is a rank of another process.
  std::optional<std::int32_t> local(std::int32_t rank) const {
    if (rank < first_ || rank >= first_ + ranks_) return std::nullopt;
    return rank - first_;
  }
  /// These take the number in this process.
  void publish(std::int32_t rank, std::int64_t version, const Tensor& weights, Stream& stream) {
    snapshots_.publish(rank, version, weights, stream);
    const std::lock_guard lock(mutex_);
    elements_[static_cast<std::size_t>(rank)] = weights.count;
  }
  std::optional<std::int64_t> read(std::int32_t reader, std::int32_t owner, const Tensor& into,
                                   Stream& stream) {
    return snapshots_.read(reader, owner, into, stream);
  }

  /// The length of that rank's models. Nothing: it is not a rank of this process, or has published
  /// none.
  std::optional<std::size_t> elements(std::int32_t owner) {
    const std::optional<std::int32_t> index = local(owner);
    if (!index) return std::nullopt;
    const std::lock_guard lock(mutex_);
    return elements_[static_cast<std::size_t>(*index)];
  }
  /// Copies the rank's newest model and returns its version. `into` is as long as `elements`
  /// returned.
  std::int64_t copy_newest(std::int32_t owner, std::span<float> into) {
    const auto version =
        snapshots_.read(ranks_, *local(owner), {into.data(), into.size()}, *stream_);
    stream_->record(*copied_);
    copied_->wait_until(Time::max());
    PENSTOCK_ASSERT(version.has_value());
    return *version;
  }

 private:
  const std::int32_t ranks_, first_;
  ThreadsModelStore snapshots_;  // its last reader is the server's thread
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Event> copied_;
  std::mutex mutex_;
  std::vector<std::optional<std::size_t>> elements_;  // of the published models
};

/// Answers requests of other processes for the models of this process's ranks, on a separate
/// thread. Processes of this host connect over an abstract Unix socket, those of other hosts over
/// TCP with CURVE.
///
/// A request gets no answer if it lacks the server's token, has another form, or asks for a rank of
/// another process. Such requests and readers that never fetch their reply block no other process:
/// replies are copies.
class ModelServer {
 public:
  /// Listens, and starts the thread. `models` and `refused`, which counts requests without an
  /// answer, outlive the server. Other hosts can connect only if it has a CURVE server's keys.
  /// Throws SocketError.
  ModelServer(LocalModels& models, Counter& refused, const net::CurveSetup& network)
      : models_(models), refused_(refused), token_(draw_token()), sockets_(network, {}, 1) {
    endpoint_ = fmt::format("ipc://@penstock-models-{}-", getpid());
    for (const std::uint8_t byte : draw_token()) endpoint_ += fmt::format("{:02x}", byte);
    sockets_.listen(endpoint_, kLimits);
    if (network) {
      const std::string bound = sockets_.endpoint(sockets_.listen("tcp://0.0.0.0:*", kLimits));
      const char* const begin = bound.data() + bound.rfind(':') + 1;
      std::from_chars(begin, bound.data() + bound.size(), port_);
      PENSTOCK_ASSERT(port_ != 0);
    }
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  ModelServer(const ModelServer&) = delete;
  ModelServer& operator=(const ModelServer&) = delete;
  ~ModelServer() {
    thread_.request_stop();
    wake_.signal();
  }

  const std::string& local_endpoint() const noexcept { return endpoint_; }  // "ipc://@..."
  std::uint16_t port() const noexcept { return port_; }  // for other hosts; 0: none
  const ModelToken& token() const noexcept { return token_; }
  /// Rethrows the exception that ended the thread early.
  void check() const {
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(failure_);
  }

 private:
  /// Requests are far shorter than the limit. A reader sends one request at a time, but libzmq
  /// learns only now and then which replies have left: with a limit of 8 or less it sometimes takes
  /// the queue of a fast reader for full, and drops the reply.
  static constexpr net::SocketLimits kLimits{
      .frame = net::kTransportBytes, .queued = 64, .watched = false, .linger = {}};
  /// A wait ends at a request or at the end of the server.
  static constexpr Nanoseconds kForever = std::chrono::hours(1);

  void run(const std::stop_token& stop) {
    try {
      while (!stop.stop_requested()) {
        net::Received message;
        while (!stop.stop_requested() && sockets_.receive(message)) answer(message);
        if (!stop.stop_requested()) sockets_.wait(kForever, wake_);
      }
    } catch (...) {
      failure_ = std::current_exception();
      failed_.store(true, std::memory_order_release);
    }
  }

  void answer(const net::Received& message) {
    try {
      if (message.frames > 2) return refused_.add();
      const ServerHeader request = parse_header(message.header, message.data.bytes.size());
      if (request.kind != MessageKind::read_model ||
          !std::ranges::equal(message.data.bytes, std::as_bytes(std::span(token_)))) {
        return refused_.add();
      }
      reply(message, request);
    } catch (const DataError&) {
      refused_.add();
    }
  }

  void reply(const net::Received& to, const ServerHeader& request) {
    ServerHeader header{.kind = MessageKind::no_model, .key = request.key, .step = request.step};
    const auto owner = static_cast<std::int32_t>(request.key);
    const std::optional<std::size_t> elements = models_.elements(owner);
    if (!elements) return sockets_.send(to.socket, to.peer, to_bytes(header), {}, nullptr);
    ReplyMemory::Block* const block = memory_.take(*elements);
    const std::span<float> model(block->elements.get(), *elements);
    header.kind = MessageKind::model;
    header.version = static_cast<std::uint64_t>(models_.copy_newest(owner, model));
    header.length = model.size_bytes();
    const net::Borrowed borrowed{ReplyMemory::give_back, block};
    sockets_.send(to.socket, to.peer, to_bytes(header), std::as_bytes(model), &borrowed);
  }

  LocalModels& models_;
  Counter& refused_;
  const ModelToken token_;
  EventFd wake_;
  ReplyMemory memory_;           // outlives the sockets
  net::MessageSockets sockets_;  // used only by the thread, once it runs
  std::string endpoint_;
  std::uint16_t port_ = 0;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
  std::jthread thread_;  // last: it ends first
};

std::vector<Json> exchange(Processes& processes, const Json& mine) {
  std::vector<Json> all;
  for (const std::string& text :
       processes.all_gather(mine.dump(-1, ' ', false, Json::error_handler_t::replace),
                            Processes::kRendezvous, "telling each other where models are read")) {
    all.push_back(Json::parse(text));
  }
  return all;
}

class ProcessModelStore final : public ModelStore {
 public:
  explicit ProcessModelStore(const ProcessModels& parts) : models_(parts) {
    const net::CurveKeys keys = net::has_curve() ? net::make_curve_keys() : net::CurveKeys{};
    const std::vector<Json> hosts =
        exchange(parts.processes, {{"host", parts.host.identity}, {"public_key", keys.public_key}});
    const auto is_on_this_host = [&](const Json& other) {
      return other.at("host").get<std::string>() == parts.host.identity;
    };
    net::CurveSetup network;
    if (!std::all_of(hosts.begin(), hosts.end(), is_on_this_host))
      network = network_of(keys, hosts);
    try {
      server_ = std::make_unique<ModelServer>(
          models_, parts.probe.counter("model_requests_refused"), network);
    } catch (const net::SocketError& error) {
      throw Unavailable(
          "opening the sockets of the model server: {}; is the process out of file descriptors?",
          error.what());
    }
    const std::vector<Json> servers =
        exchange(parts.processes, {{"name", parts.host.name},
                                   {"endpoint", server_->local_endpoint()},
                                   {"addresses", parts.host.addresses},
                                   {"port", server_->port()},
                                   {"token", server_->token()}});
    std::vector<ModelServerAddress> addresses;
    for (std::size_t process = 0; process < servers.size(); ++process) {
      const Json& server = servers[process];
      const bool here = is_on_this_host(hosts[process]);
      addresses.push_back({.host = server.at("name"),
                           .endpoint = here ? server.at("endpoint").get<std::string>() : "",
                           .addresses = server.at("addresses"),
                           .port = server.at("port"),
                           .public_key = hosts[process].at("public_key"),
                           .token = server.at("token")});
    }
    for (Device* const device : parts.devices) {
      readers_.push_back(
          std::make_unique<Reader>(ModelClient::Settings{.servers = addresses,
                                                         .own = keys,
                                                         .own_addresses = parts.host.addresses,
                                                         .patience = parts.patience,
                                                         .stopping = parts.stopping,
                                                         .abandon = parts.abandon},
                                   device->make_event()));
    }
  }

  void publish(std::int32_t rank, std::int64_t version, const Tensor& weights,
               Stream& stream) override {
    server_->check();
    const std::optional<std::int32_t> index = models_.local(rank);
    PENSTOCK_ASSERT(index.has_value());
    models_.publish(*index, version, weights, stream);
  }

  std::optional<std::int64_t> read(std::int32_t reader, std::int32_t owner, const Tensor& into,
                                   Stream& stream) override {
    const std::optional<std::int32_t> index = models_.local(reader);
    PENSTOCK_ASSERT(index.has_value() && into.dtype == DType::f32);
    if (const auto here = models_.local(owner)) return models_.read(*index, *here, into, stream);
    Reader& own = *readers_[static_cast<std::size_t>(*index)];
    own.copied->wait_until(Time::max());  // the previous read no longer uses its frames
    const auto model = own.client.read(owner / models_.ranks(), owner, into.count);
    if (!model) return std::nullopt;
    if (into.count > 0) stream.copy(bytes_of(into), model->bytes);
    stream.record(*own.copied);
    return model->version;
  }

 private:
  struct Reader {
    Reader(ModelClient::Settings settings, std::unique_ptr<Event> event)
        : client(std::move(settings)), copied(std::move(event)) {}
    ModelClient client;
    std::unique_ptr<Event> copied;
  };

  static net::CurveSetup network_of(const net::CurveKeys& keys, const std::vector<Json>& hosts) {
    net::CurveSetup network{.role = net::CurveSetup::Role::server, .own = keys};
    for (const Json& host : hosts) {
      const std::string key = host.at("public_key");
      if (key.empty()) {
        throw Unavailable(
            "reading models between hosts: libzmq was built without CURVE on one of them, but "
            "models are sent over a network only encrypted; use Debian's libzmq5, or sync-sgd or "
            "sma");
      }
      network.admission.keys.push_back(key);
    }
    return network;
  }

  LocalModels models_;
  std::vector<std::unique_ptr<Reader>> readers_;  // by local rank
  std::unique_ptr<ModelServer> server_;           // last: its thread ends first
};

}  // namespace

std::unique_ptr<ModelStore> make_process_models(const ProcessModels& parts) {
  return std::make_unique<ProcessModelStore>(parts);
}

}  // namespace penstock::cluster
