// SPDX-License-Identifier: Apache-2.0
// Reads from the environment what a launcher such as mpirun, srun or torchrun tells the processes
// that it starts. launchers.json is the table of launchers, which the Python package reads too.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::cluster {

/// One process of a run.
struct Launch {
  std::string launcher{};  ///< "torchrun"; for messages
  std::int32_t rank = 0;
  std::int32_t size = 1;                        ///< 0: the launcher does not say how many there are
  std::int32_t local_rank = 0, local_size = 1;  ///< among the processes on the same host
  std::string rank_name{};                      ///< what says the rank: "RANK"; for messages
  bool mpi = false;                             ///< the processes are an MPI job
  /// HOST:PORT of rank 0, where processes without MPI meet; empty: the environment has no host.
  std::string meeting{};
  std::string job{};          ///< tells jobs apart; empty: unknown
  std::int32_t restarts = 0;  ///< of the job so far
  std::string program{};      ///< its version; ranks that meet over TCP must have the same
};

/// Returns the value of an environment variable, or null: std::getenv, or a test's function.
using FindVariable = std::function<const char*(const char* name)>;

/// Reads the variables of the first launcher in the table that has set its rank. Returns nothing if
/// the process was started by hand. Throws ConfigError, which names the variable, for a value that
/// is not valid, and for a rank that is not below the number of processes.
std::optional<Launch> read_launch(const FindVariable& find);

/// Calls `name` with each variable of the table that says a rank.
void for_each_rank_name(const std::function<void(const std::string& name)>& name);

/// The port of a HOST:PORT or [ADDRESS]:PORT. Throws ConfigError, which names `from`, for another
/// form.
std::uint16_t port_of(const std::string& meeting, std::string_view from);

}  // namespace penstock::cluster
