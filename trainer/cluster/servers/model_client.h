// SPDX-License-Identifier: Apache-2.0
// Reads models from the model servers of other processes, over ZeroMQ; process_models.h says when.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/machine/file_descriptor.h"
#include "dataflow/net/message_sockets.h"
#include "dataflow/net/zmq_security.h"
#include "trainer/cluster/servers/message.h"

namespace penstock::cluster {

/// A server draws it at its start and tells it only to the processes of the run. A request without
/// it gets no answer.
using ModelToken = std::array<std::uint8_t, 16>;

/// The address of a process's model server.
struct ModelServerAddress {
  std::string host{};                    ///< host name, for messages
  std::string endpoint{};                ///< "ipc://@..." on this host; empty: another host
  std::vector<std::string> addresses{};  ///< IPv4 addresses of another host
  std::uint16_t port = 0;                ///< port on that host
  std::string public_key{};              ///< public key of that server
  ModelToken token{};
};

/// One rank's connections to the model servers of other processes; each is made on first use.
///
/// Thread-safety: one thread at a time.
class ModelClient {
 public:
  struct Settings {
    std::vector<ModelServerAddress> servers;  ///< by process; the own entry is unused
    net::CurveKeys own;                       ///< used if servers are on other hosts
    std::vector<std::string> own_addresses;   ///< IPv4 of this host; tried last
    Nanoseconds patience;
    std::stop_token stopping, abandon;
  };
  explicit ModelClient(Settings settings);
  ModelClient(const ModelClient&) = delete;
  ModelClient& operator=(const ModelClient&) = delete;

  struct Model {
    std::int64_t version = 0;
    std::span<const std::byte> bytes;  ///< valid until the next call
  };
  /// Reads the newest model of `elements` f32 that `owner`, a rank of `process`, has published;
  /// nothing: it has published none. Blocks until the model is here. Throws TimeoutError, which
  /// names the silent process, after `patience`. Throws Error after a stop request, or if the model
  /// has another length.
  std::optional<Model> read(std::int32_t process, std::int32_t owner, std::size_t elements);

 private:
  const ModelServerAddress& server(std::int32_t process) const {
    return settings_.servers.at(static_cast<std::size_t>(process));
  }
  void throw_if_stopped() const;
  std::size_t connection(std::int32_t process, std::size_t elements, Time deadline);
  std::string network_endpoint(const ModelServerAddress& to, Time deadline) const;
  std::optional<ServerHeader> await_reply(Time deadline);
  std::optional<ServerHeader> parse_reply() const;

  const Settings settings_;
  EventFd stop_;
  std::uint64_t number_ = 0;  // of the latest request
  net::MessageSockets sockets_;
  std::map<std::int32_t, std::size_t> connections_;  // sockets, by process
  net::Received message_;
  std::stop_callback<std::function<void()>> on_stopping_, on_abandon_;
};

}  // namespace penstock::cluster
