// SPDX-License-Identifier: Apache-2.0
// NumPy arrays of plain numbers from files and messages: a type, a shape, and a view of the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::values {

/// The type of an element.
struct NumpyType {
  char kind = 'u';         ///< b (bool), u, i or f
  std::uint8_t bytes = 1;  ///< 1, 2, 4 or 8
  bool big_endian = false;
  bool operator==(const NumpyType&) const = default;
};

/// The kind of arrays of Python's objects.
inline constexpr char kNumpyObject = 'O';

/// Parses "|u1", "<i4", ">f8" or "u1". Empty if it is not a type of plain numbers.
std::optional<NumpyType> parse_numpy_type(std::string_view text);
/// Also accepts NumPy's type names in this machine's byte order: "uint8", "float32", "bool".
std::optional<NumpyType> parse_numpy_type_or_name(std::string_view text);
/// "uint8", "big-endian int32".
std::string to_string(NumpyType type);

struct NumpyArray {
  NumpyType type{};
  std::vector<std::int64_t> shape{};  ///< empty: a single number
  bool fortran_order = false;         ///< the first dimension varies fastest; only in .npy files
  std::span<const std::byte> data{};  ///< as many bytes as type and shape need
};

/// NumPy's own limit for dimensions.
inline constexpr std::size_t kMaxNumpyDimensions = 32;

/// Size of all elements. Empty if a dimension is negative, if there are too many dimensions, or if
/// the size does not fit into 63 bits.
std::optional<std::uint64_t> numpy_bytes(NumpyType type, std::span<const std::int64_t> shape);

/// The data of a whole array in Fortran's order, in C's order: the last dimension varies fastest.
std::vector<std::byte> in_c_order(const NumpyArray& array);

/// The element of `type` at the beginning of `data`, which must be long enough. Empty if it is not
/// a whole number, or exceeds 63 bits.
std::optional<std::int64_t> numpy_integer(NumpyType type, std::span<const std::byte> data);
/// As numpy_integer, for a real number of 32 or 64 bits.
std::optional<double> numpy_real(NumpyType type, std::span<const std::byte> data);

/// The pickle in a .npy file of an array of Python's objects; empty if the elements are of a plain
/// type. Throws DataError if the file is not a .npy file.
std::span<const std::byte> npy_pickle(std::span<const std::byte> file);

/// The array of a .npy file, versions 1 to 3. Its data are all that the file has; in a truncated
/// file that is less than type and shape need. Throws DataError if the file is not a .npy file of
/// plain numbers.
NumpyArray parse_npy(std::span<const std::byte> file);

}  // namespace penstock::values
