// SPDX-License-Identifier: Apache-2.0
// The verb kernels: runs each case twice on the device and once on the host.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <set>
#include <utility>
#include <variant>

#include "bench/gpu/check_verbs.h"
#include "bench/gpu/kernel_case.h"
#include "dataflow/error.h"
#include "trainer/backends/gpu/device.h"

namespace penstock::gpu {
namespace {

/// The contents of the operands after the call. All operands are set to their initial contents
/// first.
std::vector<Bytes> run_on_device(const KernelCase& of, Workbench& bench) {
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::byte*> addresses;
  for (const KernelOperand& operand : of.operands) {
    blocks.push_back(std::make_unique<Block>(bench, operand.before.size(), operand.kind));
    blocks.back()->upload(operand.before);
    addresses.push_back(blocks.back()->data());
  }
  bench.driver().launch(bench.stream(), of.call(OperandAddresses(addresses)));
  bench.wait();
  std::vector<Bytes> after;
  for (const auto& block : blocks) after.push_back(block->download());
  return after;
}

/// Returns an empty string if the results are right, else the reason.
std::string judge(const KernelCase& of, const std::vector<Bytes>& found, double& worst) {
  const std::vector<Bytes> expected = run_on_host(of);
  std::string failure;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const KernelOperand& operand = of.operands[i];
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

void check(const KernelCase& of, Workbench& bench, CheckReport& report) {
  try {
    const std::vector<Bytes> first = run_on_device(of, bench), again = run_on_device(of, bench);
    double worst = 0;
    std::string failure = judge(of, first, worst);
    if (of.repeats && first != again) failure += " two runs differ;";
    report.add(of.name, failure.empty() ? Verdict::pass : Verdict::fail, {{"worst_error", worst}},
               failure);
  } catch (const DeviceError& error) {
    report.add(of.name, Verdict::fail, {}, error.what());
    expect_alive(bench.driver(), error);
  } catch (const std::exception& error) {
    report.add(of.name, Verdict::fail, {}, error.what());
  }
}

/// The index of the kernel that the case calls.
std::size_t kind_of(const KernelCase& of) {
  const std::vector<std::byte*> nowhere(of.operands.size(), nullptr);
  return of.call(OperandAddresses(nowhere)).index();
}

}  // namespace

void check_kernels(const CheckSettings& settings, CheckReport& report) {
  const std::shared_ptr<DriverLibrary> library = library_for(settings);
  library->device_count();  // throws if there is none
  const std::unique_ptr<Driver> driver = library->open(0);
  Workbench bench(*driver);
  std::set<std::size_t> kinds;
  for (const KernelCase& one : kernel_cases(settings.seed)) {
    kinds.insert(kind_of(one));
    if (report.wants(one.name)) check(filled(one), bench, report);
  }
  const bool all = kinds.size() == std::variant_size_v<KernelCall>;
  report.add("kernels_with_a_case", all ? Verdict::pass : Verdict::fail,
             {{"kernels", static_cast<double>(kinds.size())},
              {"expected", static_cast<double>(std::variant_size_v<KernelCall>)}});
}

}  // namespace penstock::gpu
