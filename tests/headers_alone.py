#!/usr/bin/env python3
"""Checks that each file of the program includes what it uses, and that each header can be included alone and twice.

    headers_alone.py SOURCE_FOLDER BUILD_FOLDER

Two checks, because the build parses the standard library once for all files (precompiled headers):
  1. a header or source includes the standard header of each standard name that it uses (NAMES below), itself or through the
     program's own headers, and fmt's if it uses that; a source does not repeat what the header of its name includes;
  2. a header compiles alone, for syntax. If the source file of the same name includes it first, the build has compiled it so.
"""
import concurrent.futures
import functools
import json
import os
import re
import shlex
import subprocess
import sys

FOLDERS = ("dataflow", "feeders", "trainer", "bench")
NAMES = {
    "any": "any", "array": "array to_array", "atomic": "atomic atomic_flag atomic_bool memory_order",
    "bit": "bit_cast endian popcount countl_zero countr_zero bit_ceil bit_width has_single_bit", "bitset": "bitset",
    "charconv": "from_chars to_chars", "chrono": "chrono", "concepts": "same_as convertible_to integral invocable",
    "condition_variable": "condition_variable condition_variable_any", "deque": "deque",
    "exception": "exception exception_ptr current_exception rethrow_exception make_exception_ptr",
    "filesystem": "filesystem", "fstream": "ifstream ofstream fstream", "functional": "function reference_wrapper",
    "future": "future promise async packaged_task", "initializer_list": "initializer_list", "latch": "latch",
    "limits": "numeric_limits", "list": "list", "map": "map multimap",
    "memory": "unique_ptr shared_ptr weak_ptr make_unique make_shared enable_shared_from_this",
    "mutex": "mutex lock_guard unique_lock scoped_lock once_flag call_once recursive_mutex", "numbers": "numbers",
    "numeric": "accumulate iota reduce gcd lcm midpoint", "optional": "optional nullopt",
    "queue": "queue priority_queue", "random": "mt19937 mt19937_64 uniform_int_distribution", "ranges": "views",
    "semaphore": "counting_semaphore binary_semaphore", "set": "set multiset", "shared_mutex": "shared_mutex shared_lock",
    "source_location": "source_location", "span": "span", "sstream": "ostringstream istringstream stringstream",
    "stdexcept": "runtime_error logic_error invalid_argument out_of_range", "stop_token": "stop_token stop_source stop_callback",
    "string": "string to_string stoi stod getline", "string_view": "string_view", "system_error": "error_code system_error errc",
    "thread": "thread jthread this_thread", "tuple": "tuple tie make_tuple apply",
    "type_traits": "is_same_v enable_if_t remove_cvref_t is_trivially_copyable_v is_integral_v conditional_t decay_t",
    "typeindex": "type_index", "unordered_map": "unordered_map", "unordered_set": "unordered_set",
    "variant": "variant visit monostate holds_alternative",
    "vector": "vector",
}
HEADER_OF = {name: header for header, names in NAMES.items() for name in names.split()}
# Headers that, by the standard, also declare names of another header, or that are declared where the type is.
ALSO = {"thread": {"stop_token"}, "string": {"string_view", "initializer_list"}, "vector": {"initializer_list"},
        "filesystem": {"string", "system_error"}, "charconv": {"system_error"}, "fstream": {"string"}, "sstream": {"string"},
        "map": {"utility", "initializer_list"}, "unordered_map": {"utility"}, "tuple": {"utility"},
        "system_error": {"string", "stdexcept"}, "stdexcept": {"string", "exception"}}


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


@functools.cache
def standard_headers(path):
    """The standard headers that a file includes, also through the program's own headers."""
    text = without_comments(open(path).read())
    included = set(re.findall(r"^#\s*include <([\w/]+?)(?:\.h)?>", text, flags=re.M))
    for header in list(included):
        included |= ALSO.get(header, set())
    for header in re.findall(r'^#\s*include "([^"]+)"', text, flags=re.M):
        if os.path.exists(header):
            included |= standard_headers(header)
    return included


def missing_includes(path):
    """Standard names that the header uses but that no included header declares."""
    text = without_comments(open(path).read())
    included = standard_headers(path)
    used = {HEADER_OF[name]: name for name in re.findall(r"\bstd::(\w+)", text) if name in HEADER_OF}
    if "fmt::" in text and not included & {"fmt/format", "fmt/core", "fmt/ostream"}:
        return [f"{path}: uses fmt without #include <fmt/format.h>"]
    return [f"{path}: uses std::{name} without #include <{header}>" for header, name in sorted(used.items())
            if header not in included]


def repeated_includes(path):
    """What a source includes although the header of its name, which it includes first, does so."""
    header = path[:-4] + ".h"
    if not path.endswith(".cpp") or not has_first_user(header):
        return []
    of_source, of_header = (re.findall(r"^#\s*include (\S+)", open(name).read(), flags=re.M) for name in (path, header))
    return [f"{path}: {name} is already included by {header}" for name in of_source if name in of_header]


def has_first_user(path):
    source = path[:-2] + ".cpp"
    if not os.path.exists(source) or not os.path.exists(path):
        return False
    first = re.search(r'^#\s*include\s+["<]([^">]+)', open(source).read(), flags=re.M)
    return first is not None and first.group(1) == path


def commands_by_folder(build):
    """For each folder the compile command of one of its files."""
    commands = {}
    for entry in json.load(open(os.path.join(build, "compile_commands.json"))):
        name = os.path.relpath(entry["file"], os.getcwd())
        if name.startswith(FOLDERS) and name.endswith(".cpp"):
            commands.setdefault(os.path.dirname(name), entry)
    return commands


def compile_alone(path, entry):
    words = shlex.split(entry["command"])
    words = [word for word in words if word not in ("-c", entry["file"])]
    output = words.index("-o")
    del words[output:output + 2]
    result = subprocess.run([*words, "-fsyntax-only", "-x", "c++", "-"], cwd=entry["directory"], text=True,
                            input=f'#include "{path}"\n' * 2, stderr=subprocess.PIPE)
    return [] if result.returncode == 0 else [result.stderr]


def main():
    source, build = (os.path.abspath(word) for word in sys.argv[1:])
    os.chdir(source)
    commands = commands_by_folder(build)
    files = sorted(os.path.join(folder, name) for top in FOLDERS for folder, _, names in os.walk(top)
                   for name in names if name.endswith((".h", ".cpp")))
    headers = [path for path in files if path.endswith(".h")]
    problems = [problem for path in files for problem in [*missing_includes(path), *repeated_includes(path)]]
    alone, skipped = [], 0
    for path in headers:
        folder = os.path.dirname(path)
        while folder and folder not in commands:
            folder = os.path.dirname(folder)
        if has_first_user(path):
            continue
        # If the vendor's headers are missing, the folder is not built and has no command.
        if not folder or (os.path.dirname(path) not in commands and re.search(r"/(cuda|cpu)$", os.path.dirname(path))):
            skipped += 1
            continue
        alone.append((path, commands[folder]))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
        for found in workers.map(lambda job: compile_alone(*job), alone):
            problems += found
    print(f"{len(headers)} headers, {len(alone)} of them compiled alone, {skipped} skipped: their vendor's headers are missing")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
