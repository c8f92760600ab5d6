"""The page that commands write with ``--html``, and what it draws."""
