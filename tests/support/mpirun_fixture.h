// SPDX-License-Identifier: Apache-2.0
// Runs ranks with mpirun, as a user does. Tests find, kill, stop and await the ranks by the files
// that the ranks leave in a folder: rank.N.out, rank.N.err and rank.N.code (the exit code).
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "bench/scaling/launch/run_ranks.h"
#include "tests/support/patience.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/words.h"

namespace penstock {

inline bool launcher_is_open_mpi_5() {
  static const bool is = [] {
    ChildProcess version({.arguments = {"mpirun", "--version"}});
    return version.wait().output.find("(Open MPI) 5") != std::string::npos;
  }();
  return is;
}

class MpirunFixture : public ::testing::Test {
 protected:
  using Ranks = std::map<int, pid_t>;

  MpirunFixture() {
    // CI runs more ranks than cores, as root.
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                             "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle"}) {
      setenv(name, "1", 1);
    }
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    setenv("OMPI_MCA_btl", "self,vader", 1);
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "2", 1);  // time for ranks to exit by themselves
    // The same for Open MPI 5.
    setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 1);
    setenv("PRTE_MCA_hwloc_default_binding_policy", "none", 1);
    setenv("PRTE_MCA_odls_base_sigkill_timeout", "2", 1);
    setenv(kFolder, folder_.path().c_str(), 1);
  }

  /// The command that runs a program as a rank and stores its output in the folder. SIGTERM of the
  /// launcher does not prevent that the exit code is written; SIGKILL does. `first`: what the shell
  /// does before that.
  Words rank_of(const Words& program, const std::string& first = "") const {
    const std::string place = (folder_.path() / "rank.").native() + "$OMPI_COMM_WORLD_RANK";
    return joined({"sh", "-c",
                   first + "trap : TERM; \"$@\" > " + place + ".out 2> " + place +
                       ".err; code=$?; echo $code > " + place + ".code; exit $code",
                   "sh"},
                  program);
  }
  /// A short training that computes nothing, with a mark by which it can be found.
  Words training(const Words& more, const std::string& update = "horovod") const {
    return joined({PENSTOCK_PROGRAM, "run", "--variable-update=" + update, "--fake-location=host",
                   "--model=trivial", "--num-warmup-batches=2", "--out=" + result().native(),
                   "--cache-dir=" + folder_.path().native()},
                  more);
  }

  /// Open MPI 5 ends ranks with SIGKILL 0.25 s after SIGTERM, whatever its parameters say. Such a
  /// rank leaves no exit code.
  static bool launcher_cuts_ranks_off() { return launcher_is_open_mpi_5(); }

  /// Runs `program` as ranks, and returns the exit of mpirun with the output of rank 0.
  static ChildExit exit_of(int ranks, const Words& program) {
    return scaling::run_ranks({.arguments = {"mpirun", "-np", std::to_string(ranks)},
                               .timeout = std::chrono::seconds(50)},
                              program);
  }

  void start(const Words& words) {
    ended_ = false;
    child_ = std::make_unique<ChildProcess>(ChildCommand{.arguments = words,
                                                         .timeout = std::chrono::seconds(80),
                                                         .on_end = [this] { ended_ = true; }});
  }

  /// Processes of the run that execute `program`, by their rank in Open MPI.
  Ranks ranks(const std::string& program = PENSTOCK_PROGRAM) const {
    Ranks found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::error_code ignored;
      const auto executable = std::filesystem::read_symlink(entry.path() / "exe", ignored);
      if (!program.empty() && executable != program) continue;
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      const pid_t process = std::stoi(name);
      const std::string mark = folder_.path().native();
      if (variable_of(process, kFolder) != mark &&
          content_of(entry.path() / "cmdline").find(mark) == std::string::npos) {
        continue;
      }
      const std::string rank = variable_of(process, "OMPI_COMM_WORLD_RANK");
      if (!rank.empty()) found[std::stoi(rank)] = process;
    }
    return found;
  }
  /// A variable of the environment that the process was started with. Empty if it is not set.
  static std::string variable_of(pid_t process, const std::string& name) {
    const std::string all = '\0' + content_of("/proc/" + std::to_string(process) + "/environ");
    const std::string begin = '\0' + name + "=";
    const std::size_t at = all.find(begin);
    return at == std::string::npos ? "" : all.c_str() + at + begin.size();
  }

  bool await_text(const std::filesystem::path& file, const std::string& text) const {
    await([&] { return ended_ || content_of(file).find(text) != std::string::npos; });
    if (content_of(file).find(text) != std::string::npos) return true;
    for (const std::string& line : lines_with("")) std::cout << line << '\n';
    return false;
  }

  /// Waits until no process of the run is left and mpirun has ended. After ranks that ended
  /// abnormally, Open MPI 4.1's mpirun sometimes waits for itself forever (PMIx_server_finalize).
  /// In that case this function ends mpirun and returns false.
  bool await_end() {
    EXPECT_TRUE(await([this] { return ended_ || !ranks("").empty(); })) << "no rank was started";
    EXPECT_TRUE(await([this] { return ended_ || ranks("").empty(); }, std::chrono::seconds(60)))
        << "processes of the run are left";
    const bool itself = await([this] { return ended_.load(); }, std::chrono::seconds(10));
    if (!itself) {
      std::cout << "mpirun outlived its ranks and was ended\n";
      kill(child_->pid(), SIGTERM);
      if (!await([this] { return ended_.load(); }, std::chrono::seconds(5))) {
        kill(child_->pid(), SIGKILL);
      }
    }
    exit_ = child_->wait();
    EXPECT_TRUE(await([this] { return ranks("").empty(); })) << "ranks outlive mpirun";
    return itself;
  }

  std::filesystem::path result() const { return folder_.path() / "result.json"; }
  std::filesystem::path steps() const { return folder_.path() / "result.steps.jsonl"; }
  std::filesystem::path left_by(int rank, const std::string& what) const {
    return folder_.path() / ("rank." + std::to_string(rank) + "." + what);
  }
  static std::string content_of(const std::filesystem::path& path) { return read_text(path); }
  /// The lines of all ranks' standard errors that contain `text`.
  std::vector<std::string> lines_with(const std::string& text) const {
    std::vector<std::string> lines;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      if (entry.path().extension() != ".err") continue;
      std::istringstream in(content_of(entry.path()));
      for (std::string line; std::getline(in, line);) {
        if (line.find(text) != std::string::npos) lines.push_back(line);
      }
    }
    return lines;
  }

  /// Marks the run's processes. A process started here has the folder in its environment; ranks of
  /// other hosts have it in their arguments.
  static constexpr const char* kFolder = "PENSTOCK_TEST_FOLDER";
  TempFolder folder_;
  std::atomic<bool> ended_{false};
  std::unique_ptr<ChildProcess> child_;
  ChildExit exit_;
};

}  // namespace penstock
