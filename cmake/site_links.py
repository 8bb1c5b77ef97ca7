# SPDX-License-Identifier: Apache-2.0
"""A hook of mkdocs.yml. Pages link to files outside of docs/, which a site does not have: with `repo_url` these links lead to the
repository, and without it their text remains. Anchors are those of GitHub, so that a link works in both places.
"""
import os
import re

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((\.\./[^()\s]+)\)")
BLOCK = re.compile(r"(^```.*?^```)", re.S | re.M)


def slug(text, separator):
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def on_config(config):
    """The name in mkdocs.yml is looked up in this module's namespace."""
    config["mdx_configs"].setdefault("toc", {})["slugify"] = slug
    return config


def on_page_markdown(markdown, page, config, files):
    del files
    folder = os.path.dirname(page.file.src_path)

    def outside(found):
        image, text, target = found.groups()
        path = os.path.normpath(os.path.join("docs", folder, target))
        if config.get("repo_url") and not image:
            return f"[{text}]({config['repo_url'].rstrip('/')}/blob/main/{path})"
        return text

    return "".join(part if part.startswith("```") else LINK.sub(outside, part) for part in BLOCK.split(markdown))
