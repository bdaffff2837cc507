"""The engine: token ids in, token ids out. Read engine.py first.

Here: the spine (engine, loader, planner, runners, errors) and the rooms below it; `models/` has one file per family.
May know: shapes, tensors, bytes, devices through a Runner.
Must not know: text beyond `text/`, OpenAI's requests, the DOM, anything of `app/`.
"""
