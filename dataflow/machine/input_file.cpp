// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dataflow/error.h"

namespace penstock {

InputFile::InputFile(const char* path, int flags) noexcept
    : descriptor_(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags)) {
  struct stat status {};
  if (!descriptor_ || ::fstat(descriptor_.get(), &status) != 0) {
    error_ = errno;
  } else if (S_ISREG(status.st_mode)) {
    size_ = static_cast<std::uint64_t>(status.st_size);
    ::fcntl(descriptor_.get(), F_SETFL,
            flags);  // otherwise io_uring does not wait, on some kernels
    return;
  }
  descriptor_.reset();
}

std::string InputFile::problem() const {
  return error_ != 0 ? std::strerror(error_) : *this ? "" : "it is not a regular file";
}

std::string InputFile::part(std::uint64_t begin, std::size_t count) const {
  std::string content(std::min<std::uint64_t>(count, size_ - std::min(begin, size_)), '\0');
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t read = ::pread(descriptor_.get(), content.data() + done, content.size() - done,
                                 static_cast<off_t>(begin + done));
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) break;
    done += static_cast<std::size_t>(read);
  }
  content.resize(done);
  return content;
}

template <typename Bytes>
Bytes InputFile::content(std::uint64_t most) const {
  if (!*this) throw DataError(problem());
  Bytes content;
  constexpr std::size_t kPart = 1 << 16;
  for (std::size_t done = 0;;) {  // files of /proc have size 0
    if (done > most) throw DataError("it has more than {} bytes", most);
    content.resize(done + std::max<std::size_t>(kPart, size_ > done ? size_ + 1 - done : 0));
    const ssize_t count = ::read(descriptor_.get(), content.data() + done, content.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw DataError(std::strerror(errno));
    if (count == 0) {
      content.resize(done);
      return content;
    }
    done += static_cast<std::size_t>(count);
  }
}

template std::string InputFile::content(std::uint64_t) const;
template std::vector<std::byte> InputFile::content(std::uint64_t) const;

}  // namespace penstock
