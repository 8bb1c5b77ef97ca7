// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>
#include <system_error>

#include "dataflow/error.h"
#include "penstock_revision.h"

namespace penstock::gpu {
namespace {

constexpr const char* kName = "libpenstock_cuda.so";

std::array<std::filesystem::path, 3> places(const std::filesystem::path& program) {
  const std::filesystem::path folder = program.parent_path();
  return {folder / kName, folder.parent_path() / "lib" / kName, folder.parent_path() / kName};
}

using RevisionFunction = const char*();
using LibraryFunction = DriverLibrary*(char* error, std::size_t size);

template <typename Function>
Function& find_function(void* library, const std::filesystem::path& file, const char* name) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) {
    throw Unavailable(
        "{} has no function {}: it is not Penstock's, or damaged: build the target penstock_cuda "
        "again",
        file.string(), name);
  }
  return *reinterpret_cast<Function*>(symbol);
}

void expect_revision(void* library, const std::filesystem::path& file) {
  const std::string_view revision =
      find_function<RevisionFunction>(library, file, "penstock_cuda_revision")();
  if (revision == PENSTOCK_REVISION) return;
  throw Unavailable(
      "{} is of revision {}, this program of {}: build both together, or put the program's own "
      "library beside it",
      file.string(), revision, PENSTOCK_REVISION);
}

DriverLibrary& library_in(void* library, const std::filesystem::path& file) {
  expect_revision(library, file);
  std::array<char, 1024> error{};
  DriverLibrary* const drivers = find_function<LibraryFunction>(
      library, file, "penstock_cuda_library")(error.data(), error.size());
  if (drivers == nullptr) {
    throw Unavailable("{} cannot be used: {}", file.string(), error.data());
  }
  return *drivers;
}

}  // namespace

DriverLibrary& open_driver_library(std::span<const std::filesystem::path> files,
                                   const std::filesystem::path& gpus) {
  std::string tried, system_says;
  for (const std::filesystem::path& file : files) {
    const bool by_name = !file.has_parent_path();
    tried += fmt::format("{}{}", tried.empty() ? "" : ", ", file.string());
    if (!by_name && !std::filesystem::exists(file)) continue;
    if (void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) {
      return library_in(library, file);
    }
    if (by_name) {
      system_says = fmt::format("; the system says: {}", dlerror());
      continue;
    }
    throw Unavailable(
        "{} cannot be loaded: {}; it needs the libraries of CUDA 13 and cuDNN 9, on "
        "LD_LIBRARY_PATH or beside it",
        file.string(), dlerror());
  }
  if (std::error_code unreadable; !std::filesystem::exists(gpus, unreadable)) {
    throw Unavailable("this machine has no NVIDIA GPU: neither {} nor {} is there", gpus.string(),
                      kName);
  }
  throw Unavailable(
      "the gpu device needs {}, which was not found (tried {}{}): build the target penstock_cuda "
      "on a machine with the CUDA 13 toolkit, cuDNN 9 and NCCL",
      kName, tried, system_says);
}

std::filesystem::path find_driver_library(const std::filesystem::path& program) {
  std::error_code unreadable;
  for (const std::filesystem::path& file : places(program)) {
    if (std::filesystem::exists(file, unreadable)) return file;
  }
  return {};
}

DriverLibrary& driver_library() {
  static DriverLibrary& library = []() -> DriverLibrary& {
    const auto [beside, in_lib, above] = places(std::filesystem::read_symlink("/proc/self/exe"));
    const std::array<std::filesystem::path, 4> files{beside, in_lib, above, kName};
    return open_driver_library(files);
  }();
  return library;
}

}  // namespace penstock::gpu
