"""The encoders of projectors: from patches of pictures or frames of sound to embeddings for the text model.

tower.py reads the hyperparameters, stages.py collects an encoder's lists, block.py has the transformer block that all
share. Then a module per family. families.py maps the names of projectors to them and makes the plan.
"""
