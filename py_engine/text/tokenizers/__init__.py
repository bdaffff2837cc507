"""One file per tokenizer model: text pieces to ids, ids to bytes. tokenizer.py chooses and wraps them."""
