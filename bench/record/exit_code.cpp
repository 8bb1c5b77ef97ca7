// SPDX-License-Identifier: Apache-2.0
#include "bench/record/exit_code.h"

#include <atomic>
#include <csignal>
#include <new>
#include <system_error>
#include <typeinfo>

#include "dataflow/error.h"

namespace penstock {
namespace {

std::atomic<int> stop_signal{SIGINT};  // one for the process, as signals are

}  // namespace

int exit_code_of_stop() noexcept { return 128 + stop_signal; }
void note_stop_signal(int signal) noexcept { stop_signal = signal; }

int exit_code_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const ConfigError&) {
    return 2;
  } catch (const Unavailable&) {
    return 3;
  } catch (const TimeoutError&) {
    return 5;
  } catch (const DeviceError&) {
    return 8;
  } catch (...) {
    return 6;
  }
}

std::string failure_text(const std::exception& error) {
  const auto* const refused = typeid(error) == typeid(std::system_error)
                                  ? static_cast<const std::system_error*>(&error)
                                  : nullptr;
  if (refused != nullptr && refused->code() == std::errc::resource_unavailable_try_again) {
    return std::string("cannot start a thread: ") + error.what() +
           "; raise the limits on processes (ulimit -u) and memory (ulimit -v), or use fewer "
           "threads and devices";
  }
  if (typeid(error) == typeid(std::bad_alloc)) {
    return "there is no memory left; lower --batch-size, --prefetch or --device-slots, or raise "
           "the limit on memory (ulimit -v)";
  }
  return error.what();
}

}  // namespace penstock
