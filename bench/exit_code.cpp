// SPDX-License-Identifier: Apache-2.0
#include "bench/exit_code.h"

#include "dataflow/error.h"

namespace penstock {

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

}  // namespace penstock
