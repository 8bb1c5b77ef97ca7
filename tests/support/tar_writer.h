// SPDX-License-Identifier: Apache-2.0
// Writes headers of tar files field by field, including headers that no archiver would write.
#pragma once

#include <cstdio>
#include <string>

namespace penstock {

struct TarHeader {
  std::string name = "a.jpg";
  std::string size = "0";  ///< octal, as text
  char type = '0';
  std::string magic = std::string("ustar\0", 6) + "00";
  std::string prefix{};
};

/// Writes the checksum of a block as if the block were a header.
inline void set_tar_sum(char* block) {
  unsigned sum = 0;
  for (int i = 0; i < 512; ++i) {
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
  }
  std::snprintf(block + 148, 8, "%06o", sum);
  block[155] = ' ';
}

inline std::string tar_header(const TarHeader& header) {
  std::string block(512, '\0');
  block.replace(0, header.name.size(), header.name);
  block.replace(124, header.size.size(), header.size);
  block[156] = header.type;
  block.replace(257, header.magic.size(), header.magic);
  block.replace(345, header.prefix.size(), header.prefix);
  set_tar_sum(block.data());
  return block;
}

/// Pads with zeros to whole blocks.
inline std::string tar_padded(std::string data) {
  data.resize((data.size() + 511) / 512 * 512, '\0');
  return data;
}

inline std::string tar_member(TarHeader header, const std::string& data) {
  char octal[16];
  std::snprintf(octal, sizeof octal, "%011o", static_cast<unsigned>(data.size()));
  header.size = octal;
  return tar_header(header) + tar_padded(data);
}

inline std::string tar_file(const std::string& name, const std::string& data) {
  return tar_member({.name = name}, data);
}

}  // namespace penstock
