// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/launch.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "dataflow/error.h"

namespace penstock {
namespace {

std::optional<cluster::Launch> launch_of(const std::map<std::string, std::string>& variables) {
  return cluster::read_launch([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launch, IsNoneWhereTheProgramWasStartedByHand) {
  EXPECT_FALSE(launch_of({}));
  EXPECT_FALSE(launch_of({{"OMPI_COMM_WORLD_RANK", "1"}})) << "a rank without a size";
  EXPECT_FALSE(launch_of({{"SLURM_PROCID", "0"}})) << "in an allocation, not in a step";
}

TEST(Launch, ReadsWhatOpenMpiSays) {
  const std::optional<cluster::Launch> launch = launch_of({{"OMPI_COMM_WORLD_RANK", "5"},
                                                           {"OMPI_COMM_WORLD_SIZE", "8"},
                                                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->launcher, "mpirun");
  EXPECT_EQ(launch->rank, 5);
  EXPECT_EQ(launch->size, 8);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_size, 4);
}

TEST(Launch, ReadsWhatSlurmSays) {
  const std::optional<cluster::Launch> launch = launch_of({{"SLURM_PROCID", "3"},
                                                           {"SLURM_STEP_NUM_TASKS", "6"},
                                                           {"SLURM_LOCALID", "1"},
                                                           {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->launcher, "srun");
  EXPECT_EQ(launch->rank, 3);
  EXPECT_EQ(launch->size, 6);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_size, 2);
}

TEST(Launch, RefusesWhatMakesNoSense) {
  const auto open_mpi = [](const char* rank, const char* size) {
    return launch_of({{"OMPI_COMM_WORLD_RANK", rank}, {"OMPI_COMM_WORLD_SIZE", size}});
  };
  EXPECT_THROW(open_mpi("4", "4"), ConfigError);
  EXPECT_THROW(open_mpi("0", "0"), ConfigError);
  EXPECT_THROW(open_mpi("-1", "4"), ConfigError);
  EXPECT_THROW(open_mpi("one", "4"), ConfigError);
  EXPECT_THROW(open_mpi("", "4"), ConfigError);
  EXPECT_THROW(open_mpi("1", "99999999999"), ConfigError);
}

}  // namespace
}  // namespace penstock
