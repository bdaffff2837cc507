"""Forms of text (JSON schemas, regular expressions, GBNF, structural tags) as grammars for the mask engine, XGrammar.

May know: texts, JSON, app.openai's Format and errors. rules.py is the entry point.
Must not know: models, tokens, GPU, tensors, DOM. app/answers compiles the grammars and requests masks.
"""
