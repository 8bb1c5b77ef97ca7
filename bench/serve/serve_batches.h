// SPDX-License-Identifier: Apache-2.0
// Serves the batches of a feeder, or a data set's image files, as `penstock serve` does.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "bench/config/run_config.h"
#include "bench/run/runner.h"
#include "bench/serve/serve_processes.h"
#include "dataflow/net/curve_setup.h"
#include "feeders/remote/receive/zmq_message.h"
#include "feeders/remote/receive/zmq_socket.h"
#include "feeders/remote/send/sender.h"

namespace penstock::serve {

struct ServeConfig {
  RunConfig run;
  std::string endpoint = "ipc://testpipe";
  remote::ZmqSocketOptions socket{.role = remote::ZmqSocketOptions::Role::push,
                                  .bind = false,
                                  .send_buffer = remote::kSendBuffer};
  net::CurveFiles keys;
  remote::MessageFormat format = remote::MessageFormat::zmq_op;
  bool checksum = false;
  remote::PushPlan plan{.timeout = std::chrono::hours(24 * 365)};
  bool encoded = false;
  std::int64_t epochs = -1;
  ServeGroup group;
  bool ends_with_consumer = false;
  bool benchmark = false;
  bool credit = false, shared_memory = false;

  bool by_credit() const noexcept { return credit || shared_memory; }
};

/// The batches of the feeder; those of a Python loader have their own shape.
BatchSpec served_batches(const ServeConfig& config, const Runner::Components& components);
/// Can only framed messages hold such batches?
bool needs_framed(const BatchSpec& spec);

/// Serves until the plan is done or a stop is requested, and reports progress on standard error.
/// `config.run` is resolved. Until batches are made, a stop request calls `leave`, which ends the
/// process. Throws what feeder and sender throw.
void serve_batches(const ServeConfig& config, const Runner::Components& components,
                   const std::stop_token& stop, const std::function<void()>& leave);

}  // namespace penstock::serve
