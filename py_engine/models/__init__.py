"""One file per architecture family, the same names in each: Config.from_gguf, build(plan)."""
