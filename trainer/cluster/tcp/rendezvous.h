// SPDX-License-Identifier: Apache-2.0
// How ranks find each other without MPI: rank 0 listens at an address that all of them know, and
// the others come to it. Only ranks of the same job, attempt, version and
// size meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "trainer/cluster/launch.h"
#include "trainer/cluster/tcp/connection.h"

namespace penstock::tcp {

/// What a rank says when it comes to rank 0.
struct Hello {
  std::int32_t rank = 0, size = 0, restarts = 0, pid = 0;
  std::string job{}, host{};
  std::string identity{};  ///< HostFacts::identity
  std::string program{};   ///< Launch::program
};
inline constexpr std::size_t kLongestHello = 4096;  ///< bytes
std::string to_text(const Hello& hello);
/// Throws DataError.
Hello parse_hello(const std::string& text);

struct Meeting {
  /// By rank. Rank 0 has one to every other rank, another rank only the first one, to rank 0.
  std::vector<Connection> connections;
  std::vector<std::string> hosts;  ///< by rank: HostFacts::identity
};

/// Called by every rank; blocks until all have met at `launch.meeting`. After a few seconds it says
/// on stderr who is awaited. Throws TimeoutError, which names the ranks that did not come and the
/// address; ConfigError if this rank does not belong to the job; Unavailable if rank 0 cannot
/// listen there; Error on a request to `stop`.
Meeting meet(const cluster::Launch& launch, Clock& clock, Nanoseconds patience,
             const std::stop_token& stop);

}  // namespace penstock::tcp
