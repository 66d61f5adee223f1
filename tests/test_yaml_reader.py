"""What the one reader of YAML refuses and understands."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from swapformer.errors import UsageError
from swapformer.yaml_reader import DoubledKey, StoredLoader, parse_foreign_json, parse_yaml, read_yaml


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("arms:\n  a: [x=1]\n  b: [x=2]\n  a: [x=3]\n", "'a' appears twice, in line 2 and in line 4"),
        ("a: 1\nb: {c: 1,\n    c: 2}\n", "'c' appears twice, in line 2 and in line 3"),
        ("1: x\n2: y\n1: z\n", "1 appears twice, in line 1 and in line 3"),
        ("a: 1\n'a': 2\n", "'a' appears twice, in line 1 and in line 2"),
        ("1: x\ntrue: y\n", "True appears twice, in line 1 and in line 2"),  # one key to Python
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_a_key_that_stands_twice_is_refused_with_both_lines(text: str, lines: str, strict: bool) -> None:
    with pytest.raises(DoubledKey, match=lines):
        parse_yaml(text, StoredLoader) if strict else parse_yaml(text)


def test_a_merge_may_give_what_a_mapping_sets_itself() -> None:
    assert parse_yaml("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n")["b"] == {"x": 3, "y": 2}


@pytest.mark.parametrize(("text", "number"), [("1e-3", 0.001), ("3E+2", 300.0), ("-1.5e3", -1500.0), (".5e1", 5.0)])
def test_a_power_of_ten_without_a_point_is_a_number_that_remembers_its_spelling(text: str, number: float) -> None:
    found = parse_yaml(f"margin: {text}")["margin"]
    assert isinstance(found, float) and found == number and found.text == text  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["1e", "e3", "1e3x", "'1e-3'", "2026-11-22", "0x1e-3"])
def test_what_only_looks_like_a_power_of_ten_stays_a_text(text: str) -> None:
    assert parse_yaml(f"x: {text}")["x"] == text.strip("'")


def test_what_pyyaml_has_written_is_read_as_it_was() -> None:
    values = {"text": "1e-3", "number": 1e-30, "date": "2026-11-22", "list": [1, None, True]}
    assert parse_yaml(yaml.safe_dump(values), StoredLoader) == values


@pytest.mark.parametrize("content", ["a: [1", "a: 1\na: 2\n", "[" * 5000, "a: \x00", "\ta: 1", "a: b: c"])
def test_a_file_that_cannot_be_read_is_refused_in_one_line_that_names_it(content: str, tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        read_yaml(path, "the study file")
    text = str(refused.value)
    assert text.startswith(f"the study file {path} cannot be read: ") and "\n" not in text
    assert len(text.replace(str(path), "")) <= 300


def test_aliases_that_would_fill_the_memory_are_counted_and_not_written_out() -> None:
    """Ten lists of ten lists of ten …: seven lines that stand for ten million words."""
    bomb = "x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n"
    bomb += "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]\n" for i in range(1, 7))
    assert len(parse_yaml(bomb[: bomb.index("x4:")])) == 4  # 12,345 values
    with pytest.raises(yaml.YAMLError, match="more than 1,000,000 values, aliases written out"):
        parse_yaml(bomb)


def test_mappings_that_are_merged_over_and_over_are_counted_before_they_are_merged() -> None:
    """Merged keys are few in the end, but PyYAML writes all of them down on the way."""
    bomb = "x0: &x0 {a: 1, b: 2, c: 3}\n"
    bomb += "".join(f"x{i}: &x{i} {{<<: [{', '.join([f'*x{i - 1}'] * 10)}]}}\n" for i in range(1, 10))
    with pytest.raises(yaml.YAMLError, match="more than 1,000,000 values, aliases written out"):
        parse_yaml(bomb)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 1}}', "the key 'c' appears twice"),
        ('{"a":' * 30_000 + "1" + "}" * 30_000, "nested too deeply"),
        ("{", "Expecting property name"),
    ],
)
def test_json_of_others_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_foreign_json(text)


def test_json_of_others_is_read() -> None:
    assert parse_foreign_json('{"a": [1, {"b": null}], "c": "a"}') == {"a": [1, {"b": None}], "c": "a"}


def test_an_alias_within_what_it_names_is_refused() -> None:
    with pytest.raises(yaml.YAMLError, match=r"the alias \*a stands within what it names"):
        parse_yaml("a: &a [1, *a]")
