"""What speculators 0.4 imports as ``vllm.utils.hashing``, beside a vLLM that keeps it in ``vllm.utils`` itself.

The drift ``hashing_module`` puts this file's folder on ``vllm.utils``' own search path; nothing else imports it.
"""

from vllm.utils import get_hash_fn_by_name

__all__ = ["get_hash_fn_by_name"]
