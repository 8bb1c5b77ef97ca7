// SPDX-License-Identifier: Apache-2.0
// Runs `penstock scale` as a user does: on this machine, and over a real sshd that the test starts.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/sweep/result_folder.h"
#include "tests/support/patience.h"
#include "tests/support/reserved_port.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

ChildExit exit_of(const Words& words) {
  ChildProcess child({.arguments = words, .timeout = 90s, .grace = 10s});
  return child.wait();
}

/// A ladder of runs that end immediately.
Words scale(const std::filesystem::path& out, const Words& more) {
  return joined({PENSTOCK_PROGRAM, "scale", "--model=trivial", "--fake-location=host",
                 "--num-batches=10", "--num-warmup-batches=1", "--repetitions=1",
                 "--device=emulated:img_per_s=400", "--out=" + out.native()},
                more);
}

std::size_t lines_of(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

TEST(ScaleOfModels, RefusesWhatWouldWriteTheSameFilesOrNamesNoModel) {
  const TempFolder folder;
  for (const auto& [models, said] : {std::pair{"trivial:4,trivial:4", "trivial with a batch of 4"},
                                     {"trivial:4,no_such:2", "no_such"},
                                     {"trivial:many", "many"}}) {
    const ChildExit exit = exit_of(scale(folder / "logs", {"-m", models, "--ranks=1"}));
    EXPECT_EQ(exit.code, 2) << models;
    EXPECT_TRUE(says(exit.last_words, said));
  }
}

/// Puts an mpirun that cannot start two ranks before the real one in PATH.
void shadow_mpirun(const TempFolder& folder) {
  const std::string path = std::getenv("PATH");
  write_text(folder / "bin/mpirun", "#!/bin/sh\nPATH='" + path +
                                        "'\ncase \" $* \" in *' -np 2 '*) echo 'penstock: no "
                                        "second rank' >&2; exit 9;; esac\nexec mpirun \"$@\"\n");
  std::filesystem::permissions(folder / "bin/mpirun", std::filesystem::perms::owner_all);
  setenv("PATH", ((folder / "bin").native() + ":" + path).c_str(), 1);
}

TEST(MpirunScale, GoesOnAfterARungThatFailedAndSaysSo) {
  const TempFolder folder;
  const std::string path = std::getenv("PATH");
  shadow_mpirun(folder);
  const ChildExit exit = exit_of(scale(folder / "logs", {"-b", "4", "--ranks=1,2,3"}));
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(exit.code, 6) << exit.last_words;
  const std::string csv = read_text(folder / "logs/trivial_b4.csv");
  EXPECT_EQ(lines_of(csv), 2U) << csv;
  EXPECT_TRUE(says(csv, "\n3,"));
  EXPECT_TRUE(says(exit.output, "2 ranks: repetition 1 failed, exit code 9: no second rank"));
}

TEST(MpirunScale, ARunThatDoesNotEndIsATimeOut) {
  const TempFolder folder;
  const ChildExit exit = exit_of(scale(
      folder / "logs", {"-b", "4", "--ranks=1", "--num-batches=1000000", "--run-timeout=2s"}));
  EXPECT_EQ(exit.code, 6) << exit.last_words;
  EXPECT_TRUE(
      says(exit.output, "1 rank: repetition 1 failed, exit code 5: it did not end in time"));
}

TEST(MpirunScale, AnInterruptionKeepsWhatWasMeasured) {
  const TempFolder folder;
  ChildProcess child(
      {.arguments = scale(folder / "logs", {"-b", "4", "--ranks=1", "--repetitions=1000"}),
       .timeout = 90s,
       .grace = 10s});
  const std::filesystem::path csv = folder / "logs/trivial_b4.csv";
  ASSERT_TRUE(await([&] { return !read_text(csv).empty(); }));
  ASSERT_EQ(kill(child.pid(), SIGINT), 0);
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.code, 130) << exit.last_words;
  EXPECT_EQ(read_text(csv).substr(0, 2), "1,");
  EXPECT_TRUE(says(exit.output, "stopped: this is what was measured by then"));
}

TEST(ScaleProgram, AFolderThatAnotherProcessWritesToIsRefused) {
  const TempFolder folder;
  const FolderLock lock(folder.path());
  const ChildExit exit = exit_of(scale(folder.path(), {"-b", "4", "--ranks=1"}));
  EXPECT_EQ(exit.code, 2) << exit.last_words;
  EXPECT_TRUE(says(exit.last_words,
                   "another process writes its results to the folder '" + folder.path().native()));
  EXPECT_TRUE(files_below(folder.path()).empty());
}

TEST(ScaleProgram, SaysWhatCannotBeBeforeAnythingStarts) {
  const TempFolder folder;
  write_text(folder / "nodes", "127.0.0.1 one.invalid\n");
  const std::string nodes = "--hosts=" + (folder / "nodes").native();
  const std::vector<std::pair<Words, std::string>> cases{
      {{nodes}, "-g N"},
      {{nodes, "-g", "1"}, "one.invalid"},
      {{"--hosts=localhost:2", "--ranks=3"}, "3 ranks do not fit"},
      {{"-r", "/tmp/x"}, "--hosts"},
      {{"--ranks=1", "-x", "2"}, "exclude each other"},
      {{"--ranks=1", "--train-dir=x"}, "each other's checkpoints"},
      {{"--modle=x"}, "--modle"}};
  for (const auto& [words, expected] : cases) {
    const ChildExit exit = exit_of(scale(folder / "logs", words));
    EXPECT_EQ(exit.code, 2) << expected;
    EXPECT_TRUE(says(exit.last_words, expected));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "logs"));
}

constexpr const char* kSshd = "/usr/sbin/sshd";

/// Two names of this machine, nodea and nodeb, behind an sshd with test keys.
class TwoNames {
 public:
  TwoNames() {
    for (const char* key : {"host", "user"}) {
      const ChildExit made =
          exit_of({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", (folder_ / key).native()});
      EXPECT_EQ(made.code, 0) << made.last_words;
    }
    const std::string here = folder_.path().native(), port = port_.text();
    write_text(folder_ / "sshd_config", "Port " + port + "\nListenAddress 127.0.0.1\nHostKey " +
                                            here + "/host\nAuthorizedKeysFile " + here +
                                            "/user.pub\nStrictModes no\nUsePAM no\nPidFile none\n"
                                            "PasswordAuthentication no\n");
    write_text(folder_ / "config",
               "Host nodea nodeb\n  HostName 127.0.0.1\n  Port " + port + "\n  IdentityFile " +
                   here + "/user\n  IdentitiesOnly yes\n  UserKnownHostsFile " + here +
                   "/known\n  StrictHostKeyChecking no\n  BatchMode yes\n  LogLevel ERROR\n");
    server_ = std::make_unique<ChildProcess>(
        ChildCommand{.arguments = {kSshd, "-D", "-e", "-f", here + "/sshd_config"}});
  }

  std::string agent() const { return "ssh -F " + (folder_ / "config").native(); }
  /// Blocks until sshd accepts a login. Returns false if it does not; sshd's output says why.
  bool answers() {
    return await([&] {
      return exit_of({"ssh", "-F", (folder_ / "config").native(), "nodea", "true"}).code == 0;
    });
  }
  std::string words() { return server_->stop().last_words; }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  const TempFolder folder_;
  const ReservedPort port_;
  std::unique_ptr<ChildProcess> server_;
};

TEST(MpirunScale, ClimbsOverSshWithTfperftestsFlagsAndNodeFile) {
  if (access(kSshd, X_OK) != 0) GTEST_SKIP() << "no sshd here: apt-get install openssh-server";
  if (geteuid() == 0)
    std::filesystem::create_directories("/run/sshd");  // sshd requires it if
                                                       // started by root
  TwoNames names;
  if (!names.answers()) GTEST_SKIP() << "sshd lets nobody in here: " << names.words();
  write_text(names / "nodes", "127.0.0.1 nodea\nlocalhost nodeb\n");
  const std::filesystem::path copies = names / "copies";
  const ChildExit exit = exit_of(scale(
      names / "logs", {"-m", "trivial", "-g", "2", "-b", "4", "-x", "4", "-r", copies.native(),
                       "--hosts", (names / "nodes").native(), "--ssh", names.agent()}));
  ASSERT_EQ(exit.code, 0) << exit.last_words << exit.output
                          << read_text(names / "logs/trivial_b4.json");
  EXPECT_TRUE(std::filesystem::exists(copies / "penstock"));
  const nlohmann::json ladder = nlohmann::json::parse(read_text(names / "logs/trivial_b4.json"));
  ASSERT_EQ(ladder["rungs"].size(), 3U);
  const nlohmann::json& last = ladder["rungs"][2];
  EXPECT_EQ(last["devices"], 4);
  EXPECT_EQ(last["hosts"][1]["name"], "nodeb");
  EXPECT_EQ(last["hosts"][1]["ranks"], 2);
  EXPECT_GT(last["img_per_s_median"], 0);
  EXPECT_TRUE(says(last["command"].get<std::string>(), (copies / "penstock").native()));
  // Both names are this machine, and the output says so.
  EXPECT_TRUE(says(exit.output, "4 ranks were asked for on nodea, nodeb, and ran on 1 machine"));
}

}  // namespace
}  // namespace penstock
