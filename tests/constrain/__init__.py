"""Grammars judged by the mask engine itself, in Node."""
