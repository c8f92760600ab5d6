"""The page that commands write with ``--html``, and its figures."""
