// SPDX-License-Identifier: Apache-2.0
#include "dataflow/values/pickle_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace penstock::values {
namespace {

[[noreturn]] void fail(std::string text) { throw PickleProblem{std::move(text)}; }

}  // namespace

// ---- the stack --------------------------------------------------------------

ValueId PickleMachine::add(Value value, Role role) {
  if (tree_.size() >= limits_.values) {
    fail(fmt::format("makes more than {} values", limits_.values));
  }
  notes_.push_back({.role = role});
  return tree_.add(std::move(value));
}

void PickleMachine::push(Value value) { stack_.push_back(add(std::move(value))); }

void PickleMachine::push_bytes(ValueKind kind, std::span<const std::byte> bytes) {
  push({.kind = kind, .bytes = bytes});
}

void PickleMachine::push_integer(ValueKind kind, std::int64_t integer) {
  push({.kind = kind, .integer = integer});
}

void PickleMachine::push_name(std::string_view module, std::string_view name) {
  struct Known {
    std::string_view module, name;
    Role role;
  };
  static constexpr Known kKnown[] = {
      {"numpy.core.multiarray", "_reconstruct", Role::reconstruct},
      {"numpy._core.multiarray", "_reconstruct", Role::reconstruct},
      {"numpy.core.multiarray", "scalar", Role::scalar},
      {"numpy._core.multiarray", "scalar", Role::scalar},
      {"numpy.core.numeric", "_frombuffer", Role::from_buffer},
      {"numpy._core.numeric", "_frombuffer", Role::from_buffer},
      {"numpy", "ndarray", Role::array_class},
      {"numpy", "dtype", Role::type_class},
      {"_codecs", "encode", Role::encode},
      {"__builtin__", "bytes", Role::bytes_class},
      {"builtins", "bytes", Role::bytes_class},
      {"__builtin__", "bytearray", Role::bytearray_class},
      {"builtins", "bytearray", Role::bytearray_class},
  };
  for (const Known& known : kKnown) {
    if (known.module != module || known.name != name) continue;
    stack_.push_back(add({}, known.role));
    return;
  }
  fail(fmt::format("names '{}.{}', which is neither a plain value nor an array of NumPy", module,
                   name));
}

void PickleMachine::push_named_by_stack() {
  const Value &name = tree_.at(take()), &module = tree_.at(take());
  if (name.kind != ValueKind::text || module.kind != ValueKind::text) {
    fail("uses a name that is not text");
  }
  if (name.bytes.size() > 100 || module.bytes.size() > 100) fail("has a name that is too long");
  push_name(text_of(module), text_of(name));
}

void PickleMachine::mark() { marks_.push_back(stack_.size()); }

void PickleMachine::pop() {
  if (!marks_.empty() && marks_.back() == stack_.size()) {
    marks_.pop_back();
  } else {
    take();
  }
}

ValueId PickleMachine::top() const {
  const std::size_t floor = marks_.empty() ? 0 : marks_.back();
  if (stack_.size() <= floor) fail("finds too little on the stack");
  return stack_.back();
}

ValueId PickleMachine::take() {
  const ValueId id = top();
  stack_.pop_back();
  return id;
}

std::vector<ValueId> PickleMachine::take_marked() {
  if (marks_.empty()) fail("finds no mark on the stack");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<ValueId> items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

// ---- containers -------------------------------------------------------------

/// Makes `item` a part of `container`. From then on `item` must not change, so that there are no
/// cycles and depths are final.
void PickleMachine::place(ValueId container, ValueId item) {
  Note &outer = notes_[container], &inner = notes_[item];
  if (container == item) fail("makes a value a part of itself");
  if (inner.role != Role::plain) {
    if (tree_.at(container).kind != ValueKind::tuple) fail("keeps a function or a type as a value");
    outer.role = Role::arguments;
  }
  inner.placed = true;
  outer.depth = std::max(outer.depth, inner.depth + 1);
  if (outer.depth > limits_.depth) {
    fail(fmt::format("nests values deeper than {}", limits_.depth));
  }
  tree_.edit(container).items.push_back(item);
}

void PickleMachine::make_tuple(std::size_t count) {
  std::vector<ValueId> items(count);
  for (std::size_t i = count; i-- > 0;) items[i] = take();
  push_tuple(items);
}

void PickleMachine::make_marked_tuple() { push_tuple(take_marked()); }

void PickleMachine::push_tuple(std::span<const ValueId> items) {
  const ValueId id = add({.kind = ValueKind::tuple});
  for (const ValueId item : items) place(id, item);
  stack_.push_back(id);
}

void PickleMachine::extend(ValueKind kind, std::span<const ValueId> items) {
  const ValueId container = top();
  if (tree_.at(container).kind != kind) {
    fail(kind == ValueKind::list ? "appends to a value that is not a list"
                                 : "sets items of a value that is not a dict");
  }
  if (notes_[container].placed) fail("changes a value that is already part of another");
  for (const ValueId item : items) place(container, item);
}

void PickleMachine::append() {
  const ValueId items[] = {take()};
  extend(ValueKind::list, items);
}

void PickleMachine::append_marked() { extend(ValueKind::list, take_marked()); }

void PickleMachine::set_item() {
  const ValueId value = take(), key = take();
  const ValueId items[] = {key, value};
  extend(ValueKind::dict, items);
}

void PickleMachine::set_marked() {
  const std::vector<ValueId> items = take_marked();
  if (items.size() % 2 != 0) fail("sets a key without a value");
  extend(ValueKind::dict, items);
}

// ---- the memo ---------------------------------------------------------------

void PickleMachine::remember(std::uint64_t number) {
  if (memo_.size() >= limits_.values) fail("stores too many values");
  memo_[number] = top();
}

void PickleMachine::recall(std::uint64_t number) {
  const auto found = memo_.find(number);
  if (found == memo_.end()) {
    fail(fmt::format("asks for value {}, which was never stored", number));
  }
  stack_.push_back(found->second);
}

ValueTree PickleMachine::finish() {
  const ValueId id = take();
  if (!stack_.empty() || !marks_.empty()) fail("leaves more than one value");
  if (notes_[id].role != Role::plain) fail("leaves a function or a type");
  tree_.set_root(id);
  return std::move(tree_);
}

// ---- what NumPy's pickles call ----------------------------------------------

const Value& PickleMachine::argument(const Value& arguments, std::size_t index,
                                     ValueKind kind) const {
  if (index < arguments.items.size()) {
    const ValueId id = arguments.items[index];
    if (tree_.at(id).kind == kind && notes_[id].role == Role::plain) return tree_.at(id);
  }
  fail("has arguments that its function does not take");
}

NumpyType PickleMachine::type_argument(const Value& arguments, std::size_t index) const {
  if (index >= arguments.items.size() || notes_[arguments.items[index]].role != Role::type) {
    fail("has no type of elements");
  }
  const NumpyType type = notes_[arguments.items[index]].type;
  if (type.kind == kNumpyObject) fail("has bytes of objects");
  return type;
}

void PickleMachine::call() {
  const ValueId arguments_id = take(), function = take();
  const Value arguments = tree_.at(arguments_id);  // a copy, since new values may move the original
  if (arguments.kind != ValueKind::tuple) fail("calls a function without a tuple of arguments");
  switch (notes_[function].role) {
    case Role::reconstruct: {
      if (arguments.items.empty() || notes_[arguments.items[0]].role != Role::array_class) {
        fail("reconstructs a value that is not an array");
      }
      push({.kind = ValueKind::array, .array = {.shape = {0}}});
      notes_[stack_.back()].buildable = true;
      return;
    }
    case Role::type_class:
      return make_type(arguments);
    case Role::from_buffer:
      return make_array_from_buffer(arguments);
    case Role::scalar:
      return make_scalar(arguments);
    case Role::encode:
      return make_bytes(arguments, true);
    case Role::bytes_class:
      if (!arguments.items.empty()) fail("makes bytes of something");
      return push_bytes(ValueKind::bytes, {});
    case Role::bytearray_class:
      return make_bytes(arguments, false);
    default:
      fail("calls a value that is not a function");
  }
}

void PickleMachine::make_type(const Value& arguments) {
  const bool given = !arguments.items.empty();
  const Value code = given ? tree_.at(arguments.items[0]) : Value{};
  const std::string_view text = text_of(code);
  std::optional<NumpyType> type = parse_numpy_type(text);
  if (text == "O8") type = NumpyType{kNumpyObject, 8};
  if (!type) {
    fail(fmt::format("makes the type of elements '{}', which is not a plain number",
                     text.substr(0, 20)));
  }
  const ValueId id = add({}, Role::type);
  notes_[id].type = *type;
  notes_[id].buildable = true;
  stack_.push_back(id);
}

NumpyArray PickleMachine::make_array(NumpyType type, const Value& shape,
                                     std::span<const std::byte> data, bool fortran_order) {
  NumpyArray array{.type = type, .data = data};
  for (const ValueId id : shape.items) {
    if (tree_.at(id).kind != ValueKind::integer) fail("has a dimension that is no whole number");
    array.shape.push_back(tree_.at(id).integer);
  }
  const std::optional<std::uint64_t> bytes = numpy_bytes(type, array.shape);
  if (!bytes || *bytes != data.size()) {
    fail(fmt::format("makes an array of a shape that its {} bytes do not have", data.size()));
  }
  if (fortran_order && array.shape.size() > 1) array.data = keep(in_c_order(array));
  return array;
}

void PickleMachine::make_array_from_buffer(const Value& arguments) {
  const Value& data = argument(arguments, 0, ValueKind::bytes);
  const Value& shape = argument(arguments, 2, ValueKind::tuple);
  const std::string_view order = text_of(argument(arguments, 3, ValueKind::text));
  if (order != "C" && order != "F") fail("has an order of elements that is neither C nor F");
  NumpyArray array = make_array(type_argument(arguments, 1), shape, data.bytes, order == "F");
  push({.kind = ValueKind::array, .array = std::move(array)});
}

void PickleMachine::make_scalar(const Value& arguments) {
  const NumpyType type = type_argument(arguments, 0);
  const std::span<const std::byte> data = argument(arguments, 1, ValueKind::bytes).bytes;
  if (data.size() != type.bytes) fail("makes a number of the wrong size");
  if (const std::optional<std::int64_t> integer = numpy_integer(type, data)) {
    if (type.kind == 'b') return push_integer(ValueKind::boolean, *integer != 0);
    return push_integer(ValueKind::integer, *integer);
  }
  if (const std::optional<double> real = numpy_real(type, data)) {
    return push({.kind = ValueKind::real, .real = *real});
  }
  fail("makes a number beyond 63 bits, or of 16 bits");
}

/// Makes Python 3's bytes of protocol 2, encode('...', 'latin1'), and bytearrays before protocol 5.
void PickleMachine::make_bytes(const Value& arguments, bool needs_text) {
  if (!needs_text && arguments.items.empty()) return push_bytes(ValueKind::bytes, {});
  if (!needs_text && arguments.items.size() == 1) {
    return push_bytes(ValueKind::bytes, argument(arguments, 0, ValueKind::bytes).bytes);
  }
  const std::string_view text = text_of(argument(arguments, 0, ValueKind::text));
  const std::string_view codec = text_of(argument(arguments, 1, ValueKind::text));
  if (codec != "latin1" && codec != "latin-1")
    fail("encodes text in an encoding other than Latin-1");
  push_bytes(ValueKind::bytes, narrow(text));
}

/// Converts UTF-8 characters, all of which must be below 256, to bytes.
std::span<const std::byte> PickleMachine::narrow(std::string_view text) {
  std::vector<std::byte> bytes;
  bytes.reserve(std::min(text.size(), most_kept_));
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto first = static_cast<std::uint8_t>(text[i]);
    if (first < 0x80) {
      bytes.push_back(std::byte{first});
      continue;
    }
    const bool whole = (first == 0xc2 || first == 0xc3) && i + 1 < text.size();
    const auto second = whole ? static_cast<std::uint8_t>(text[i + 1]) : std::uint8_t{0};
    if ((second & 0xc0) != 0x80) fail("encodes text that Latin-1 does not have");
    bytes.push_back(static_cast<std::byte>((first & 3) << 6 | (second & 0x3f)));
    ++i;
  }
  return keep(std::move(bytes));
}

/// A valid pickle uses each text and each array's bytes once, so the input's length limits them
/// all.
std::span<const std::byte> PickleMachine::keep(std::vector<std::byte> bytes) {
  if (bytes.size() > most_kept_) fail("uses the same text or bytes again and again");
  most_kept_ -= bytes.size();
  return tree_.keep(std::move(bytes));
}

void PickleMachine::build() {
  const ValueId state_id = take(), target = top();
  const Value state = tree_.at(state_id);
  if (!notes_[target].buildable || state.kind != ValueKind::tuple) {
    fail("sets the state of a value that is not a new array or type");
  }
  notes_[target].buildable = false;
  if (notes_[target].role == Role::type) {
    build_type(target, state);
  } else {
    build_array(target, state);
  }
}

/// The state is (version, byte order, no part types, no names, no fields, ...).
void PickleMachine::build_type(ValueId target, const Value& state) {
  if (state.items.size() < 5) fail("has a type whose state is too short");
  const std::string_view order = text_of(tree_.at(state.items[1]));
  for (std::size_t i = 2; i < 5; ++i) {
    if (tree_.at(state.items[i]).kind != ValueKind::none) fail("has a type that consists of parts");
  }
  if (order.size() != 1 || std::string_view("<>|=").find(order[0]) == std::string_view::npos) {
    fail("has a type of no known byte order");
  }
  notes_[target].type.big_endian = order == ">";
}

/// The state is (version, shape, type, whether in Fortran order, bytes or a list of objects).
void PickleMachine::build_array(ValueId target, const Value& state) {
  const Value& shape = argument(state, 1, ValueKind::tuple);
  if (state.items.size() > 4 && tree_.at(state.items[4]).kind == ValueKind::list) {
    const Value& list = argument(state, 4, ValueKind::list);
    std::vector<std::int64_t> lengths;
    for (const ValueId id : shape.items) lengths.push_back(tree_.at(id).integer);
    const bool is_objects = notes_[state.items[2]].type.kind == kNumpyObject;
    if (!is_objects || argument(state, 3, ValueKind::boolean).integer != 0 ||
        numpy_bytes({}, lengths) != list.items.size()) {
      fail(
          "makes an array of objects whose list does not have its shape, or is in Fortran's order");
    }
    if (notes_[target].placed) fail("changes a value that is already part of another");
    place(target, state.items[4]);
    tree_.edit(target).array = {.type = {kNumpyObject, 8}, .shape = std::move(lengths)};
    return;
  }
  const Value& fortran = argument(state, 3, ValueKind::boolean);
  const Value& data = argument(state, 4, ValueKind::bytes);
  NumpyArray array = make_array(type_argument(state, 2), shape, data.bytes, fortran.integer != 0);
  tree_.edit(target).array = std::move(array);
}

}  // namespace penstock::values
