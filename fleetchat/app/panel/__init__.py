"""The fleet panel as lines of text, worked out from snapshots (pure: no widget, no clock in here)."""
