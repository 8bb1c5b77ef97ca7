// SPDX-License-Identifier: Apache-2.0
// Answers requests of other processes for the models of this process's ranks, on a separate thread.
// Processes of this host connect over an abstract Unix socket, those of other hosts over TCP with
// CURVE.
//
// A request gets no answer if it lacks the server's token, has another form, or asks for a rank of
// another process. Such requests and readers that never fetch their reply block no other process:
// replies are copies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataflow/net/zmq_security.h"
#include "dataflow/probe.h"
#include "trainer/cluster/process_models/messages.h"

namespace penstock::cluster {

/// The models that a server offers. The server's thread calls it.
class PublishedModels {
 public:
  virtual ~PublishedModels() = default;
  /// The length of that rank's models. Nothing: it is not a rank of this process, or has published
  /// none.
  virtual std::optional<std::size_t> elements(std::int32_t owner) = 0;
  /// Copies the rank's newest model and returns its version. `into` is as long as `elements`
  /// returned.
  virtual std::int64_t copy_newest(std::int32_t owner, std::span<float> into) = 0;
};

class ModelServer {
 public:
  /// Access from other hosts.
  struct Network {
    net::CurveKeys own;
    std::vector<std::string> admitted;  ///< public keys that may connect
  };
  /// Listens, and starts the thread. `models` and `refused`, which counts requests without an
  /// answer, outlive the server. Without `network` no other host can connect.
  ModelServer(PublishedModels& models, Counter& refused, const std::optional<Network>& network);
  ~ModelServer();

  const std::string& local_endpoint() const noexcept;  ///< "ipc://@..."
  std::uint16_t port() const noexcept;                 ///< for other hosts; 0: none
  const ModelToken& token() const noexcept;
  /// Rethrows the exception that ended the thread early.
  void check() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock::cluster
