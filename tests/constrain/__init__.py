"""Tests of app/constrain: the mask engine, XGrammar in Node, decides which texts its grammars accept."""
