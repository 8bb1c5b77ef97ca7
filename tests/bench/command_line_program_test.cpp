// SPDX-License-Identifier: Apache-2.0
// The program's descriptions of itself: help, lists, completions, job files, and version.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "bench/sweep/private_folder.h"
#include "tests/support/text_files.h"
#include "tests/support/thrown_by.h"
#include "tests/support/words.h"

namespace penstock {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class CommandLineProgram : public testing::Test {
 protected:
  /// Runs a shell command in a separate folder; $penstock is the program.
  ChildExit shell(const std::string& command) const {
    return exit_of(
        {"/bin/bash", "-c",
         "cd '" + folder_.path().native() + "'; penstock='" PENSTOCK_PROGRAM "'; " + command});
  }
  std::string output_of(const std::string& command) const {
    const ChildExit exit = shell(command);
    EXPECT_EQ(exit.code, 0) << command << "\n" << exit.last_words;
    return exit.output;
  }
  void write(const std::string& name, const std::string& text) const {
    write_text(folder_.path() / name, text);
  }
  /// The verbs of `penstock`, followed by their subcommands if they have any.
  std::vector<std::string> verbs() const {
    std::vector<std::string> found;
    for (const std::string& line : lines_of(output_of("$penstock --help"))) {
      if (!line.starts_with("  ") || line.starts_with("  penstock")) continue;
      const std::string verb = line.substr(2, line.find(' ', 2) - 2);
      if (verb != "dataset") found.push_back(verb);
    }
    for (const char* const word : {"make", "inspect", "check", "convert", "index", "coverage"}) {
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
    EXPECT_TRUE(says(help, "\nExamples:\n"));
    EXPECT_TRUE(says(help, "\nUsage: penstock " + verb));
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
  EXPECT_TRUE(says(few, "penstock run --help-all"));
  EXPECT_FALSE(says(few, "--adam-beta1"));
  for (const char* const part :
       {"--adam-beta1", "\nOptimizer:\n", "\nCheckpoints:\n", "\nData and feeding:\n",
        "\nFlags of other systems:\n", "--fake-location, --feeder VALUE"}) {
    EXPECT_TRUE(says(all, part)) << part << " in\n" << all;
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
  EXPECT_TRUE(says(queue, "\n      readahead "));
  EXPECT_FALSE(says(queue, "zmq-consume "));
  const std::string models = output_of("$penstock list model");
  EXPECT_TRUE(says(models, "  resnet50 "));
  EXPECT_FALSE(says(models, "  queue "));
  const ChildExit kind = shell("$penstock list feeders");
  EXPECT_EQ(kind.code, 2);
  EXPECT_TRUE(says(kind.last_words, "expected one of feeder, "));
  EXPECT_TRUE(says(shell("$penstock list feeder quueue").last_words, "did you mean 'queue'?"));
}

TEST_F(CommandLineProgram, AFlagInThePlaceOfTheVerbIsNamedWithTheVerb) {
  const ChildExit exit = shell("$penstock --model=trivial --num_gpus=2");
  EXPECT_EQ(exit.code, 2);
  EXPECT_TRUE(says(exit.last_words, "did you mean `penstock run --model=trivial ...`?"));
  EXPECT_TRUE(says(shell("$penstock sweep --loader l.py:make --device emulated").last_words,
                   "use --fake-location python:loader=FILE.py:FUNCTION"));
}

TEST_F(CommandLineProgram, BashCompletesVerbsFlagsAndComponents) {
  const auto complete = [&](const std::string& words, int at) {
    return " " + output_of("source <($penstock completion bash); PATH=" +
                           std::filesystem::path(PENSTOCK_PROGRAM).parent_path().native() +
                           ":$PATH; COMP_WORDS=(" + words + "); COMP_CWORD=" + std::to_string(at) +
                           "; _penstock; echo \"${COMPREPLY[*]}\" ");
  };
  EXPECT_TRUE(says(complete("penstock is", 1), " isolate"));
  EXPECT_TRUE(says(complete("penstock dataset co", 2), " convert"));
  EXPECT_TRUE(says(complete("penstock run --num-b", 2), " --num-batches"));
  EXPECT_TRUE(says(complete("penstock run --feeder qu", 3), " queue"));
  EXPECT_TRUE(says(complete("penstock run --fake-location = qu", 4), " queue"));
  EXPECT_TRUE(says(complete("penstock sweep --model res", 3), " resnet50"));
  EXPECT_TRUE(says(complete("penstock list mo", 2), " model"));
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
  EXPECT_TRUE(says(page, ".SS \"Data and feeding:\""));
  EXPECT_TRUE(says(page, "\\fB\\-\\-num\\-batches\\fR"));
}

TEST_F(CommandLineProgram, VersionNamesTheRevision) {
  const std::string text = output_of("$penstock --version");
  EXPECT_TRUE(text.starts_with("penstock ")) << text;
  EXPECT_TRUE(says(text, "(revision "));
}

TEST_F(CommandLineProgram, AJobFileHoldsFlagsThatTypedOnesOverride) {
  write("job.toml",
        "# quick\ndevice = \"emulated:img_per_s=5000\"\nmodel = \"null\"\nbatch_size = 4\n"
        "num-warmup-batches = 1\n\n[run]\nnum-batches = 5\n\n[sweep]\nnum-batches = [3, 4]\n"
        "feeder = [\"gpu\", \"host\"]\nrepetitions = 1\n");
  const std::string run = output_of("$penstock run --config job.toml --json --batch-size=2");
  EXPECT_TRUE(says(run, "\"num_batches\":5,"));
  EXPECT_TRUE(says(run, "\"batch_size\":2,"));
  const ChildExit sweep = shell("$penstock sweep --config=job.toml --out out");
  EXPECT_EQ(sweep.code, 0) << sweep.last_words;
  EXPECT_TRUE(says(sweep.last_words, "[4/4] "));
}

TEST_F(CommandLineProgram, ErrorsInAJobFileNameItsLine) {
  const auto error_of = [&](const std::string& text) {
    write("job.toml", text);
    const ChildExit exit = shell("$penstock run --config job.toml");
    EXPECT_EQ(exit.code, 2);
    return exit.last_words;
  };
  const std::string value = error_of("model = \"null\"\n\nnum-batches = \"many\"\n");
  EXPECT_TRUE(says(value, "--num-batches is set in job.toml, line 3"));
  const std::string key = error_of("[run]\nbatch-sise = 4\n");
  EXPECT_TRUE(says(key, "did you mean --batch-size?"));
  EXPECT_TRUE(says(key, "job.toml, line 2"));
  const std::string section = error_of("\n[swep]\nbatch-size = 4\n");
  EXPECT_TRUE(says(section, "job.toml, line 2: section [swep]"));
  const ChildExit missing = shell("$penstock run --config none.toml");
  EXPECT_TRUE(says(missing.last_words, "cannot read 'none.toml'"));
}

TEST_F(CommandLineProgram, ARunSaysWhatDiffersFromTheDefaultsAndAllIfAsked) {
  const std::string run =
      "$penstock run --feeder gpu --device emulated:img_per_s=5000 --model null --batch-size 2 "
      "--num-batches 3 --num-warmup-batches 1 2>&1 >/dev/null";
  const std::string few = output_of(run), all = output_of(run + " --verbose");
  EXPECT_TRUE(says(few, " --num-batches=3"));
  EXPECT_FALSE(says(few, "--weight-decay"));
  EXPECT_TRUE(says(all, " --weight-decay=4e-05"));
}

/// As the command of a Python package does, whose folder need not be in the path.
TEST_F(CommandLineProgram, ItsChildrenAreThisProgramWhateverNameItWasGiven) {
  const std::string said = output_of(
      "PATH=/usr/bin:/bin; exec -a penstock $penstock sweep --fake-location gpu --num-gpus 1 "
      "--device emulated:img_per_s=4000 --model trivial --batch-size 8 --num-batches 5 "
      "--repetitions 1 --rest 0s 2>&1");
  EXPECT_FALSE(says(said, "failed"));
}

TEST_F(CommandLineProgram, TheStandInTrainsOnImagesThatAreTooSmallForTheDefaultModel) {
  write("small.py",
        "def make():\n"
        "  while True: yield memoryview(bytes(6272)).cast('B', (8, 1, 28, 28)), [0] * 8\n");
  const std::string run = "$penstock run --loader small.py:make --num-batches 5 --json --device ";
  EXPECT_TRUE(says(output_of(run + "emulated:samples_per_s=4000"), "\"model\":\"any\""));
  EXPECT_TRUE(says(shell(run + "cpu").last_words, "cannot take images of 28x28"));
}

TEST_F(CommandLineProgram, SelftestPrintsALineForEachBlockWhereNoTerminalIs) {
  const std::string text =
      output_of("$penstock selftest --budget 2s --pairs 5 --out out 2>&1 >/dev/null || true");
  EXPECT_TRUE(std::regex_match(text, std::regex("(block [0-9]+: at most [0-9]+ s left\n)+")))
      << text;
}

}  // namespace
}  // namespace penstock
