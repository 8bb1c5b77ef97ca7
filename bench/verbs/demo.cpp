// SPDX-License-Identifier: Apache-2.0
// penstock demo: isolates a Python loader with a planted fault, so that a newcomer sees an answer
// before they have written a line. The measurement is that of `penstock isolate`.
#include <fmt/format.h>
#include <penstock_bad_loader_py.h>

#include <cstdio>
#include <filesystem>
#include <vector>

#include "bench/cli.h"
#include "bench/config/flags.h"
#include "bench/sweep/result_folder.h"
#include "dataflow/entry.h"
#include "dataflow/machine/output_file.h"

namespace penstock {
namespace {

constexpr std::string_view kIntroduction =
    R"(A training loop asks a Python loader for batches, on an emulated device of 2000 samples/s.
The loader is {0}. It has a planted fault: it loads its samples between two steps, and
waits for each of them. What does that cost, and would 4 workers help? This takes about 20 s:

  {1}

)";

constexpr std::string_view kNext = R"(
The first sentences are the answer. The line that begins with "Tried" says what 4 workers gained,
measured again beside the present setting. The same for a loader of yours:

  penstock isolate --loader my_loader.py:make_loader --device emulated:samples_per_s=RATE

my_loader.py has a function that returns the loader. RATE is what your device trains when it never
waits. To try settings, add --vary num_workers=2,4,8. To watch a training that you have, without a
change to it: penstock watch -- python3 train.py
)";

int run(const Invocation& invocation) {
  constexpr FlagGroup flag{"Demo"};
  std::string out = "out/demo";
  if (!parse_flags(
          {.verb = "demo",
           .summary = "Finds the planted fault of a small Python loader in about 20 s, and "
                      "says how to measure yours. Needs no data, no GPU and no package.",
           .examples = "demo\ndemo --out /tmp/demo"},
          std::vector<Flag>{
              flag.text("out", "folder for loader.py and the files of the answer", out)},
          invocation.arguments)) {
    return 0;
  }
  const std::filesystem::path loader = std::filesystem::path(out) / "loader.py";
  lock_results(out);
  replace_file(loader, kBadLoader);
  const std::vector<std::string> arguments = {"--loader",      loader.native() + ":make_loader",
                                              "--loader-args", "workers=0",
                                              "--device",      "emulated:samples_per_s=2000",
                                              "--vary",        "workers=4",
                                              "--budget",      "9s",
                                              "--vary-budget", "12s",
                                              "--out",         out};
  fmt::print(kIntroduction, loader.native(), command_text("isolate", arguments));
  std::fflush(stdout);
  Invocation isolate = invocation;
  isolate.arguments = arguments;
  const int code = find_entry(verb_table(), "isolate").run(isolate);
  if (code == 0) fmt::print(kNext);
  return code;
}

}  // namespace

extern constinit const VerbEntry demo_verb{
    .name = "demo",
    .summary = "see an answer in 20 s: the planted fault of a small Python loader",
    .run = run,
};

}  // namespace penstock
