// SPDX-License-Identifier: Apache-2.0
#include "bench/scaling/launch/mpirun.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "bench/run/processes/child_process.h"
#include "dataflow/error.h"
#include "trainer/cluster/launch.h"

namespace penstock::scaling {
namespace {

constexpr std::string_view kInstall = "install it: apt-get install openmpi-bin";

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
  if (plan.shared_machine) words.insert(words.end(), {"--mca", "btl", "self,tcp"});
  return words;
}

void expect_mpirun() {
  if (!can_start("mpirun")) {
    throw Unavailable(fmt::format(
        "cannot start several processes: PATH has no mpirun, and ranks find each other through it; "
        "{}",
        kInstall));
  }
  ChildProcess child({.arguments = {"mpirun", "--version"}, .timeout = std::chrono::seconds(20)});
  const ChildExit& exit = child.wait();
  if (exit.output.find("Open MPI") != std::string::npos) return;
  throw Unavailable(
      fmt::format("cannot start several processes: the mpirun in PATH is not Open MPI's; `mpirun "
                  "--version` {}, "
                  "and said '{}'; {}, and put it first in PATH",
                  exit.describe(), exit.output.substr(0, exit.output.find('\n')), kInstall));
}

void refuse_nested_launch(std::string_view verb) {
  const std::optional<cluster::Launch> launch =
      cluster::read_launch([](const char* name) { return std::getenv(name); });
  if (!launch) return;
  throw ConfigError(fmt::format(
      "penstock {} starts mpirun, and {} has started {} of it; start it once, without {}", verb,
      launch->launcher, launch->size, launch->launcher));
}

std::vector<std::string> split_words(std::string_view text) {
  std::istringstream stream{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace penstock::scaling
