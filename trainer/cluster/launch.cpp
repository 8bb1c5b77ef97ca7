// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/launch.h"

#include <charconv>
#include <cstring>
#include <string>

#include "dataflow/error.h"

namespace penstock::cluster {
namespace {

/// The names of one launcher's variables.
struct Variables {
  std::string_view launcher;
  const char *rank, *size, *local_rank, *local_size;
};
constexpr Variables kLaunchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
};

/// Parses a leading number: Slurm writes "2(x3)" for 2 tasks on each of 3 nodes. Returns `fallback`
/// if the variable is not set.
std::int32_t number(const FindVariable& find, const char* name, std::int32_t fallback) {
  const char* const text = find(name);
  if (text == nullptr) return fallback;
  std::int32_t value = -1;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc{} || value < 0 || (*end != '\0' && *end != '(' && *end != ',')) {
    throw ConfigError(
        "reading the launcher's environment: {} is '{}', expected a whole number; start with "
        "mpirun or srun, or unset it",
        name, text);
  }
  return value;
}

}  // namespace

std::optional<Launch> read_launch(const FindVariable& find) {
  for (const Variables& names : kLaunchers) {
    if (find(names.rank) == nullptr || find(names.size) == nullptr) continue;
    const Launch launch{.launcher = names.launcher,
                        .rank = number(find, names.rank, 0),
                        .size = number(find, names.size, 1),
                        .local_rank = number(find, names.local_rank, 0),
                        .local_size = number(find, names.local_size, 1)};
    if (launch.size < 1 || launch.rank >= launch.size || launch.local_size < 1 ||
        launch.local_rank >= launch.local_size) {
      throw ConfigError(
          "reading the launcher's environment: rank {} of {} ({}, {}), local rank {} of {}; "
          "expected ranks below their number; start with mpirun or srun",
          launch.rank, launch.size, names.rank, names.size, launch.local_rank, launch.local_size);
    }
    return launch;
  }
  return std::nullopt;
}

}  // namespace penstock::cluster
