"""One module per tokenizer model: text pieces to ids, ids to bytes. tokenizer.py selects and wraps them."""
