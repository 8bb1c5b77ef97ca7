// SPDX-License-Identifier: Apache-2.0
// The options of zmq-consume, and what they come to: where batches come from, in which formats, and
// how many may wait. Stateless: all functions may run on any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dataflow/options.h"
#include "dataflow/wire/batch_message.h"
#include "feeders/zmq_socket.h"

namespace penstock {

struct ConsumeEndpoint {
  Endpoint endpoint;
  bool bind = true;  ///< else connect
};

struct ConsumePlan {
  std::vector<ConsumeEndpoint> endpoints;
  ZmqSocketOptions socket{};              ///< of each endpoint, but for `bind`
  std::optional<MessageFormat> format{};  ///< empty: messages say it themselves
  std::int32_t receivers = 1;             ///< threads
  std::int32_t producers = 0;             ///< whose end is that of the data; 0: there is none
  bool keep_memory = true;                ///< by malloc, for the next messages
  std::string producer;                   ///< a shell command; empty: none

  /// Do all endpoints lie where only this machine's processes reach them?
  bool is_on_one_machine() const noexcept;
  /// Messages that this process holds outside the ring at most, of one producer: those in the
  /// socket, one that libzmq is receiving, and one in each receiver's hands.
  std::int64_t most_messages() const noexcept { return socket.hwm + 1 + receivers; }
  /// The same in bytes, if they are as large as they may be.
  std::int64_t most_bytes() const noexcept;
  /// More than those of messages that are let in, what libzmq and CURVE add among them.
  std::int64_t flood_bytes() const noexcept;
  /// Batches of one producer that may lie ready outside the ring, this process and its own taken
  /// together, while the ring is full: both sockets, one message under way and one being received.
  /// The producer's hwm is taken to be ours.
  std::int64_t most_waiting() const noexcept { return 2 * socket.hwm + 2; }
};

inline constexpr OptionSpec kConsumeOptions[] = {
    {"endpoint", "ipc://testpipe",
     "address: ipc://PATH, ipc://@NAME or tcp://HOST:PORT; several: A+B+bind:C+connect:D"},
    {"bind", "true", "bind the address, so that producers connect; false: connect to the producer"},
    {"hwm", "8", "messages that may wait in the socket, per producer"},
    {"buffer", "", "bytes of batches that may wait per producer, such as 256MiB, instead of hwm"},
    {"receivers", "1", "threads that check and copy messages; they receive one at a time"},
    {"max_message", "auto", "largest message in bytes; auto: four batches"},
    {"io_threads", "1", "I/O threads of libzmq per endpoint"},
    {"format", "auto",
     "message format: zmq_op, pickle, msgpack, numpy-frames, framed or auto (by the first bytes of "
     "each message)"},
    {"credit", "0", "batches that each producer may have in flight; 0: no credit, producers push"},
    {"credit_together", "auto",
     "with credit: batches in flight of all producers together; auto: no such limit"},
    {"max_producers", "64", "with credit: producers that may be connected at once"},
    {"shared_memory", "false",
     "with credit: accept only producers that share memory (penstock serve --shared-memory)"},
    {"copy", "false",
     "with credit: copy batches from shared memory into slots, instead of lending them to the "
     "device"},
    {"max_pool", "auto",
     "with credit: largest shared memory of a producer, in bytes; auto: 256 batches"},
    {"producers", "0", "number of framed producers after whose end the data end; 0: never"},
    {"keep_memory", "true",
     "keep the memory of messages for reuse, in the whole process; false: default of glibc"},
    {"producer", "",
     "shell command that starts a producer for the run, such as 'penstock serve'; default: none"},
    {"curve_secret", "", kCurveSecretHelp},
    {"curve_allow", "", kCurveAllowHelp},
    {"curve_server_key", "", kCurveServerKeyHelp},
    {"insecure", "false", "allow binding tcp:// without keys where other machines can connect"},
};

/// Throws ConfigError, before any socket is opened.
ConsumePlan read_consume_plan(const Options& options, const BatchSpec& spec);

/// The socket for `credit`, but for its role and hwm, of the plan that `options` say. Throws
/// ConfigError for those that say nothing with credit.
ZmqSocketOptions read_credit_socket(const Options& options, const ConsumePlan& plan);

/// "up to 18 batches (1152 images, 173 MB) of each producer wait outside the ring: ...".
std::string describe_waiting(const ConsumePlan& plan, const BatchSpec& spec);

/// "ipc://a+connect:tcp://host:5555": endpoints, each with `bind:` or `connect:` before it where it
/// is not as `bind` says. A '+' parts two where an endpoint begins behind it, and is part of a name
/// elsewhere. Throws ConfigError.
std::vector<ConsumeEndpoint> parse_endpoints(std::string_view text, bool bind);

}  // namespace penstock
