"""The rules of words: a public name is defined in one package, and every answer of the API has a type."""

from tests.words import listed_names, repeated_names, untyped_answers


def test_a_public_name_is_defined_in_one_package_or_listed_in_the_glossary():
    assert {name: paths for name, paths in repeated_names().items() if name not in listed_names()} == {}


def test_the_glossary_lists_no_name_that_does_not_repeat():
    assert listed_names() - set(repeated_names()) == set()


def test_every_operation_of_the_api_describes_its_answer():
    assert untyped_answers() == []
