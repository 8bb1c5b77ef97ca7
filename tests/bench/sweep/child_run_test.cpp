// SPDX-License-Identifier: Apache-2.0
// Runs whose process or producer misbehaves. Shell scripts replace the program.
#include "bench/sweep/child_run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/record/result_json.h"
#include "bench/sweep/private_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

constexpr OptionSpec kReceiverOptions[] = {{"endpoint", "ipc://testpipe", ""},
                                           {"bind", "true", ""},
                                           {"hwm", "8", ""},
                                           {"producer", "", ""}};
constexpr FeederEntry kPlain{.name = "plain"};
constexpr FeederEntry kReceiver{
    .name = "receiver", .needs_producer = true, .options = kReceiverOptions};

class ChildRun : public testing::Test {
 protected:
  ChildRun() {
    RunResult result;
    result.img_per_s = 123.5;
    result.step_ms = {1, 2};
    std::ofstream(path("result.json")) << to_json(result).dump();
  }

  std::filesystem::path path(const char* name) const { return folder_.path() / name; }

  /// A program whose verbs are these lines of shell. $dir is the test's folder.
  ChildRunOptions program(const std::string& run, const std::string& serve = "exit 1") {
    std::ofstream(path("program"))
        << "#!/bin/sh\ndir='" << folder_.path().native() << "'\ncase $1 in\nrun) " << run
        << ";;\nserve) " << serve << ";;\nesac\n";
    std::filesystem::permissions(path("program"), std::filesystem::perms::owner_all);
    return {.program = path("program").native(), .timeout = 20s, .show_stderr = false};
  }

  RunResult run(const ChildRunOptions& options, const FeederEntry& feeder = kPlain) const {
    return run_in_child(config_, feeder, options, {});
  }
  /// Of a program whose verb `run` is these lines.
  RunResult run(const std::string& lines) { return run(program(lines)); }

  RunConfig config_;
  PrivateFolder folder_;
};

TEST_F(ChildRun, ReadsTheResultBack) {
  const RunResult result = run("cat $dir/result.json");
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  EXPECT_EQ(result.img_per_s, 123.5);
  EXPECT_EQ(result.step_ms, (std::vector<double>{1, 2}));
}

TEST_F(ChildRun, HandsOverTheWholeConfiguration) {
  config_.num_gpus = 3;
  config_.seed = 99;
  run("printf '%s\\n' \"$@\" > $dir/arguments");
  const std::string arguments = read_text(path("arguments"));
  for (const std::string& flag : to_flags(config_)) {
    EXPECT_TRUE(says(arguments, flag + "\n")) << flag;
  }
  EXPECT_TRUE(arguments.starts_with("run\n--json\n")) << arguments;
}

TEST_F(ChildRun, RubbishIsAFailedRun) {
  const RunResult result = run("echo 'Segmentation fauld'; echo why >&2");
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_TRUE(says(result.reason, "printed no JSON object but 'Segmentation fauld"));
  EXPECT_TRUE(says(result.reason, "it said: why"));
  EXPECT_FALSE(result.started.empty());
}

TEST_F(ChildRun, OtherJsonIsAFailedRun) {
  for (const char* text : {"[]", "{}", "3", "{\\\"config\\\":{\\\"num_gpus\\\":-1}}"}) {
    const RunResult result = run(std::string("echo \"") + text + "\"");
    EXPECT_EQ(result.status, Status::failed) << text;
    EXPECT_FALSE(result.reason.empty()) << text;
  }
}

TEST_F(ChildRun, ACrashIsAFailedRunEvenBehindAResult) {
  const RunResult silent = run("kill -SEGV $$");
  EXPECT_EQ(silent.status, Status::failed);
  EXPECT_TRUE(says(silent.reason, "signal 11"));
  const RunResult late = run("cat $dir/result.json; kill -ABRT $$");
  EXPECT_EQ(late.status, Status::failed);
  EXPECT_TRUE(says(late.reason, "signal 6"));
}

TEST_F(ChildRun, NotesOfARunAreNotTheReasonOfItsEnd) {
  RunResult noted;
  noted.notes = {"the feeder yields to the trainer", "18 batches may wait in sockets"};
  std::ofstream(path("noted.json")) << to_json(noted).dump();
  const std::string said =
      "cat $dir/noted.json; echo 'penstock: --hwm has no effect' >&2; "
      "for note in 'the feeder yields to the trainer' '18 batches may wait in sockets'; do "
      "echo \"penstock: $note\" >&2; done; ";
  const RunResult killed = run(said + "kill -KILL $$");
  EXPECT_EQ(killed.status, Status::failed);
  EXPECT_EQ(killed.reason, "the run was ended by signal 9 (Killed)");
  EXPECT_EQ(killed.notes, noted.notes);

  const std::string error = "echo 'terminate called' >&2; kill -ABRT $$";
  EXPECT_EQ(run(said + error).reason,
            "the run was ended by signal 6 (Aborted); it said: terminate called");

  ChildRunOptions late = program(said + "exec sleep 1000");
  late.timeout = 3s;
  EXPECT_EQ(run(late).reason, "the run did not end in time; was ended by signal 2 (Interrupt)");
}

TEST_F(ChildRun, ATimeoutIsAFailedRun) {
  ChildRunOptions options = program("exec sleep 1000");
  options.timeout = 200ms;
  const RunResult result = run(options);
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_TRUE(says(result.reason, "did not end in time"));
}

TEST_F(ChildRun, AStopIsAPartialRun) {
  std::stop_source stop;
  stop.request_stop();
  const RunResult result =
      run_in_child(config_, kPlain, program("exec sleep 1000"), stop.get_token());
  EXPECT_EQ(result.status, Status::partial);
  EXPECT_EQ(result.exit_code, 130);
}

TEST_F(ChildRun, AMissingProgramIsAFailedRun) {
  const RunResult result = run({.program = "/no/such/program", .timeout = 1s});
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_TRUE(says(result.reason, "/no/such/program"));
}

TEST_F(ChildRun, StartsAProducerAndStopsIt) {
  config_.fake_location = "receiver:hwm=3";
  config_.model = "null";
  config_.batch_size = 17;
  const ChildRunOptions options = program(
      "read pid < $dir/fifo; echo $pid > $dir/pid; printf '%s\\n' \"$@\" > $dir/run; "
      "cat $dir/result.json",
      "printf '%s\\n' \"$@\" > $dir/serve; echo $$ > $dir/fifo; exec sleep 1000");
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  const RunResult result = run(options, kReceiver);
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  EXPECT_EQ(result.config.fake_location, "receiver:hwm=3");
  ASSERT_EQ(result.notes.size(), 1U);
  EXPECT_TRUE(says(result.notes[0], "fed by `penstock serve"));

  const std::string serve = read_text(path("serve")), run = read_text(path("run"));
  for (const char* flag : {"--fake-location=host\n", "--model=null\n", "--batch-size=17\n",
                           "--hwm=3\n", "--bind=false\n"}) {
    EXPECT_TRUE(says(serve, flag)) << flag << serve;
  }
  const std::size_t begin = serve.find("ipc://");
  const std::string endpoint = serve.substr(begin, serve.find('\n', begin) - begin);
  EXPECT_TRUE(says(run, "--fake-location=receiver:hwm=3,endpoint='" + endpoint + "',bind=true\n"));
  EXPECT_FALSE(std::filesystem::exists(
      std::filesystem::path(endpoint.substr(std::string("ipc://").size())).parent_path()));
  const pid_t producer = std::stoi(read_text(path("pid")));
  EXPECT_TRUE(kill(producer, 0) != 0 && errno == ESRCH);
}

TEST_F(ChildRun, AProducerThatEndsEndsTheRun) {
  config_.fake_location = "receiver";
  const ChildRunOptions options = program("exec sleep 1000", "echo no images >&2; exit 6");
  const RunResult result = run(options, kReceiver);
  EXPECT_EQ(result.status, Status::failed);
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_TRUE(says(result.reason, "exited with code 6; it said: no images"));
}

TEST_F(ChildRun, NeedsNoProducerWhereOneIsNamed) {
  for (const char* text :
       {"receiver:endpoint=ipc://x", "receiver:ipc://x", "receiver:producer='p q'"}) {
    config_.fake_location = text;
    EXPECT_FALSE(needs_producer(config_, kReceiver)) << text;
  }
  config_.fake_location = "receiver:bind=false";
  EXPECT_TRUE(needs_producer(config_, kReceiver));
  EXPECT_FALSE(needs_producer(config_, kPlain));
}

TEST_F(ChildRun, PrivateFoldersVanishWithTheirContent) {
  std::filesystem::path where;
  {
    const PrivateFolder folder;
    where = folder.path();
    std::ofstream(where / "file") << "x";
    EXPECT_TRUE(std::filesystem::exists(where / "file"));
  }
  EXPECT_FALSE(std::filesystem::exists(where));
}

TEST_F(ChildRun, APrivateFolderRemovesTheFoldersOfKilledProcessesOnly) {
  const PrivateFolder alive;
  const std::filesystem::path parent = alive.path().parent_path();
  std::string abandoned = (parent / "penstock-sweep-XXXXXX").native();
  ASSERT_NE(mkdtemp(abandoned.data()), nullptr);
  std::ofstream(abandoned + "/feed") << "x";
  const PrivateFolder made;
  EXPECT_FALSE(std::filesystem::exists(abandoned));
  EXPECT_TRUE(std::filesystem::exists(alive.path()));
}

}  // namespace
}  // namespace penstock
