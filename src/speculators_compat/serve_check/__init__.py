"""Proof by serving: vLLM runs the verifier with the draft, and the share of accepted tokens is counted.

Needs vLLM alone: it also runs where speculators is not installed, as ``python -m speculators_compat.serve_check``.
Importing this package loads neither torch nor vLLM.
"""
