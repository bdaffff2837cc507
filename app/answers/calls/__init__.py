"""Tool calls as text: one syntax for each kind of model, its grammar, its parser, and calls in a prompt's messages.

Read `syntax` first, with an example; `model_syntaxes` has all. May know: text, grammars, OpenAI's tools and deltas.
Must not know: whole answers and their thoughts, which are `app/answers/dialect.py`'s.
"""
