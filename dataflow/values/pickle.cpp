// SPDX-License-Identifier: Apache-2.0
#include "dataflow/values/value_tree.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "dataflow/error.h"
#include "dataflow/values/pickle_machine.h"
#include "dataflow/values/value_at.h"

namespace penstock::values {
namespace {

// clang-format off
/// The name of an opcode, from Lib/pickletools.py; empty for an unknown one.
constexpr std::string_view pickle_opcode_name(std::uint8_t code) noexcept {
  struct Named { std::uint8_t code; std::string_view name; };
  constexpr Named kNames[] = {
      {'(', "MARK"}, {'.', "STOP"}, {'0', "POP"}, {'1', "POP_MARK"}, {'2', "DUP"}, {'F', "FLOAT"},
      {'I', "INT"}, {'J', "BININT"}, {'K', "BININT1"}, {'L', "LONG"}, {'M', "BININT2"},
      {'N', "NONE"}, {'P', "PERSID"}, {'Q', "BINPERSID"}, {'R', "REDUCE"}, {'S', "STRING"},
      {'T', "BINSTRING"}, {'U', "SHORT_BINSTRING"}, {'V', "UNICODE"}, {'X', "BINUNICODE"},
      {'a', "APPEND"}, {'b', "BUILD"}, {'c', "GLOBAL"}, {'d', "DICT"}, {'}', "EMPTY_DICT"},
      {'e', "APPENDS"}, {'g', "GET"}, {'h', "BINGET"}, {'i', "INST"}, {'j', "LONG_BINGET"},
      {'l', "LIST"}, {']', "EMPTY_LIST"}, {'o', "OBJ"}, {'p', "PUT"}, {'q', "BINPUT"},
      {'r', "LONG_BINPUT"}, {'s', "SETITEM"}, {'t', "TUPLE"}, {')', "EMPTY_TUPLE"},
      {'u', "SETITEMS"}, {'G', "BINFLOAT"}, {'B', "BINBYTES"}, {'C', "SHORT_BINBYTES"},
      {0x80, "PROTO"}, {0x81, "NEWOBJ"}, {0x82, "EXT1"}, {0x83, "EXT2"}, {0x84, "EXT4"},
      {0x85, "TUPLE1"}, {0x86, "TUPLE2"}, {0x87, "TUPLE3"}, {0x88, "NEWTRUE"}, {0x89, "NEWFALSE"},
      {0x8a, "LONG1"}, {0x8b, "LONG4"}, {0x8c, "SHORT_BINUNICODE"}, {0x8d, "BINUNICODE8"},
      {0x8e, "BINBYTES8"}, {0x8f, "EMPTY_SET"}, {0x90, "ADDITEMS"}, {0x91, "FROZENSET"},
      {0x92, "NEWOBJ_EX"}, {0x93, "STACK_GLOBAL"}, {0x94, "MEMOIZE"}, {0x95, "FRAME"},
      {0x96, "BYTEARRAY8"}, {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"},
  };
  for (const Named& named : kNames) {
    if (named.code == code) return named.name;
  }
  return {};
}
// clang-format on

constexpr std::uint8_t kProto = 0x80;

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const ValueLimits& limits)
      : bytes_(bytes), machine_(limits, 2 * bytes.size()) {}  // text, and its array in C's order

  ValueTree parse() {
    check_protocol();
    try {
      while (true) {
        at_ = next_;
        code_ = static_cast<std::uint8_t>(unsigned_of(1));
        if (code_ == '.') break;
        step();
      }
      if (next_ != bytes_.size()) throw PickleProblem{"is followed by more bytes"};
      return machine_.finish();
    } catch (const PickleProblem& problem) {
      refuse(problem.text);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    const std::string_view name = pickle_opcode_name(code_);
    throw DataError(
        "a pickle that cannot be read: {} (0x{:02x}) at byte {} {}; expected plain values and "
        "arrays, of protocol 2 to 5",
        name.empty() ? "no opcode" : name, code_, at_, problem);
  }

  void check_protocol() const {
    if (is_pickle(bytes_)) return;
    const bool says = bytes_.size() > 1 && bytes_[0] == std::byte{kProto};
    throw DataError(
        "a pickle that cannot be read: its first byte {}; expected protocol 2 to 5: pickle with "
        "protocol=4",
        bytes_.empty() ? std::string("is missing")
        : says         ? fmt::format("is followed by protocol {}", std::to_integer<int>(bytes_[1]))
                       : std::string("is no PROTO (0x80), as in protocols 0 and 1"));
  }

  std::span<const std::byte> take(std::uint64_t count) {
    if (count > bytes_.size() - next_) {
      throw PickleProblem{
          fmt::format("wants {} bytes of the {} that are left", count, bytes_.size() - next_)};
    }
    const auto taken = bytes_.subspan(next_, static_cast<std::size_t>(count));
    next_ += taken.size();
    return taken;
  }

  /// The next bytes as a little-endian number.
  std::uint64_t unsigned_of(std::size_t width) { return number_of(take(width)); }

  /// A two's complement number of any width.
  std::int64_t signed_of(std::uint64_t width) {
    if (width > 8) throw PickleProblem{"holds an integer of more than 64 bits"};
    if (width == 0) return 0;
    const auto spare = static_cast<int>(64 - 8 * width);
    const std::uint64_t word = unsigned_of(static_cast<std::size_t>(width)) << spare;
    return static_cast<std::int64_t>(word) >> spare;
  }

  std::string_view line() {
    constexpr std::size_t kLongest = 100;
    const std::size_t begin = next_;
    while (take(1)[0] != std::byte{'\n'}) {
      if (next_ - begin > kLongest) throw PickleProblem{"has a name that is too long"};
    }
    return text_of(bytes_.subspan(begin, next_ - begin - 1));
  }

  void push_bytes(ValueKind kind, std::size_t width) {
    machine_.push_bytes(kind, take(unsigned_of(width)));
  }

  void step() {
    switch (code_) {
      case 'N':
        return machine_.push({});
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
        return machine_.push_integer(ValueKind::boolean, code_ == 0x88);
      case 'J':
        return machine_.push_integer(ValueKind::integer, signed_of(4));
      case 'K':
        return machine_.push_integer(ValueKind::integer, static_cast<int>(unsigned_of(1)));
      case 'M':
        return machine_.push_integer(ValueKind::integer, static_cast<int>(unsigned_of(2)));
      case 0x8a:  // LONG1
        return machine_.push_integer(ValueKind::integer, signed_of(unsigned_of(1)));
      case 0x8b:  // LONG4
        return machine_.push_integer(ValueKind::integer, signed_of(unsigned_of(4)));
      case 'G':
        return machine_.push(
            {.kind = ValueKind::real, .real = std::bit_cast<double>(number_of(take(8), true))});
      case 'U':  // SHORT_BINSTRING
      case 'C':  // SHORT_BINBYTES
        return push_bytes(ValueKind::bytes, 1);
      case 'T':  // BINSTRING
      case 'B':  // BINBYTES
        return push_bytes(ValueKind::bytes, 4);
      case 0x8e:  // BINBYTES8
      case 0x96:  // BYTEARRAY8
        return push_bytes(ValueKind::bytes, 8);
      case 0x8c:  // SHORT_BINUNICODE
        return push_bytes(ValueKind::text, 1);
      case 'X':  // BINUNICODE
        return push_bytes(ValueKind::text, 4);
      case 0x8d:  // BINUNICODE8
        return push_bytes(ValueKind::text, 8);
      case ']':
        return machine_.push({.kind = ValueKind::list});
      case ')':
        return machine_.push({.kind = ValueKind::tuple});
      case '}':
        return machine_.push({.kind = ValueKind::dict});
      default:
        return step_machine();
    }
  }

  void step_machine() {
    switch (code_) {
      case kProto:
        if (const std::uint64_t protocol = unsigned_of(1); protocol < 2 || protocol > 5) {
          throw PickleProblem{fmt::format("says protocol {}", protocol)};
        }
        return;
      case 0x95:  // FRAME: its contents are parsed as if it were not there
        if (unsigned_of(8) > bytes_.size() - next_) throw PickleProblem{"is longer than the input"};
        return;
      case '(':
        return machine_.mark();
      case '0':
        return machine_.pop();
      case '1':
        return machine_.pop_to_mark();
      case 't':
        return machine_.make_marked_tuple();
      case 0x85:
      case 0x86:
      case 0x87:  // TUPLE1 to TUPLE3
        return machine_.make_tuple(code_ - 0x84U);
      case 'a':
        return machine_.append();
      case 'e':
        return machine_.append_marked();
      case 's':
        return machine_.set_item();
      case 'u':
        return machine_.set_marked();
      case 'q':
        return machine_.remember(unsigned_of(1));
      case 'r':
        return machine_.remember(unsigned_of(4));
      case 0x94:  // MEMOIZE
        return machine_.remember_next();
      case 'h':
        return machine_.recall(unsigned_of(1));
      case 'j':
        return machine_.recall(unsigned_of(4));
      case 'c': {
        const std::string_view module = line();
        return machine_.push_name(module, line());
      }
      case 0x93:  // STACK_GLOBAL
        return machine_.push_named_by_stack();
      case 'R':
        return machine_.call();
      case 'b':
        return machine_.build();
      default:
        throw PickleProblem{"is unsupported"};
    }
  }

  const std::span<const std::byte> bytes_;
  std::size_t next_ = 0;
  std::size_t at_ = 0;  // offset of the current opcode
  std::uint8_t code_ = 0;
  PickleMachine machine_;
};

}  // namespace

bool is_pickle(std::span<const std::byte> bytes) noexcept {
  return bytes.size() > 2 && bytes[0] == std::byte{kProto} && bytes[1] >= std::byte{2} &&
         bytes[1] <= std::byte{5};
}

ValueTree parse_pickle(std::span<const std::byte> bytes, const ValueLimits& limits) {
  return Parser(bytes, limits).parse();
}

}  // namespace penstock::values
