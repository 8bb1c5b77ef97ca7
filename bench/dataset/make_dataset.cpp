// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/make_dataset.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <vector>

#include "bench/dataset/default_dataset.h"
#include "bench/dataset/jpeg_file.h"
#include "bench/dataset/synthetic_photo.h"
#include "bench/dataset/textures.h"
#include "bench/record/machine.h"
#include "dataflow/datasets/image_folder.h"
#include "dataflow/error.h"
#include "dataflow/machine/file_descriptor.h"
#include "dataflow/machine/input_file.h"
#include "dataflow/machine/workers.h"

namespace penstock::dataset {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kSplits[] = {"train", "val"};
constexpr std::string_view kDescription = "dataset.json";
constexpr std::string_view kGenerator = "penstock synthetic photographs";
constexpr std::string_view kStagingPrefix = ".making-";
constexpr std::int64_t kMostThreads = 256;
constexpr std::chrono::milliseconds kBetweenReports{250};
/// One photograph takes 0.014 s of CPU time on one core of an AMD EPYC (November 2026); half as
/// much again for slower or busier machines.
constexpr double kSecondsPerImage = 0.02;

[[noreturn]] void cannot(std::string_view what, const fs::path& path, int error) {
  throw ConfigError("cannot {} {}: {}; make room or choose another folder with --data-dir", what,
                    path.string(), std::strerror(error));
}

FileDescriptor open_path(const fs::path& path, int flags) {
  FileDescriptor file(open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (!file) cannot("open", path, errno);
  return file;
}

/// Locks a folder until the result ends. Errors are ignored on file systems without locks, because
/// renaming alone keeps splits complete.
FileDescriptor lock(const fs::path& folder) {
  FileDescriptor file = open_path(folder, O_RDONLY | O_DIRECTORY);
  static_cast<void>(flock(file.get(), LOCK_EX));
  return file;
}

void write_file(const fs::path& path, std::span<const std::byte> bytes) {
  FileDescriptor file = open_path(path, O_WRONLY | O_CREAT | O_TRUNC);
  while (!bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) cannot("write", path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  // Some file systems report only here that they are full.
  if (close(file.release()) != 0) cannot("write", path, errno);
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) cannot("make the folder", path, error.value());
}

void rename_to(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) cannot("rename to", to, error.value());
}

/// Would replacing this path lose anything?
bool holds_something(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return false;
  const fs::directory_iterator entries(path, error);
  return error || entries != fs::directory_iterator();
}

Json description_of(const DatasetParameters& parameters) {
  Json classes = Json::array();
  for (std::int32_t i = 0; i < parameters.classes; ++i) {
    classes.push_back(texture_name(static_cast<std::size_t>(i)));
  }
  return {{"generator", kGenerator},
          {"version", kSyntheticPhotoVersion},
          {"seed", parameters.seed},
          {"quality", parameters.quality},
          {"classes", classes},
          {"images", {{"train", parameters.images}, {"val", parameters.val_images}}}};
}

/// The contents of the folder, compared with the requested ones.
struct Present {
  bool any = false, all = true, same = false;

  Present(const fs::path& directory, const Json& expected) {
    for (const std::string_view split : kSplits) {
      const bool there = holds_something(directory / split);
      any = any || there;
      all = all && there;
    }
    const InputFile file(directory / kDescription);
    if (!file) return;
    Json found = Json::parse(file.text(), nullptr, false);
    const bool ours = found.is_object() && found.value("generator", Json()) == kGenerator;
    any = any || !ours;
    if (ours) found.erase("bytes");
    same = found == expected;
  }
};

/// The missing folders on the way to `directory`, outermost first.
std::vector<fs::path> missing_folders(const fs::path& directory) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path path = fs::absolute(directory);
       !fs::exists(path, error) && path.has_relative_path(); path = path.parent_path()) {
    missing.insert(missing.begin(), path);
  }
  return missing;
}

/// The hidden folder that receives all files first, locked while it is in use, and the folders
/// created on the way to it. At the end, whatever remains of them is removed.
class Staging {
 public:
  explicit Staging(const fs::path& directory)
      : directory_(directory), missing_(missing_folders(directory)) {
    make_folder(directory);
    const FileDescriptor guard = lock(directory);
    remove_abandoned();
    std::string name = (directory / (std::string(kStagingPrefix) + "XXXXXX")).string();
    if (mkdtemp(name.data()) == nullptr) {
      const int error = errno;
      remove_empty_folders();
      cannot("make a folder in", directory, error);
    }
    path_ = name;
    lock_ = lock(path_);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    remove_empty_folders();
  }
  const fs::path& path() const noexcept { return path_; }

 private:
  /// Removes folders of killed processes, which hold no lock any more.
  void remove_abandoned() const {
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory_, ignored)) {
      if (!entry.path().filename().string().starts_with(kStagingPrefix)) continue;
      const FileDescriptor folder(open(entry.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (flock(folder.get(), LOCK_EX | LOCK_NB) == 0) fs::remove_all(entry.path(), ignored);
    }
  }
  void remove_empty_folders() const noexcept {
    for (auto folder = missing_.rbegin(); folder != missing_.rend(); ++folder) {
      if (rmdir(folder->c_str()) != 0) return;
    }
  }

  fs::path directory_, path_;
  std::vector<fs::path> missing_;
  FileDescriptor lock_;
};

/// Draws, encodes and writes all images on several threads.
class Painters {
 public:
  Painters(const MakeDataset& order, const fs::path& into, const std::stop_token& stop)
      : order_(order),
        into_(into),
        stop_(stop),
        total_(order.parameters.images + order.parameters.val_images) {
    for (const std::string_view split : kSplits) {
      for (std::int32_t i = 0; i < order.parameters.classes; ++i) {
        make_folder(into / split / texture_name(static_cast<std::size_t>(i)));
      }
    }
  }

  /// Returns false if stopped. Rethrows the first exception of a thread.
  bool run() {
    const auto count = std::clamp<std::int64_t>(order_.threads, 1, std::min(total_, kMostThreads));
    run_workers(static_cast<std::int32_t>(count), [this](std::int32_t worker) { work(worker); });
    if (failure_) std::rethrow_exception(failure_);
    return !stop_.stop_requested();
  }

  std::int64_t bytes() const noexcept { return bytes_; }

 private:
  /// Worker 0 is the calling thread, which reports progress.
  void work(std::int32_t worker) noexcept try {
    auto due = std::chrono::steady_clock::now() + kBetweenReports;
    for (std::int64_t i = next_++; i < total_ && !stop_.stop_requested() && !failed_; i = next_++) {
      paint(i);
      ++done_;
      if (worker != 0 || !order_.on_progress || std::chrono::steady_clock::now() < due) continue;
      order_.on_progress(done_, total_);
      due = std::chrono::steady_clock::now() + kBetweenReports;
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failed_.exchange(true)) failure_ = std::current_exception();
  }

  void paint(std::int64_t number) {
    const DatasetParameters& parameters = order_.parameters;
    const std::size_t split = number < parameters.images ? 0 : 1;
    const std::int64_t index = split == 0 ? number : number - parameters.images;
    const auto label = static_cast<std::int32_t>(index % parameters.classes);
    const std::string name(texture_name(static_cast<std::size_t>(label)));
    const Photo photo =
        synthetic_photo(label, parameters.seed, split, static_cast<std::uint64_t>(index));
    const std::vector<std::byte> jpeg = encode_jpeg(photo, parameters.quality);
    const std::string file = fmt::format("{}_{:06}.JPEG", name, index);
    write_file(into_ / kSplits[split] / name / file, jpeg);
    bytes_ += static_cast<std::int64_t>(jpeg.size());
  }

  const MakeDataset& order_;
  const fs::path into_;
  const std::stop_token stop_;
  const std::int64_t total_;
  std::atomic<std::int64_t> next_{0}, done_{0}, bytes_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr failure_;  // under mutex_ until the threads have ended
};

/// A folder of images in `directory` that this program did not make; empty: there is none.
std::string foreign_class(const fs::path& directory) {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') || std::ranges::count(kSplits, name) > 0) continue;
    try {
      if (!datasets::list_image_names(entry.path().string()).empty()) return name;
    } catch (const ConfigError&) {
      continue;  // not a folder, or without images
    }
  }
  return {};
}

/// Decides whether there is nothing to make. Throws ConfigError if other data would be lost or
/// would get new classes.
bool is_already_there(const MakeDataset& order, const Json& expected) {
  if (const std::string name = foreign_class(order.directory); !name.empty()) {
    throw ConfigError(
        "{} holds images in '{}' already, and train and val would become classes beside it; choose "
        "a new folder with --data-dir",
        order.directory, name);
  }
  const Present present(order.directory, expected);
  if (present.all && present.same && !order.force) return true;
  if (present.any && !present.same && !order.force) {
    throw ConfigError(
        "{} holds train, val or {} already, made with other parameters; expected a folder without "
        "them; choose another one with --data-dir, or replace them with --force",
        order.directory, kDescription);
  }
  return false;
}

/// Moves the new files to their place. At every moment, an existing split is complete, and
/// dataset.json either describes it or is missing.
void publish(const fs::path& from, const fs::path& to) {
  const fs::path replaced = from / "replaced";
  make_folder(replaced);
  for (const std::string_view split : kSplits) {
    if (fs::exists(fs::symlink_status(to / split))) rename_to(to / split, replaced / split);
  }
  rename_to(from / kDescription, to / kDescription);
  for (const std::string_view split : kSplits) rename_to(from / split, to / split);
}

}  // namespace

std::int32_t most_classes() { return static_cast<std::int32_t>(texture_count()); }

MadeDataset make_dataset(const MakeDataset& order, const std::stop_token& stop) {
  fs::path directory = fs::path(order.directory).lexically_normal();
  if (!directory.has_filename()) directory = directory.parent_path();  // "data/"
  Json description = description_of(order.parameters);
  if (is_already_there(order, description)) return {MadeDataset::Outcome::already_there};
  const Staging staging(directory);
  Painters painters(order, staging.path(), stop);
  if (order.on_progress) {
    order.on_progress(0, order.parameters.images + order.parameters.val_images);
  }
  if (!painters.run()) return {MadeDataset::Outcome::stopped};

  const FileDescriptor guard = lock(directory);
  // Another process may have been faster.
  if (is_already_there(order, description)) return {MadeDataset::Outcome::already_there};
  description["bytes"] = painters.bytes();
  const std::string text = description.dump(2) + "\n";
  write_file(staging.path() / kDescription, std::as_bytes(std::span(text)));
  publish(staging.path(), directory);
  return {MadeDataset::Outcome::made, painters.bytes()};
}

void announce(const MakeDataset& order) {
  const DatasetParameters& made = order.parameters;
  const auto images = static_cast<double>(made.images + made.val_images);
  fmt::print(stderr, "penstock: making {} + {} synthetic photographs in {}, about {:.0f} s\n",
             made.images, made.val_images, order.directory,
             std::ceil(kSecondsPerImage * images / order.threads));
}

void make_default_dataset(const std::string& parent, const std::stop_token& stop) {
  MakeDataset order{.directory = parent, .threads = usable_cores()};
  order.on_progress = [&](std::int64_t done, std::int64_t) {
    if (done == 0) announce(order);
  };
  make_dataset(order, stop);
}

}  // namespace penstock::dataset
