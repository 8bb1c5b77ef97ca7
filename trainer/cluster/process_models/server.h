// SPDX-License-Identifier: Apache-2.0
// Answers requests of other processes for the models of this process's ranks, on a separate thread.
// Processes of this host connect over an abstract Unix socket, those of other hosts over TCP with
// CURVE.
//
// A request gets no answer if it lacks the server's token, has another form, or asks for a rank of
// another process. Such requests and readers that never fetch their reply block no other process:
// replies are copies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "dataflow/net/curve_setup.h"
#include "dataflow/probe.h"

namespace penstock::cluster {

/// A server draws it at its start and tells it only to the processes of the run. A request without
/// it gets no answer.
using ModelToken = std::array<std::uint8_t, 16>;

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
  /// Listens, and starts the thread. `models` and `refused`, which counts requests without an
  /// answer, outlive the server. Other hosts can connect only if it has a CURVE server's keys.
  ModelServer(PublishedModels& models, Counter& refused, const net::CurveSetup& network);
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
