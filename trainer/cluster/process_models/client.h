// SPDX-License-Identifier: Apache-2.0
// One rank's connections to the model servers of other processes; each is made on first use.
//
// Thread-safety: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/net/zmq_security.h"

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
  ~ModelClient();

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
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::cluster
