// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/launch.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "dataflow/error.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<cluster::Launch> launch_of(const Variables& variables) {
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

/// An environment, and what is read from it.
struct Case {
  Variables variables;
  cluster::Launch launch;
};

std::vector<Case> cases() {
  const Variables torchrun{{"TORCHELASTIC_RUN_ID", "job7"},
                           {"RANK", "5"},
                           {"WORLD_SIZE", "8"},
                           {"LOCAL_RANK", "1"},
                           {"LOCAL_WORLD_SIZE", "4"},
                           {"MASTER_ADDR", "node0"},
                           {"MASTER_PORT", "29500"},
                           {"TORCHELASTIC_RESTART_COUNT", "2"}};
  Variables nested = torchrun;  // torchrun, once on each node, by srun --mpi=pmix or mpirun
  for (const auto& [name, value] : Variables{{"SLURM_PROCID", "1"},
                                             {"SLURM_STEP_NUM_TASKS", "2"},
                                             {"PMIX_NAMESPACE", "slurm.7"},
                                             {"OMPI_COMM_WORLD_RANK", "1"},
                                             {"OMPI_COMM_WORLD_SIZE", "2"}}) {
    nested[name] = value;
  }
  const cluster::Launch by_torchrun{.launcher = "torchrun",
                                    .rank = 5,
                                    .size = 8,
                                    .local_rank = 1,
                                    .local_size = 4,
                                    .rank_name = "RANK",
                                    .meeting = "node0:29501",
                                    .job = "job7",
                                    .restarts = 2};
  const Variables slurm{{"SLURM_PROCID", "3"},
                        {"SLURM_STEP_NUM_TASKS", "6"},
                        {"SLURM_LOCALID", "1"},
                        {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
                        {"SLURM_STEP_NODELIST", "gpu[007-009],login1"},
                        {"SLURM_JOB_ID", "4711"},
                        {"SLURM_STEP_ID", "0"}};
  Variables pmix = slurm;
  pmix["PMIX_NAMESPACE"] = "slurm.pmix.4711.0";
  pmix["PMIX_RANK"] = "3";
  Variables hook = slurm;  // of enroot
  hook["RANK"] = "3";
  hook["WORLD_SIZE"] = "6";
  hook["MASTER_ADDR"] = "gpu007";
  hook["MASTER_PORT"] = "10000";
  const cluster::Launch by_srun{.launcher = "srun",
                                .rank = 3,
                                .size = 6,
                                .local_rank = 1,
                                .local_size = 2,
                                .rank_name = "SLURM_PROCID",
                                .meeting = "gpu007:27149",
                                .job = "4711.0"};
  cluster::Launch by_pmix = by_srun;
  by_pmix.mpi = true;
  return {
      {torchrun, by_torchrun},
      {nested, by_torchrun},
      {slurm, by_srun},
      {pmix, by_pmix},
      {hook,
       {.launcher = "a launcher",
        .rank = 3,
        .size = 6,
        .rank_name = "RANK",
        .meeting = "gpu007:10001",
        .job = "4711.0"}},
      {{{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
        {"PMIX_RANK", "1"},
        {"PMIX_NAMESPACE", "prterun-7@1"},
        {"RANK", "0"},
        {"WORLD_SIZE", "1"}},
       {.launcher = "mpirun",
        .rank = 1,
        .size = 2,
        .local_rank = 1,
        .local_size = 2,
        .rank_name = "OMPI_COMM_WORLD_RANK",
        .mpi = true,
        .job = "prterun-7@1"}},
      {{{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
       {.launcher = "mpiexec",
        .rank = 1,
        .size = 4,
        .local_rank = 1,
        .local_size = 2,
        .rank_name = "PMI_RANK"}},
      {{{"PET_NODE_RANK", "1"},
        {"PET_NNODES", "2"},
        {"PET_NPROC_PER_NODE", "auto"},
        {"PET_MASTER_ADDR", "train-node-0-0.train"},
        {"PET_MASTER_PORT", "29400"},
        {"JOB_COMPLETION_INDEX", "1"}},
       {.launcher = "a TrainJob",
        .rank = 1,
        .size = 2,
        .rank_name = "PET_NODE_RANK",
        .meeting = "train-node-0-0.train:29401"}},
      {{{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "bench-0.bench"}},
       {.launcher = "a Kubernetes Indexed Job",
        .rank = 2,
        .size = 4,
        .rank_name = "JOB_COMPLETION_INDEX",
        .meeting = "bench-0.bench:29501"}},
      {{{"JOB_COMPLETION_INDEX", "0"}},
       {.launcher = "a Kubernetes Indexed Job", .size = 0, .rank_name = "JOB_COMPLETION_INDEX"}},
      {{{"FLUX_TASK_RANK", "1"},
        {"FLUX_JOB_SIZE", "2"},
        {"FLUX_TASK_LOCAL_ID", "1"},
        {"FLUX_JOB_ID", "f1"},
        {"PMI_RANK", "1"},
        {"PMI_SIZE", "2"}},
       {.launcher = "flux run", .rank = 1, .size = 2, .rank_name = "FLUX_TASK_RANK", .job = "f1"}},
      {{{"PALS_RANKID", "1"}, {"PMI_SIZE", "2"}, {"PALS_LOCAL_RANKID", "1"}, {"PALS_APID", "a"}},
       {.launcher = "mpiexec of PALS",
        .rank = 1,
        .size = 2,
        .rank_name = "PALS_RANKID",
        .job = "a"}},
      {{{"JSM_NAMESPACE_RANK", "1"},
        {"JSM_NAMESPACE_SIZE", "2"},
        {"JSM_NAMESPACE_LOCAL_RANK", "0"},
        {"JSM_NAMESPACE_LOCAL_SIZE", "1"},
        {"LSB_JOBID", "9"}},
       {.launcher = "jsrun", .rank = 1, .size = 2, .rank_name = "JSM_NAMESPACE_RANK", .job = "9"}},
      {{{"KUNGFU_SELF_SPEC", "10.0.0.2:10001"},
        {"KUNGFU_INIT_PEERS", "10.0.0.1:10000,10.0.0.2:10001"}},
       {.launcher = "kungfu-run",
        .rank = 1,
        .size = 2,
        .rank_name = "KUNGFU_SELF_SPEC",
        .meeting = "10.0.0.1:10000"}},
      {{{"TF_CONFIG",
         R"({"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"], "ps": ["d:2222"]},
             "task": {"type": "worker", "index": "1"}})"}},
       {.launcher = "a launcher of TensorFlow",
        .rank = 2,
        .size = 3,
        .rank_name = "TF_CONFIG",
        .meeting = "a:2222"}},
      {{{"TF_CONFIG", R"({"environment": "cloud"})"}},
       {.launcher = "a launcher of TensorFlow", .rank_name = "TF_CONFIG"}},
      {{{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "n"}},
       {.launcher = "a launcher with PMIx",
        .rank = 1,
        .size = 0,
        .rank_name = "PMIX_RANK",
        .job = "n"}}};
}

TEST(Launch, ReadsEveryLauncherOfTheTable) {
  for (const auto& [variables, expected] : cases()) {
    const std::optional<cluster::Launch> launch = launch_of(variables);
    ASSERT_TRUE(launch) << expected.launcher;
    EXPECT_EQ(launch->launcher, expected.launcher);
    EXPECT_EQ(launch->rank, expected.rank) << expected.launcher;
    EXPECT_EQ(launch->size, expected.size) << expected.launcher;
    EXPECT_EQ(launch->local_rank, expected.local_rank) << expected.launcher;
    EXPECT_EQ(launch->local_size, expected.local_size) << expected.launcher;
    EXPECT_EQ(launch->rank_name, expected.rank_name);
    EXPECT_EQ(launch->mpi, expected.mpi) << expected.launcher;
    EXPECT_EQ(launch->meeting, expected.meeting) << expected.launcher;
    EXPECT_EQ(launch->job, expected.job) << expected.launcher;
    EXPECT_EQ(launch->restarts, expected.restarts) << expected.launcher;
  }
}

TEST(Launch, ErrorsNameTheVariable) {
  const auto refusal = [](const Variables& variables) {
    return thrown_by<ConfigError>([&] { launch_of(variables); });
  };
  EXPECT_TRUE(
      says(refusal({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}), "PMI_RANK is 2 and PMI_SIZE is 2"));
  const Variables torchrun{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}};
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"RANK", "0x1"},
                                                        {"WORLD_SIZE", "0"},
                                                        {"WORLD_SIZE", "2(x3)"},
                                                        {"WORLD_SIZE", " 2"},
                                                        {"MASTER_PORT", "0"},
                                                        {"MASTER_PORT", "65535"},
                                                        {"MASTER_PORT", "29500;"}}) {
    Variables changed = torchrun;
    changed[name] = value;
    EXPECT_TRUE(says(refusal(changed), name + " is '" + value + "'")) << name << value;
  }
  EXPECT_TRUE(
      says(refusal({{"PET_NODE_RANK", "0"}, {"PET_NNODES", "1:4"}}), "PET_NNODES is '1:4'"));
  EXPECT_TRUE(says(refusal({{"KUNGFU_SELF_SPEC", "c:1"}, {"KUNGFU_INIT_PEERS", "a:1,b:1"}}),
                   "KUNGFU_SELF_SPEC has 'c:1', expected one of KUNGFU_INIT_PEERS: a:1,b:1"));
  EXPECT_TRUE(says(refusal({{"KUNGFU_SELF_SPEC", "a"}, {"KUNGFU_INIT_PEERS", "a,b"}}),
                   "KUNGFU_INIT_PEERS: 'a', expected HOST:PORT"));
  for (const char* const text :
       {"{", "[1]", R"({"cluster": {"worker": ["a:1"]}})", R"({"cluster": {"worker": 3}})",
        R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}})",
        R"({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}})"}) {
    EXPECT_TRUE(says(refusal({{"TF_CONFIG", text}}), "TF_CONFIG")) << text;
  }
}

TEST(Launch, AMeetingIsAHostAndAPort) {
  EXPECT_EQ(cluster::port_of("node-1.example:29501", "--rendezvous"), 29501);
  EXPECT_EQ(cluster::port_of("[::1]:29501", "--rendezvous"), 29501);
  EXPECT_TRUE(says(thrown_by<ConfigError>([] { cluster::port_of("::1:29501", "--rendezvous"); }),
                   "expected brackets, as in [::1]:29501"));
  for (const char* const text : {"", "node", "node:", ":1", "node:0", "node:65536", "node:1x",
                                 "tcp://node:1", "[]:1", "[::1]", "a b:1"}) {
    EXPECT_TRUE(says(thrown_by<ConfigError>([&] { cluster::port_of(text, "--rendezvous"); }),
                     "--rendezvous: '" + std::string(text) + "', expected HOST:PORT"));
  }
}

}  // namespace
}  // namespace penstock
