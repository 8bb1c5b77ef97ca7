// SPDX-License-Identifier: Apache-2.0
// One rank's connections to the model servers of other processes, made when they are first needed.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/zmq_security.h"
#include "trainer/process_models/messages.h"

namespace penstock {

/// Where a process answers.
struct ModelServerAddress {
  std::string host{};      ///< its name, for messages
  std::string endpoint{};  ///< "ipc://@..." of a process on this host; empty: it is on another one
  std::vector<std::string> addresses{};  ///< of another host, IPv4
  std::uint16_t port = 0;                ///< there
  std::string public_key{};              ///< of the server there
  ModelToken token{};
};

class ModelClient {
 public:
  struct Settings {
    std::vector<ModelServerAddress> servers;  ///< by process; one's own is never asked
    CurveKeys own;                            ///< where servers are on other hosts
    std::vector<std::string> own_addresses;   ///< IPv4; those of others are preferred
    Nanoseconds patience;
    std::stop_token stopping, abandon;
  };
  explicit ModelClient(Settings settings);
  ~ModelClient();

  struct Model {
    std::int64_t version = 0;
    std::span<const std::byte> bytes;  ///< until the next call
  };
  /// The newest model of `elements` f32 that `owner`, a rank of `process`, has published; nothing:
  /// it has none. Blocks until it is here. Throws TimeoutError, which says who did not answer,
  /// after `patience`, and Error after a stop request or where the model is of another length.
  std::optional<Model> read(std::int32_t process, std::int32_t owner, std::size_t elements);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
