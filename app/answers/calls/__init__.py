"""Tool calls in the text of answers: one syntax for each kind of model, its grammar, and its parser.

Read `syntax` first, with an example; `model_syntaxes` has all. May know: text, grammars, OpenAI's tools and deltas.
Must not know: whole answers and their thoughts (`app/answers/dialect.py`), chat templates.
"""
