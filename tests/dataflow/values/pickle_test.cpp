// SPDX-License-Identifier: Apache-2.0
// Pickles from Python, byte by byte or written at test time, and pickles that must be refused.
#include "dataflow/values/value_tree.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

#include "dataflow/error.h"
#include "tests/support/pickles.h"
#include "tests/support/python.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_bytes.h"
#include "tests/support/thrown_by.h"

namespace penstock {
namespace {

using Bytes = std::vector<std::byte>;

/// A value on one line, in the form of the test's Python script.
std::string describe(const values::ValueTree& tree, const values::Value& value) {
  const auto items = [&] {
    std::string text;
    for (const values::ValueId id : value.items) text += describe(tree, tree.at(id)) + " ";
    return text;
  };
  const auto hex = [](std::span<const std::byte> bytes) {
    std::string text;
    for (const std::byte byte : bytes) {
      text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
    }
    return text;
  };
  switch (value.kind) {
    case values::ValueKind::none:
      return "None";
    case values::ValueKind::boolean:
      return value.integer != 0 ? "True" : "False";
    case values::ValueKind::integer:
      return std::to_string(value.integer);
    case values::ValueKind::real:
      return "float:" + std::to_string(value.real);
    case values::ValueKind::text:
      return "str:" + hex(value.bytes);
    case values::ValueKind::bytes:
      return "bytes:" + hex(value.bytes);
    case values::ValueKind::list:
      return "[" + items() + "]";
    case values::ValueKind::tuple:
      return "(" + items() + ")";
    case values::ValueKind::dict:
      return "{" + items() + "}";
    case values::ValueKind::array:
      break;
  }
  if (value.array.type.kind == values::kNumpyObject) {
    std::string text = "objects:";
    for (const std::int64_t length : value.array.shape) text += std::to_string(length) + ",";
    return text + items();
  }
  std::string text = std::string("array:") + value.array.type.kind +
                     std::to_string(value.array.type.bytes) +
                     (value.array.type.big_endian ? ">" : "<");
  for (const std::int64_t length : value.array.shape) text += std::to_string(length) + ",";
  return text + ":" + hex(value.array.data);
}

std::string describe(const values::ValueTree& tree) { return describe(tree, tree.root()); }

std::string refusal(std::string_view text) {
  const Bytes bytes = bytes_of_text(text);
  return thrown_by<DataError>([&] { values::parse_pickle(bytes); });
}

template <std::size_t Size>
std::string refusal(const char (&text)[Size]) {
  return refusal(std::string_view(text, Size - 1));
}

TEST(Pickle, ArraysOfProtocolFiveAreViewsOfTheInput) {
  const Bytes bytes = pickle_of_arrays();
  const values::ValueTree tree = values::parse_pickle(bytes);
  EXPECT_EQ(describe(tree), "[array:u1<2,3,:010203040506 array:i4<2,:07000000ffffffff ]");
  const std::span<const std::byte> data = tree.at(tree.root().items[0]).array.data;
  EXPECT_GE(data.data(), bytes.data());
  EXPECT_LE(data.data() + data.size(), bytes.data() + bytes.size());
}

TEST(Pickle, PythonTwosStringsAreBytes) {
  const Bytes bytes = pickle_of_python2();
  const values::ValueTree tree = values::parse_pickle(bytes);
  ASSERT_NE(tree.find(tree.root(), "data"), nullptr);
  EXPECT_EQ(describe(tree, *tree.find(tree.root(), "data")), "array:u1<2,2,:09080706");
  EXPECT_EQ(describe(tree, *tree.find(tree.root(), "labels")), "[6 9 ]");
  EXPECT_EQ(tree.find(tree.root(), "filenames"), nullptr);
}

TEST(Pickle, EveryProtocolOfPythonThreeGivesItsValues) {
  if (!python_has("numpy")) GTEST_SKIP() << "needs /usr/bin/python3 with NumPy (python3-numpy)";
  const TempFolder folder;
  const std::string described = run_python(
      R"(
import pickle, sys, numpy as np
def tell(v):
    if v is None or isinstance(v, bool): return str(v)
    if isinstance(v, np.bool_): return str(bool(v))
    if isinstance(v, (int, np.integer)): return str(int(v))
    if isinstance(v, (float, np.floating)): return 'float:%f' % v
    if isinstance(v, str): return 'str:' + v.encode().hex()
    if isinstance(v, (bytes, bytearray)): return 'bytes:' + v.hex()
    if isinstance(v, list): return '[' + ''.join(tell(x) + ' ' for x in v) + ']'
    if isinstance(v, tuple): return '(' + ''.join(tell(x) + ' ' for x in v) + ')'
    if isinstance(v, dict): return '{' + ''.join(tell(x) + ' ' for kv in v.items() for x in kv) + '}'
    if v.dtype == object: return 'objects:' + ''.join('%d,' % n for n in v.shape) + tell(list(v.ravel())) + ' '
    kind = v.dtype.kind + str(v.dtype.itemsize) + ('>' if v.dtype.byteorder == '>' else '<')
    return 'array:' + kind + ''.join('%d,' % n for n in v.shape) + ':' + v.tobytes('C').hex()
shared = [1, 2]
values = [
    None, True, False, 0, 1, -1, 255, 256, 65535, 65536, -2**31, 2**31, 2**62, -2**63, 1.5, -1e300,
    '', 'caf\u00e9', 'x' * 300, b'', bytes(range(256)), b'y' * 70000, bytearray(b''), bytearray(b'\xff\x00'),
    [], (), {}, (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), list(range(2500)), {'a': 1, b'b': [2, {'c': ()}]},
    [shared, shared, (shared, 'x')], {i: str(i) for i in range(1500)},
    np.arange(6, dtype='u1').reshape(2, 3), np.asfortranarray(np.arange(6, dtype='<i4').reshape(2, 3)),
    np.arange(4, dtype='>i2'), np.array(3.5), np.zeros((0, 4), 'f4'), np.array([True, False]),
    np.ones(3, 'f2'), np.arange(24, dtype='u8').reshape(2, 3, 4)[:, ::2], np.frombuffer(b'abcd', 'u1'),
    [np.zeros(2, 'u1'), np.uint8(7)], np.int64(-5), np.float32(0.25), np.float64(2.5), np.bool_(True),
    np.asfortranarray(np.arange(120, dtype='u1').reshape(2, 3, 4, 5)), np.zeros((2, 0, 3), 'u1', 'F'),
    np.array([[np.arange(6, dtype='u1'), 5], ['x', None]], dtype=object), np.array([], dtype=object),
    np.arange(24, dtype='>u4').reshape(4, 6).T, np.zeros((1, 1), 'u1', 'F'),
    {b'data': np.arange(12, dtype='u1').reshape(2, 6), b'labels': [3, 4], b'batch_label': b'one'},
]
for i, value in enumerate(values):
    for protocol in range(6):
        with open('%s/%d.%d' % (sys.argv[1], i, protocol), 'wb') as file:
            pickle.dump(value, file, protocol)
    print(tell(value))
)",
      {folder.path().string()});
  std::size_t number = 0, begin = 0;
  for (std::size_t end = described.find('\n'); end != std::string::npos;
       begin = end + 1, end = described.find('\n', begin), ++number) {
    const std::string expected = described.substr(begin, end - begin);
    for (int protocol = 0; protocol <= 5; ++protocol) {
      const std::string name = std::to_string(number) + "." + std::to_string(protocol);
      SCOPED_TRACE(name);
      std::ifstream file(folder / name, std::ios::binary);
      const std::string text(std::istreambuf_iterator<char>(file), {});
      const Bytes bytes = bytes_of_text(text);
      EXPECT_EQ(values::is_pickle(bytes), protocol >= 2);
      if (protocol < 2) {
        EXPECT_TRUE(says(refusal(text), "as in protocols 0 and 1"));
        continue;
      }
      EXPECT_EQ(describe(values::parse_pickle(bytes)), expected);
      // Refused when truncated anywhere.
      for (std::size_t cut = 0; cut < bytes.size(); cut += 1 + cut / 16) {
        const Bytes part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(cut));
        EXPECT_THROW(values::parse_pickle(part), DataError) << cut;
      }
    }
  }
  EXPECT_EQ(number, 56U);
}

TEST(Pickle, WhatWouldRunCodeIsRefusedByName) {
  EXPECT_EQ(refusal("\x80\x02"
                    "cos\nsystem\nq\x00X\x02\x00\x00\x00ls\x85R."),
            "a pickle that cannot be read: GLOBAL (0x63) at byte 2 names 'os.system', which is "
            "neither a plain value nor an array of NumPy; expected plain values and arrays, of "
            "protocol 2 to 5");
  EXPECT_TRUE(says(refusal("\x80\x04\x8c\x08"
                           "builtins\x8c\x04"
                           "eval\x93."),
                   "names 'builtins.eval'"));
  EXPECT_TRUE(
      says(refusal("\x80\x02(S'ls'\nios\nsystem\n."), "STRING (0x53) at byte 3 is unsupported"));
  for (const char* opcode :
       {"o", "i", "\x81", "\x82", "\x92", "P", "Q", "I", "L", "F", "V", "\x97"}) {
    EXPECT_TRUE(says(refusal("\x80\x02" + std::string(opcode) + "x\n."), "is unsupported"))
        << opcode;
  }
  EXPECT_TRUE(says(refusal("\x80\x02\xff."), "no opcode (0xff) at byte 2"));
  // Only NumPy's functions may use these names: they are no values, and no other function takes
  // them.
  EXPECT_TRUE(says(refusal("\x80\x02"
                           "cnumpy\nndarray\n."),
                   "leaves a function"));
  EXPECT_TRUE(says(refusal("\x80\x02]cnumpy\ndtype\na."), "keeps a function"));
  EXPECT_TRUE(says(refusal("\x80\x02"
                           "cnumpy\nndarray\n)R."),
                   "calls a value that is not a function"));
  EXPECT_TRUE(says(refusal("\x80\x02"
                           "cnumpy\ndtype\nU\x02V8\x85R."),
                   "'V8', which is not a plain number"));
}

TEST(Pickle, WhatMakesNoSenseIsRefused) {
  EXPECT_TRUE(says(refusal(""), "its first byte is missing"));
  EXPECT_TRUE(says(refusal("\x80\x06N."), "followed by protocol 6"));
  EXPECT_TRUE(says(refusal("\x80\x02"
                           "B\xff\xff\xff\xff"
                           "abc."),
                   "BINBYTES (0x42) at byte 2 wants 4294967295 "
                   "bytes of the 4 that are left"));
  for (const std::string_view text : {std::string_view("\x80\x02.", 3),
                                      {"\x80\x02NN.", 5},
                                      {"\x80\x02(N.", 5},
                                      {"\x80\x02t.", 4},
                                      {"\x80\x02N.N", 5},
                                      {"\x80\x02h\x05.", 5},
                                      {"\x80\x02Na.", 5},
                                      {"\x80\x02NNa.", 6},
                                      {"\x80\x02}(Nu.", 6},
                                      {"\x80\x02]Nb.", 6},
                                      {"\x80\x02]NR.", 6},
                                      {"\x80\x02\x8a\x09"
                                       "123456789.",
                                       14},
                                      {"\x80\x02\x93.", 4},
                                      {"\x80\x02q\x01.", 5}}) {
    EXPECT_TRUE(says(refusal(text), "a pickle that cannot be read")) << text;
  }
  // Arrays with the wrong number of bytes for their shape, in every way of making an array.
  Bytes bytes = pickle_of_arrays();
  for (std::size_t i = 0; i + 3 < bytes.size(); ++i) {
    if (bytes[i] == std::byte{'K'} && bytes[i + 1] == std::byte{2} &&
        bytes[i + 2] == std::byte{'K'}) {
      bytes[i + 1] = std::byte{9};
    }
  }
  EXPECT_TRUE(says(thrown_by<DataError>([&] { values::parse_pickle(bytes); }),
                   "of a shape that its 6 bytes"));
}

TEST(Pickle, ArraysOfObjectsHaveAListOfTheirShapeAndAreNoPartOfIt) {
  using std::string_literals::operator""s;
  const std::string array =
      "\x80\x02"
      "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01"
      "b\x87Rq\x00"s;
  const std::string state =
      "(K\x01K\x01\x85"
      "cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb"s;
  const Bytes good = bytes_of_text(array + state + "\x89]Natb.");
  EXPECT_EQ(describe(values::parse_pickle(good)), "objects:1,[None ] ");
  EXPECT_TRUE(says(refusal(array + state + "\x89]tb."), "does not have its shape"));
  EXPECT_TRUE(says(refusal(array + state + "\x88]Natb."), "in Fortran's order"));
  // A list that holds the array becomes the array's list.
  const std::string list = "0]q\x01h\x00"s + "a0h\x00"s;
  EXPECT_TRUE(says(refusal(array + list + state + "\x89h\x01tb."), "part of another"));
  EXPECT_TRUE(says(refusal(array + state + "\x89U\x08" + "12345678tb."), "bytes of objects"));
}

TEST(Pickle, NothingIsNestedOrRepeatedWithoutEnd) {
  std::string deep = "\x80\x02";
  for (int i = 0; i < 40; ++i) deep += ")\x85";
  EXPECT_FALSE(says(refusal(deep + "."), "nests"));  // tuples of one each
  deep = "\x80\x02)";
  for (int i = 0; i < 40; ++i) deep += "\x85";
  EXPECT_TRUE(says(refusal(deep + "."), "nests values deeper than 32"));
  EXPECT_TRUE(says(refusal("\x80\x02]q\x00h\x00"
                           "a."),
                   "a part of itself"));
  EXPECT_TRUE(says(refusal("\x80\x02]q\x00]h\x00"
                           "ah\x00Na."),
                   "already part of another"));
  EXPECT_TRUE(
      says(refusal("\x80\x02(" + std::string(300'000, 'N') + "t."), "more than 262144 values"));
  // Encoding the same text repeatedly would take more memory than any input has.
  std::string encoded(
      "\x80\x02"
      "c_codecs\nencode\nq\x01X\x00\x01\x00\x00",
      25);
  encoded += std::string(256, 'x') + "q\x02X" + std::string("\x06\x00\x00\x00", 4) + "latin1q\x03";
  for (int i = 0; i < 60; ++i) encoded += "h\x01h\x02h\x03\x86R0";
  EXPECT_TRUE(says(refusal(encoded + "00."), "again and again")) << refusal(encoded);
}

}  // namespace
}  // namespace penstock
