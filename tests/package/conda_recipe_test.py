#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The conda recipe has the keys that rattler-build expects, and names versions, options, targets and files that exist.

Usage: conda_recipe_test.py SOURCE_DIRECTORY
"""
import pathlib
import re
import sys
import unittest

import yaml

SOURCE = pathlib.Path(sys.argv.pop(1)).resolve()
RECIPE = SOURCE / "cmake" / "conda" / "recipe.yaml"
KEYS = {"context", "package", "source", "build", "requirements", "tests", "about"}
PARTS = {"package": {"name", "version"}, "source": {"path"}, "build": {"number", "skip", "script"}, "requirements": {"build", "host", "run"},
         "about": {"summary", "license", "license_file"}}


class CondaRecipe(unittest.TestCase):
    def setUp(self):
        self.recipe = yaml.safe_load(RECIPE.read_text())
        self.cmake = (SOURCE / "CMakeLists.txt").read_text()

    def test_it_has_the_keys_of_the_format(self):
        self.assertEqual(set(self.recipe), KEYS)
        for part, keys in PARTS.items():
            self.assertEqual(set(self.recipe[part]), keys, part)

    def test_it_builds_this_version_from_this_tree(self):
        self.assertEqual(self.recipe["context"]["version"], re.search(r"project\(penstock VERSION ([0-9.]+)", self.cmake)[1])
        self.assertEqual((RECIPE.parent / self.recipe["source"]["path"]).resolve(), SOURCE)
        self.assertTrue((SOURCE / self.recipe["about"]["license_file"]).is_file())

    def test_its_commands_name_options_and_targets_that_exist(self):
        script = "\n".join(self.recipe["build"]["script"])
        for option in re.findall(r"-D(PENSTOCK_\w+)=", script):
            self.assertIn(f"option({option} ", self.cmake)
        target = re.search(r"--target (\w+)", script)[1]
        self.assertIn(f"add_custom_target({target} ", (SOURCE / "cmake" / "PenstockInstall.cmake").read_text())

    def test_nothing_in_it_or_in_the_lists_of_debian_packages_is_for_one_architecture(self):
        for path in (RECIPE, SOURCE / "Dockerfile", *(SOURCE / "cmake").glob("debian-packages*.txt")):
            self.assertIsNone(re.search(r"x86_64|amd64|aarch64(?!\:)|arm64", re.sub(r"^#.*", "", path.read_text(), flags=re.M)), path)


if __name__ == "__main__":
    unittest.main()
