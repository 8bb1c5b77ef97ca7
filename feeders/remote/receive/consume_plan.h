// SPDX-License-Identifier: Apache-2.0
// Parses the options of zmq-consume: endpoints, message formats, credit, image files, and how many
// batches may wait.
// Stateless: any thread may call any function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dataflow/options.h"
#include "feeders/image_decoding.h"
#include "feeders/pixel_options.h"
#include "feeders/remote/receive/zmq_socket.h"
#include "feeders/remote/wire/batch_message.h"

namespace penstock::remote {

struct ConsumeEndpoint {
  net::Endpoint endpoint;
  bool bind = true;  ///< false: connect
};

/// What producers with credit may do.
struct CreditTerms {
  std::int64_t credit = 1;     ///< limit of batches in flight, per producer
  std::int64_t together = 1;   ///< limit of batches in flight, of all producers
  std::int64_t producers = 1;  ///< limit of producers at once
  std::uint64_t max_pool = 0;  ///< largest shared memory of a producer, in bytes
  bool shared_only = false;    ///< accept only producers that share memory
  bool copies = false;         ///< copy batches from shared memory, instead of lending them
};

struct ConsumePlan {
  std::vector<ConsumeEndpoint> endpoints;
  ZmqSocketOptions socket{};              ///< for every endpoint, except `bind`
  std::optional<MessageFormat> format{};  ///< empty: detected for each message
  std::int32_t receivers = 1;             ///< threads that check and copy messages
  std::int32_t producers = 0;             ///< the data end after as many ends; 0: never
  bool keep_memory = true;                ///< malloc keeps freed memory for later messages
  std::string producer;                   ///< shell command that starts a producer; empty: none
  std::optional<CreditTerms> credit{};    ///< empty: producers push
  bool image_files = false;               ///< messages hold image files
  std::int64_t held = 0;  ///< messages of image files that wait for decoding; not with credit

  /// Whether only processes of this machine can reach the endpoints.
  bool is_on_one_machine() const noexcept;
  /// Upper bound on the messages of one producer that this process holds outside the ring: those in
  /// the socket, one that libzmq is receiving, and one per receiver.
  std::int64_t most_messages() const noexcept { return socket.hwm + 1 + receivers; }
  /// Upper bound on the bytes outside the ring, if each message has the largest size: of one
  /// producer that pushes, or of all producers with credit.
  std::int64_t most_bytes() const noexcept;
  /// Limit in bytes above what accepted messages need, including the overhead of libzmq and CURVE.
  std::int64_t flood_bytes() const noexcept;
  /// Upper bound on the batches of one producer that wait outside the ring while it is full, in
  /// this process and the producer: both sockets, one message in transit and one being received.
  /// Assumes that the producer's hwm equals ours.
  std::int64_t most_waiting() const noexcept { return 2 * socket.hwm + 2; }
  /// Upper bound on the batches that wait outside our rings when the window begins, under the same
  /// assumption. With credit: those in flight, and a full ring in the producer. Each message of
  /// image files counts as one batch.
  std::int64_t most_outside() const noexcept;
};

inline constexpr std::string_view kBatchOption = "zmq-consume:batch";
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
    kPixelOptions[0],
    kPixelOptions[1],
    {"batch", "",
     "NxBYTESB: batches are arrays that are no images, from `penstock serve --loader`: N samples "
     "in "
     "a usual one, and at most as many bytes"},
    {"keep_memory", "true",
     "keep the memory of messages for reuse, in the whole process; false: default of glibc"},
    {"producer", "",
     "shell command that starts a producer for the run, such as 'penstock serve'; default: none"},
    {"curve_secret", "", net::kCurveSecretHelp},
    {"curve_allow", "", net::kCurveAllowHelp},
    {"curve_server_key", "", net::kCurveServerKeyHelp},
    {"insecure", "false", "allow binding tcp:// without keys where other machines can connect"},
};

inline constexpr OptionSpec kImageFileOptions[] = {
    {"encoded", "false",
     "messages hold image files, from `penstock serve --encoded`, which --feeder-threads decode "
     "with the options below"},
    {"held", "4",
     "messages that may wait for decoding, beside those in the socket; not with credit"},
};

/// All options of zmq-consume: general ones, those for image files, and those for decoding.
inline constexpr auto kAllConsumeOptions =
    joined_options(kConsumeOptions, kImageFileOptions, kJpegOptions, kDecodePoolOptions);

/// Throws ConfigError before any socket is opened.
ConsumePlan read_consume_plan(const Options& options, const BatchSpec& spec);

/// Describes the limit, such as "up to 18 batches (1152 images, 173 MB) of each producer wait
/// outside the ring: ...". Empty: with credit.
std::string describe_waiting(const ConsumePlan& plan, const BatchSpec& spec);

/// Parses endpoints such as "ipc://a+connect:tcp://host:5555". The prefix `bind:` or `connect:`
/// overrides `bind`. A '+' separates two endpoints if the text after it starts like an endpoint;
/// otherwise it is part of a name. Throws ConfigError.
std::vector<ConsumeEndpoint> parse_endpoints(std::string_view text, bool bind);

}  // namespace penstock::remote
