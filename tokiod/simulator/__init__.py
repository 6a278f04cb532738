"""A site in a box: a real LMT database over synthetic load whose every right answer is known."""
