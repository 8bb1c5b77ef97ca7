// SPDX-License-Identifier: Apache-2.0
// Runs `penstock watch` as a user does, with scripts in the system's Python.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tests/support/patience.h"
#include "tests/support/python.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

constexpr char kPython[] = "/usr/bin/python3";

/// As PyTorch's, as far as its loops are concerned: worker processes put batches into a queue.
constexpr char kLoader[] = R"(
import multiprocessing

class Batch:
    shape = (4, 3, 2, 2)

def work(queue, count):
    from penstock_bench import watching
    for _ in watching.watch(range(count)):  # a worker's own loops do not count
        queue.put(0)

class Iterator:
    def __init__(self, count):
        self.left, context = count, multiprocessing.get_context("fork")
        self.queue = context.Queue()
        self.worker = context.Process(target=work, args=(self.queue, count), daemon=True)
        self.worker.start()

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            self.worker.join()
            raise StopIteration
        self.left -= 1
        self.queue.get()
        return [Batch(), 1]

class DataLoader:
    def __iter__(self):
        return Iterator(12)
)";

class WatchProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!python_has("json")) GTEST_SKIP() << "there is no " << kPython;
  }
  /// `words`: the flags of watch, and the command.
  ChildCommand watch(Words words, Words environment = {}) const {
    words.insert(words.begin(), {PENSTOCK_PROGRAM, "watch"});
    environment.push_back("TMPDIR=" + temporary());
    return {.arguments = std::move(words),
            .timeout = 60s,
            .grace = 10s,
            .environment = std::move(environment)};
  }
  ChildExit exit_of(Words words, Words environment = {}) const {
    ChildProcess child(watch(std::move(words), std::move(environment)));
    return child.wait();
  }
  /// Runs a script with --json. Returns the record.
  Json record_of(const std::string& script, Words environment = {}, int code = 0) {
    const std::string file = script_file(script), record = folder_ / "record.json";
    const ChildExit exit = exit_of({"--json", record, "--", kPython, file}, std::move(environment));
    words_ = exit.last_words;
    EXPECT_EQ(exit.code, code) << exit.describe();
    EXPECT_TRUE(nothing_is_left());
    return Json::parse(read_text(record));
  }
  std::string script_file(const std::string& script) const {
    write_text(folder_ / "train.py", script);
    return folder_ / "train.py";
  }
  std::string temporary() const {
    std::filesystem::create_directories(folder_ / "tmp");
    return folder_ / "tmp";
  }
  bool nothing_is_left() const { return std::filesystem::is_empty(temporary()); }

  const TempFolder folder_;
  std::string words_;  // standard error of the last record_of()
};

TEST_F(WatchProgram, TokensAreCountedOnRequestAndImagesAreImages) {
  const std::string script = R"(
import sys
from penstock_bench import watching

def real(batch):
    return 7

def of(kind, *shape):
    size = 1
    for length in shape:
        size *= length
    return memoryview(bytes(size * {"B": 1, "i": 4}[kind])).cast("B").cast(kind, shape)

for batch in watching.watch([{"lengths": [1, 2, 3], "ids": of("i", 3, 50)}] * 3, "text"):
    pass
for batch in watching.watch([{"ids": of("B", 2, 8, 8, 3), "labels": [0, 1]}] * 3, "images"):
    pass
)";
  struct Told {
    std::string unit;
    std::vector<int> counts;
    std::string problem;
  };
  const auto told = [&](const std::string& counted, std::size_t loop) {
    const std::string file = script_file(script), record = folder_ / "record.json";
    Words words{"--json", record, "--", kPython, file};
    if (!counted.empty()) words.insert(words.begin(), {"--count", counted});
    const ChildExit exit = exit_of(std::move(words));
    words_ = exit.last_words;
    EXPECT_EQ(exit.code, 0) << exit.describe();
    const Json written = Json::parse(read_text(record));
    for (const Json& each : written["ranks"][0]["loops"]) {
      if (each["loop"] != (loop == 0 ? "text" : "images")) continue;
      return Told{each["unit"], each["images"], each.value("problem", "")};
    }
    return Told{};
  };
  const Told samples = told("", 0), images = told("", 1), tokens = told("ids", 0),
             words = told("words=real", 0), none = told("idz", 0);
  EXPECT_EQ(samples.unit, "samples");
  EXPECT_EQ(samples.counts, (std::vector{3, 3, 3}));
  EXPECT_EQ(images.unit, "img");
  EXPECT_EQ(images.counts, (std::vector{2, 2, 2}));
  EXPECT_EQ(tokens.unit, "tokens");
  EXPECT_EQ(tokens.counts, (std::vector{150, 150, 150}));
  EXPECT_EQ(words.unit, "words");
  EXPECT_EQ(words.counts, (std::vector{7, 7, 7}));
  EXPECT_EQ(none.counts, (std::vector{0, 0, 0}));
  EXPECT_TRUE(says(none.problem, "no 'idz' whose numbers can be counted"));
  EXPECT_TRUE(says(words_, "is not counted: "));
  EXPECT_TRUE(says(words_, "tokens/s"));
  const ChildExit wrong = exit_of({"--count", "a b=c", "--", "true"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(says(wrong.last_words, "expected KEY or UNIT=KEY"));
}

TEST_F(WatchProgram, TheShareOfWaitingIsTheOneOfTheScript) {
  const Json record = record_of(R"(
import time
from penstock_bench import watching

def batches():
    for _ in range(30):
        time.sleep(0.02)
        yield memoryview(bytes(64))

for batch in watching.watch(batches()):
    time.sleep(0.03)
)");
  ASSERT_EQ(record["ranks"].size(), 1U);
  const Json& loop = record["ranks"][0]["loops"][0];
  EXPECT_EQ(loop["loop"], "train.py:10");
  EXPECT_EQ(loop["batches"], 30);
  // 20 ms of 50 ms. A busy machine makes each sleep longer by some milliseconds.
  EXPECT_NEAR(loop["waited_percent"].get<double>(), 40, 15);
  EXPECT_GE(loop["wait_ms_p50"].get<double>(), 20);
  EXPECT_LE(loop["batches_per_s"].get<double>(), 20);
  EXPECT_LE(loop["rate"].get<double>(), 1280);
  EXPECT_EQ(loop["unit"], "samples");
  EXPECT_TRUE(loop["img_per_s"].is_null());
  EXPECT_TRUE(says(words_, "The loop train.py:10 waited for input for"));
  // An emulated device replays its steps without the waits.
  ChildProcess replay(
      {.arguments = {PENSTOCK_PROGRAM, "run", "--json", "--fake-location=gpu", "--batch-size=64",
                     "--num-batches=20", "--num-warmup-batches=0",
                     "--device=emulated:trace=" + (folder_ / "record.json").string()},
       .timeout = 60s});
  const ChildExit& exit = replay.wait();
  ASSERT_EQ(exit.code, 0) << exit.describe();
  const Json result = Json::parse(exit.output);
  const Json &steps = loop["step_us"], &waits = loop["wait_us"];
  double own_us = 0;
  for (std::size_t i = 10; i < steps.size(); ++i) {
    own_us += steps[i].get<double>() - waits[i].get<double>();
  }
  EXPECT_NEAR(result["facts"]["emulated_step_ms"].get<double>(), own_us / 20e3, 1e-3);
}

TEST_F(WatchProgram, TheReportComesAgainFromTheRecord) {
  const std::string file = script_file(
      "from penstock_bench import watching\nfor _ in watching.watch(range(20), 'train'): pass\n");
  const std::string out = folder_ / "out";
  EXPECT_EQ(exit_of({"--out", out, "--", kPython, file}).code, 0);
  ChildProcess report({.arguments = {PENSTOCK_PROGRAM, "report", out, "--format", "markdown"}});
  const ChildExit& exit = report.wait();
  EXPECT_EQ(exit.code, 0) << exit.last_words;
  EXPECT_TRUE(says(exit.output, "| 0 | train | 20 |"));
  EXPECT_EQ(exit.output, read_text(folder_ / "out/report.md"));
}

TEST_F(WatchProgram, ALoaderWithWorkersIsOneRank) {
  const std::string data = folder_ / "modules";
  write_text(data + "/torch/__init__.py", "");
  write_text(data + "/torch/utils/__init__.py", "");
  write_text(data + "/torch/utils/data/__init__.py", kLoader);
  const Json record = record_of(
      "from torch.utils.data import DataLoader\n"
      "for _ in range(2):\n"
      "    for batch in DataLoader(): pass\n",
      {"PYTHONPATH=" + data, "RANK=3", "SLURM_PROCID=9"});
  ASSERT_EQ(record["ranks"].size(), 1U) << record.dump();
  EXPECT_EQ(record["ranks"][0]["rank"], 3);
  ASSERT_EQ(record["ranks"][0]["loops"].size(), 1U);
  const Json& loop = record["ranks"][0]["loops"][0];
  EXPECT_EQ(loop["batches"], 24);
  EXPECT_EQ(loop["epochs"], 2);
  EXPECT_EQ(loop["batch_size"], 4);
}

TEST_F(WatchProgram, RealDataLoadersAreWatched) {
  if (!python_has("torch")) {
    std::cout << "python3-torch is not installed, so its DataLoader is not tested\n";
    GTEST_SKIP();
  }
  const Json record = record_of(R"(
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    data = TensorDataset(torch.zeros(40, 3, 2, 2), torch.zeros(40))
    for workers, persistent in ((0, False), (2, True)):
        loader = DataLoader(data, batch_size=4, num_workers=workers, persistent_workers=persistent)
        for epoch in range(2):
            for images, labels in loader:
                pass

main()
)");
  ASSERT_EQ(record["ranks"].size(), 1U) << record.dump();
  ASSERT_EQ(record["ranks"][0]["loops"].size(), 1U);
  const Json& loop = record["ranks"][0]["loops"][0];
  EXPECT_EQ(loop["loop"], "train.py:10");
  EXPECT_EQ(loop["batches"], 40);
  EXPECT_EQ(loop["epochs"], 4);
  EXPECT_EQ(loop["batch_size"], 4);
  EXPECT_FALSE(record["ranks"][0]["cuda"].get<bool>());
}

TEST_F(WatchProgram, RanksOfOneCommandAreReportedTogether) {
  const Json record = record_of(R"(
import os, subprocess, sys
text = "from penstock_bench import watching\nfor _ in watching.watch(range(5)): pass"
for rank in range(3):
    environment = {**os.environ, "PMI_RANK": str(rank)}
    subprocess.run([sys.executable, "-c", text], env=environment, check=True)
)");
  ASSERT_EQ(record["ranks"].size(), 3U);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(record["ranks"][rank]["rank"], rank);
}

TEST_F(WatchProgram, OutputInputAndExitCodePass) {
  const ChildExit exit = exit_of({"--", "/bin/sh", "-c", "cat; echo out; echo err >&2; exit 7"});
  EXPECT_EQ(exit.code, 7);
  EXPECT_EQ(exit.output, "out\n");
  EXPECT_TRUE(says(exit.last_words, "err\n"));
  EXPECT_TRUE(says(exit.last_words, "No loop was watched"));
  EXPECT_TRUE(says(exit.last_words, "watching.watch(loader)"));
  EXPECT_EQ(exit_of({"--", "/bin/sh", "-c", "kill -9 $$"}).code, 137);
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(WatchProgram, SignalsPassAndStepsSoFarAreReported) {
  const std::string file = script_file(R"(
import signal, sys, time
from penstock_bench import watching

def take(number, frame):
    print(number, flush=True)
    if number == signal.SIGINT:
        sys.exit(42)

for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, take)
for _ in watching.watch(range(10)):
    pass
print("ready", flush=True)
while True:
    time.sleep(0.01)
)");
  std::atomic<int> lines{0};
  ChildCommand command = watch({"--", kPython, file});
  command.on_output = [&](std::string_view text) {
    lines += static_cast<int>(std::ranges::count(text, '\n'));
  };
  ChildProcess child(command);
  int expected = 0;
  for (const int number : {SIGHUP, SIGUSR1, SIGUSR2, SIGINT}) {
    ASSERT_TRUE(await([&] { return lines > expected; }));
    ++expected;
    child.send(number);
  }
  const ChildExit& exit = child.wait();
  EXPECT_EQ(exit.code, 42) << exit.last_words;
  EXPECT_TRUE(says(exit.last_words, "train.py:12")) << "written at exit";
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(WatchProgram, ACommandThatDiesOfASignalHasItsCode) {
  const std::string file =
      script_file("import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.01)\n");
  for (const int number : {SIGTERM, SIGINT}) {
    std::atomic<bool> ready{false};
    ChildCommand command = watch({"--", kPython, file});
    command.on_output = [&](std::string_view) { ready = true; };
    ChildProcess child(command);
    ASSERT_TRUE(await([&] { return ready.load(); }));
    child.send(number);
    EXPECT_EQ(child.wait().code, 128 + number);
    EXPECT_TRUE(nothing_is_left());
  }
}

TEST_F(WatchProgram, AKeyOfTheTerminalReachesTheCommandOnce) {
  const std::string file = script_file(R"(
import os, signal, sys, time
count = 0

def interrupted(number, frame):
    global count
    count += 1
    if count == 1:
        os.kill(os.getppid(), signal.SIGTERM)  # passed on after everything before it

def ended(number, frame):
    os.write(1, f"interrupts: {count}\n".encode())  # print may be what the signal interrupted
    os._exit(0)

signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGTERM, ended)
print("ready", sys.stdin.isatty(), flush=True)
while True:
    time.sleep(0.01)
)");
  const std::string output = run_python(R"(
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], sys.argv[1:])
text, sent = b"", False
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:
        break
    if not part:
        break
    text += part
    if b"ready True" in text and not sent:
        sent = True
        os.write(terminal, b"\x03")
print(text.decode(), "code:", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
)",
                                        {PENSTOCK_PROGRAM, "watch", "--", kPython, file});
  EXPECT_TRUE(says(output, "interrupts: 1"));
  EXPECT_TRUE(says(output, "code: 0"));
}

TEST_F(WatchProgram, ReportsComeWhileTheCommandRuns) {
  const std::string file = script_file(R"(
import sys, time
from penstock_bench import watching

def batches():
    while True:
        time.sleep(0.01)
        yield 1

print(flush=True)
for _ in watching.watch(batches()):
    pass
)");
  ChildCommand command = watch({});
  // A report goes to standard error, which this test hears as standard output.
  command.arguments = {"/bin/sh", "-c", R"(exec "$@" 2>&1)", "sh"};
  for (const std::string& word :
       Words{PENSTOCK_PROGRAM, "watch", "--every", "1s", "--", kPython, file}) {
    command.arguments.push_back(word);
  }
  std::string heard;
  std::atomic<bool> reported{false};
  command.on_output = [&](std::string_view text) {
    heard += text;
    if (heard.find("waited for input") != std::string::npos) reported = true;
  };
  ChildProcess child(command);
  ASSERT_TRUE(await([&] { return reported.load(); }));
  child.send(SIGINT);
  EXPECT_EQ(child.wait().code, 130);
  EXPECT_TRUE(says(heard, "penstock watch: the command runs after"));
  EXPECT_TRUE(says(heard, "KeyboardInterrupt"));
  EXPECT_TRUE(nothing_is_left());
}

TEST_F(WatchProgram, AHiddenSitecustomizeRuns) {
  const std::string modules = folder_ / "modules";
  write_text(modules + "/sitecustomize.py", "import builtins\nbuiltins.hidden = __file__\n");
  record_of(
      "assert hidden.endswith('modules/sitecustomize.py')\n"
      "import sitecustomize\nassert sitecustomize.__file__ == hidden\n",
      {"PYTHONPATH=" + modules});
}

TEST_F(WatchProgram, DamagedFilesOfTheChildAreNamed) {
  const Json record = record_of(R"(
import os
from penstock_bench import watching
for _ in watching.watch(range(5)): pass
with open(os.path.join(os.environ["PENSTOCK_WATCH_DIR"], "77.jsonl"), "w") as file:
    file.write("{}\n")
)");
  EXPECT_EQ(record["ranks"].size(), 1U);
  ASSERT_EQ(record["watch"]["left_out"].size(), 1U);
  EXPECT_TRUE(says(record["watch"]["left_out"][0].get<std::string>(), "process 77"));
  EXPECT_TRUE(says(words_, "process 77"));
}

TEST_F(WatchProgram, MistakesAreRefusedBeforeTheCommandStarts) {
  const std::string marker = folder_ / "started", script = script_file("");
  const Words start{"--", "/usr/bin/touch", marker};
  const auto refusal = [&](const Words& words, int code) {
    const ChildExit exit = exit_of(words);
    EXPECT_EQ(exit.code, code) << exit.last_words;
    EXPECT_TRUE(nothing_is_left());
    return exit.last_words;
  };
  EXPECT_TRUE(says(refusal({kPython, script}, 2), "needs `--`"));
  EXPECT_TRUE(says(refusal({"--"}, 2), "no command"));
  EXPECT_TRUE(says(refusal({"--", "no-such-program"}, 2), "no folder of PATH"));
  EXPECT_TRUE(says(refusal({"--", "/no/such/program"}, 2), "there is no such file"));
  EXPECT_TRUE(says(refusal({"--", script}, 2), "start it with `python3 "));
  const auto with = [&](const Words& flags) { return joined(flags, start); };
  EXPECT_TRUE(says(refusal(with({"--json", "/no/such/folder/x.json"}), 6), "cannot write"));
  EXPECT_TRUE(says(refusal(with({"--json", folder_.path()}), 6), "cannot write"));
  EXPECT_TRUE(says(refusal(with({"--out", script}), 2), script));
  EXPECT_TRUE(says(refusal(with({"--every", "10ms"}), 2), "1s or more"));
  EXPECT_TRUE(says(refusal(with({"--evry", "10s"}), 2), "--every"));
  EXPECT_FALSE(std::filesystem::exists(marker));
}

}  // namespace
}  // namespace penstock
