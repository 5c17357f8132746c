"""Digests of code and configuration: the same for the same, another for any change."""

from __future__ import annotations

import pytest

from tasks.fingerprint import PACKAGES, code_digest, digests


@pytest.fixture
def tree(tmp_path):
    """Makes a copy of a small project; keywords change a file's content."""

    def make(name, **changed):
        contents = {"flows": "a", "privacy": "b", "storage": "c", "tasks": "d", **changed}
        for package in PACKAGES:
            (tmp_path / name / package).mkdir(parents=True)
            (tmp_path / name / package / "part.py").write_text(contents[package])
        return tmp_path / name

    return make


def test_a_copy_elsewhere_has_the_same(tree):
    assert code_digest(tree("one")) == code_digest(tree("two"))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_change_in_any_package_changes_it(tree, package):
    assert code_digest(tree("one")) != code_digest(tree("two", **{package: "changed"}))


def test_content_that_moves_to_another_file_changes_it(tree):
    moved = tree("two")
    (moved / "flows/part.py").rename(moved / "flows/other.py")
    assert code_digest(tree("one")) != code_digest(moved)


def test_compiled_files_do_not_count(tree):
    compiled = tree("two")
    (compiled / "flows/__pycache__").mkdir()
    (compiled / "flows/__pycache__/part.pyc").write_bytes(b"x")
    assert code_digest(tree("one")) == code_digest(compiled)


def test_the_configuration_is_that_of_its_values_in_any_order():
    first, second = {"a": {"b": 1, "c": [2.5]}, "d": "x"}, {"d": "x", "a": {"c": [2.5], "b": 1}}
    assert digests(first) == digests(second)
    assert digests(first)["configuration"] != digests({**first, "d": "y"})["configuration"]
