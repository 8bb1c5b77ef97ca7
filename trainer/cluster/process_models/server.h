// SPDX-License-Identifier: Apache-2.0
// Answers other processes that ask for the models of this one's ranks, on a thread of its own:
// those of this host over an abstract Unix socket, those of other hosts over TCP with CURVE.
//
// Requests without the server's token, of another form, or for others' ranks get no answer. Neither
// they nor readers that never fetch their reply hold anybody up: replies are copies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataflow/probe.h"
#include "dataflow/zmq_security.h"
#include "trainer/process_models/messages.h"

namespace penstock {

/// What a server hands out; called from its thread.
class PublishedModels {
 public:
  virtual ~PublishedModels() = default;
  /// How long that rank's models are; nothing: it is no rank of this process, or has published
  /// none.
  virtual std::optional<std::size_t> elements(std::int32_t owner) = 0;
  /// Copies its newest one and returns the version. `into` is as long as `elements` said.
  virtual std::int64_t copy_newest(std::int32_t owner, std::span<float> into) = 0;
};

class ModelServer {
 public:
  /// Who may come in from other hosts.
  struct Network {
    CurveKeys own;
    std::vector<std::string> admitted;  ///< public keys
  };
  /// Listens, and starts the thread. `models` and `refused`, which counts requests that got no
  /// answer, outlive the server. Without `network` no other host can connect.
  ModelServer(PublishedModels& models, Counter& refused, const std::optional<Network>& network);
  ~ModelServer();

  const std::string& local_endpoint() const noexcept;  ///< "ipc://@..."
  std::uint16_t port() const noexcept;                 ///< for other hosts; 0: none
  const ModelToken& token() const noexcept;
  /// Rethrows what ended its thread before its time.
  void check() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
