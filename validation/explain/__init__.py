"""Why a log is slower than its family of machines: single causes, each tried on all of its rows."""
