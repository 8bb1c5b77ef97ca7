// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "dataflow/error.h"
#include "trainer/cluster/process_models.h"
#include "trainer/cluster/process_models/client.h"
#include "trainer/cluster/process_models/server.h"

namespace penstock::cluster {
namespace {

using Json = nlohmann::json;

std::vector<Json> exchange(Processes& processes, const Json& mine) {
  std::vector<Json> all;
  for (const std::string& text :
       processes.all_gather(mine.dump(-1, ' ', false, Json::error_handler_t::replace),
                            Processes::kRendezvous, "telling each other where models are read")) {
    all.push_back(Json::parse(text));
  }
  return all;
}

/// The ranks' devices, and one for the thread that reads for other processes.
std::vector<Device*> with_server(std::span<Device* const> devices) {
  std::vector<Device*> all(devices.begin(), devices.end());
  all.push_back(devices.front());
  return all;
}

class ProcessModelStore final : public ModelStore, private PublishedModels {
 public:
  explicit ProcessModelStore(const ProcessModels& parts)
      : local_ranks_(static_cast<std::int32_t>(parts.devices.size())),
        first_(parts.processes.launch().rank * local_ranks_),
        snapshots_(with_server(parts.devices), parts.clock, parts.abandon),
        stream_(parts.devices.front()->make_stream()),
        copied_(parts.devices.front()->make_event()),
        elements_(parts.devices.size()) {
    const net::CurveKeys keys = net::has_curve() ? net::make_curve_keys() : net::CurveKeys{};
    const std::vector<Json> hosts =
        exchange(parts.processes, {{"host", parts.host.identity}, {"public_key", keys.public_key}});
    const auto is_here = [&](const Json& other) {
      return other.at("host").get<std::string>() == parts.host.identity;
    };
    net::CurveSetup network;
    if (!std::all_of(hosts.begin(), hosts.end(), is_here)) network = network_of(keys, hosts);
    PublishedModels& published = *this;
    server_ = std::make_unique<ModelServer>(published,
                                            parts.probe.counter("model_requests_refused"), network);
    const std::vector<Json> servers =
        exchange(parts.processes, {{"name", parts.host.name},
                                   {"endpoint", server_->local_endpoint()},
                                   {"addresses", parts.host.addresses},
                                   {"port", server_->port()},
                                   {"token", server_->token()}});
    std::vector<ModelServerAddress> addresses;
    for (std::size_t process = 0; process < servers.size(); ++process) {
      const Json& server = servers[process];
      const bool here = is_here(hosts[process]);
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
    const std::optional<std::size_t> index = local(rank);
    PENSTOCK_ASSERT(index.has_value());
    snapshots_.publish(static_cast<std::int32_t>(*index), version, weights, stream);
    const std::lock_guard lock(mutex_);
    elements_[*index] = weights.count;
  }

  std::optional<std::int64_t> read(std::int32_t reader, std::int32_t owner, const Tensor& into,
                                   Stream& stream) override {
    const std::optional<std::size_t> index = local(reader);
    PENSTOCK_ASSERT(index.has_value() && into.dtype == DType::f32);
    if (const auto here = local(owner)) {
      return snapshots_.read(static_cast<std::int32_t>(*index), static_cast<std::int32_t>(*here),
                             into, stream);
    }
    Reader& own = *readers_[*index];
    own.copied->wait_until(Time::max());  // the previous read no longer uses its frames
    const auto model = own.client.read(owner / local_ranks_, owner, into.count);
    if (!model) return std::nullopt;
    if (into.count > 0) {
      stream.copy({static_cast<std::byte*>(into.data), model->bytes.size()}, model->bytes);
    }
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
  std::optional<std::size_t> local(std::int32_t rank) const {
    if (rank < first_ || rank >= first_ + local_ranks_) return std::nullopt;
    return static_cast<std::size_t>(rank - first_);
  }

  std::optional<std::size_t> elements(std::int32_t owner) override {
    const std::optional<std::size_t> index = local(owner);
    if (!index) return std::nullopt;
    const std::lock_guard lock(mutex_);
    return elements_[*index];
  }
  std::int64_t copy_newest(std::int32_t owner, std::span<float> into) override {
    const auto index = static_cast<std::int32_t>(*local(owner));
    const auto version = snapshots_.read(local_ranks_, index, {into.data(), into.size()}, *stream_);
    stream_->record(*copied_);
    copied_->wait_until(Time::max());
    PENSTOCK_ASSERT(version.has_value());
    return *version;
  }

  const std::int32_t local_ranks_, first_;
  ThreadsModelStore snapshots_;  // its last reader is the server's thread
  const std::unique_ptr<Stream> stream_;
  const std::unique_ptr<Event> copied_;
  std::mutex mutex_;
  std::vector<std::optional<std::size_t>> elements_;  // of the published models, by local rank
  std::vector<std::unique_ptr<Reader>> readers_;      // by local rank
  std::unique_ptr<ModelServer> server_;               // last: its thread ends first
};

}  // namespace

std::unique_ptr<ModelStore> make_process_models(const ProcessModels& parts) {
  return std::make_unique<ProcessModelStore>(parts);
}

}  // namespace penstock::cluster
