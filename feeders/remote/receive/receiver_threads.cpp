// SPDX-License-Identifier: Apache-2.0
#include "feeders/remote/receive/receiver_threads.h"

#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "dataflow/error.h"

namespace penstock::remote {

void run_together(std::int32_t threads, const std::stop_token& stop,
                  const std::function<void(const std::stop_token&)>& work) {
  if (threads == 1) return work(stop);
  std::stop_source end;
  const std::stop_callback forward(stop, [&] { end.request_stop(); });
  std::mutex mutex;
  std::exception_ptr failure;  // the first, under mutex
  const auto fail = [&](std::exception_ptr reason) {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::move(reason);
  };
  const auto run = [&] {
    try {
      work(end.get_token());
    } catch (...) {
      fail(std::current_exception());
    }
    end.request_stop();
  };
  {
    std::vector<std::jthread> others;
    try {
      for (std::int32_t i = 1; i < threads; ++i) others.emplace_back(run);
    } catch (const std::system_error& error) {
      fail(std::make_exception_ptr(
          ConfigError("cannot start {} threads: {}; use fewer", threads, error.what())));
      end.request_stop();
    }
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace penstock::remote
