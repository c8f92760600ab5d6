"""``transformers``, where it is installed: it takes tensors of the device for real ones.

It gives models an attention mask where it finds fake tensors, as exported models need one. On a GPU, where no
token is masked, there is none, and attention is another kernel.
"""

from typing import Any

from ringside.real.record.shims.registry import after_import

PACKAGE = "transformers"


def _know_none(checks: Any) -> None:
    checks.is_fake_tensor = lambda _: False


def make() -> None:
    """Change the package when it is imported."""
    after_import("transformers.utils.import_utils", _know_none)
