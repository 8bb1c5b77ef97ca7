// SPDX-License-Identifier: Apache-2.0
// The program with bad files, limits and descriptors: it says why it ends, exits with the right
// code, and keeps its results.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "dataflow/machine/memory_limit.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

/// A shell line with a short run; `flags` replace its default flags.
std::string run(const std::string& flags) {
  std::string line = "$P run";
  for (const std::string& own :
       Words{"--fake-location=cpu", "--device=emulated", "--model=null", "--batch-size=2",
             "--num-batches=20", "--num-warmup-batches=1", "--num-gpus=1"}) {
    if (!says(flags, own.substr(0, own.find('=') + 1))) line += " " + own;
  }
  return line + " " + flags;
}

class HostileInput : public testing::Test {
 protected:
  /// Runs a shell line; $P is the program and $D a folder of the test.
  Words command(const std::string& line) const {
    return {"/bin/sh", "-c",
            "P='" PENSTOCK_PROGRAM "'; D='" + folder_.path().native() + "'; export P D; " + line};
  }
  ChildExit shell(const std::string& line, std::chrono::seconds timeout = 50s) const {
    return exit_of(command(line), timeout);
  }
  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  void make_fifo(const std::string& name) const {
    std::filesystem::create_directories(path(name).parent_path());
    ASSERT_EQ(mkfifo(path(name).c_str(), 0600), 0);
  }
  /// The number of steps in the result file `name`.
  std::size_t steps_in(const std::string& name) const {
    return nlohmann::json::parse(read_text(path(name))).at("step_ms").size();
  }

  TempFolder folder_;
};

// ---- files

TEST_F(HostileInput, OutReplacesNothingButRegularFiles) {
  make_fifo("fifo");
  for (const char* const flag : {"--out", "--trace-file"}) {
    const ChildExit exit = shell(run(std::string(flag) + "=$D/fifo"));
    EXPECT_EQ(exit.code, 2) << exit.last_words;
    EXPECT_TRUE(says(exit.last_words, flag));
    EXPECT_TRUE(says(exit.last_words, "fifo': it is not a regular file"));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(path("fifo")));
  std::filesystem::create_symlink("there.json", path("link"));
  EXPECT_EQ(shell(run("--out=$D/link")).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(steps_in("there.json"), 20U);
  EXPECT_EQ(shell(run("--out=/dev/null; $P report $D/there.json --out=/dev/null")).code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(HostileInput, AFifoIsRefusedAndNotWaitedFor) {
  make_fifo("images/cat/1.JPEG");
  make_fifo("shards/train-00000-of-00001");
  make_fifo("labels");
  write_text(path("flat/1.JPEG"), "x");
  const auto queue = [](const std::string& rest) { return run("--fake-location=queue" + rest); };
  for (const std::string& line :
       {queue(" --data-dir=$D/images"), queue(":io=direct --data-dir=$D/images"),
        queue(":source=memory --data-dir=$D/images"),
        queue(":source=tfrecord --data-dir=$D/shards"),
        queue(":source='image-folder:labels='$D/labels --data-dir=$D/flat"),
        std::string("$P report $D/labels"), run("--device=emulated:trace=$D/labels"),
        run("--config=$D/labels"), std::string("$P dataset coverage $D/labels"),
        std::string("$P launch --hostfile=$D/labels --print -- run")}) {
    const ChildExit exit = shell(line, 10s);
    EXPECT_EQ(exit.cause, ChildExit::Cause::ended) << line;
    EXPECT_TRUE(exit.code == 2 || exit.code == 6) << exit.code << " " << line;
    EXPECT_TRUE(says(exit.last_words, "not a regular file")) << line << ": " << exit.last_words;
  }
}

// ---- limits

TEST_F(HostileInput, AThreadThatCannotBeStartedIsNamedAndEndsTheRun) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more addresses than any limit";
#endif
  // One limit leaves no room for the program, another leaves enough for all threads. Limits between
  // them leave room for some threads.
  int named = 0;
  for (int kib = 80'000; kib <= 400'000; kib += 40'000) {
    const ChildExit exit = shell(
        "ulimit -v " + std::to_string(kib) + "; exec " + run("--num-gpus=12 --feeder-threads=1"),
        20s);
    EXPECT_EQ(exit.cause, ChildExit::Cause::ended) << kib << ": " << exit.last_words;
    const bool is_named = says(exit.last_words, "cannot start");
    EXPECT_TRUE(!is_named || exit.code != 0) << kib;
    named += is_named;
  }
  EXPECT_GT(named, 0);
}

TEST_F(HostileInput, AThreadBeyondTheLimitOnProcessesIsNamedAndEndsTheRun) {
  // The limit counts the threads of all processes of an unprivileged user, who may read all files
  // here, since the program may stand below a closed folder.
  const std::string nobody =
      "setpriv --inh-caps=+dac_read_search --ambient-caps=+dac_read_search --reuid=65534 "
      "--regid=65534 --clear-groups prlimit --nproc=";
  std::filesystem::permissions(
      folder_.path(), std::filesystem::perms::others_exec | std::filesystem::perms::others_read,
      std::filesystem::perm_options::add);
  if (shell(nobody + "100 $P --version").code != 0) GTEST_SKIP() << "needs root and setpriv";
  shell("$P dataset make --brief --data-dir=$D/data --images=8 --val-images=1 --classes=2");
  const std::pair<std::string, int> lines[] = {
      {run("--num-gpus=4 --feeder-threads=1"), 0},
      {run("--fake-location=queue --feeder-threads=4 --data-dir=$D/data/train"), 0},
      {run("--fake-location=zmq-consume:endpoint=ipc://@$$ --timeout=300ms"), 5}};
  for (const auto& [line, without_limit] : lines) {
    int named = 0, unlimited = 0;
    for (int threads = 1; threads <= 16; ++threads) {
      const ChildExit exit = shell(nobody + std::to_string(threads) + " " + line, 20s);
      EXPECT_EQ(exit.cause, ChildExit::Cause::ended) << threads << ": " << line;
      const bool is_named = says(exit.last_words, "cannot start ");
      EXPECT_NE(is_named, exit.code == without_limit) << threads << ": " << exit.describe();
      named += is_named;
      unlimited += exit.code == without_limit;
    }
    EXPECT_GT(named, 2) << line;
    EXPECT_GT(unlimited, 0) << line;
  }
}

TEST_F(HostileInput, MemoryThatIsNotAvailableIsNotTaken) {
  const std::string available = " are available; ";
  for (const auto& [line, part] :
       {std::pair{run("--batch-size=2000000000"), available},
        {run("--batch-size=60000 --prefetch=100000"), available},
        {run("--prefetch=2000000000"), available},
        {run("--device-slots=2000000000"), available},
        {run("--num-batches=99999999999999"), available},
        {run("--eval-during-training-every-n-steps=5 --num-eval-batches=1 "
             "--eval-batch-size=2000000000"),
         "of evaluation "},
        {run("--fake-location=zmq-consume:hwm=2000000000"), "batches in sockets "},
        {run("--fake-location=zmq-consume:credit=65536 --batch-size=50000"), "batches under way "},
        {"$P serve --shared-memory --endpoint=ipc://$D/s --batch-size=50000000 --hwm=1000000", ""},
        {"$P serve --endpoint=ipc://$D/s --batch-size=2000000000", ""}}) {
    const ChildExit exit = shell(line, 20s);
    EXPECT_EQ(exit.code, 2) << line << ": " << exit.last_words;
    EXPECT_TRUE(says(exit.last_words, "not enough memory: "));
    EXPECT_TRUE(says(exit.last_words, part));
  }
  EXPECT_EQ(shell(run("--num-gpus=2000000000"), 20s).code, 2);
}

// ---- standard streams

TEST_F(HostileInput, ResultsAreKeptWhereStandardOutputCannotBeWritten) {
  for (const std::string sink : {">/dev/full", ">&-"}) {
    // The table of this many steps is longer than any buffer.
    const ChildExit exit =
        shell(run("--num-batches=2000 --display-every=1 --out=$D/r.json " + sink));
    EXPECT_EQ(exit.code, 6) << sink << exit.last_words;
    EXPECT_TRUE(says(exit.last_words, "cannot write standard output: "));
    EXPECT_EQ(steps_in("r.json"), 2000U);
    std::filesystem::remove(path("r.json"));
    EXPECT_EQ(shell("$P --version " + sink).code, 6);
    EXPECT_EQ(shell("$P list " + sink).code, 6);
  }
}

TEST_F(HostileInput, NothingIsLostWhereStandardErrorCannotBeWritten) {
  for (const std::string sink : {"2>/dev/full", "2>&-"}) {
    const ChildExit exit = shell(run("--out=$D/r.json " + sink));
    EXPECT_EQ(exit.code, 0) << sink;
    EXPECT_TRUE(says(exit.output, "total images/sec"));
    EXPECT_EQ(steps_in("r.json"), 20U);
    std::filesystem::remove(path("r.json"));
    EXPECT_EQ(shell("$P run --model=nothing-of-the-kind " + sink).code, 2);
  }
  EXPECT_EQ(shell(run("--out=$D/r.json 0<&- 1>&- 2>&-")).code, 6);
  EXPECT_EQ(steps_in("r.json"), 20U) << "no text got into a file that took a closed number";
}

TEST_F(HostileInput, AFileThatMayNotGrowIsReportedAndTheTableIsPrinted) {
  const ChildExit exit = shell("ulimit -f 1; exec " + run("--num-batches=500 --out=$D/r.json"));
  EXPECT_EQ(exit.code, 6) << exit.last_words;
  EXPECT_TRUE(says(exit.last_words, "r.json': File too large"));
  EXPECT_TRUE(says(exit.output, "total images/sec"));
  EXPECT_FALSE(std::filesystem::exists(path("r.json")));
}

// ---- signals

TEST_F(HostileInput, AHangUpEndsTheRunAsARequestToTerminateDoes) {
  for (const auto& [name, code] : {std::pair{"HUP", 129}, std::pair{"TERM", 143}}) {
    make_fifo(std::string("steps") + name);
    // The reader of the FIFO sees from the table that the run has begun.
    const ChildExit exit =
        shell("exec 3<>$D/steps" + std::string(name) + "; " +
              run("--num-batches=1000000 --device=emulated:img_per_s=1000 --model=alexnet "
                  "--display-every=1 --out=$D/r.json >&3 & ") +
              "grep -m1 images/sec: <&3; kill -" + name + " $!; wait $!");
    EXPECT_EQ(exit.code, code) << name << exit.last_words;
    EXPECT_GT(steps_in("r.json"), 0U);
    std::filesystem::remove(path("r.json"));
  }
}

/// CPU time of the process, in clock ticks of 10 ms; 0 if it has ended.
long ticks_of(pid_t process) {
  std::istringstream stat(read_text("/proc/" + std::to_string(process) + "/stat"));
  std::string word;
  long user = 0, system = 0;
  for (int i = 0; i < 13; ++i) stat >> word;
  stat >> user >> system;
  return user + system;
}

TEST_F(HostileInput, AStopRequestBeforeAnythingIsMeasuredEndsAllWork) {
  // Decoding or reading all of this takes far longer than a stop request may take.
  shell("$P dataset make --brief --data-dir=$D/data --images=8 --val-images=8 --classes=2");
  const std::string image = shell("ls $D/data/train/*/* | head -n 1 | tr -d '\\n'").output;
  std::filesystem::create_directories(path("many/cat"));
  for (int i = 0; i < 20'000; ++i) {
    std::filesystem::create_hard_link(image, path("many/cat/" + std::to_string(i) + ".JPEG"));
  }
  std::filesystem::create_directories(path("large/cat"));
  std::filesystem::copy_file(image, path("large/cat/0.JPEG"));
  const auto large = std::min<std::uintmax_t>(available_memory() / 2, std::uintmax_t{16} << 30);
  std::filesystem::resize_file(path("large/cat/0.JPEG"), large);  // a sparse file
  const std::string raw = "--fake-location=queue:decode=raw,source=memory:limit=8GiB";
  int signal = SIGTERM;
  for (const std::string& line :
       {run(raw + " --image-size=64 --data-dir=$D/many"),
        run("--eval-during-training-every-n-steps=5 " + raw +
            " --image-size=64 --eval-data-dir=$D/many --data-dir=$D/data/train"),
        run("--fake-location=queue --page-cache=warm --data-dir=$D/large"),
        "$P serve --endpoint=ipc://$D/s --image-size=64 --data-dir=$D/many " + raw,
        std::string("$P dataset check --data-dir=$D/many")}) {
    signal = signal == SIGINT ? SIGTERM : SIGINT;
    ChildProcess child({.arguments = command("exec " + line), .timeout = 50s});
    constexpr long kBegun = 30;  // starting takes less CPU time
    for (int tries = 0; tries < 4000 && ticks_of(child.pid()) < kBegun; ++tries) {
      std::this_thread::sleep_for(5ms);
    }
    const auto asked = std::chrono::steady_clock::now();
    ASSERT_EQ(kill(child.pid(), signal), 0) << line;
    const ChildExit& exit = child.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - asked, 3s) << line;
    EXPECT_EQ(exit.code, 128 + signal) << line << exit.describe();
  }
}

TEST_F(HostileInput, AStopRequestEndsAStepOfAnEmulatedDeviceThatTakesMinutes) {
  for (const std::string gpus : {"1", "2"}) {
    const ChildExit exit = shell(
        "mkfifo $D/out" + gpus + "; exec 3<>$D/out" + gpus + "; " +
            run("--batch-size=64 --device=emulated:img_per_s=0.1 --model=alexnet --num-gpus=" +
                gpus) +
            " >&3 & grep -m1 'Running warm up' <&3; kill -INT $!; wait $!",
        30s);
    EXPECT_EQ(exit.cause, ChildExit::Cause::ended);
    EXPECT_EQ(exit.code, 130) << exit.last_words;
    EXPECT_TRUE(says(exit.last_words, "stopped after 0 steps")) << exit.last_words;
  }
}

TEST_F(HostileInput, ASweepWhoseFolderIsFullNamesNoFilesAsItsOwn) {
  const ChildExit exit = shell(
      "ulimit -f 200; exec $P sweep --fake-location=gpu --model=null --batch-size=2 --num-gpus=1 "
      "--num-warmup-batches=1 --num-batches=2000 --repetitions=2 --out=$D/out");
  EXPECT_EQ(exit.code, 6) << exit.last_words;
  EXPECT_FALSE(says(exit.output, "results.json"));
  EXPECT_TRUE(says(exit.output, "out' could not be written"));
}

}  // namespace
}  // namespace penstock
