// SPDX-License-Identifier: Apache-2.0
// The program's descriptions of itself: help, lists, completions, job files, and version.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/run/child_process.h"
#include "bench/sweep/child_run.h"

namespace penstock {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class CommandLineProgram : public testing::Test {
 protected:
  /// Runs a shell command in a separate folder; $penstock is the program.
  ChildExit shell(const std::string& command, const char* interpreter = "/bin/bash") const {
    const std::string in_folder =
        "cd '" + folder_.path().native() + "'; penstock='" + PENSTOCK_PROGRAM + "'; " + command;
    ChildProcess child({.arguments = {interpreter, "-c", in_folder}, .timeout = 50s});
    return child.wait();
  }
  std::string output_of(const std::string& command) const {
    const ChildExit exit = shell(command);
    EXPECT_EQ(exit.code, 0) << command << "\n" << exit.last_words;
    return exit.output;
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() / name) << text;
  }
  /// The verbs of `penstock`, followed by their subcommands if they have any.
  std::vector<std::string> verbs() const {
    std::vector<std::string> found;
    for (const std::string& line : lines_of(output_of("$penstock --help"))) {
      if (!line.starts_with("  ") || line.starts_with("  penstock")) continue;
      const std::string verb = line.substr(2, line.find(' ', 2) - 2);
      if (verb != "dataset") found.push_back(verb);
    }
    for (const char* const word : {"make", "inspect", "check", "convert", "index"}) {
      found.push_back(std::string("dataset ") + word);
    }
    return found;
  }

  PrivateFolder folder_;
};

TEST_F(CommandLineProgram, HelpOfEachVerbFitsOnAScreenAndHasExamples) {
  EXPECT_GE(verbs().size(), 18U);
  for (const std::string& verb : verbs()) {
    const std::string help = output_of("$penstock " + verb + " --help");
    EXPECT_LE(lines_of(help).size(), 48U) << help;
    EXPECT_NE(help.find("\nExamples:\n"), std::string::npos) << help;
    EXPECT_NE(help.find("\nUsage: penstock " + verb), std::string::npos) << help;
  }
}

TEST_F(CommandLineProgram, ExamplesInHelpTextsAreAccepted) {
  write("sweep.toml", "batch-size = 64\n");
  for (const std::string& verb : verbs()) {
    for (const std::string& line : lines_of(output_of("$penstock " + verb + " --help"))) {
      if (!line.starts_with("  penstock ")) continue;
      // Adds --help after the verb, so that the words of a launch still belong to the ranks. Values
      // are checked before help is printed.
      const std::string command = line.substr(0, line.find(" > ")).substr(11);
      const std::size_t end = command.starts_with(verb) ? verb.size() : command.find(' ');
      const std::string checked = command.substr(0, end) + " --help" + command.substr(end);
      EXPECT_EQ(shell("$penstock " + checked).code, 0) << checked;
    }
  }
}

TEST_F(CommandLineProgram, HelpShowsTheCommonFlagsAndHelpAllShowsEachUnderAHeading) {
  const std::string few = output_of("$penstock run --help");
  const std::string all = output_of("$penstock run --help-all");
  EXPECT_NE(few.find("penstock run --help-all"), std::string::npos) << few;
  EXPECT_EQ(few.find("--adam-beta1"), std::string::npos);
  for (const char* const part :
       {"--adam-beta1", "\nOptimizer:\n", "\nCheckpoints:\n", "\nData and feeding:\n",
        "\nFlags of other systems:\n", "--fake-location, --feeder VALUE"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part << " in\n" << all;
  }
}

TEST_F(CommandLineProgram, EachHelpTextIsOneSentenceThatFitsOnTwoLines) {
  constexpr std::size_t kLongest = 170;
  for (const std::string& verb : verbs()) {
    for (const std::string& line : lines_of(output_of("$penstock " + verb + " --help-all"))) {
      if (verb == "project" && line.find("KEY=VALUE") != std::string::npos) continue;
      EXPECT_LE(line.size(), 30 + kLongest) << verb << ": " << line;
    }
  }
}

TEST_F(CommandLineProgram, ListsAKindOrOneComponentWithItsOptions) {
  const std::string queue = output_of("$penstock list feeder queue");
  EXPECT_TRUE(queue.starts_with("  queue ")) << queue;
  EXPECT_NE(queue.find("\n      readahead "), std::string::npos) << queue;
  EXPECT_EQ(queue.find("zmq-consume "), std::string::npos) << queue;
  const std::string models = output_of("$penstock list model");
  EXPECT_NE(models.find("  resnet50 "), std::string::npos) << models;
  EXPECT_EQ(models.find("  queue "), std::string::npos) << models;
  const ChildExit kind = shell("$penstock list feeders");
  EXPECT_EQ(kind.code, 2);
  EXPECT_NE(kind.last_words.find("expected one of feeder, "), std::string::npos) << kind.last_words;
  EXPECT_NE(shell("$penstock list feeder quueue").last_words.find("did you mean 'queue'?"),
            std::string::npos);
}

TEST_F(CommandLineProgram, BashCompletesVerbsFlagsAndComponents) {
  const auto complete = [&](const std::string& words, int at) {
    return " " + output_of("source <($penstock completion bash); PATH=" +
                           std::filesystem::path(PENSTOCK_PROGRAM).parent_path().native() +
                           ":$PATH; COMP_WORDS=(" + words + "); COMP_CWORD=" + std::to_string(at) +
                           "; _penstock; echo \"${COMPREPLY[*]}\" ");
  };
  EXPECT_NE(complete("penstock is", 1).find(" isolate"), std::string::npos);
  EXPECT_NE(complete("penstock dataset co", 2).find(" convert"), std::string::npos);
  EXPECT_NE(complete("penstock run --num-b", 2).find(" --num-batches"), std::string::npos);
  EXPECT_NE(complete("penstock run --feeder qu", 3).find(" queue"), std::string::npos);
  EXPECT_NE(complete("penstock run --fake-location = qu", 4).find(" queue"), std::string::npos);
  EXPECT_NE(complete("penstock sweep --model res", 3).find(" resnet50"), std::string::npos);
  EXPECT_NE(complete("penstock list mo", 2).find(" model"), std::string::npos);
}

TEST_F(CommandLineProgram, ZshTakesItsScript) {
  if (!std::filesystem::exists("/bin/zsh")) GTEST_SKIP() << "zsh is not installed";
  const ChildExit exit = shell("$penstock completion zsh > _penstock && zsh -n _penstock");
  EXPECT_EQ(exit.code, 0) << exit.last_words;
}

TEST_F(CommandLineProgram, HelpBecomesManPages) {
  if (!std::filesystem::exists("/usr/bin/help2man")) GTEST_SKIP() << "help2man is not installed";
  const std::string page = output_of(
      "PATH=$(dirname $penstock):$PATH; help2man --no-info --no-discard-stderr "
      "--help-option=--help-all --version-string=1 --name='one run' 'penstock run'");
  EXPECT_NE(page.find(".SS \"Data and feeding:\""), std::string::npos) << page;
  EXPECT_NE(page.find("\\fB\\-\\-num\\-batches\\fR"), std::string::npos) << page;
}

TEST_F(CommandLineProgram, VersionNamesTheRevision) {
  const std::string text = output_of("$penstock --version");
  EXPECT_TRUE(text.starts_with("penstock ")) << text;
  EXPECT_NE(text.find("(revision "), std::string::npos) << text;
}

TEST_F(CommandLineProgram, AJobFileHoldsFlagsThatTypedOnesOverride) {
  write("job.toml",
        "# quick\ndevice = \"emulated:img_per_s=5000\"\nmodel = \"null\"\nbatch_size = 4\n"
        "num-warmup-batches = 1\n\n[run]\nnum-batches = 5\n\n[sweep]\nnum-batches = [3, 4]\n"
        "feeder = [\"gpu\", \"host\"]\nrepetitions = 1\n");
  const std::string run = output_of("$penstock run --config job.toml --json --batch-size=2");
  EXPECT_NE(run.find("\"num_batches\":5,"), std::string::npos) << run;
  EXPECT_NE(run.find("\"batch_size\":2,"), std::string::npos) << run;
  const ChildExit sweep = shell("$penstock sweep --config=job.toml --out out");
  EXPECT_EQ(sweep.code, 0) << sweep.last_words;
  EXPECT_NE(sweep.last_words.find("[4/4] "), std::string::npos) << sweep.last_words;
}

TEST_F(CommandLineProgram, ErrorsInAJobFileNameItsLine) {
  const auto error_of = [&](const std::string& text) {
    write("job.toml", text);
    const ChildExit exit = shell("$penstock run --config job.toml");
    EXPECT_EQ(exit.code, 2);
    return exit.last_words;
  };
  const std::string value = error_of("model = \"null\"\n\nnum-batches = \"many\"\n");
  EXPECT_NE(value.find("--num-batches is set in job.toml, line 3"), std::string::npos) << value;
  const std::string key = error_of("[run]\nbatch-sise = 4\n");
  EXPECT_NE(key.find("did you mean --batch-size?"), std::string::npos) << key;
  EXPECT_NE(key.find("job.toml, line 2"), std::string::npos) << key;
  const std::string section = error_of("\n[swep]\nbatch-size = 4\n");
  EXPECT_NE(section.find("job.toml, line 2: section [swep]"), std::string::npos) << section;
  const ChildExit missing = shell("$penstock run --config none.toml");
  EXPECT_NE(missing.last_words.find("cannot read 'none.toml'"), std::string::npos);
}

TEST_F(CommandLineProgram, ARunSaysWhatDiffersFromTheDefaultsAndAllIfAsked) {
  const std::string run =
      "$penstock run --feeder gpu --device emulated:img_per_s=5000 --model null --batch-size 2 "
      "--num-batches 3 --num-warmup-batches 1 2>&1 >/dev/null";
  const std::string few = output_of(run), all = output_of(run + " --verbose");
  EXPECT_NE(few.find(" --num-batches=3"), std::string::npos) << few;
  EXPECT_EQ(few.find("--weight-decay"), std::string::npos) << few;
  EXPECT_NE(all.find(" --weight-decay=4e-05"), std::string::npos) << all;
}

TEST_F(CommandLineProgram, SelftestSaysNothingOnTheWayIntoAPipe) {
  EXPECT_EQ(output_of("$penstock selftest --budget 2s --pairs 5 --out out 2>&1 >/dev/null || true"),
            "");
}

}  // namespace
}  // namespace penstock
