"""The thin driver: prepare, extract, vocab, train.

Each step calls speculators' own code and patches nothing.
"""
