// SPDX-License-Identifier: Apache-2.0
// The verb kernels: runs each case twice on the device and once on the host.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bench/gpu/check_report.h"
#include "bench/gpu/workbench.h"
#include "dataflow/error.h"
#include "tests/support/gpu/accesses.h"
#include "tests/support/gpu/kernel_case.h"
#include "trainer/backends/gpu/device.h"

namespace penstock::gpu {
namespace {

/// The contents of the operands after the call. All operands are set to their initial contents
/// first.
std::vector<Bytes> run_on_device(const KernelCase& of, Workbench& bench) {
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::byte*> addresses;
  for (const KernelCase::Operand& operand : of.operands()) {
    blocks.push_back(std::make_unique<Block>(bench, operand.before.size(), operand.kind));
    blocks.back()->upload(operand.before);
    addresses.push_back(blocks.back()->data());
  }
  bench.driver().launch(bench.stream(), of.call_at(addresses));
  bench.wait();
  std::vector<Bytes> after;
  for (const auto& block : blocks) after.push_back(block->download());
  return after;
}

/// Returns an empty string if the results are right, else the reason.
std::string judge(const KernelCase& of, const std::vector<Bytes>& found, double& worst) {
  const std::vector<Bytes> expected = of.run_on_host();
  std::string failure;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const KernelCase::Operand& operand = of.operands()[i];
    if (!operand.written && found[i] != operand.before) {
      failure += fmt::format(" operand {} was only to be read, and changed;", i);
    }
    if (!operand.written) continue;
    const double error = distance_of(found[i], expected[i], operand.content);
    worst = std::max(worst, error);
    if (error > of.tolerance) {
      failure += fmt::format(" operand {} is off by {:.3g}, at most {:.3g} is right;", i, error,
                             of.tolerance);
    }
  }
  return failure;
}

void check(const NamedCase& named, std::uint64_t seed, Workbench& bench, CheckReport& report) {
  try {
    const KernelCase of = named.made(seed);
    const std::vector<Bytes> first = run_on_device(of, bench), again = run_on_device(of, bench);
    double worst = 0;
    std::string failure = judge(of, first, worst);
    if (of.repeats && first != again) failure += " two runs differ;";
    report.add(named.name, failure.empty() ? Verdict::pass : Verdict::fail,
               {{"worst_error", worst}}, failure);
  } catch (const DeviceError& error) {
    report.add(named.name, Verdict::fail, {}, error.what());
    expect_alive(bench.driver(), error);
  } catch (const std::exception& error) {
    report.add(named.name, Verdict::fail, {}, error.what());
  }
}

}  // namespace

void check_kernels(const CheckSettings& settings, CheckReport& report) {
  const std::unique_ptr<Driver> driver = open_driver(settings);
  Workbench bench(*driver);
  std::set<std::string> kernels;
  for (const NamedCase& one : kernel_cases()) {
    kernels.insert(one.name.substr(0, one.name.find_first_of(" _")));
    if (report.wants(one.name)) check(one, settings.seed, bench, report);
  }
  const auto expected = kernel_names().size();
  report.add("kernels_with_a_case", kernels.size() == expected ? Verdict::pass : Verdict::fail,
             {{"kernels", static_cast<double>(kernels.size())},
              {"expected", static_cast<double>(expected)}});
}

}  // namespace penstock::gpu
