// SPDX-License-Identifier: Apache-2.0
// Runs `penstock dataset` as a user does: the built program in a separate process.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"

extern char** environ;

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// A running program. Its stderr is read while it runs, its stdout at the end.
class Program {
 public:
  Program(const TempFolder& folder, std::vector<std::string> arguments)
      : out_(folder / "stdout.txt") {
    arguments.insert(arguments.begin(), PENSTOCK_PROGRAM);
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int ends[2] = {};
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    const int error = posix_spawn(&process_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    err_ = ends[0];
    if (error != 0) throw std::runtime_error("cannot start " + arguments[0]);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (process_ > 0) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
    close(err_);
  }

  void send(int signal) const { kill(process_, signal); }
  /// Reads stderr to the end of a line or of the stream.
  void read_line() {
    for (char c = 0; c != '\n' && read(err_, &c, 1) == 1;) errors += c;
  }
  int wait() {
    for (char c = 0; read(err_, &c, 1) == 1;) errors += c;
    int status = 0;
    waitpid(std::exchange(process_, -1), &status, 0);
    output = read_text(out_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string output, errors;

 private:
  fs::path out_;
  pid_t process_ = -1;
  int err_ = -1;
};

TEST(DatasetVerb, MakesOnceAndInspects) {
  const TempFolder folder;
  const std::string data = (folder / "data").string();
  const std::vector<std::string> make{"dataset",      "make", "--data-dir", data, "--images=6",
                                      "--val_images", "2",    "--classes",  "2"};
  Program first(folder, make);
  ASSERT_EQ(first.wait(), 0) << first.errors;
  EXPECT_TRUE(says(first.output, data + ": 8 images of 2 classes")) << first.output;
  EXPECT_TRUE(says(first.errors, "making 6 + 2 synthetic photographs")) << first.errors;
  EXPECT_FALSE(says(first.errors, "\r")) << "rewrites lines of a file";

  Program second(folder, make);
  ASSERT_EQ(second.wait(), 0) << second.errors;
  EXPECT_TRUE(says(second.output, "already there")) << second.output;
  EXPECT_EQ(second.errors, "");

  const std::string sheet = (folder / "sheet.png").string();
  Program inspect(folder,
                  {"dataset", "inspect", "--data-dir", data + "/train", "--contact-sheet", sheet});
  ASSERT_EQ(inspect.wait(), 0) << inspect.errors;
  EXPECT_TRUE(says(inspect.output, "6 images in 2 classes")) << inspect.output;
  EXPECT_GT(fs::file_size(sheet), 10'000U);
  Program json(folder, {"dataset", "inspect", "--data-dir", data + "/val", "--json"});
  ASSERT_EQ(json.wait(), 0) << json.errors;
  EXPECT_EQ(json.output.front(), '{');
  EXPECT_TRUE(says(json.output, "\"images\": 2")) << json.output;
}

TEST(DatasetVerb, InspectsPackedSets) {
  const TempFolder folder;
  const std::string data = (folder / "data").string(), packed = (folder / "packed").string();
  Program make(folder, {"dataset", "make", "--data-dir", data, "--images=6", "--classes", "2"});
  ASSERT_EQ(make.wait(), 0) << make.errors;
  Program convert(folder, {"dataset", "convert", "--data-dir", data + "/train", "--to",
                           "webdataset", "--out", packed});
  ASSERT_EQ(convert.wait(), 0) << convert.errors;
  const std::string sheet = (folder / "sheet.png").string();
  Program inspect(folder, {"dataset", "inspect", "--data-dir", packed, "--contact-sheet", sheet});
  ASSERT_EQ(inspect.wait(), 0) << inspect.errors;
  EXPECT_TRUE(says(inspect.output, "6 images in 2 classes")) << inspect.output;
  EXPECT_TRUE(says(inspect.output, "webdataset")) << inspect.output;
  EXPECT_GT(fs::file_size(sheet), 10'000U);
  Program wrong(folder, {"dataset", "inspect", "--data-dir", packed, "--source", "tfrecord"});
  EXPECT_EQ(wrong.wait(), 2);
  EXPECT_TRUE(says(wrong.errors, "packed")) << wrong.errors;
}

TEST(DatasetVerb, WrongInputIsRefusedInOneSentence) {
  struct Case {
    std::vector<std::string> arguments;
    int code;
    std::string says;
  };
  const TempFolder folder;
  const std::string data = (folder / "data").string();
  const Case cases[] = {
      {{"dataset"}, 2, "make, inspect, check, convert, index or coverage"},
      {{"dataset", "mkae"}, 2, "did you mean 'make'?"},
      {{"dataset", "convert"}, 2, "--to is not stated"},
      {{"dataset", "convert", "--to", "tar"}, 2, "--out is not stated"},
      {{"dataset", "convert", "--to", "webdatset", "--out", data}, 2, "did you mean 'webdataset'?"},
      {{"dataset", "convert", "--to", "mds", "--out", data, "--data-dir", "/nowhere"},
       2,
       "/nowhere"},
      {{"dataset", "convert", "--to", "mds", "--out", data, "--shards", "-1"}, 2, "--shards is -1"},
      {{"dataset", "check", "--data-dir", data}, 2, data},
      {{"dataset", "chekc"}, 2, "did you mean 'check'?"},
      {{"dataset", "make", "--imgaes", "5"}, 2, "did you mean --images?"},
      {{"dataset", "make", "--images=0", "--data-dir", data}, 2, "--images is 0"},
      {{"dataset", "make", "--val-images=-3", "--data-dir", data}, 2, "--val-images is -3"},
      {{"dataset", "make", "--classes=99", "--data-dir", data}, 2, "--classes is 99"},
      {{"dataset", "make", "--quality=101", "--data-dir", data}, 2, "--quality is 101"},
      {{"dataset", "make", "--threads=0", "--data-dir", data}, 2, "--threads is 0"},
      {{"dataset", "make", "--images=many", "--data-dir", data}, 2, "--images is 'many'"},
      {{"dataset", "make", "stray", "--data-dir", data}, 2, "stray"},
      {{"dataset", "make", "--images=1", "--data-dir", "/dev/null/data"}, 2, "/dev/null/data"},
      {{"dataset", "inspect", "--data-dir", data}, 2, data},
      {{"dataset", "index", "--data-dir", data}, 2, data},
      {{"dataset", "index", "stray"}, 2, "stray"},
  };
  for (const Case& one : cases) {
    Program program(folder, one.arguments);
    EXPECT_EQ(program.wait(), one.code) << program.errors;
    EXPECT_TRUE(says(program.errors, one.says)) << program.errors;
    EXPECT_EQ(program.output, "");
  }
  EXPECT_FALSE(fs::exists(data));
}

TEST(DatasetVerb, ControlCLeavesNothing) {
  const TempFolder folder;
  const std::string data = (folder / "data").string();
  Program program(folder, {"dataset", "make", "--data-dir", data, "--images=1000000"});
  program.read_line();  // printed once the work has begun
  program.send(SIGINT);
  EXPECT_EQ(program.wait(), 130) << program.errors;
  EXPECT_TRUE(says(program.errors, "stopped")) << program.errors;
  EXPECT_FALSE(fs::exists(data));
}

TEST(DatasetVerb, PrintsHelp) {
  const TempFolder folder;
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"dataset", "--help"},
                                                    {"dataset", "make", "--help"},
                                                    {"dataset", "inspect", "--help"}}) {
    Program program(folder, arguments);
    EXPECT_EQ(program.wait(), 0) << program.errors;
    EXPECT_TRUE(says(program.output, "sage: ")) << program.output;
  }
}

}  // namespace
}  // namespace penstock
