"""Forms of text (JSON schemas, patterns, GBNF) written down as one grammar that the mask engine reads."""
