// SPDX-License-Identifier: Apache-2.0
// Runs `penstock sweep` and `run` on a pseudo-terminal.
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

constexpr unsigned short kColumns = 90;

struct Shown {
  std::string text;
  int code = -1;
};

/// The program's output on a terminal of kColumns. Its standard output goes to `output` if that is
/// not null.
Shown on_terminal(Words words, const char* output, const char* no_colour,
                  const char* kind = "xterm") {
  words.insert(words.begin(), PENSTOCK_PROGRAM);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  winsize size{};
  size.ws_row = 24;
  size.ws_col = kColumns;
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, &size);
  if (pid == 0) {
    setenv("NO_COLOR", no_colour, 1);
    setenv("TERM", kind, 1);
    if (output != nullptr && freopen(output, "w", stdout) == nullptr) _exit(126);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  const FileDescriptor closing(terminal);
  Shown shown;
  std::array<char, 4096> buffer;
  for (ssize_t count = 1; count > 0;) {  // ends with EIO when the terminal is closed
    count = read(terminal, buffer.data(), buffer.size());
    if (count > 0) shown.text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  if (WIFEXITED(status)) shown.code = WEXITSTATUS(status);
  return shown;
}

/// `words`, with a short run.
Words with(const Words& words) {
  return joined(words, {"--fake-location=cpu", "--model=null", "--batch-size=2", "--num-batches=20",
                        "--num-warmup-batches=1", "--num-gpus=1"});
}

/// The longest line that was overwritten, or may have been. Lines that stay, such as those of
/// failed runs, may be wider than the terminal.
std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0, length = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' || text[i] == '\n') {
      const bool stays = text.compare(i, 2, "\r\n") == 0;
      if (!stays) longest = std::max(longest, length);
      length = 0;
    } else if (text[i] == '\x1b') {
      while (i < text.size() && std::isalpha(static_cast<unsigned char>(text[i])) == 0) ++i;
    } else {
      ++length;
    }
  }
  return std::max(longest, length);
}

TEST(LiveProgram, ASweepHasOneLineThatIsGoneBeforeTheTable) {
  const TempFolder folder;
  const Shown shown = on_terminal(
      with({"sweep", "--repetitions=2", "--out=" + folder.path().native()}), nullptr, "1");
  EXPECT_EQ(shown.code, 0) << shown.text;
  const std::size_t last = shown.text.rfind("\r\x1b[K");
  ASSERT_NE(last, std::string::npos) << shown.text;
  EXPECT_TRUE(says(shown.text, "\r\x1b[K[2/2] round 2: cpu: window "));
  EXPECT_GT(shown.text.find("What it costs to feed"), last) << "the table stands below";
  EXPECT_FALSE(says(shown.text, "\x1b[3")) << "NO_COLOR is set";
  EXPECT_LE(longest_line(shown.text.substr(0, last)), std::size_t{kColumns});
}

TEST(LiveProgram, ADumbTerminalGetsNoEscapeSequences) {
  const TempFolder folder;
  const std::string out = "--out=" + folder.path().native();
  const Shown sweep = on_terminal(with({"sweep", "--repetitions=1", out}), nullptr, "", "dumb");
  const Shown report = on_terminal({"report", folder.path().native()}, nullptr, "", "dumb");
  EXPECT_EQ(sweep.code + report.code, 0) << sweep.text << report.text;
  EXPECT_FALSE(says(sweep.text + report.text, "\x1b")) << sweep.text << report.text;
  const Shown coloured = on_terminal({"report", folder.path().native()}, nullptr, "");
  // Green, yellow or red: which one depends on how steady this machine was.
  EXPECT_TRUE(says(coloured.text, "\x1b[3")) << coloured.text;
}

TEST(LiveProgram, NamesFromOutsideDoNotControlTheTerminal) {
  const TempFolder folder;
  const std::string name =
      "\x1b[2J\r\xc2\x9b"
      "7m\x7f";
  folder.write(name + "/\x1b]0;owned\x07.JPEG", {std::byte{0xff}, std::byte{0xd8}});
  for (const char* const verb : {"check", "inspect"}) {
    const Shown shown =
        on_terminal({"dataset", verb, "--data-dir=" + folder.path().native()}, nullptr, "");
    EXPECT_TRUE(says(shown.text, "\\x1b[2J\\x0d\\x9b7m\\x7f")) << shown.text;
    EXPECT_TRUE(says(shown.text, "\\x1b]0;owned\\x07")) << shown.text;
    for (const char* const control : {"\x1b[2J", "\x1b]", "\x07", "\xc2\x9b", "\x7f"}) {
      EXPECT_FALSE(says(shown.text, control)) << shown.text;
    }
  }
}

TEST(LiveProgram, ARunHasItsLineOnlyWhereItsTableGoesElsewhere) {
  const Shown table = on_terminal(with({"run"}), nullptr, "");
  EXPECT_EQ(table.code, 0) << table.text;
  EXPECT_FALSE(says(table.text, "\x1b[")) << "the table is the live view";
  EXPECT_TRUE(says(table.text, "total images/sec:"));
  const Shown line = on_terminal(with({"run"}), "/dev/null", "");
  EXPECT_EQ(line.code, 0) << line.text;
  EXPECT_TRUE(says(line.text, "window 20/20 steps"));
  const std::size_t erased = line.text.rfind("\r\x1b[K");
  EXPECT_EQ(line.text.find("window 20/20", erased), std::string::npos) << "it is gone at the end";
}

}  // namespace
}  // namespace penstock
