// SPDX-License-Identifier: Apache-2.0
// Pickles byte by byte, as Python wrote them: each holds one datapoint of two arrays, or a
// dictionary.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "tests/support/text_bytes.h"

namespace penstock {

/// Spaces between bytes are skipped.
inline std::vector<std::byte> bytes_of_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += hex[i] == ' ' ? 1 : 2) {
    if (hex[i] == ' ') continue;
    bytes.push_back(static_cast<std::byte>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return bytes;
}

/// [uint8 [[1,2,3],[4,5,6]], int32 [7,-1]] by NumPy 1.24 in protocol 5.
inline std::vector<std::byte> pickle_of_arrays() {
  return bytes_of_hex(
      "800595c4000000000000005d94288c126e756d70792e636f72652e6e756d657269"
      "63948c0b5f66726f6d6275666665729493942896060000000000000001020304"
      "0506948c056e756d7079948c0564747970659493948c02753194898887945294"
      "284b038c017c944e4e4e4affffffff4affffffff4b007494624b024b0386948c"
      "0143947494529468032896080000000000000007000000ffffffff9468078c02"
      "693494898887945294284b038c013c944e4e4e4affffffff4affffffff4b0074"
      "94624b028594680e74945294652e");
}

/// {'data': uint8 [[9,8],[7,6]], 'labels': [6,9]} by Python 2 in protocol 2, like CIFAR-10's files.
inline std::vector<std::byte> pickle_of_python2() {
  constexpr char kText[] =
      "\x80\x02}q\x01(U\x06labelsq\x02]q\x03(K\x06K\x09"
      "eU\x04"
      "dataq\x04"
      "cnumpy.core.multiarray\n"
      "_reconstruct\nq\x05"
      "cnumpy\nndarray\nq\x06K\x00\x85U\x01"
      "b\x87Rq\x07(K\x01K\x02K\x02\x86"
      "cnumpy\n"
      "dtype\nq\x08U\x02u1K\x00K\x01\x87Rq\x09(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
      "K\x00tb\x89T\x04\x00\x00\x00\x09\x08\x07\x06tbu.";
  return bytes_of_text({kText, sizeof kText - 1});
}

}  // namespace penstock
