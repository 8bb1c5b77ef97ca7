// SPDX-License-Identifier: Apache-2.0
// Runs `penstock doctor` on small Python programs.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "tests/support/patience.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

/// A Python program that prints a line when it is ready; ends with the object.
class Program {
 public:
  explicit Program(const std::string& script)
      : child_({.arguments = {"/usr/bin/python3", "-u", "-c", script},
                .timeout = std::chrono::minutes(2),
                .on_output = [this](std::string_view) { ready_ = true; }}) {
    EXPECT_TRUE(await([&] { return ready_.load(); }));
  }
  std::string pid() const { return std::to_string(child_.pid()); }

 private:
  std::atomic<bool> ready_ = false;
  ChildProcess child_;
};

ChildExit doctor(std::vector<std::string> words) {
  words.insert(words.begin(), {PENSTOCK_PROGRAM, "doctor"});
  return penstock::exit_of(std::move(words), std::chrono::minutes(1));
}

nlohmann::json finding(const nlohmann::json& json, const std::string& check) {
  for (const nlohmann::json& each : json.at("findings")) {
    if (each.at("check") == check) return each;
  }
  return {};
}

// Hashing large blocks releases the interpreter's lock, so that the threads compete for cores.
constexpr char kBusy[] = R"(
import hashlib, os, threading, time
block = bytes(1 << 22)
def work():
    while True:
        hashlib.sha256(block).digest()
for _ in range(6 * len(os.sched_getaffinity(0))):
    threading.Thread(target=work, daemon=True).start()
print("ready")
time.sleep(100)
)";
constexpr char kAsleep[] = "import time; print('ready'); time.sleep(100)";

TEST(DoctorProgram, NamesAProcessWithTooManyBusyThreads) {
  const TempFolder folder;
  const std::string file = (folder / "doctor.json").string();
  const Program program(kBusy);
  const ChildExit exit = doctor({program.pid(), "--seconds=2s", "--json=" + file});
  EXPECT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_TRUE(says(exit.output, "threads: problem"));
  EXPECT_TRUE(says(exit.output, "process " + program.pid() + " (python3"));
  const nlohmann::json threads = finding(nlohmann::json::parse(read_text(file)), "threads");
  EXPECT_EQ(threads.at("severity"), "problem");
  EXPECT_GE(threads.at("figures").at("busy_threads"), 3);
}

TEST(DoctorProgram, CountsWorkersOfTheProcess) {
  const TempFolder folder;
  const std::string file = (folder / "doctor.json").string();
  const Program program(R"(
import os, time
program = os.getpid()
worker = os.fork()
if worker == 0:
    while os.getppid() == program:
        pass
print(worker)
time.sleep(100)
)");
  const ChildExit exit = doctor({program.pid(), "--seconds=1s", "--json=" + file});
  EXPECT_EQ(exit.code, 0) << exit.last_words;
  const nlohmann::json processes = nlohmann::json::parse(read_text(file)).at("processes");
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_NE(std::to_string(processes[0].at("pid").get<int>()), program.pid())
      << "the worker used more time";
}

TEST(DoctorProgram, SaysOfAProcessThatSleepsThatItDoesNothing) {
  const TempFolder folder;
  const std::string file = (folder / "doctor.json").string();
  const Program program(kAsleep);
  const ChildExit exit = doctor({program.pid(), "--seconds=1s", "--json=" + file});
  EXPECT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_TRUE(says(exit.output, "it does nothing"));
  EXPECT_FALSE(says(exit.output, "Not known:"));
  const nlohmann::json json = nlohmann::json::parse(read_text(file));
  EXPECT_TRUE(json.at("findings").empty());
  EXPECT_FALSE(json.at("ended"));
}

TEST(DoctorProgram, AnswersForTheTimeBeforeAProcessEnded) {
  const Program program("import time; print('ready'); time.sleep(3)");
  const ChildExit exit = doctor({program.pid(), "--seconds=40s"});
  // On a machine that stands still for seconds, the process may have ended before.
  if (exit.code == 0) {
    EXPECT_TRUE(says(exit.output, "The process ended in the window."));
  } else {
    EXPECT_EQ(exit.code, 2);
  }
}

TEST(DoctorProgram, ExaminesACommandThatItStartsAndLetsItGoOn) {
  const TempFolder folder;
  const std::string file = (folder / "doctor.json").string();
  const ChildExit exit = doctor({"--after=200ms", "--seconds=1s", "--json=" + file, "--", "/bin/sh",
                                 "-c", "echo begins; sleep 3 & wait; echo ends; exit 5"});
  EXPECT_EQ(exit.code, 5) << "the command's";
  EXPECT_EQ(exit.output, "begins\nends\n") << "nothing but the command's";
  EXPECT_TRUE(says(exit.last_words, "1 below it, for"));
  EXPECT_TRUE(says(exit.last_words, "the command goes on"));
  const nlohmann::json json = nlohmann::json::parse(read_text(file));
  EXPECT_EQ(json.at("processes").size(), 2U);
  EXPECT_TRUE(says(json.at("not_begun").get<std::string>(), "it does nothing"));
}

TEST(DoctorProgram, EndsTheCommandIfAskedOrInterrupted) {
  const std::vector<std::string> command{"/usr/bin/python3", "-u", "-c", kAsleep};
  std::vector<std::string> words =
      joined({"--after=200ms", "--seconds=1s", "--stop-command", "--"}, command);
  const ChildExit exit = doctor(words);
  EXPECT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_TRUE(says(exit.last_words, "below it, for")) << "reported before the command ends";
  std::atomic<bool> ready = false;
  words = {PENSTOCK_PROGRAM, "doctor", "--"};
  words.insert(words.end(), command.begin(), command.end());
  ChildProcess child({.arguments = words,
                      .timeout = std::chrono::minutes(1),
                      .on_output = [&](std::string_view) { ready = true; }});
  ASSERT_TRUE(await([&] { return ready.load(); }));
  child.send(SIGINT);
  const ChildExit& interrupted = child.wait();
  EXPECT_EQ(interrupted.cause, ChildExit::Cause::ended) << interrupted.describe();
  EXPECT_EQ(interrupted.code, 2);
  EXPECT_TRUE(says(interrupted.last_words, "before it was examined; set --after"));
}

TEST(DoctorProgram, RefusesWhatIsNoCommand) {
  const auto said = [](const std::vector<std::string>& words) {
    const ChildExit exit = doctor(words);
    EXPECT_EQ(exit.code, 2);
    return exit.last_words;
  };
  EXPECT_TRUE(says(said({"--"}), "doctor has no command"));
  EXPECT_TRUE(says(said({"--", "no-such-program"}), "no folder of PATH"));
  EXPECT_TRUE(says(said({"1", "--", "/bin/true"}), "not both"));
  EXPECT_TRUE(says(said({"1", "--after", "1s"}), "need a command"));
}

TEST(DoctorProgram, RefusesWhatIsNoProcess) {
  for (const auto& words : std::vector<std::vector<std::string>>{
           {}, {"1", "2"}, {"x"}, {"0"}, {"-5"}, {"99999999999"}, {"2147483647"}}) {
    EXPECT_EQ(doctor(words).code, 2);
  }
  EXPECT_TRUE(says(doctor({"2147483647"}).last_words, "there is no running process 2147483647"));
  EXPECT_TRUE(says(doctor({"1", "--seconds=1ms"}).last_words, "--seconds"));
}

TEST(DoctorProgram, RefusesAFileThatCannotBeWrittenBeforeTheWindow) {
  const ChildExit exit = doctor({"1", "--seconds=10min", "--json=/no/such/folder/file"});
  EXPECT_EQ(exit.code, 6) << exit.describe();
}

}  // namespace
}  // namespace penstock
