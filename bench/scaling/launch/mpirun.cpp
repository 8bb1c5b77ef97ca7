// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/launch/mpirun.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "bench/run/processes/child_process.h"
#include "dataflow/error.h"
#include "trainer/cluster/launch.h"

namespace penstock::scaling {
namespace {

constexpr std::string_view kInstall = "install it: apt-get install openmpi-bin";

/// mpirun keeps a session below this folder, and its own message does not say so.
void expect_session_folder() {
  const auto value = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text != nullptr ? text : "");
  };
  if (!value("OMPI_MCA_orte_tmpdir_base").empty()) return;
  std::string folder = "/tmp";
  for (const char* const name : {"TMP", "TEMP", "TMPDIR"}) {  // the last one comes first
    if (!value(name).empty()) folder = value(name);
  }
  if (access(folder.c_str(), W_OK) == 0) return;
  throw Unavailable(
      "cannot start several processes: mpirun keeps its session in '{}', which cannot be written: "
      "{}; set TMPDIR to a writable folder, such as TMPDIR=/dev/shm",
      folder, std::strerror(errno));
}

}  // namespace

std::vector<std::string> mpirun_words(const MpirunPlan& plan) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(plan.grace).count();
  std::vector<std::string> words{"mpirun",
                                 "-np",
                                 std::to_string(plan.ranks),
                                 "--bind-to",
                                 "none",
                                 "--mca",
                                 "mpi_yield_when_idle",
                                 "1",
                                 "--mca",
                                 "odls_base_sigkill_timeout",
                                 std::to_string(std::max<std::int64_t>(seconds, 1))};
  if (plan.as_root) words.emplace_back("--allow-run-as-root");
  if (plan.hosts.empty()) {
    words.emplace_back("--oversubscribe");
    return words;
  }
  words.insert(words.end(), {"--host", to_text(plan.hosts), "--map-by", "slot", "--mca",
                             "plm_rsh_agent", plan.agent});
  if (plan.shared_machine != SharedMachine::none) {
    words.insert(words.end(), {"--mca", "btl", "self,tcp"});
  }
  if (plan.shared_machine == SharedMachine::all) {
    words.insert(words.end(), {"--mca", "btl_tcp_if_include", "127.0.0.0/8"});
  }
  return words;
}

void expect_mpirun() {
  expect_session_folder();
  if (!can_start("mpirun")) {
    throw Unavailable(
        "cannot start several processes: PATH has no mpirun, and ranks find each other through it; "
        "{}",
        kInstall);
  }
  ChildProcess child({.arguments = {"mpirun", "--version"}, .timeout = std::chrono::seconds(20)});
  const ChildExit& exit = child.wait();
  if (exit.output.find("Open MPI") != std::string::npos) return;
  throw Unavailable(
      "cannot start several processes: the mpirun in PATH is not Open MPI's; `mpirun --version` "
      "{}, and said '{}'; {}, and put it first in PATH",
      exit.describe(), exit.output.substr(0, exit.output.find('\n')), kInstall);
}

void refuse_nested_launch(std::string_view verb) {
  const std::optional<cluster::Launch> launch =
      cluster::read_launch([](const char* name) { return std::getenv(name); });
  if (!launch || (!launch->mpi && launch->size <= 1 && launch->rank == 0)) return;
  throw ConfigError(
      "penstock {} starts mpirun, and {} has started {} of it ({}); start it once, without {}",
      verb, launch->launcher, launch->size == 0 ? "several" : std::to_string(launch->size),
      launch->rank_name, launch->launcher);
}

}  // namespace penstock::scaling
