// SPDX-License-Identifier: Apache-2.0
// Reads from the environment what a launcher such as mpirun or srun tells the processes that it
// starts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace penstock::cluster {

/// One process of a run.
struct Launch {
  std::string_view launcher;  ///< "mpirun" or "srun"
  std::int32_t rank = 0, size = 1;
  std::int32_t local_rank = 0, local_size = 1;  ///< among the processes on the same host
};

/// Returns the value of an environment variable, or null: std::getenv, or a test's function.
using FindVariable = std::function<const char*(const char* name)>;

/// Reads OMPI_COMM_WORLD_* (Open MPI), then SLURM_PROCID and related variables if a step of srun
/// has tasks. Returns nothing if the process was started by hand. Throws ConfigError if the values
/// are inconsistent, such as a rank beyond the size.
std::optional<Launch> read_launch(const FindVariable& find);

}  // namespace penstock::cluster
