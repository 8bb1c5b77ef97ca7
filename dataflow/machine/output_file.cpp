// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "dataflow/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_output(const fs::path& path, const std::string& reason,
                                const std::string& advice) {
  throw DataError("cannot write '{}': {}{}", path.native(), reason,
                  advice.empty() ? "" : "; " + advice);
}

/// The end of a chain of links. The last link may lead to a file that does not exist yet.
fs::path end_of_links(fs::path path) {
  constexpr int kMostLinks = 40;  // as in Linux
  std::error_code none;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, none); ++i) {
    path = path.parent_path() / fs::read_symlink(path, none);
  }
  return path;
}

OutputTarget target_of(const fs::path& path, const std::string& advice) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT || path.empty()) refuse_output(path, std::strerror(errno), advice);
    return {end_of_links(path)};
  }
  if (S_ISDIR(status.st_mode)) refuse_output(path, std::strerror(EISDIR), advice);
  if (S_ISREG(status.st_mode)) return {end_of_links(path)};
  if (S_ISCHR(status.st_mode)) return {path, true};
  refuse_output(path,
                "it is not a regular file; expected a regular file, a new name, or a character "
                "device such as /dev/null",
                advice);
}

constexpr std::string_view kBegin = ".penstock-", kEnd = ".tmp";

/// Makes a new file in the folder of `target`. Its lock tells other hosts that its writer is alive.
int make_unfinished(const fs::path& target, fs::path& name) {
  for (unsigned number = 0;; ++number) {
    name = target.parent_path() / fmt::format("{}{}-{}{}", kBegin, ::getpid(), number, kEnd);
    const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0) static_cast<void>(::flock(file, LOCK_EX | LOCK_NB));
    if (file >= 0 || errno != EEXIST) return file;
  }
}

/// The writer's process id, from a name of make_unfinished(); 0 for other names.
pid_t writer_of(std::string_view name) {
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return 0;
  pid_t writer = 0;
  name.remove_prefix(kBegin.size());
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), writer);
  return error == std::errc() && *end == '-' ? writer : 0;
}

/// True if no process on this machine, or on a host that shares the file, writes to it.
bool is_abandoned(const fs::path& unfinished, pid_t writer) {
  if (::kill(writer, 0) == 0 || errno != ESRCH) return false;
  const FileDescriptor file(
      ::open(unfinished.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
}

/// Removes the unfinished files of processes that were killed while they wrote.
void remove_abandoned(const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator entry(folder.empty() ? "." : folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const pid_t writer = writer_of(entry->path().filename().native());
    if (writer > 0 && is_abandoned(entry->path(), writer)) ::unlink(entry->path().c_str());
  }
}

}  // namespace

OutputTarget find_output(const fs::path& path) {
  const char* const advice = "name a file in a folder that exists and that you may write to";
  OutputTarget target = target_of(path, advice);
  const fs::path folder = target.path.has_parent_path() ? target.path.parent_path() : ".";
  if (target.is_device || ::access(folder.c_str(), W_OK) == 0) return target;
  const std::string reason = std::strerror(errno);
  refuse_output(path,
                target.path == path
                    ? reason
                    : fmt::format("it leads to '{}': {}", target.path.native(), reason),
                advice);
}

OutputFile::OutputFile(const fs::path& path, std::string advice)
    : name_(path), advice_(std::move(advice)), target_(target_of(path, advice_)) {
  if (!target_.is_device) remove_abandoned(target_.path.parent_path());
  descriptor_.reset(target_.is_device
                        ? ::open(target_.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY)
                        : make_unfinished(target_.path, unfinished_));
  if (descriptor_) return;
  unfinished_.clear();
  refuse(errno);
}

OutputFile::~OutputFile() {
  if (!unfinished_.empty()) ::unlink(unfinished_.c_str());
}

void OutputFile::refuse(int error) const { refuse_output(name_, std::strerror(error), advice_); }

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) refuse(count < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void OutputFile::commit() {
  if (!target_.is_device && ::fsync(descriptor_.get()) != 0) refuse(errno);
  if (::close(descriptor_.release()) != 0) refuse(errno);
  if (target_.is_device) return;
  if (::rename(unfinished_.c_str(), target_.path.c_str()) != 0) refuse(errno);
  unfinished_.clear();
  const fs::path folder = target_.path.has_parent_path() ? target_.path.parent_path() : ".";
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened && ::fsync(opened.get()) != 0 && errno != EINVAL) refuse(errno);
}

void replace_file(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

FileDescriptor open_growing_file(const fs::path& path) {
  const OutputTarget target = target_of(path, {});
  FileDescriptor file(::open(
      target.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666));
  if (!file) refuse_output(path, std::strerror(errno), {});
  return file;
}

}  // namespace penstock
