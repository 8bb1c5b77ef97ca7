// SPDX-License-Identifier: Apache-2.0
// What a launcher such as mpirun or srun tells the processes that it starts, in their environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace penstock {

/// One process among those of a run.
struct Launch {
  std::string_view launcher;  ///< "mpirun" or "srun"
  std::int32_t rank = 0, size = 1;
  std::int32_t local_rank = 0, local_size = 1;  ///< among those on the same host
};

/// The value of an environment variable, or null: std::getenv, or a test's.
using FindVariable = std::function<const char*(const char* name)>;

/// Reads OMPI_COMM_WORLD_* (Open MPI), then SLURM_PROCID and its like where a step of srun has
/// tasks; nothing: started by hand. Throws ConfigError where they make no sense, such as a rank
/// beyond the size.
std::optional<Launch> read_launch(const FindVariable& find);

}  // namespace penstock
