// SPDX-License-Identifier: Apache-2.0
// penstock list: components with their options, those that are known but not built, with the
// reason, and the flags of other systems that are refused, with what to use instead.
#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "bench/cli.h"
#include "bench/dataset/dataset_writer.h"
#include "bench/foreign_flags.h"
#include "bench/report.h"
#include "dataflow/decoder.h"
#include "dataflow/packed/shard_stream.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"
#include "trainer/backend.h"
#include "trainer/collectives/all_reduce.h"
#include "trainer/model.h"
#include "trainer/optimizer.h"
#include "trainer/update_strategy.h"

namespace penstock {
namespace {

template <typename Entry>
void print_table(const Table<Entry>& table) {
  fmt::print("{}\n", table.kind);
  for (const Entry* entry : table.entries) {
    fmt::print("  {:<22} {}\n", entry->name, entry->summary);
    const std::vector<std::string> names = names_of(*entry);
    if (names.size() > 1) fmt::print("  {:<22} also {}\n", "", join(std::span(names).subspan(1)));
    if constexpr (requires { entry->options; }) {
      for (const OptionSpec& option : entry->options) {
        fmt::print("      {:<18} {}{}\n", option.name, option.help,
                   option.fallback.empty() ? "" : fmt::format(" [{}]", option.fallback));
        for (const OptionValue& value : option.values) {
          fmt::print("        {:<24} {}\n", value.name, value.meaning);
        }
      }
    }
  }
  for (const AbsentEntry& absent : table.absent) {
    fmt::print("  {:<22} -- {}\n", absent.name, absent.reason);
  }
  fmt::print("\n");
}

int run(const Invocation& invocation) {
  if (!parse_flags(
          "list",
          "Lists components with their options, data-set formats, reports and refused flags.", {},
          invocation.arguments)) {
    return 0;
  }
  print_table(feeder_table());
  print_table(source_table());
  print_table(decompressor_table());
  print_table(decoder_table());
  print_table(model_table());
  print_table(backend_table());
  print_table(update_table());
  print_table(optimizer_table());
  print_table(all_reduce_table());
  print_table(dataset_writer_table());
  print_table(report_table());
  fmt::print("refused flag (of tf_cnn_benchmarks and tensorpack)\n");
  for (const ForeignFlag& flag : foreign_flags()) {
    fmt::print("  {:<22} {}\n", "--" + kebab(flag.name), flag.advice);
  }
  return 0;
}

}  // namespace

extern constinit const VerbEntry list_verb{
    .name = "list",
    .summary = "components of this program, their options, and what is not built and why",
    .run = run,
};

}  // namespace penstock
